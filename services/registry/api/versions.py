"""Versions: what is live and was, recording, activating and rolling back, and what waits to be merged."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Header, Response
from fastapi import Query as Param
from pydantic import AwareDatetime, BaseModel, Field

from libs.contracts.prompts import PromptPart
from libs.contracts.versions import LivePrompt
from libs.contracts.vocabulary import TouchpointId, VersionRef
from libs.service_kit.errors import Refused
from services.registry import prompts
from services.registry.adapters.base import text_bytes
from services.registry.adapters.feed_prompts import FeedPromptsAdapter
from services.registry.api.access import CurrentCaller, require_workspace
from services.registry.api.body import Note, Reason, RequestBody
from services.registry.api.gateway import GatewayDep
from services.registry.api.models import (
    ActivationView,
    IntentList,
    IntentView,
    RollbackProposalView,
    RollbackView,
    VersionView,
)
from services.registry.domain import Target
from services.registry.ledger import require_scope
from services.registry.store import intents, versions

router = APIRouter(prefix="/touchpoints/{touchpoint_id}", tags=["versions"])
Limit = Annotated[int, Param(ge=1, le=500)]


class VersionList(BaseModel):
    """`history`: activations, newest first. `versions`: recorded texts, newest first, live or not."""

    history: list[ActivationView]
    versions: list[VersionView]


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


@router.get("/live", response_model=LivePrompt, responses={304: {"description": "The ETag still holds."}})
async def live(
    touchpoint_id: TouchpointId,
    response: Response,
    caller: CurrentCaller,
    gateway: GatewayDep,
    at: AwareDatetime | None = None,
    workspace_id: UUID | None = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> LivePrompt | Response:
    """The live prompt, or with `at` what was live then. The ETag changes with every activation."""
    require_workspace(caller, workspace_id)
    target = Target(touchpoint_id, workspace_id)
    if at is not None:
        return await prompts.prompt_at(gateway.db, target, at)
    prompt = await prompts.live_prompt(gateway.db, gateway.ledger, target)
    etag = f'"{prompt.activation_id}"'
    if etag in [given.strip().removeprefix("W/") for given in (if_none_match or "").split(",")]:
        return Response(status_code=304, headers={"ETag": etag})
    response.headers["ETag"] = etag
    response.headers["Cache-Control"] = "private, no-cache"
    return prompt


@router.get("/versions")
async def list_versions(
    touchpoint_id: TouchpointId,
    caller: CurrentCaller,
    gateway: GatewayDep,
    workspace_id: UUID | None = None,
    limit: Limit = 50,
) -> VersionList:
    """What was live when, and every text that was recorded."""
    require_workspace(caller, workspace_id)
    registered = await gateway.touchpoint(touchpoint_id)
    target = Target(touchpoint_id, workspace_id)
    require_scope(registered.touchpoint.scope, target)
    async with gateway.db.connection() as conn:
        history = await versions.history(conn, target, limit)
        texts = await versions.recorded(conn, target, limit)
    return VersionList(
        history=[ActivationView.of(row) for row in history], versions=[VersionView.of(text) for text in texts]
    )


@router.get("/versions/{version_ref}")
async def get_version(
    touchpoint_id: TouchpointId,
    version_ref: VersionRef,
    caller: CurrentCaller,
    gateway: GatewayDep,
    workspace_id: UUID | None = None,
) -> LivePrompt:
    """The text of one version, live or not."""
    require_workspace(caller, workspace_id)
    return await prompts.prompt_of(gateway.db, Target(touchpoint_id, workspace_id), version_ref)


@router.post("/versions", status_code=201)
async def record(
    touchpoint_id: TouchpointId, body: RecordBody, caller: CurrentCaller, gateway: GatewayDep
) -> VersionView:
    """Record a text as a version that can be activated; `feed_prompts` only."""
    require_workspace(caller, body.workspace_id)
    registered = await gateway.touchpoint(touchpoint_id)
    target = Target(touchpoint_id, body.workspace_id)
    require_scope(registered.touchpoint.scope, target)
    if registered.touchpoint.storage.adapter != "feed_prompts":
        raise Refused("tier_2", f"the prompt of {touchpoint_id} is in git: commit it there")
    if len({part.path for part in body.parts}) < len(body.parts):
        raise Refused("invalid", "parts: each path once", status=422)
    text_bytes(body.parts)
    async with gateway.db.transaction() as tx:
        adapter = FeedPromptsAdapter(tx.conn, target, by=caller.subject, note=body.note)
        return VersionView.of(await adapter.record(body.parts))


@router.post("/activate")
async def activate(
    touchpoint_id: TouchpointId, body: ActivateBody, caller: CurrentCaller, gateway: GatewayDep
) -> ActivationView:
    """Make a recorded version live at once. 409 with the state that holds now when that is not the expected one."""
    require_workspace(caller, body.workspace_id)
    switched = await gateway.ledger.activate(
        Target(touchpoint_id, body.workspace_id),
        body.version_ref,
        expected_live=body.expected_live,
        by=caller.subject,
        reason=body.reason,
    )
    return ActivationView.of(switched.live)


@router.post("/rollback")
async def roll_back(
    touchpoint_id: TouchpointId, body: RollbackBody, caller: CurrentCaller, gateway: GatewayDep
) -> RollbackView:
    """Tier 1: the earlier version is live when this returns. Tier 2: how a person gets it back."""
    require_workspace(caller, body.workspace_id)
    registered = await gateway.touchpoint(touchpoint_id)
    target = Target(touchpoint_id, body.workspace_id)
    require_scope(registered.touchpoint.scope, target)
    if registered.touchpoint.storage.adapter == "feed_prompts":
        switched = await gateway.ledger.roll_back(target, body.to_version, by=caller.subject, reason=body.reason)
        return RollbackView(tier=1, activation=ActivationView.of(switched.live))
    proposed = await gateway.pending_merges.propose_rollback(
        target, body.to_version, by=caller.subject, reason=body.reason
    )
    return RollbackView(tier=2, proposal=RollbackProposalView.of(proposed))


@router.get("/intents")
async def list_intents(
    touchpoint_id: TouchpointId,
    caller: CurrentCaller,
    gateway: GatewayDep,
    workspace_id: UUID | None = None,
    limit: Limit = 50,
) -> IntentList:
    """Changes and rollbacks that a person merges, newest first."""
    require_workspace(caller, workspace_id)
    await gateway.touchpoint(touchpoint_id)
    async with gateway.db.connection() as conn:
        found = await intents.listed(conn, Target(touchpoint_id, workspace_id), limit)
    return IntentList(intents=[IntentView.of(intent) for intent in found])


@router.post("/confirm")
async def confirm(touchpoint_id: TouchpointId, caller: CurrentCaller, gateway: GatewayDep) -> IntentList:
    """Look at the repository now: what is merged becomes live, what failed is tried again."""
    await gateway.touchpoint(touchpoint_id)
    await gateway.pending_merges.check(touchpoint_id, again=True)
    return await list_intents(touchpoint_id, caller, gateway)
