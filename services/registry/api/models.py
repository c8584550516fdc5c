"""What the API shows of versions, intents and rollbacks."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from pydantic import AwareDatetime, BaseModel

from libs.contracts.vocabulary import Adapter
from services.registry.pending_merges import ProposedRollback
from services.registry.store.intents import Intent
from services.registry.store.versions import Activation, Text


class ActivationView(BaseModel):
    """One row of the version registry: live, or live from `activated_at` to `rolled_back_at`."""

    activation_id: UUID
    touchpoint_id: str
    workspace_id: UUID | None
    version_ref: str
    adapter: Adapter
    content_sha256: str
    proposal_id: UUID | None
    activated_at: AwareDatetime
    activated_by: str
    rolled_back_at: AwareDatetime | None
    rolled_back_from: UUID | None
    notes: str
    live: bool

    @classmethod
    def of(cls, row: Activation) -> ActivationView:
        """The row as it is shown."""
        return cls(
            activation_id=row.id,
            touchpoint_id=row.target.touchpoint_id,
            workspace_id=row.target.workspace_id,
            version_ref=row.version_ref,
            adapter=row.adapter,
            content_sha256=row.content_sha256,
            proposal_id=row.proposal_id,
            activated_at=row.activated_at,
            activated_by=row.activated_by,
            rolled_back_at=row.rolled_back_at,
            rolled_back_from=row.rolled_back_from,
            notes=row.notes,
            live=row.rolled_back_at is None,
        )


class VersionView(BaseModel):
    """One recorded text, live or not. Its parts are read with `GET …/versions/{version_ref}`."""

    version_ref: str
    content_sha256: str
    origin: str
    proposal_id: UUID | None
    note: str
    created_by: str
    created_at: AwareDatetime | None

    @classmethod
    def of(cls, text: Text) -> VersionView:
        """The version as it is shown."""
        return cls(
            version_ref=text.version_ref,
            content_sha256=text.content_sha256,
            origin=text.origin,
            proposal_id=text.proposal_id,
            note=text.note,
            created_by=text.created_by,
            created_at=text.created_at,
        )


class IntentView(BaseModel):
    """A change or rollback that a person merges. `error` says what stands in the way of a failed one."""

    intent_id: UUID
    kind: Literal["activate", "rollback"]
    state: str
    touchpoint_id: str
    workspace_id: UUID | None
    proposal_id: UUID | None
    from_version: str
    to_version: str | None
    content_sha256: str
    branch: str | None
    commit: str | None
    diff: str | None
    error_code: str | None
    error: str | None
    confirmed_by: str | None
    reason: str
    created_by: str
    created_at: AwareDatetime | None
    updated_at: AwareDatetime | None

    @classmethod
    def of(cls, intent: Intent) -> IntentView:
        """The intent as it is shown."""
        return cls(
            intent_id=intent.intent_id,
            kind=intent.kind,
            state=intent.state,
            touchpoint_id=intent.target.touchpoint_id,
            workspace_id=intent.target.workspace_id,
            proposal_id=intent.proposal_id,
            from_version=intent.from_ref,
            to_version=intent.to_ref,
            content_sha256=intent.content_sha256,
            branch=intent.branch,
            commit=intent.commit,
            diff=intent.diff,
            error_code=intent.error_code,
            error=intent.error,
            confirmed_by=intent.confirmed_at,
            reason=intent.message,
            created_by=intent.created_by,
            created_at=intent.created_at,
            updated_at=intent.updated_at,
        )


class IntentList(BaseModel):
    """Intents, newest first."""

    intents: list[IntentView]


class DriftView(BaseModel):
    """SHA-256 at activation against now."""

    expected_sha256: str
    found_sha256: str
    drifted: bool
    warning: str | None


class RollbackProposalView(BaseModel):
    """How a person gets the earlier version back. Nothing in the repository has changed."""

    intent_id: UUID
    touchpoint_id: str
    from_version: str
    to_version: str
    content_sha256: str
    base_commit: str
    diff: str
    revert_commit: str
    revert_restores: bool
    files: list[str]
    redeploy_required: bool
    post_apply: list[str]
    explanation: str
    drift: DriftView
    warnings: list[str]

    @classmethod
    def of(cls, rollback: ProposedRollback) -> RollbackProposalView:
        """The rollback as it is shown."""
        proposal = rollback.proposal
        return cls(
            intent_id=rollback.intent_id,
            touchpoint_id=rollback.target.touchpoint_id,
            from_version=rollback.from_version,
            to_version=proposal.target_version_ref,
            content_sha256=proposal.content_sha256,
            base_commit=proposal.base_commit,
            diff=proposal.diff,
            revert_commit=proposal.revert_commit,
            revert_restores=proposal.revert_restores,
            files=list(proposal.files),
            redeploy_required=proposal.redeploy_required,
            post_apply=list(proposal.post_apply),
            explanation=proposal.explanation,
            drift=DriftView(
                expected_sha256=proposal.drift.expected_sha256,
                found_sha256=proposal.drift.found_sha256,
                drifted=proposal.drift.drifted,
                warning=proposal.drift.warning,
            ),
            warnings=list(proposal.warnings),
        )


class RollbackView(BaseModel):
    """Tier 1: `activation` is live already. Tier 2: `proposal` is for a person to carry out."""

    tier: Literal[1, 2]
    activation: ActivationView | None = None
    proposal: RollbackProposalView | None = None
