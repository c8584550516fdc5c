"""Proposals: read, ask for, measure, decide. The proposal service decides what may be decided."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from fastapi import Query as Param
from pydantic import BaseModel

from libs.auth.claims import Caller
from libs.contracts.evaluations import VariantRef
from libs.contracts.events.ab_runner import AbRequestedV2
from libs.contracts.events.proposal import ProposalRequestedV1
from libs.contracts.proposals import ProposalDetail
from libs.contracts.queries.proposal import (
    ApproveProposal,
    GetProposal,
    ListProposals,
    Proposals,
    RejectProposal,
    WaiveProposal,
)
from libs.contracts.queries.registry import GetPrompt
from libs.contracts.vocabulary import ProposalState, Sha256, TouchpointId
from libs.service_kit.errors import Refused
from services.gateway.api.access import CurrentCaller, require_change, workspaces_of
from services.gateway.api.asking import Gateway, GatewayDep, OnceDep, Requested
from services.gateway.api.body import JsonRoute, Note, Reason, RequestBody
from services.gateway.routers.pattern_detector import visible_pattern

router = APIRouter(route_class=JsonRoute, prefix="/proposals", tags=["proposals"])


class ProposalBody(RequestBody):
    """The pattern to write a proposal for."""

    pattern_id: UUID


class ApproveBody(RequestBody):
    """Exactly the text that was read: its hash is in the proposal."""

    content_sha256: Sha256
    reason: Note = ""


class RejectBody(RequestBody):
    """Why not; with `bad_signals`, the evidence leaves the pool."""

    reason: Reason
    bad_signals: bool = False


class WaiveBody(RequestBody):
    """Why the proposal may be approved without a verdict."""

    reason: Reason


class RunRequested(BaseModel):
    """The run that was asked for."""

    run_id: UUID


@router.get("")
async def list_proposals(
    caller: CurrentCaller,
    gateway: GatewayDep,
    touchpoint_id: TouchpointId | None = None,
    state: ProposalState | None = None,
    pattern_id: UUID | None = None,
    limit: Annotated[int, Param(ge=1, le=500)] = 50,
) -> Proposals:
    """Proposals, newest first."""
    return await gateway.ask(
        ListProposals(
            touchpoint_id=touchpoint_id,
            workspace_ids=workspaces_of(caller),
            state=state,
            pattern_id=pattern_id,
            limit=limit,
        )
    )


@router.post("", status_code=202)
async def request_proposal(body: ProposalBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep) -> Requested:
    """Ask for a proposal for a surfaced pattern."""
    pattern = await visible_pattern(gateway, caller, body.pattern_id)
    require_change(caller, pattern.workspace_id)
    request = ProposalRequestedV1(
        request_id=once.request_id,
        touchpoint_id=pattern.touchpoint_id,
        pattern_id=pattern.pattern_id,
        requested_by=caller.subject,
    )
    return await gateway.emit_once(once, Requested(request_id=once.request_id), request)


@router.get("/{proposal_id}")
async def get_proposal(proposal_id: UUID, caller: CurrentCaller, gateway: GatewayDep) -> ProposalDetail:
    """One proposal, whole."""
    return await _visible(gateway, caller, proposal_id)


@router.post("/{proposal_id}/ab", status_code=202)
async def request_ab(proposal_id: UUID, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep) -> RunRequested:
    """Run the live text (A) and the proposed one (B) over the touchpoint's suite."""
    proposal = await _visible(gateway, caller, proposal_id)
    require_change(caller, proposal.workspace_id)
    live = (
        await gateway.ask(GetPrompt(touchpoint_id=proposal.touchpoint_id, workspace_id=proposal.workspace_id))
    ).prompt
    if live.content_sha256 == proposal.content_sha256:
        raise Refused("already_live", f"the text of proposal {proposal_id} is live: there is nothing to compare")
    run = AbRequestedV2(
        run_id=once.request_id,
        touchpoint_id=proposal.touchpoint_id,
        workspace_id=proposal.workspace_id,
        variant_a=VariantRef(label="current", content_sha256=live.content_sha256, version_ref=live.version_ref),
        variant_b=VariantRef(
            label=f"proposal:{proposal_id}", content_sha256=proposal.content_sha256, proposal_id=proposal_id
        ),
        requested_by=caller.subject,
    )
    return await gateway.emit_once(once, RunRequested(run_id=run.run_id), run)


@router.post("/{proposal_id}/approve")
async def approve(
    proposal_id: UUID, body: ApproveBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep
) -> ProposalDetail:
    """Approve exactly this text. 409 when the A/B gate is not passed; the answer says why."""
    await _decidable(gateway, caller, proposal_id)
    query = ApproveProposal(
        proposal_id=proposal_id, content_sha256=body.content_sha256, by=caller.subject, reason=body.reason
    )
    return (await gateway.ask_once(once, query)).proposal


@router.post("/{proposal_id}/reject")
async def reject(
    proposal_id: UUID, body: RejectBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep
) -> ProposalDetail:
    """Turn the proposal down."""
    await _decidable(gateway, caller, proposal_id)
    query = RejectProposal(proposal_id=proposal_id, by=caller.subject, reason=body.reason, bad_signals=body.bad_signals)
    return (await gateway.ask_once(once, query)).proposal


@router.post("/{proposal_id}/waive")
async def waive(
    proposal_id: UUID, body: WaiveBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep
) -> ProposalDetail:
    """Let the proposal be approved without a verdict, under the caller's name."""
    await _decidable(gateway, caller, proposal_id)
    query = WaiveProposal(proposal_id=proposal_id, by=caller.subject, reason=body.reason)
    return (await gateway.ask_once(once, query)).proposal


async def _decidable(gateway: Gateway, caller: Caller, proposal_id: UUID) -> None:
    proposal = await _visible(gateway, caller, proposal_id)
    require_change(caller, proposal.workspace_id)


async def _visible(gateway: Gateway, caller: Caller, proposal_id: UUID) -> ProposalDetail:
    """The proposal, if it is there and the token reaches its workspace; 404 either way, so that neither shows."""
    missing = Refused("not_found", f"there is no proposal {proposal_id}", status=404)
    try:
        found = (await gateway.ask(GetProposal(proposal_id=proposal_id))).proposal
    except Refused as no:
        raise missing if no.status == 404 else no from no
    if found.workspace_id is not None and not caller.has_workspace(found.workspace_id):
        raise missing
    return found
