"""What the registry does when it hears an event."""

from __future__ import annotations

from typing import Any
from uuid import uuid5

from libs.contracts.envelope import EVENT_NAMESPACE, Event
from libs.contracts.events.pattern_detector import ActivationJudgedV1
from libs.contracts.events.proposal import ProposalApprovedV1
from libs.contracts.events.registry import RollbackProposedV1
from libs.contracts.prompts import content_sha256
from libs.service_kit import logging
from libs.service_kit.db import Database, Transaction
from libs.service_kit.errors import Poison
from services.registry import metrics
from services.registry.adapters.base import ImmediateStore, StorageError, text_bytes
from services.registry.domain import Target, previous_version
from services.registry.ledger import Change, Ledger, Switched, announce, require_stamp, switch
from services.registry.pending_merges import PendingMerges, approver, close_stale, fits, waiver_lines
from services.registry.store import findings, touchpoints, versions
from services.registry.stores import immediate

log = logging.get(__name__)


async def on_proposal_approved(
    event: Event[ProposalApprovedV1], db: Database, ledger: Ledger, pending_merges: PendingMerges
) -> None:
    """Tier 1: live at once. Tier 2: an intent and a branch. A proposal for an older version only leaves a line."""
    approved = event.data
    _require_sound(approved)
    async with db.connection() as conn:
        registered = await touchpoints.get(conn, approved.touchpoint_id)
    if registered is None:
        raise Poison(f"there is no touchpoint {approved.touchpoint_id}")
    store = immediate(registered.touchpoint)
    if store is None:
        await pending_merges.take_up(event)
        return
    switched = await ledger.transact(lambda tx: _activate_at_once(tx, approved, store), inbox=event)
    if switched is not None:
        announce(switched)


def _require_sound(approved: ProposalApprovedV1) -> None:
    try:
        text_bytes(approved.parts)
    except StorageError as error:
        raise Poison(f"proposal {approved.proposal_id}: {error}") from error
    if content_sha256(approved.parts) != approved.content_sha256:
        raise Poison(f"proposal {approved.proposal_id}: the text is not the one with the approved hash")


async def _activate_at_once(
    tx: Transaction[Any], approved: ProposalApprovedV1, store: ImmediateStore
) -> Switched | None:
    if not tx.fresh:
        return None
    target = Target(approved.touchpoint_id, approved.workspace_id)
    live = await versions.live_for_update(tx.conn, target)
    if live is None or not fits(approved, live):
        await close_stale(tx, approved, live)
        return None
    by = approver(approved)
    try:
        found = await store.current(tx.conn, target)
        if found.content_sha256 != live.content_sha256:
            raise StorageError("conflict", f"The stored text of {target} is not the one that is live.")
        text = await store.record(
            tx.conn,
            target,
            approved.parts,
            by=by,
            origin="proposal",
            proposal_id=approved.proposal_id,
            note=approved.title,
        )
    except StorageError as error:
        raise Poison(f"proposal {approved.proposal_id}: {error}") from error
    stamp = await require_stamp(tx, target, text.version_ref)
    change = Change(
        "activated",
        target,
        text.version,
        stamp.adapter,
        by,
        approved.title or f"proposal {approved.proposal_id}",
        approved.proposal_id,
        detail={"ab_run_id": str(approved.ab_run_id)} if approved.ab_run_id else {},
        before=tuple(waiver_lines(target, by, approved.proposal_id, approved.waiver)),
    )
    return await switch(tx, change, expected_live=live.version_ref)


async def on_activation_judged(event: Event[ActivationJudgedV1], db: Database) -> None:
    """Keep the verdict; where the live version made it worse, a person is asked to roll back."""
    judged = event.data
    async with db.transaction(inbox=event) as tx:
        if not tx.fresh:
            return
        await findings.judged(tx.conn, judged)
        activation = await versions.get(tx.conn, judged.activation_id)
        if judged.verdict != "worse" or activation is None or activation.rolled_back_at is not None:
            return
        previous = previous_version(await versions.steps(tx.conn, activation.target))
        if previous is None:
            return
        tx.emit(
            RollbackProposedV1(
                rollback_id=uuid5(EVENT_NAMESPACE, f"judged|{activation.id}"),
                touchpoint_id=activation.target.touchpoint_id,
                workspace_id=activation.target.workspace_id,
                from_version=activation.version_ref,
                to_version=previous,
                reason=f"the fault became more frequent: {judged.rate_ratio:.2f} times the rate before",
                drifted=False,
                proposed_by="burnish",
            )
        )
    metrics.ROLLBACKS_PROPOSED.inc()
    log.warning("refinement.rollback.proposed", touchpoint=activation.target.touchpoint_id)
