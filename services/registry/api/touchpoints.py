"""Touchpoints: plan, apply, look, and ask for a scan or a detector run."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any
from uuid import UUID, uuid4

from fastapi import APIRouter
from fastapi import Query as Param
from pydantic import AwareDatetime, BaseModel, Field

from libs.contracts.events.pattern_detector import DetectRequestedV1
from libs.contracts.events.scanner import ScanRequestedV1
from libs.contracts.queries.normaliser import CountSignals, TouchpointCounts
from libs.contracts.queries.pattern_detector import DetectorStatus, GetDetectorStatus
from libs.contracts.queries.scanner import ListScanRuns, ScanRuns
from libs.contracts.touchpoints import Touchpoint
from libs.contracts.vocabulary import Name, TouchpointId
from libs.service_kit.errors import Refused
from services.registry.api.access import CurrentCaller, require_workspace
from services.registry.api.body import RequestBody
from services.registry.api.gateway import GatewayDep
from services.registry.api.models import ActivationView
from services.registry.domain import Target
from services.registry.registration import Planned
from services.registry.store import touchpoints, versions
from services.registry.store.touchpoints import Registered

router = APIRouter(tags=["touchpoints"])


class TouchpointsBody(RequestBody):
    """Touchpoints as they are to be. Those that are registered and not named here stay as they are."""

    touchpoints: list[Touchpoint] = Field(min_length=1, max_length=500)


class ChangeView(BaseModel):
    """One configuration field before and after."""

    field: str
    before: Any = None
    after: Any = None


class PlannedView(BaseModel):
    """What is, or was, done to one touchpoint; `live` is the version that becomes live by it."""

    touchpoint_id: str
    action: str
    revision: int
    changes: list[ChangeView]
    live: str | None
    content_sha256: str | None


class Plan(BaseModel):
    """What an apply does, one entry a touchpoint."""

    touchpoints: list[PlannedView]


class TouchpointView(BaseModel):
    """A registered touchpoint with its whole configuration."""

    touchpoint: Touchpoint
    revision: int
    registered_by: str
    registered_at: AwareDatetime
    updated_at: AwareDatetime


class TouchpointList(BaseModel):
    """Every touchpoint, by id."""

    touchpoints: list[TouchpointView]


class Requested(BaseModel):
    """The request is accepted; what comes of it names this id."""

    request_id: UUID


class ScanBody(RequestBody):
    """Which scanner; without a name, all of the touchpoint's."""

    scanner: Name | None = None


class StatusView(BaseModel):
    """How a touchpoint stands: its signals, the detector's view of them, what is live."""

    touchpoint_id: str
    revision: int
    signals: TouchpointCounts
    detector: DetectorStatus
    live: ActivationView | None


@router.post("/touchpoints/plan")
async def plan(body: TouchpointsBody, gateway: GatewayDep) -> Plan:
    """What `PUT /touchpoints` with the same body would do. Changes nothing."""
    return _plan(await gateway.registration.plan(body.touchpoints))


@router.put("/touchpoints")
async def apply(body: TouchpointsBody, caller: CurrentCaller, gateway: GatewayDep) -> Plan:
    """Register all of them or none. The text that a touchpoint's storage holds becomes its first live version."""
    return _plan(await gateway.registration.apply(body.touchpoints, caller.subject))


@router.get("/touchpoints")
async def list_touchpoints(gateway: GatewayDep) -> TouchpointList:
    """Every touchpoint."""
    async with gateway.db.connection() as conn:
        registered = await touchpoints.all_of_them(conn)
    return TouchpointList(touchpoints=[_view(each) for each in registered])


@router.get("/touchpoints/{touchpoint_id}")
async def get_touchpoint(touchpoint_id: TouchpointId, gateway: GatewayDep) -> TouchpointView:
    """One touchpoint."""
    return _view(await gateway.touchpoint(touchpoint_id))


@router.get("/touchpoints/{touchpoint_id}/status")
async def status(
    touchpoint_id: TouchpointId, caller: CurrentCaller, gateway: GatewayDep, workspace_id: UUID | None = None
) -> StatusView:
    """Signals, detector and live version of one touchpoint; of a workspace where one is given."""
    require_workspace(caller, workspace_id)
    registered = await gateway.touchpoint(touchpoint_id)
    counts, detector = await asyncio.gather(
        gateway.ask(CountSignals(touchpoint_id=touchpoint_id)),
        gateway.ask(GetDetectorStatus(touchpoint_id=touchpoint_id)),
    )
    async with gateway.db.connection() as conn:
        live = await versions.live(conn, Target(touchpoint_id, workspace_id))
    none = TouchpointCounts(touchpoint_id=touchpoint_id, stored=0, unprocessed=0, rejected=0)
    return StatusView(
        touchpoint_id=touchpoint_id,
        revision=registered.revision,
        signals=next(iter(counts.counts), none),
        detector=detector,
        live=None if live is None else ActivationView.of(live),
    )


@router.post("/touchpoints/{touchpoint_id}/scan", status_code=202)
async def scan(
    touchpoint_id: TouchpointId, caller: CurrentCaller, gateway: GatewayDep, body: ScanBody | None = None
) -> Requested:
    """Ask for a scan now."""
    registered = await gateway.touchpoint(touchpoint_id)
    scanner = body.scanner if body else None
    known = sorted({source.scanner for source in registered.touchpoint.signals})
    if scanner is not None and scanner not in known:
        raise Refused("unknown_scanner", f"{touchpoint_id} has the scanners: {', '.join(known) or 'none'}", status=422)
    request_id = uuid4()
    await gateway.emit(
        ScanRequestedV1(
            request_id=request_id, touchpoint_id=touchpoint_id, scanner=scanner, requested_by=caller.subject
        )
    )
    return Requested(request_id=request_id)


@router.post("/touchpoints/{touchpoint_id}/detect", status_code=202)
async def detect(touchpoint_id: TouchpointId, caller: CurrentCaller, gateway: GatewayDep) -> Requested:
    """Ask for a detector run now."""
    await gateway.touchpoint(touchpoint_id)
    request_id = uuid4()
    await gateway.emit(
        DetectRequestedV1(request_id=request_id, touchpoint_id=touchpoint_id, requested_by=caller.subject)
    )
    return Requested(request_id=request_id)


@router.get("/scans")
async def scans(
    gateway: GatewayDep,
    touchpoint_id: TouchpointId | None = None,
    limit: Annotated[int, Param(ge=1, le=500)] = 50,
) -> ScanRuns:
    """Scanner runs, newest first."""
    return await gateway.ask(ListScanRuns(touchpoint_id=touchpoint_id, limit=limit))


def _plan(planned: list[Planned]) -> Plan:
    return Plan(
        touchpoints=[
            PlannedView(
                touchpoint_id=each.touchpoint_id,
                action=each.action,
                revision=each.revision,
                changes=[ChangeView(field=c.field, before=c.before, after=c.after) for c in each.changes],
                live=each.live,
                content_sha256=each.content_sha256,
            )
            for each in planned
        ]
    )


def _view(registered: Registered) -> TouchpointView:
    return TouchpointView(
        touchpoint=registered.touchpoint,
        revision=registered.revision,
        registered_by=registered.registered_by,
        registered_at=registered.registered_at,
        updated_at=registered.updated_at,
    )
