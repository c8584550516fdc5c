"""Compares what is stored with what was activated, and says when somebody edited behind the ledger's back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from libs.contracts.events.registry import DriftDetectedV1
from libs.contracts.touchpoints import Touchpoint
from libs.service_kit import logging
from libs.service_kit.db import Database, Transaction
from services.registry import metrics
from services.registry.adapters.base import StorageError, StorageErrorCode
from services.registry.domain import Line, instant
from services.registry.ledger import Ledger
from services.registry.looks import Looks
from services.registry.pending_merges import PendingMerges
from services.registry.store import entries, findings, touchpoints, versions
from services.registry.store.versions import Activation
from services.registry.stores import MergedStores, immediate

log = logging.get(__name__)

UNKNOWN: tuple[StorageErrorCode, ...] = (
    "git_timeout",
    "git_failed",
    "git_missing",
    "repository_damaged",
    "repository_not_allowed",
)
"""Trouble in looking, which says nothing about the text."""


class DriftCheck:
    """Checks every live version, each by itself: a store that cannot be looked at says nothing about the others."""

    def __init__(self, db: Database, ledger: Ledger, pending_merges: PendingMerges, stores: MergedStores) -> None:
        self._db = db
        self._ledger = ledger
        self._pending_merges = pending_merges
        self._stores = stores
        self._looks = Looks()

    async def check(self) -> int:
        """How many live versions have drifted now. Each edit is told once."""
        await self._pending_merges.check()
        async with self._db.connection() as conn:
            live = await versions.all_live(conn)
            registered = {each.touchpoint.id: each.touchpoint for each in await touchpoints.all_of_them(conn)}
        drifted: list[Activation] = []

        async def look(activation: Activation) -> None:
            touchpoint = registered[activation.target.touchpoint_id]
            found = await _found(self._db, self._stores, touchpoint, activation)
            if touchpoint.active and found != activation.content_sha256:
                drifted.append(activation)
                await _record_drift(self._ledger, activation, found)

        unknown = await self._looks.over(live, lambda activation: activation.target.touchpoint_id, look, _unknown)
        metrics.DRIFTED.set(len(drifted))
        metrics.DRIFT_UNKNOWN.set(unknown)
        return len(drifted)


async def _unknown(activation: Activation, error: Exception) -> None:
    code = error.code if isinstance(error, StorageError) else type(error).__name__
    log.warning("drift.unknown", touchpoint=activation.target.touchpoint_id, code=code)


async def _found(db: Database, stores: MergedStores, touchpoint: Touchpoint, activation: Activation) -> str | None:
    """The hash of what stands in the store now; None when no readable text does. Raises StorageError in doubt."""
    store = immediate(touchpoint)
    try:
        if store is None:
            return (await stores.of(touchpoint).current()).content_sha256
        async with db.connection() as conn:
            return (await store.current(conn, activation.target)).content_sha256
    except StorageError as error:
        if error.code in UNKNOWN:
            raise
        return None


async def _record_drift(ledger: Ledger, activation: Activation, found: str | None) -> None:
    async def work(tx: Transaction[Any]) -> bool:
        live = await versions.live_for_update(tx.conn, activation.target)
        if live is None or live.id != activation.id:
            return False
        head = await entries.lock_head(tx.conn)
        if not await findings.drifted(tx.conn, activation.id, found, head.now):
            return False
        await entries.append(tx.conn, head, _line(activation, found, head.now))
        tx.emit(_fact(activation, found))
        return True

    if await ledger.transact(work):
        metrics.DRIFT_DETECTED.inc()
        log.warning(
            "refinement.drift.detected",
            touchpoint=activation.target.touchpoint_id,
            version_ref=activation.version_ref,
        )


def _line(activation: Activation, found: str | None, at: datetime) -> Line:
    return Line(
        "drift",
        activation.target,
        "burnish",
        "the stored text is not the one that was activated" if found else "there is no readable text",
        version_ref=activation.version_ref,
        detail={
            "activation_id": str(activation.id),
            "expected_sha256": activation.content_sha256,
            "found_sha256": found,
            "found_at": instant(at),
        },
    )


def _fact(activation: Activation, found: str | None) -> DriftDetectedV1:
    return DriftDetectedV1(
        touchpoint_id=activation.target.touchpoint_id,
        workspace_id=activation.target.workspace_id,
        activation_id=activation.id,
        version_ref=activation.version_ref,
        expected_sha256=activation.content_sha256,
        found_sha256=found,
        detected_at=datetime.now(UTC),
    )
