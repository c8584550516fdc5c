"""Patterns: recurring faults found among the signals of one touchpoint."""

from __future__ import annotations

from typing import ClassVar, Literal
from uuid import UUID

from pydantic import AwareDatetime, Field

from libs.contracts.envelope import EventData, Frozen
from libs.contracts.vocabulary import (
    ActorKind,
    Name,
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
    last_seen: AwareDatetime


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
    first_seen: AwareDatetime
    last_seen: AwareDatetime


class PatternDetail(PatternSummary):
    """A pattern with its strongest evidence (at most 50 pieces)."""

    evidence: tuple[EvidenceItem, ...] = Field(default=(), max_length=50)


class DetectRequestedV1(EventData):
    """A person asks for a detector run now."""

    type: ClassVar[str] = "refinement.detect.requested.v1"

    request_id: UUID
    touchpoint_id: TouchpointId
    requested_by: Name

    def natural_key(self) -> str:
        """The request."""
        return str(self.request_id)


class PatternDetectedV1(EventData):
    """A pattern surfaced, surfaced again after it was resolved, or became strong enough for a proposal by itself."""

    type: ClassVar[str] = "refinement.pattern.detected.v1"

    touchpoint_id: TouchpointId
    run_id: UUID
    occurrence: int = Field(default=1, ge=1, description="1 at first, one more each time it is said again")
    pattern: PatternDetail

    def natural_key(self) -> str:
        """The pattern and how often it was said."""
        return f"{self.pattern.pattern_id}|{self.occurrence}"


class PatternChangedV1(EventData):
    """A known pattern changed its state."""

    type: ClassVar[str] = "refinement.pattern.changed.v1"

    touchpoint_id: TouchpointId
    run_id: UUID
    pattern_id: UUID
    from_state: PatternState
    to_state: PatternState
    evidence_count: int = Field(ge=0)
    score: float = Field(ge=0.0)

    def natural_key(self) -> str:
        """The pattern and the run that changed it."""
        return f"{self.pattern_id}|{self.run_id}"


class ActivationJudgedV1(EventData):
    """Whether the fault went away after an activation: the ratio of signal rates, with its interval."""

    type: ClassVar[str] = "refinement.activation.judged.v1"

    touchpoint_id: TouchpointId
    activation_id: UUID
    pattern_id: UUID | None = None
    verdict: Literal["receded", "unchanged", "worse"]
    rate_ratio: float = Field(ge=0.0)
    interval: tuple[float, float]
    look: int = Field(default=1, ge=1)

    def natural_key(self) -> str:
        """The activation, the pattern and the look."""
        return f"{self.activation_id}|{self.pattern_id}|{self.look}"
