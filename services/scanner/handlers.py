"""What the scanner does with each event: a function each, of the event and its dependencies."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import uuid5

from libs import touchpoints
from libs.contracts.envelope import EVENT_NAMESPACE, Event
from libs.contracts.events.ab_runner import EvalRegressedV1
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.events.scanner import ScanRequestedV1
from libs.contracts.queries.scanner import ScanRun
from libs.contracts.touchpoints import Touchpoint
from libs.service_kit import logging
from libs.service_kit.db import Database, Transaction
from services.scanner import domain, runner, store
from services.scanner.scanners import HEARD

log = logging.get(__name__)


class NotRegisteredYet(Exception):
    """A scan of a touchpoint that is not known: its registration may still be on its way, so it is tried again."""


async def keep_sources(tx: Transaction[TouchpointRegisteredV1], registered: Sequence[Touchpoint]) -> None:
    """Keep the sources of touchpoints that are new or changed; a source that changed is due at once."""
    for touchpoint in registered:
        await store.save_sources(tx.conn, touchpoint.id, domain.sources_of(touchpoint, HEARD))


async def on_scan_requested(event: Event[ScanRequestedV1], db: Database) -> None:
    """Make the sources asked for due now. The runner takes them within a second."""
    wanted = event.data
    async with db.transaction(inbox=event) as tx:
        if not tx.fresh:
            return
        due = await store.request(tx.conn, wanted.touchpoint_id, wanted.scanner)
        if not due and wanted.touchpoint_id and await touchpoints.get(tx.conn, wanted.touchpoint_id) is None:
            raise NotRegisteredYet(f"no touchpoint {wanted.touchpoint_id!r} is registered")
    log.info("scan.requested", touchpoint=wanted.touchpoint_id, scanner_name=wanted.scanner, sources=due)


async def on_evals_regressed(events: list[Event[EvalRegressedV1]], db: Database) -> None:
    """Turn each metric that fell into a signal; hearing one is a run of the scanner `eval_regression`."""
    runs = []
    async with db.transaction(inbox=events) as tx:
        for event in tx.fresh:
            tx.emit(domain.regression(event), cause=event)
            run = _regression_run(event)
            await runner.record(tx, run, cause=event)
            runs.append(run)
    for run in runs:
        runner.announce(run)


def _regression_run(event: Event[EvalRegressedV1]) -> ScanRun:
    return ScanRun(
        run_id=uuid5(EVENT_NAMESPACE, f"scan|{event.id}"),
        touchpoint_id=event.data.touchpoint_id,
        scanner=domain.EVAL_REGRESSION,
        started_at=event.time,
        duration_ms=0.0,
        signals_emitted=1,
        ok=True,
    )


async def forget_old_runs(db: Database, kept: timedelta) -> None:
    """Delete runs that are older than `kept`."""
    async with db.transaction() as tx:
        await store.forget_runs(tx.conn, datetime.now(UTC) - kept)
