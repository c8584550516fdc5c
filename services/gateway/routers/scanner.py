"""Scans: asked for, and what became of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as Param

from libs.contracts.events.scanner import ScanRequestedV1
from libs.contracts.queries.scanner import ListScanRuns, ScanRuns
from libs.contracts.vocabulary import Name, TouchpointId
from libs.service_kit.errors import Refused
from services.gateway.api.access import CurrentCaller, workspaces_of
from services.gateway.api.asking import GatewayDep, OnceDep, Requested
from services.gateway.api.body import JsonRoute, RequestBody

router = APIRouter(route_class=JsonRoute, tags=["touchpoints"])


class ScanBody(RequestBody):
    """Which scanner; without a name, all of the touchpoint's."""

    scanner: Name | None = None


@router.post("/touchpoints/{touchpoint_id}/scan", status_code=202)
async def scan(
    touchpoint_id: TouchpointId,
    caller: CurrentCaller,
    gateway: GatewayDep,
    once: OnceDep,
    body: ScanBody | None = None,
) -> Requested:
    """Ask for a scan now."""
    registered = await gateway.touchpoint(touchpoint_id)
    scanner = body.scanner if body else None
    known = sorted({source.scanner for source in registered.touchpoint.signals})
    if scanner is not None and scanner not in known:
        raise Refused("unknown_scanner", f"{touchpoint_id} has the scanners: {', '.join(known) or 'none'}", status=422)
    request = ScanRequestedV1(
        request_id=once.request_id, touchpoint_id=touchpoint_id, scanner=scanner, requested_by=caller.subject
    )
    return await gateway.emit_once(once, Requested(request_id=once.request_id), request)


@router.get("/scans")
async def scans(
    caller: CurrentCaller,
    gateway: GatewayDep,
    touchpoint_id: TouchpointId | None = None,
    limit: Annotated[int, Param(ge=1, le=500)] = 50,
) -> ScanRuns:
    """Scanner runs, newest first; those over several workspaces need a token for all of them."""
    shared_only = workspaces_of(caller) is not None
    return await gateway.ask(ListScanRuns(touchpoint_id=touchpoint_id, shared_only=shared_only, limit=limit))
