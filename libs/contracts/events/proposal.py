"""Proposals on their way from a pattern to a decision."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from pydantic import Field

from libs.contracts.envelope import EventData
from libs.contracts.prompts import PromptPart
from libs.contracts.proposals import Hunk
from libs.contracts.vocabulary import (
    LongText,
    Name,
    Sha256,
    ShortText,
    TouchpointId,
    VersionRef,
)


class ProposalRequestedV1(EventData):
    """A person asks for a proposal for a surfaced pattern."""

    type: ClassVar[str] = "refinement.proposal.requested.v1"

    request_id: UUID
    touchpoint_id: TouchpointId
    pattern_id: UUID
    requested_by: Name

    def natural_key(self) -> str:
        return str(self.request_id)


class ProposalGeneratedV1(EventData):
    """A proposal is ready for review. It carries counts, never text."""

    type: ClassVar[str] = "refinement.proposal.generated.v1"

    proposal_id: UUID
    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    pattern_id: UUID | None = None
    hunk_count: int = Field(ge=1)
    base_sha256: Sha256
    content_sha256: Sha256
    model: Name
    model_tokens: int = Field(ge=0)

    def natural_key(self) -> str:
        return str(self.proposal_id)


class ProposalApprovedV1(EventData):
    """A person approved exactly this text against exactly that base."""

    type: ClassVar[str] = "refinement.proposal.approved.v1"

    proposal_id: UUID
    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    pattern_id: UUID | None = None
    parts: tuple[PromptPart, ...]
    content_sha256: Sha256
    base_version_ref: VersionRef | None = None
    base_sha256: Sha256
    ab_run_id: UUID | None = None
    approved_by: tuple[Name, ...] = Field(min_length=1)
    waiver: ShortText | None = None
    title: ShortText = ""
    rationale: LongText = ""
    hunks: tuple[Hunk, ...] = ()

    def natural_key(self) -> str:
        return str(self.proposal_id)


class ProposalRejectedV1(EventData):
    """A person turned a proposal down; with `bad_signals`, its evidence leaves the pool."""

    type: ClassVar[str] = "refinement.proposal.rejected.v1"

    proposal_id: UUID
    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    pattern_id: UUID | None = None
    bad_signals: bool = False
    signal_ids: tuple[UUID, ...] = Field(default=(), max_length=5_000)
    reason: ShortText
    rejected_by: Name

    def natural_key(self) -> str:
        return str(self.proposal_id)


class ProposalFailedV1(EventData):
    """No proposal could be made, and why."""

    type: ClassVar[str] = "refinement.proposal.failed.v1"

    proposal_id: UUID
    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    pattern_id: UUID | None = None
    reason: ShortText

    def natural_key(self) -> str:
        return str(self.proposal_id)
