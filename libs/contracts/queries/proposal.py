"""What the proposal service answers."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from pydantic import Field

from libs.contracts.proposals import ProposalDetail, ProposalSummary
from libs.contracts.queries.base import Query, Repeatable, Reply
from libs.contracts.queries.spending import Spending, SpendingQuery
from libs.contracts.vocabulary import (
    Name,
    ProposalState,
    ShortText,
    TouchpointId,
)


class Proposals(Reply):
    """Proposals, newest first."""

    proposals: tuple[ProposalSummary, ...]


class ListProposals(Query[Proposals]):
    """Proposals by touchpoint, state and pattern."""

    subject: ClassVar[str] = "ask.proposal.proposals.list.v1"
    reply: ClassVar[type[Reply]] = Proposals

    touchpoint_id: TouchpointId | None = None
    workspace_ids: tuple[UUID, ...] | None = None
    state: ProposalState | None = None
    pattern_id: UUID | None = None
    limit: int = Field(default=50, ge=1, le=500)


class ProposalReply(Reply):
    """One proposal, whole."""

    proposal: ProposalDetail


class GetProposal(Query[ProposalReply]):
    """One proposal by id; refused with 404 when there is none."""

    subject: ClassVar[str] = "ask.proposal.proposals.get.v1"
    reply: ClassVar[type[Reply]] = ProposalReply

    proposal_id: UUID


class ApproveProposal(Query[ProposalReply], Repeatable):
    """Approve exactly the text with this hash. Refused (409) when the gate is not passed; the answer says why."""

    subject: ClassVar[str] = "ask.proposal.proposals.approve.v1"
    reply: ClassVar[type[Reply]] = ProposalReply

    proposal_id: UUID
    content_sha256: Name
    by: Name
    reason: ShortText = ""


class WaiveProposal(Query[ProposalReply], Repeatable):
    """Waive an undecided verdict or a missing suite, by a named person with a reason."""

    subject: ClassVar[str] = "ask.proposal.proposals.waive.v1"
    reply: ClassVar[type[Reply]] = ProposalReply

    proposal_id: UUID
    by: Name
    reason: ShortText = Field(min_length=1)


class RejectProposal(Query[ProposalReply], Repeatable):
    """Turn a proposal down; with `bad_signals`, its evidence leaves the pool."""

    subject: ClassVar[str] = "ask.proposal.proposals.reject.v1"
    reply: ClassVar[type[Reply]] = ProposalReply

    proposal_id: UUID
    by: Name
    reason: ShortText = Field(min_length=1)
    bad_signals: bool = False


class GetProposalSpending(SpendingQuery):
    """What writing proposals cost."""

    subject: ClassVar[str] = "ask.proposal.spending.get.v1"
    reply: ClassVar[type[Reply]] = Spending
