"""Patterns, read from the detector, and detector runs asked for."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from fastapi import Query as Param

from libs.auth.claims import Caller
from libs.contracts.events.pattern_detector import DetectRequestedV1
from libs.contracts.patterns import PatternDetail
from libs.contracts.queries.pattern_detector import GetPattern, ListPatterns, Patterns
from libs.contracts.vocabulary import Instant, TouchpointId
from libs.service_kit.errors import Refused
from services.gateway.api.access import CurrentCaller, workspaces_of
from services.gateway.api.asking import Gateway, GatewayDep, OnceDep, Requested
from services.gateway.api.body import JsonRoute

router = APIRouter(route_class=JsonRoute)
Limit = Annotated[int, Param(ge=1, le=500)]


@router.get("/touchpoints/{touchpoint_id}/patterns", tags=["patterns"])
async def patterns_of_touchpoint(
    touchpoint_id: TouchpointId,
    caller: CurrentCaller,
    gateway: GatewayDep,
    limit: Limit = 20,
    include_resolved: bool = False,
) -> Patterns:
    """The touchpoint's patterns, highest score first."""
    await gateway.touchpoint(touchpoint_id)
    return await gateway.ask(
        ListPatterns(
            touchpoint_id=touchpoint_id,
            workspace_ids=workspaces_of(caller),
            limit=limit,
            include_resolved=include_resolved,
        )
    )


@router.get("/patterns", tags=["patterns"])
async def patterns(
    caller: CurrentCaller,
    gateway: GatewayDep,
    since: Instant | None = None,
    limit: Limit = 20,
    include_resolved: bool = False,
) -> Patterns:
    """What is wrong across all touchpoints; with `since`, only what was seen after that."""
    return await gateway.ask(
        ListPatterns(workspace_ids=workspaces_of(caller), since=since, limit=limit, include_resolved=include_resolved)
    )


@router.get("/patterns/{pattern_id}", tags=["patterns"])
async def pattern(pattern_id: UUID, caller: CurrentCaller, gateway: GatewayDep) -> PatternDetail:
    """One pattern with its evidence."""
    return await visible_pattern(gateway, caller, pattern_id)


@router.post("/touchpoints/{touchpoint_id}/detect", status_code=202, tags=["touchpoints"])
async def detect(touchpoint_id: TouchpointId, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep) -> Requested:
    """Ask for a detector run now."""
    await gateway.touchpoint(touchpoint_id)
    request = DetectRequestedV1(request_id=once.request_id, touchpoint_id=touchpoint_id, requested_by=caller.subject)
    return await gateway.emit_once(once, Requested(request_id=once.request_id), request)


async def visible_pattern(gateway: Gateway, caller: Caller, pattern_id: UUID) -> PatternDetail:
    """The pattern, if it is there and the token reaches its workspace; 404 either way, so that neither shows."""
    missing = Refused("not_found", f"there is no pattern {pattern_id}", status=404)
    try:
        found = (await gateway.ask(GetPattern(pattern_id=pattern_id))).pattern
    except Refused as no:
        raise missing if no.status == 404 else no from no
    if found.workspace_id is not None and not caller.has_workspace(found.workspace_id):
        raise missing
    return found
