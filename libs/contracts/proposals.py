"""Proposals: a concrete change to a touchpoint's prompt, made for a pattern, decided by people."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal
from uuid import UUID

from pydantic import Field

from libs.contracts.envelope import Frozen
from libs.contracts.prompts import PromptPart
from libs.contracts.text import Diff
from libs.contracts.vocabulary import (
    Instant,
    LongText,
    Name,
    PromptText,
    ProposalState,
    Sha256,
    ShortText,
    TouchpointId,
    VersionRef,
)


class Hunk(Frozen):
    """One replaced passage. `before` occurs exactly once in the part it changes."""

    path: Name
    before: PromptText
    after: PromptText
    signal_ids: tuple[UUID, ...] = ()


class ExpectedImpact(Frozen):
    """What the author of a proposal predicts for one metric."""

    metric: Name
    direction: Literal["increase", "decrease"]
    magnitude: Literal["small", "medium", "large"]
    confidence: float = Field(ge=0.0, le=1.0)


class Decision(Frozen):
    """One thing that was done with a proposal, and by whom; the list of them is append-only."""

    action: Literal[
        "created",
        "approved",
        "rejected",
        "bad_signals",
        "waived",
        "revised",
        "stale",
        "activated",
        "rolled_back",
    ]
    by: Name
    reason: ShortText = ""
    at: Instant


class AbOutcome(Frozen):
    """The A/B run that stands behind a proposal, in short."""

    run_id: UUID
    verdict: Literal["better", "worse", "not_worse", "undecided", "failed"]
    suite_sha256: Sha256 | None = None
    a_sha256: Sha256
    b_sha256: Sha256
    gained: int = 0
    lost: int = 0
    executed_at: Instant


class ProposalSummary(Frozen):
    """A proposal as it is listed."""

    proposal_id: UUID
    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    pattern_id: UUID | None = None
    pattern_title: ShortText = ""
    state: ProposalState
    author: Name
    hunk_count: int
    base_version_ref: VersionRef | None = None
    base_sha256: Sha256
    content_sha256: Sha256
    ab: AbOutcome | None = None
    flags: tuple[Name, ...] = Field(default=(), description="why a second approver is needed")
    created_at: Instant


class ProposalDetail(ProposalSummary):
    """A proposal with all that a reviewer reads before deciding."""

    hunks: tuple[Hunk, ...]
    parts: tuple[PromptPart, ...]
    diff: Diff = Field(description="unified diff from the base text to the proposed text")
    rationale: LongText
    expected_impact: tuple[ExpectedImpact, ...] = ()
    risks: tuple[ShortText, ...] = ()
    review_guidance: LongText = ""
    evidence_refs: tuple[UUID, ...] = ()
    decisions: tuple[Decision, ...] = ()
    failure: ShortText | None = None
    model: Name
    input_tokens: int = 0
    output_tokens: int = 0
    usd: Decimal = Decimal(0)
