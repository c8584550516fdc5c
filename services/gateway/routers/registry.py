"""Touchpoints, versions and the ledger: the registry decides, and answers with what became of it."""

from __future__ import annotations

import asyncio
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from fastapi import Query as Param
from pydantic import BaseModel, Field

from libs.contracts.prompts import PromptPart
from libs.contracts.queries.normaliser import CountSignals, TouchpointCounts
from libs.contracts.queries.pattern_detector import DetectorStatus, GetDetectorStatus
from libs.contracts.queries.registry import (
    ActivateVersion,
    ActivationView,
    ApplyTouchpoints,
    ConfirmIntents,
    GetLedgerHead,
    GetPrompt,
    GetStanding,
    IntentView,
    KeptHead,
    LedgerPage,
    ListIntents,
    ListLedger,
    ListTouchpoints,
    ListVersions,
    Plan,
    PlanTouchpoints,
    RecordVersion,
    RollBack,
    RollbackView,
    TouchpointView,
    VerificationView,
    VerifyLedger,
    VersionList,
    VersionView,
)
from libs.contracts.touchpoints import Touchpoint
from libs.contracts.versions import LedgerHead, LivePrompt
from libs.contracts.vocabulary import LedgerSeq, Sha256, TouchpointId, VersionRef
from libs.service_kit.errors import Refused
from services.gateway.api.access import (
    CurrentCaller,
    require_all_workspaces,
    require_change,
    require_workspace,
    workspaces_of,
)
from services.gateway.api.asking import Gateway, GatewayDep, OnceDep
from services.gateway.api.body import JsonRoute, Note, Reason, RequestBody
from services.gateway.domain import Target

router = APIRouter(route_class=JsonRoute)
Limit = Annotated[int, Param(ge=1, le=500)]
GIT_TIMEOUT_S = 60.0
"""For what may open repositories."""
VERIFY_TIMEOUT_S = 30.0


class TouchpointsBody(RequestBody):
    """Touchpoints as they are to be. Those that are registered and not named here stay as they are."""

    touchpoints: list[Touchpoint] = Field(min_length=1, max_length=500)


class TouchpointList(BaseModel):
    """Every touchpoint, by id."""

    touchpoints: list[TouchpointView]


class StatusView(BaseModel):
    """How a touchpoint stands: its signals, the detector's view of them, what is live."""

    touchpoint_id: str
    revision: int
    signals: TouchpointCounts
    detector: DetectorStatus
    live: ActivationView | None


class RecordBody(RequestBody):
    """A new text, whole."""

    parts: list[PromptPart] = Field(min_length=1, max_length=100)
    note: Note = ""
    workspace_id: UUID | None = None


class ActivateBody(RequestBody):
    """`expected_live` is the version the caller saw live; null when there was none."""

    version_ref: VersionRef
    expected_live: VersionRef | None
    reason: Reason
    workspace_id: UUID | None = None


class RollbackBody(RequestBody):
    """Without `to_version`, back to the previous one."""

    reason: Reason
    to_version: VersionRef | None = None
    workspace_id: UUID | None = None


class IntentList(BaseModel):
    """Intents, newest first."""

    intents: list[IntentView]


# --- touchpoints ------------------------------------------------------------------------------------------


@router.post("/touchpoints/plan", tags=["touchpoints"])
async def plan(body: TouchpointsBody, gateway: GatewayDep) -> Plan:
    """What `PUT /touchpoints` with the same body would do. Changes nothing."""
    return await gateway.ask(PlanTouchpoints(touchpoints=tuple(body.touchpoints)), timeout_s=GIT_TIMEOUT_S)


@router.put("/touchpoints", tags=["touchpoints"])
async def apply(body: TouchpointsBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep) -> Plan:
    """Register all of them or none. The text that a touchpoint's storage holds becomes its first live version."""
    require_all_workspaces(caller)
    query = ApplyTouchpoints(touchpoints=tuple(body.touchpoints), by=caller.subject)
    planned = await gateway.ask_once(once, query, timeout_s=GIT_TIMEOUT_S)
    for each in planned.touchpoints:
        gateway.live.prompts.changed(Target(each.touchpoint_id))
    return planned


@router.get("/touchpoints", tags=["touchpoints"])
async def list_touchpoints(gateway: GatewayDep) -> TouchpointList:
    """Every touchpoint."""
    found: list[TouchpointView] = []
    after: TouchpointId | None = None
    while True:
        page = await gateway.ask(ListTouchpoints(after=after))
        found += page.touchpoints
        after = page.next
        if after is None:
            return TouchpointList(touchpoints=found)


@router.get("/touchpoints/{touchpoint_id}", tags=["touchpoints"])
async def get_touchpoint(touchpoint_id: TouchpointId, gateway: GatewayDep) -> TouchpointView:
    """One touchpoint."""
    return await gateway.touchpoint(touchpoint_id)


@router.get("/touchpoints/{touchpoint_id}/status", tags=["touchpoints"])
async def status(
    touchpoint_id: TouchpointId, caller: CurrentCaller, gateway: GatewayDep, workspace_id: UUID | None = None
) -> StatusView:
    """Signals, detector and live version of one touchpoint; of a workspace where one is given.

    Without one, signals and detector are those of the workspaces in the token and of what all workspaces share.
    """
    require_workspace(caller, workspace_id)
    workspaces = workspaces_of(caller) if workspace_id is None else (workspace_id,)
    standing = await gateway.ask(GetStanding(touchpoint_id=touchpoint_id, workspace_id=workspace_id))
    counts, detector = await asyncio.gather(
        gateway.ask(CountSignals(touchpoint_id=touchpoint_id, workspace_ids=workspaces)),
        gateway.ask(GetDetectorStatus(touchpoint_id=touchpoint_id, workspace_ids=workspaces)),
    )
    none = TouchpointCounts(touchpoint_id=touchpoint_id, stored=0, unprocessed=0, rejected=0)
    return StatusView(
        touchpoint_id=touchpoint_id,
        revision=standing.revision,
        signals=next(iter(counts.counts), none),
        detector=detector,
        live=standing.live,
    )


# --- versions ---------------------------------------------------------------------------------------------


@router.get("/touchpoints/{touchpoint_id}/versions", tags=["versions"])
async def list_versions(
    touchpoint_id: TouchpointId,
    caller: CurrentCaller,
    gateway: GatewayDep,
    workspace_id: UUID | None = None,
    limit: Limit = 50,
) -> VersionList:
    """What was live when, and every text that was recorded."""
    require_workspace(caller, workspace_id)
    return await gateway.ask(ListVersions(touchpoint_id=touchpoint_id, workspace_id=workspace_id, limit=limit))


@router.get("/touchpoints/{touchpoint_id}/versions/{version_ref}", tags=["versions"])
async def get_version(
    touchpoint_id: TouchpointId,
    version_ref: VersionRef,
    caller: CurrentCaller,
    gateway: GatewayDep,
    workspace_id: UUID | None = None,
) -> LivePrompt:
    """The text of one version, live or not."""
    require_workspace(caller, workspace_id)
    query = GetPrompt(touchpoint_id=touchpoint_id, workspace_id=workspace_id, version_ref=version_ref)
    return (await gateway.ask(query)).prompt


@router.post("/touchpoints/{touchpoint_id}/versions", status_code=201, tags=["versions"])
async def record(
    touchpoint_id: TouchpointId, body: RecordBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep
) -> VersionView:
    """Record a text as a version that can be activated, where a change takes effect at once."""
    require_change(caller, body.workspace_id)
    query = RecordVersion(
        touchpoint_id=touchpoint_id,
        workspace_id=body.workspace_id,
        parts=tuple(body.parts),
        note=body.note,
        by=caller.subject,
    )
    return (await gateway.ask_once(once, query)).version


@router.post("/touchpoints/{touchpoint_id}/activate", tags=["versions"])
async def activate(
    touchpoint_id: TouchpointId, body: ActivateBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep
) -> ActivationView:
    """Make a recorded version live at once. 409 with the state that holds now when that is not the expected one."""
    require_change(caller, body.workspace_id)
    query = ActivateVersion(
        touchpoint_id=touchpoint_id,
        workspace_id=body.workspace_id,
        version_ref=body.version_ref,
        expected_live=body.expected_live,
        reason=body.reason,
        by=caller.subject,
    )
    reply = await gateway.ask_once(once, query)
    gateway.live.prompts.changed(Target(touchpoint_id, body.workspace_id))
    return reply.activation


@router.post("/touchpoints/{touchpoint_id}/rollback", tags=["versions"])
async def roll_back(
    touchpoint_id: TouchpointId, body: RollbackBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep
) -> RollbackView:
    """Tier 1: the earlier version is live when this returns. Tier 2: how a person gets it back."""
    require_change(caller, body.workspace_id)
    query = RollBack(
        touchpoint_id=touchpoint_id,
        workspace_id=body.workspace_id,
        to_version=body.to_version,
        reason=body.reason,
        by=caller.subject,
    )
    rolled_back = await gateway.ask_once(once, query, timeout_s=GIT_TIMEOUT_S)
    gateway.live.prompts.changed(Target(touchpoint_id, body.workspace_id))
    return rolled_back


# --- intents ----------------------------------------------------------------------------------------------


@router.get("/touchpoints/{touchpoint_id}/intents", tags=["versions"])
async def list_intents(
    touchpoint_id: TouchpointId,
    caller: CurrentCaller,
    gateway: GatewayDep,
    workspace_id: UUID | None = None,
    limit: Limit = 50,
) -> IntentList:
    """Changes and rollbacks that a person merges, newest first."""
    require_workspace(caller, workspace_id)
    return await _intents(gateway, Target(touchpoint_id, workspace_id), limit)


@router.post("/touchpoints/{touchpoint_id}/confirm", tags=["versions"])
async def confirm(
    touchpoint_id: TouchpointId, caller: CurrentCaller, gateway: GatewayDep, workspace_id: UUID | None = None
) -> IntentList:
    """Look at the repository now: what is merged becomes live, what failed is tried again."""
    require_change(caller, workspace_id)
    target = Target(touchpoint_id, workspace_id)
    query = ConfirmIntents(touchpoint_id=touchpoint_id, workspace_id=workspace_id)
    await gateway.ask(query, timeout_s=GIT_TIMEOUT_S)
    gateway.live.prompts.changed(target)
    return await _intents(gateway, target, 50)


async def _intents(gateway: Gateway, target: Target, limit: int) -> IntentList:
    found: list[IntentView] = []
    while True:
        page = await gateway.ask(
            ListIntents(
                touchpoint_id=target.touchpoint_id, workspace_id=target.workspace_id, skip=len(found), limit=limit
            )
        )
        found += page.intents
        if not page.left or not page.intents:
            return IntentList(intents=found)


# --- the ledger -------------------------------------------------------------------------------------------


@router.get("/ledger", tags=["ledger"])
async def list_entries(
    caller: CurrentCaller,
    gateway: GatewayDep,
    touchpoint_id: TouchpointId | None = None,
    before: LedgerSeq | None = None,
    limit: Annotated[int, Param(ge=1, le=500)] = 100,
) -> LedgerPage:
    """What happened, by whom and why."""
    query = ListLedger(touchpoint_id=touchpoint_id, workspace_ids=workspaces_of(caller), before=before, limit=limit)
    return await gateway.ask(query)


@router.get("/ledger/verify", tags=["ledger"])
async def verify(
    gateway: GatewayDep,
    cursor: Annotated[str | None, Param(max_length=300)] = None,
    head_seq: Annotated[int | None, Param(ge=0, le=2**63 - 1)] = None,
    head_sha256: Sha256 | None = None,
) -> VerificationView:
    """Recompute the chain and compare the tables with it; the chain has to go through the head that is named.

    It stops after some seconds. With a `next`, everything so far is intact: ask again with it as the `cursor`.
    """
    if (head_seq is None) != (head_sha256 is None):
        raise Refused("invalid", "head_seq and head_sha256: both or neither", status=422)
    kept = None if head_seq is None or head_sha256 is None else KeptHead(seq=head_seq, entry_sha256=head_sha256)
    return await gateway.ask(VerifyLedger(cursor=cursor, kept=kept), timeout_s=VERIFY_TIMEOUT_S)


@router.get("/ledger/head", tags=["ledger"])
async def head(gateway: GatewayDep) -> LedgerHead:
    """Where the ledger ends, signed with the registry's key; without one, `signature` is null. Keep it elsewhere."""
    return (await gateway.ask(GetLedgerHead())).head
