"""Patterns: recurring faults found among the signals of one touchpoint."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from libs.contracts.envelope import Frozen
from libs.contracts.vocabulary import (
    ActorKind,
    Instant,
    PatternState,
    Severity,
    ShortText,
    SignalType,
    Strategy,
    TouchpointId,
)


class EvidenceItem(Frozen):
    """One signal as evidence of a pattern: what was said, what was expected, what came."""

    signal_id: UUID
    signal_type: SignalType
    text: ShortText = ""
    reason: ShortText = ""
    expected: ShortText | None = None
    got: ShortText | None = None
    actor_kind: ActorKind
    severity: Severity
    weight: float = Field(ge=0.0, le=1.0)
    last_seen: Instant


class ScoreParts(Frozen):
    """The parts of a pattern's score; the score is their product (see the detector's README)."""

    weight: float
    actors: float
    recency: float
    severity: float


class PatternSummary(Frozen):
    """A pattern as others see it. Counts are undecayed; `score` is not."""

    pattern_id: UUID
    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    title: ShortText
    strategy: Strategy
    state: PatternState
    expected: ShortText | None = None
    got: ShortText | None = None
    evidence_count: int = Field(ge=0)
    actors: int = Field(ge=0)
    human_actors: int = Field(ge=0)
    machine_cases: int = Field(ge=0)
    single_actor: bool
    automatic: bool = Field(description="strong enough that a proposal is made without being asked for")
    score: float = Field(ge=0.0)
    score_parts: ScoreParts
    first_seen: Instant
    last_seen: Instant


class PatternDetail(PatternSummary):
    """A pattern with its strongest evidence (at most 50 pieces)."""

    evidence: tuple[EvidenceItem, ...] = Field(default=(), max_length=50)
