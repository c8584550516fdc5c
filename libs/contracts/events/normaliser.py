"""Signals on their way in: observed, then stored or rejected."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from pydantic import Field

from libs.contracts.envelope import EventData
from libs.contracts.signals import SignalFields, SourceKey
from libs.contracts.vocabulary import (
    Instant,
    RejectReason,
    Severity,
    ShortText,
)


class SignalObservedV1(SignalFields):
    """A source saw something. Seen again later, it is the same signal with a later `observed_at`."""

    type: ClassVar[str] = "refinement.signal.observed.v1"

    severity: Severity | None = None
    observed_at: Instant

    def natural_key(self) -> str:
        """The signal and the instant it was seen."""
        return f"{self.signal_id}|{self.observed_at.isoformat()}"


class SignalCreatedV1(SignalFields):
    """A signal is stored. Said again with the same signal when `last_seen` moves; that adds no evidence."""

    type: ClassVar[str] = "refinement.signal.created.v1"

    severity: Severity
    first_seen: Instant
    last_seen: Instant

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
