"""What the detector makes of signals: processed, patterns, and how an activation did."""

from __future__ import annotations

from typing import ClassVar, Literal
from uuid import UUID

from pydantic import Field

from libs.contracts.envelope import EventData
from libs.contracts.patterns import PatternDetail
from libs.contracts.vocabulary import (
    Instant,
    Name,
    PatternState,
    TouchpointId,
)


class SignalProcessedV1(EventData):
    """The detector's run `run_id` took these signals into account (at most 5,000 an event)."""

    type: ClassVar[str] = "refinement.signal.processed.v1"

    touchpoint_id: TouchpointId
    run_id: UUID
    part: int = Field(default=0, ge=0)
    signal_ids: tuple[UUID, ...] = Field(max_length=5_000)
    processed_at: Instant

    def natural_key(self) -> str:
        """The run and the part of it."""
        return f"{self.run_id}|{self.part}"


class DetectRequestedV1(EventData):
    """A person asks for a detector run now."""

    type: ClassVar[str] = "refinement.detect.requested.v1"

    request_id: UUID
    touchpoint_id: TouchpointId
    requested_by: Name

    def natural_key(self) -> str:
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
