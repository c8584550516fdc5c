"""Scans: asked for, and how each run went."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from pydantic import Field

from libs.contracts.envelope import EventData
from libs.contracts.vocabulary import (
    Instant,
    Name,
    ShortText,
    TouchpointId,
)


class ScanRequestedV1(EventData):
    """A person asks for a scan now; without a scanner name, of every scanner of the touchpoint."""

    type: ClassVar[str] = "refinement.scan.requested.v1"

    request_id: UUID
    touchpoint_id: TouchpointId | None = None
    scanner: Name | None = None
    requested_by: Name

    def natural_key(self) -> str:
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
    started_at: Instant

    def natural_key(self) -> str:
        return str(self.run_id)
