"""The ledger: what is registered, live, rolled back or found changed."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from pydantic import Field

from libs.contracts.envelope import EventData
from libs.contracts.touchpoints import HeardTouchpoint
from libs.contracts.vocabulary import Adapter, Instant, Name, Sha256, ShortText, TouchpointId, VersionRef


class TouchpointRegisteredV1(EventData):
    """A touchpoint was registered or its configuration changed; `revision` counts up from 1."""

    type: ClassVar[str] = "refinement.touchpoint.registered.v1"

    touchpoint: HeardTouchpoint
    revision: int = Field(ge=1)
    registered_by: Name

    def natural_key(self) -> str:
        """One event a revision."""
        return f"{self.touchpoint.id}|{self.revision}"

    def about(self) -> str:
        return self.touchpoint.id


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
    activated_at: Instant
    ledger_seq: int | None = Field(default=None, description="the number of its ledger entry")

    def natural_key(self) -> str:
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
    rolled_back_at: Instant
    ledger_seq: int | None = Field(default=None, description="the number of its ledger entry")

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
    detected_at: Instant

    def natural_key(self) -> str:
        """The live version and what stands in its place."""
        return f"{self.activation_id}|{self.found_sha256}"
