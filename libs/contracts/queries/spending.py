"""What every service that asks models answers about what they cost. Each has its own subject."""

from __future__ import annotations

from pydantic import Field

from libs.contracts.queries.base import Query, Reply
from libs.contracts.spending import BudgetStanding, CallSpending, DaySpending
from libs.contracts.vocabulary import TouchpointId

MAX_DAY_ROWS = 4_000
"""Rows of days in one answer, which is then well below what the bus carries."""


class Spending(Reply):
    """Days, newest first and the dearest first within one; calls, newest first."""

    budget: BudgetStanding
    days: tuple[DaySpending, ...] = ()
    calls: tuple[CallSpending, ...] = ()


class SpendingQuery(Query[Spending]):
    """The last days, today included, and as many of the last calls that could cost money as are asked for."""

    touchpoint_id: TouchpointId | None = None
    days: int = Field(default=7, ge=1, le=92)
    calls: int = Field(default=0, ge=0, le=500)
