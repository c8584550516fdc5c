"""What the scanner answers."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from pydantic import Field

from libs.contracts.envelope import Frozen
from libs.contracts.queries.base import Query, Reply
from libs.contracts.signals import EvidenceRef
from libs.contracts.vocabulary import (
    Instant,
    Name,
    ShortText,
    TouchpointId,
)


class EvidenceStates(Reply):
    """One state a reference, in the order asked: resolved, unresolvable, or unknown (source did not answer)."""

    states: tuple[Name, ...]


class ResolveEvidence(Query[EvidenceStates]):
    """Does the evidence still exist where it was found? Pushed evidence resolves to itself."""

    subject: ClassVar[str] = "ask.scanner.evidence.resolve.v1"
    reply: ClassVar[type[Reply]] = EvidenceStates

    touchpoint_id: TouchpointId
    refs: tuple[EvidenceRef, ...] = Field(max_length=1_000)


class ScanRun(Frozen):
    """One run of one scanner."""

    run_id: UUID
    touchpoint_id: TouchpointId
    scanner: Name
    started_at: Instant
    duration_ms: float
    signals_emitted: int
    ok: bool
    error: ShortText | None = None


class ScanRuns(Reply):
    """Scanner runs, newest first."""

    runs: tuple[ScanRun, ...]


class ListScanRuns(Query[ScanRuns]):
    """The newest runs, of one touchpoint or of all."""

    subject: ClassVar[str] = "ask.scanner.runs.list.v1"
    reply: ClassVar[type[Reply]] = ScanRuns

    touchpoint_id: TouchpointId | None = None
    shared_only: bool = Field(default=False, description="without those over several workspaces")
    limit: int = Field(default=50, ge=1, le=500)
