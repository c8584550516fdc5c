"""What the registry shows of its rows, as the contracts say it."""

from __future__ import annotations

from collections.abc import Sequence

from libs.contracts.queries.registry import (
    ActivationView,
    ChangeView,
    DriftView,
    IntentView,
    Plan,
    PlannedView,
    RollbackProposalView,
    TouchpointView,
    VersionView,
)
from services.registry.pending_merges import ProposedRollback
from services.registry.registration import Planned
from services.registry.store.intents import Intent
from services.registry.store.touchpoints import Registered
from services.registry.store.versions import Activation, Text
from services.registry.stores import is_immediate


def activation(row: Activation) -> ActivationView:
    """One row of the version registry."""
    return ActivationView(
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


def version(text: Text) -> VersionView:
    """One recorded text, without its parts."""
    return VersionView(
        version_ref=text.version_ref,
        content_sha256=text.content_sha256,
        origin=text.origin,
        proposal_id=text.proposal_id,
        note=text.note,
        created_by=text.created_by,
        created_at=text.created_at,
    )


def intent(intent: Intent) -> IntentView:
    """One change or rollback that a person merges."""
    return IntentView(
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


def rollback(proposed: ProposedRollback) -> RollbackProposalView:
    """A rollback that a person carries out."""
    proposal = proposed.proposal
    return RollbackProposalView(
        intent_id=proposed.intent_id,
        touchpoint_id=proposed.target.touchpoint_id,
        from_version=proposed.from_version,
        to_version=proposal.target_version_ref,
        content_sha256=proposal.content_sha256,
        base_commit=proposal.base_commit,
        diff=proposal.diff,
        revert_commit=proposal.revert_commit,
        revert_restores=proposal.revert_restores,
        files=tuple(proposal.files),
        redeploy_required=proposal.redeploy_required,
        post_apply=tuple(proposal.post_apply),
        explanation=proposal.explanation,
        drift=DriftView(
            expected_sha256=proposal.drift.expected_sha256,
            found_sha256=proposal.drift.found_sha256,
            drifted=proposal.drift.drifted,
            warning=proposal.drift.warning,
        ),
        warnings=tuple(proposal.warnings),
    )


def plan(planned: Sequence[Planned]) -> Plan:
    """What an apply does, or did."""
    return Plan(
        touchpoints=tuple(
            PlannedView(
                touchpoint_id=each.touchpoint_id,
                action=each.action,
                revision=each.revision,
                changes=tuple(ChangeView(field=c.field, before=c.before, after=c.after) for c in each.changes),
                live=each.live,
                content_sha256=each.content_sha256,
            )
            for each in planned
        )
    )


def touchpoint(registered: Registered) -> TouchpointView:
    """A registered touchpoint."""
    return TouchpointView(
        touchpoint=registered.touchpoint,
        tier=1 if is_immediate(registered.touchpoint.storage.adapter) else 2,
        revision=registered.revision,
        registered_by=registered.registered_by,
        registered_at=registered.registered_at,
        updated_at=registered.updated_at,
    )
