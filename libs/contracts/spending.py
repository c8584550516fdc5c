"""What calls of models cost: by day, touchpoint and model, and call by call."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from uuid import UUID

from pydantic import Field

from libs.contracts.envelope import Frozen
from libs.contracts.vocabulary import Instant, Name, ShortText, TouchpointId


class DaySpending(Frozen):
    """What one caller's calls of one model for one touchpoint used in one UTC day.

    `usd` is what settled calls cost. `open_usd` is the most that calls without an end can cost: those in flight, and
    those whose end was never learnt. The budget counts both.
    """

    day: date
    caller: Name
    touchpoint_id: TouchpointId
    provider: Name
    model: Name
    calls: int = Field(ge=0)
    input_tokens: int = Field(ge=0)
    output_tokens: int = Field(ge=0)
    usd: Decimal = Field(ge=0)
    open_calls: int = Field(default=0, ge=0)
    open_usd: Decimal = Field(default=Decimal(0), ge=0)


class CallSpending(Frozen):
    """One call that could cost money. Without `finished_at` it is in flight, or its end was never learnt."""

    call_id: UUID
    caller: Name
    touchpoint_id: TouchpointId
    provider: Name
    model: Name
    work_id: UUID = Field(description="the proposal or the run that it was made for")
    started_at: Instant
    finished_at: Instant | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    usd: Decimal | None = None
    most_usd: Decimal | None = None
    error: ShortText | None = None


class BudgetStanding(Frozen):
    """One caller's limits of today, in USD, and what is used of them, calls without an end at their most."""

    caller: Name
    per_day: Decimal = Field(ge=0)
    per_touchpoint_day: Decimal = Field(ge=0)
    used: Decimal = Field(ge=0)
    left: Decimal = Field(ge=0)
