"""What the proposal service answers: lists, one proposal, and the decisions of people about it."""

from __future__ import annotations

from uuid import UUID

from libs import touchpoints
from libs.contracts.events.proposal import ProposalRejectedV1
from libs.contracts.queries.ab_runner import GetSuiteCoverage
from libs.contracts.queries.proposal import (
    ApproveProposal,
    GetProposal,
    GetProposalSpending,
    ListProposals,
    ProposalReply,
    Proposals,
    RejectProposal,
    WaiveProposal,
)
from libs.contracts.queries.spending import Spending
from libs.contracts.versions import LivePrompt
from libs.llm import Budget
from libs.llm.budget import standing
from libs.llm.spending import few_enough
from libs.service_kit import logging
from libs.service_kit.db import Connection, Database
from libs.service_kit.errors import Refused, Unavailable
from libs.service_kit.queries import Asker
from libs.service_kit.requests import Once, repeatable
from libs.touchpoints import KnownTouchpoint
from services.proposal import domain, transitions
from services.proposal.asking import live_prompt
from services.proposal.domain import No, Now, Proposal
from services.proposal.store import calls, decisions, proposals
from services.proposal.transitions import Tx

log = logging.get(__name__)
MAX_SIGNALS = 5_000


async def answer_list(query: ListProposals, db: Database) -> Proposals:
    """Proposals, newest first."""
    async with db.connection(workspaces=query.workspace_ids) as conn:
        return Proposals(proposals=tuple(await proposals.listed(conn, query)))


async def answer_get(query: GetProposal, db: Database) -> ProposalReply:
    """One proposal, whole."""
    async with db.connection() as conn:
        return _reply(await _found(conn, query.proposal_id))


@repeatable
async def answer_approve(query: ApproveProposal, db: Database, asker: Asker) -> ProposalReply:
    """Record one approval of exactly this text; with the last one that is needed, say that it is approved.

    What is live and which suite holds is asked now, before the row is locked. A proposal whose base has moved
    is brought onto the live text at once, so that what the reviewer reads next can be decided.
    """
    once = Once[Proposal](query, _reply)
    async with db.connection() as conn:
        await once.look(conn)
        asked_about = await _found(conn, query.proposal_id)
    live, suite = await _now(asker, asked_about)
    async with db.transaction() as tx:
        await once.begin(tx.conn)
        proposal = await _found(tx.conn, query.proposal_id, lock=True)
        touchpoint = await _touchpoint(tx.conn, proposal)
        _refuse(domain.may_approve(proposal, query.by, query.content_sha256, touchpoint.approvals))
        no = domain.gate(proposal, Now(live.content_sha256, suite))
        if no is None:
            approved = await _approve(tx, proposal, touchpoint, query)
            await once.end(tx.conn, approved)
            return _reply(approved)
        if no.code == "base_moved":
            await transitions.realign(tx, proposal, live)  # kept, although the approval is refused
    raise _refused(no)


async def _approve(tx: Tx, proposal: Proposal, touchpoint: KnownTouchpoint, query: ApproveProposal) -> Proposal:
    await decisions.record(tx.conn, proposal.proposal_id, "approved", query.by, query.reason, proposal.content_sha256)
    complete = len(proposal.approvers) + 1 >= domain.approvals_needed(proposal, touchpoint.approvals)
    if complete:
        await proposals.move(tx.conn, proposal.proposal_id, "approved")
    now = await _found(tx.conn, proposal.proposal_id)
    if complete:
        tx.emit(domain.approved_fact(now))
    log.info("proposal.approval", proposal_id=str(now.proposal_id), touchpoint=now.touchpoint_id, complete=complete)
    return now


@repeatable
async def answer_waive(query: WaiveProposal, db: Database) -> ProposalReply:
    """Record that a named person takes the place of missing or undecided evidence, for this text only."""
    once = Once[Proposal](query, _reply)
    async with db.transaction() as tx:
        await once.begin(tx.conn)
        proposal = await _found(tx.conn, query.proposal_id, lock=True)
        _refuse(domain.may_waive(proposal))
        _refuse(_blank(query.reason))
        await decisions.record(tx.conn, proposal.proposal_id, "waived", query.by, query.reason, proposal.content_sha256)
        now = await _found(tx.conn, query.proposal_id)
        await once.end(tx.conn, now)
        return _reply(now)


@repeatable
async def answer_reject(query: RejectProposal, db: Database) -> ProposalReply:
    """Turn the proposal down; with `bad_signals`, all evidence it was written from leaves the pool."""
    once = Once[Proposal](query, _reply)
    async with db.transaction() as tx:
        await once.begin(tx.conn)
        proposal = await _found(tx.conn, query.proposal_id, lock=True)
        _refuse(domain.undecided_or_no(proposal))
        _refuse(_blank(query.reason))
        await proposals.move(tx.conn, proposal.proposal_id, "bad_signals" if query.bad_signals else "rejected")
        action = "bad_signals" if query.bad_signals else "rejected"
        await decisions.record(tx.conn, proposal.proposal_id, action, query.by, query.reason, proposal.content_sha256)
        tx.emit(
            ProposalRejectedV1(
                proposal_id=proposal.proposal_id,
                touchpoint_id=proposal.touchpoint_id,
                workspace_id=proposal.workspace_id,
                pattern_id=proposal.pattern_id,
                bad_signals=query.bad_signals,
                signal_ids=proposal.evidence_refs[:MAX_SIGNALS] if query.bad_signals else (),
                reason=query.reason,
                rejected_by=query.by,
            )
        )
        now = await _found(tx.conn, query.proposal_id)
        await once.end(tx.conn, now)
        return _reply(now)


# --- small things -----------------------------------------------------------------------------------------


async def _now(asker: Asker, proposal: Proposal) -> tuple[LivePrompt, str | None]:
    """The live prompt and the hash of the suite. Fails closed: without both answers nothing is approved."""
    try:
        live = await live_prompt(asker, proposal.touchpoint_id, proposal.workspace_id)
        suite = (await asker.ask(GetSuiteCoverage(touchpoint_id=proposal.touchpoint_id))).suite_sha256
    except Unavailable as error:
        raise Refused("unavailable", f"the gate cannot be checked: {error}", status=503) from error
    if live is None:
        raise Refused("no_live_prompt", f"the touchpoint {proposal.touchpoint_id!r} has no live prompt", status=409)
    return live, suite


async def _found(conn: Connection, proposal_id: UUID, *, lock: bool = False) -> Proposal:
    proposal = await proposals.get(conn, proposal_id, lock=lock)
    if proposal is None:
        raise Refused("not_found", f"there is no proposal {proposal_id}", status=404)
    return proposal


async def _touchpoint(conn: Connection, proposal: Proposal) -> KnownTouchpoint:
    touchpoint = await touchpoints.get(conn, proposal.touchpoint_id)
    if touchpoint is None:
        raise Refused("not_registered", f"the touchpoint {proposal.touchpoint_id!r} is not registered here")
    return touchpoint


def _blank(reason: str) -> No | None:
    return None if reason.strip() else No("reason", "`reason` is blank: say why in a sentence", 422)


def _refuse(no: No | None) -> None:
    if no is not None:
        raise _refused(no)


def _refused(no: No) -> Refused:
    return Refused(no.code, no.detail, status=no.status)


def _reply(proposal: Proposal) -> ProposalReply:
    return ProposalReply(proposal=domain.detail_of(proposal))


async def answer_spending(query: GetProposalSpending, db: Database, budget: Budget) -> Spending:
    """What writing proposals cost in the last days, and what is left of today's budget."""
    async with db.connection() as conn:
        spent = await calls.spent(conn, query.touchpoint_id or "", budget.in_flight_s)
        return Spending(
            budget=standing(calls.CALLER, budget, spent),
            days=few_enough(await calls.by_day(conn, query.touchpoint_id, query.days)),
            calls=await calls.latest(conn, query.touchpoint_id, query.calls),
        )
