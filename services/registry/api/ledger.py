"""The ledger, read and verified."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as Param
from pydantic import BaseModel

from libs.contracts.versions import LedgerEntry
from libs.contracts.vocabulary import TouchpointId
from services.registry.api.access import CurrentCaller, workspaces_of
from services.registry.api.gateway import GatewayDep
from services.registry.store import entries
from services.registry.verification import verify_ledger

router = APIRouter(prefix="/ledger", tags=["ledger"])


class LedgerPage(BaseModel):
    """Entries, newest first; `next` is the `before` of the following page."""

    entries: list[LedgerEntry]
    next: int | None


class VerificationView(BaseModel):
    """Whether every entry is as it was written and none is missing."""

    intact: bool
    entries: int
    head_sha256: str
    broken_at: int | None
    problem: str


@router.get("")
async def list_entries(
    caller: CurrentCaller,
    gateway: GatewayDep,
    touchpoint_id: TouchpointId | None = None,
    before: Annotated[int | None, Param(ge=1)] = None,
    limit: Annotated[int, Param(ge=1, le=500)] = 100,
) -> LedgerPage:
    """What happened, by whom and why."""
    workspaces = workspaces_of(caller)
    async with gateway.db.connection() as conn:
        found = await entries.listed(
            conn,
            touchpoint_id=touchpoint_id,
            workspaces=None if workspaces is None else list(workspaces),
            before=before,
            limit=limit,
        )
    return LedgerPage(entries=found, next=found[-1].seq if len(found) == limit else None)


@router.get("/verify")
async def verify(gateway: GatewayDep) -> VerificationView:
    """Recompute the whole chain."""
    outcome = await verify_ledger(gateway.db)
    return VerificationView(
        intact=outcome.intact,
        entries=outcome.entries,
        head_sha256=outcome.head_sha256,
        broken_at=outcome.broken_at,
        problem=outcome.problem,
    )
