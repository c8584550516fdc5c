"""What calls of models cost, asked of every service that makes some."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as Param
from pydantic import BaseModel

from libs.contracts.queries.ab_runner import GetRunSpending
from libs.contracts.queries.agents import GetRefineSpending
from libs.contracts.queries.proposal import GetProposalSpending
from libs.contracts.queries.spending import SpendingQuery
from libs.contracts.spending import BudgetStanding, CallSpending, DaySpending
from libs.contracts.vocabulary import TouchpointId
from services.gateway.api.access import CurrentCaller, require_all_workspaces
from services.gateway.api.asking import GatewayDep
from services.gateway.api.body import JsonRoute

router = APIRouter(route_class=JsonRoute, tags=["operations"])
CALLERS: tuple[type[SpendingQuery], ...] = (GetProposalSpending, GetRunSpending, GetRefineSpending)


class AllSpending(BaseModel):
    """Today's budgets of every caller; days, newest first; calls, newest first."""

    budgets: list[BudgetStanding]
    days: list[DaySpending]
    calls: list[CallSpending]


@router.get("/spending")
async def spending(
    caller: CurrentCaller,
    gateway: GatewayDep,
    touchpoint_id: TouchpointId | None = None,
    days: Annotated[int, Param(ge=1, le=92)] = 7,
    calls: Annotated[int, Param(ge=0, le=500)] = 0,
) -> AllSpending:
    """Tokens and USD by UTC day, touchpoint and model, and of the last calls that could cost money. Budgets are shared
    by all workspaces, so it needs a token for all of them."""
    require_all_workspaces(caller)
    queries = [query(touchpoint_id=touchpoint_id, days=days, calls=calls) for query in CALLERS]
    told = [await gateway.ask(query) for query in queries]
    by_day = sorted((day for one in told for day in one.days), key=lambda day: (day.day, day.usd), reverse=True)
    latest = sorted((call for one in told for call in one.calls), key=lambda call: call.started_at, reverse=True)
    return AllSpending(budgets=[one.budget for one in told], days=by_day, calls=latest[:calls])
