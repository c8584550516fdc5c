"""Signals: one piece of quality evidence about one touchpoint, from observation to processing."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Annotated, ClassVar
from uuid import UUID, uuid5

from pydantic import AwareDatetime, ConfigDict, Field, StringConstraints, field_validator, model_validator

from libs.contracts.envelope import EVENT_NAMESPACE, EventData, Frozen
from libs.contracts.vocabulary import (
    ActorKind,
    LongText,
    Name,
    RejectReason,
    Severity,
    ShortText,
    SignalType,
    TouchpointId,
    VersionRef,
)

MAX_PAYLOAD_BYTES = 65_536
SourceKey = Annotated[str, StringConstraints(min_length=1, max_length=500)]
_as_json = json.JSONEncoder(default=str).encode  # json.dumps would build one a call


@lru_cache(maxsize=1024)
def _signal_id(touchpoint_id: str, workspace_id: UUID | None, source_key: str) -> UUID:
    # Kept: an observation, the fact that follows and its event id ask for the same one within a batch.
    return uuid5(EVENT_NAMESPACE, f"signal|{touchpoint_id}|{workspace_id}|{source_key}")


class EvidenceRef(Frozen):
    """Where the evidence stands: a row of a source, or a case of a suite with the metric that moved."""

    source: Name
    id: Name | None = None
    suite: Name | None = None
    case_id: Name | None = None
    metric: Name | None = None
    delta: float | None = None

    @model_validator(mode="after")
    def _names_something(self) -> EvidenceRef:
        if self.id is None and self.case_id is None and self.metric is None:
            raise ValueError("evidence_ref needs `id`, or `case_id` or `metric` of an evaluation")
        return self


class SignalPayload(Frozen):
    """What was seen. Known keys are typed; others are kept as they are, up to 64 KiB in all."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    text: LongText | None = None
    reason: ShortText | None = None
    category: Name | None = None
    expected: ShortText | None = None
    got: ShortText | None = None
    confidence: float | None = Field(default=None, ge=0.0, le=1.0)
    case_id: Name | None = None

    @model_validator(mode="after")
    def _is_bounded(self) -> SignalPayload:
        size = len(_as_json(self.model_dump(mode="json")))
        if size > MAX_PAYLOAD_BYTES:
            raise ValueError(f"payload is {size} bytes, the limit is {MAX_PAYLOAD_BYTES}")
        return self


class SignalFields(EventData):
    """The fields that an observed signal and a stored one have in common."""

    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    signal_type: SignalType
    evidence_ref: EvidenceRef
    payload: SignalPayload
    actor_id: Name
    actor_kind: ActorKind
    version_ref: VersionRef | None = None
    source_key: SourceKey

    @field_validator("touchpoint_id", mode="before")
    @classmethod
    def _no_nul(cls, value: object) -> object:
        return value.replace("\x00", "") if isinstance(value, str) else value

    @property
    def signal_id(self) -> UUID:
        """UUIDv5 over touchpoint, workspace and source key: the same evidence is always the same signal."""
        return _signal_id(self.touchpoint_id, self.workspace_id, self.source_key)


class SignalObservedV1(SignalFields):
    """A source saw something. Seen again later, it is the same signal with a later `observed_at`."""

    type: ClassVar[str] = "refinement.signal.observed.v1"

    severity: Severity | None = None
    observed_at: AwareDatetime

    def natural_key(self) -> str:
        """The signal and the instant it was seen."""
        return f"{self.signal_id}|{self.observed_at.isoformat()}"


class SignalCreatedV1(SignalFields):
    """A signal is stored. Said again with the same signal when `last_seen` moves; that adds no evidence."""

    type: ClassVar[str] = "refinement.signal.created.v1"

    severity: Severity
    first_seen: AwareDatetime
    last_seen: AwareDatetime

    def natural_key(self) -> str:
        """The signal and when it was last seen."""
        return f"{self.signal_id}|{self.last_seen.isoformat()}"


class SignalRejectedV1(EventData):
    """A signal does not count, and why; said once per transition."""

    type: ClassVar[str] = "refinement.signal.rejected.v1"

    touchpoint_id: ShortText
    signal_id: UUID
    source_key: SourceKey
    reason: RejectReason
    detail: ShortText = ""
    transition: int = Field(default=1, ge=1)

    def natural_key(self) -> str:
        """The signal, the reason and the count of its transitions."""
        return f"{self.signal_id}|{self.reason}|{self.transition}"


class SignalProcessedV1(EventData):
    """The detector's run `run_id` took these signals into account (at most 5,000 an event)."""

    type: ClassVar[str] = "refinement.signal.processed.v1"

    touchpoint_id: TouchpointId
    run_id: UUID
    part: int = Field(default=0, ge=0)
    signal_ids: tuple[UUID, ...] = Field(max_length=5_000)
    processed_at: AwareDatetime

    def natural_key(self) -> str:
        """The run and the part of it."""
        return f"{self.run_id}|{self.part}"


class ScanRequestedV1(EventData):
    """A person asks for a scan now; without a scanner name, of every scanner of the touchpoint."""

    type: ClassVar[str] = "refinement.scan.requested.v1"

    request_id: UUID
    touchpoint_id: TouchpointId | None = None
    scanner: Name | None = None
    requested_by: Name

    def natural_key(self) -> str:
        """The request."""
        return str(self.request_id)


class ScannerRunV1(EventData):
    """One run of one scanner, with or without finds, good or bad."""

    type: ClassVar[str] = "refinement.scanner.run.v1"

    run_id: UUID
    touchpoint_id: TouchpointId
    scanner: Name
    signals_emitted: int = Field(ge=0)
    duration_ms: float = Field(ge=0.0)
    ok: bool
    error: ShortText | None = None
    started_at: AwareDatetime

    def natural_key(self) -> str:
        """The run."""
        return str(self.run_id)
