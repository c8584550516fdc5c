"""What the normaliser answers."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from pydantic import Field

from libs.contracts.envelope import Frozen
from libs.contracts.queries.base import Query, Reply
from libs.contracts.text import JsonObject
from libs.contracts.vocabulary import (
    Instant,
    Name,
    Severity,
    ShortText,
    SignalType,
    TouchpointId,
    VersionRef,
)


class StoredSignal(Frozen):
    """A signal as the normaliser keeps it."""

    signal_id: UUID
    touchpoint_id: ShortText
    workspace_id: UUID | None = None
    signal_type: SignalType | None = None
    severity: Severity | None = None
    evidence_ref: JsonObject
    payload: JsonObject
    actor_id: Name
    actor_kind: Name
    version_ref: VersionRef | None = None
    source_key: ShortText
    first_seen: Instant
    last_seen: Instant
    created_at: Instant
    processed_at: Instant | None = None
    rejected: Name | None = None
    reject_detail: ShortText | None = None


class SignalPage(Reply):
    """Signals, newest first; `next` is the cursor of the following page."""

    signals: tuple[StoredSignal, ...]
    next: Name | None = None


class ListSignals(Query[SignalPage]):
    """Signals by touchpoint and state."""

    subject: ClassVar[str] = "ask.normaliser.signals.list.v1"
    reply: ClassVar[type[Reply]] = SignalPage

    touchpoint_id: TouchpointId | None = None
    workspace_ids: tuple[UUID, ...] | None = Field(default=None, description="None: no limit by workspace")
    rejected: bool | None = None
    unprocessed: bool | None = None
    signal_id: UUID | None = None
    limit: int = Field(default=50, ge=1, le=500)
    cursor: Name | None = None


class TouchpointCounts(Frozen):
    """How many signals one touchpoint has, by state."""

    touchpoint_id: ShortText
    stored: int
    unprocessed: int
    rejected: int
    observed: int = Field(default=0, description="observations that took effect; the same signal may be seen again")


class SignalCounts(Reply):
    """Counts by touchpoint."""

    counts: tuple[TouchpointCounts, ...]


class CountSignals(Query[SignalCounts]):
    """How many signals there are."""

    subject: ClassVar[str] = "ask.normaliser.signals.count.v1"
    reply: ClassVar[type[Reply]] = SignalCounts

    touchpoint_id: TouchpointId | None = None
    workspace_ids: tuple[UUID, ...] | None = Field(default=None, description="None: no limit by workspace")
