"""The version ledger: what is live, since when, by whom and why."""

from __future__ import annotations

from typing import Any, ClassVar, Literal
from uuid import UUID

from pydantic import AwareDatetime, Field

from libs.contracts.envelope import EventData, Frozen
from libs.contracts.proposals import PromptPart
from libs.contracts.vocabulary import Adapter, Name, Sha256, ShortText, TouchpointId, VersionRef


class LivePrompt(Frozen):
    """The prompt that is live for a touchpoint (in a workspace), with its text and hash."""

    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    activation_id: UUID
    version_ref: VersionRef
    adapter: Adapter
    content_sha256: Sha256
    parts: tuple[PromptPart, ...]
    activated_at: AwareDatetime


class LedgerEntry(Frozen):
    """One line of the hash-chained ledger. `entry_sha256` covers the line and the hash of the line before."""

    seq: int
    kind: Literal["registered", "activated", "rolled_back", "intent", "confirmed", "intent_closed", "drift", "waiver"]
    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    version_ref: VersionRef | None = None
    previous_ref: VersionRef | None = None
    proposal_id: UUID | None = None
    by: Name
    reason: ShortText = ""
    at: AwareDatetime
    detail: dict[str, Any] = Field(default_factory=dict)
    previous_sha256: Sha256
    entry_sha256: Sha256


class VersionActivatedV1(EventData):
    """A version became the one live version of its touchpoint (and workspace)."""

    type: ClassVar[str] = "refinement.version.activated.v1"

    activation_id: UUID
    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    version_ref: VersionRef
    previous_ref: VersionRef | None = None
    adapter: Adapter
    content_sha256: Sha256
    proposal_id: UUID | None = None
    activated_by: Name
    activated_at: AwareDatetime

    def natural_key(self) -> str:
        """The activation."""
        return str(self.activation_id)


class VersionRolledBackV1(EventData):
    """An earlier version was put back, and why."""

    type: ClassVar[str] = "refinement.version.rolled_back.v1"

    activation_id: UUID
    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    from_version: VersionRef
    to_version: VersionRef
    adapter: Adapter
    content_sha256: Sha256
    proposal_id: UUID | None = Field(default=None, description="the proposal whose version was rolled back")
    reason: ShortText
    rolled_back_by: Name
    rolled_back_at: AwareDatetime

    def natural_key(self) -> str:
        """The activation that put the earlier version back."""
        return str(self.activation_id)


class RollbackProposedV1(EventData):
    """A person is asked to roll back; nothing has changed yet."""

    type: ClassVar[str] = "refinement.rollback.proposed.v1"

    rollback_id: UUID
    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    from_version: VersionRef
    to_version: VersionRef
    reason: ShortText
    drifted: bool
    proposed_by: Name

    def natural_key(self) -> str:
        """The rollback proposal."""
        return str(self.rollback_id)


class DriftDetectedV1(EventData):
    """The stored text is no longer the text of the live version."""

    type: ClassVar[str] = "refinement.drift.detected.v1"

    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    activation_id: UUID
    version_ref: VersionRef
    expected_sha256: Sha256
    found_sha256: Sha256 | None = None
    detected_at: AwareDatetime

    def natural_key(self) -> str:
        """The live version and what stands in its place."""
        return f"{self.activation_id}|{self.found_sha256}"


class ExposureRecordedV1(EventData):
    """How often a version was served in a window of time; aggregated, never one event a call."""

    type: ClassVar[str] = "refinement.exposure.recorded.v1"

    exposure_id: UUID
    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    version_ref: VersionRef
    count: int = Field(ge=1)
    window_start: AwareDatetime
    window_end: AwareDatetime

    def natural_key(self) -> str:
        """The report."""
        return str(self.exposure_id)
