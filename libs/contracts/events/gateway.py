"""What applications report through the gateway."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from pydantic import Field

from libs.contracts.envelope import EventData
from libs.contracts.vocabulary import Instant, TouchpointId, VersionRef


class ExposureRecordedV1(EventData):
    """How often a version was served in a window of time; aggregated, never one event a call."""

    type: ClassVar[str] = "refinement.exposure.recorded.v1"

    exposure_id: UUID
    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    version_ref: VersionRef
    count: int = Field(ge=1)
    window_start: Instant
    window_end: Instant

    def natural_key(self) -> str:
        return str(self.exposure_id)
