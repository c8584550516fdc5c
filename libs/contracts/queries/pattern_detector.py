"""What the pattern detector answers."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar
from uuid import UUID

from pydantic import Field

from libs.contracts.patterns import PatternDetail, PatternSummary
from libs.contracts.queries.base import Query, Reply
from libs.contracts.vocabulary import (
    Instant,
    TouchpointId,
)


class Patterns(Reply):
    """Patterns, highest score first."""

    patterns: tuple[PatternSummary, ...]


class ListPatterns(Query[Patterns]):
    """The top patterns of a touchpoint, or of all touchpoints since a time."""

    subject: ClassVar[str] = "ask.pattern_detector.patterns.list.v1"
    reply: ClassVar[type[Reply]] = Patterns

    touchpoint_id: TouchpointId | None = None
    workspace_ids: tuple[UUID, ...] | None = None
    since: datetime | None = None
    include_resolved: bool = False
    limit: int = Field(default=20, ge=1, le=500)


class PatternReply(Reply):
    """One pattern with its evidence."""

    pattern: PatternDetail


class GetPattern(Query[PatternReply]):
    """One pattern by id; refused with 404 when there is none."""

    subject: ClassVar[str] = "ask.pattern_detector.patterns.get.v1"
    reply: ClassVar[type[Reply]] = PatternReply

    pattern_id: UUID


class DetectorStatus(Reply):
    """How far the detector is: the signals in its projection, and its newest run."""

    signals: int
    unprocessed: int
    patterns: int
    heard: int = Field(default=0, description="`signal.created` events that took effect")
    last_run_id: UUID | None = None
    last_run_at: Instant | None = None
    last_request_id: UUID | None = None


class GetDetectorStatus(Query[DetectorStatus]):
    """The detector's view of one touchpoint, or of all."""

    subject: ClassVar[str] = "ask.pattern_detector.status.get.v1"
    reply: ClassVar[type[Reply]] = DetectorStatus

    touchpoint_id: TouchpointId | None = None
    workspace_ids: tuple[UUID, ...] | None = Field(default=None, description="None: no limit by workspace")
