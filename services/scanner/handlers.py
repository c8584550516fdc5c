"""What the scanner does with each event and query: a function each, of the message and its dependencies."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid5

from libs import touchpoints
from libs.contracts.envelope import EVENT_NAMESPACE, Event
from libs.contracts.events.ab_runner import EvalRegressedV1
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.events.scanner import ScanRequestedV1
from libs.contracts.queries.scanner import EvidenceStates, ListScanRuns, ResolveEvidence, ScanRun, ScanRuns
from libs.contracts.signals import EvidenceRef
from libs.contracts.touchpoints import Touchpoint
from libs.service_kit import logging
from libs.service_kit.db import Database, Transaction
from services.scanner import domain, runner, store
from services.scanner.domain import Source
from services.scanner.platform import Platform, PlatformError
from services.scanner.scanners import HEARD, SCANNERS, BadOptions, scanner_for

log = logging.get(__name__)

RESOLVED, UNRESOLVABLE, UNKNOWN = "resolved", "unresolvable", "unknown"


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


# --- queries ----------------------------------------------------------------------------------------------


async def answer_runs(query: ListScanRuns, db: Database) -> ScanRuns:
    """The newest runs."""
    async with db.connection() as conn:
        return ScanRuns(runs=tuple(await store.runs(conn, query)))


async def answer_resolve(query: ResolveEvidence, db: Database, platform: Platform, timeout_s: float) -> EvidenceStates:
    """Look up each reference where it was found.

    What no scanner reads (pushed signals, evaluations) resolves to itself. Where the platform does not answer
    within `timeout_s`, or the touchpoint no longer has the scanner, the state is unknown, which counts against nobody.
    """
    asked: dict[str, set[UUID]] = defaultdict(set)
    tables = {scanner.table for scanner in SCANNERS.values()}
    for ref in query.refs:
        if ref.source in tables and (row_id := _uuid(ref.id)):
            asked[ref.source].add(row_id)
    async with db.connection() as conn:
        sources = await store.sources(conn, query.touchpoint_id)
    look_ups = (_existing(sources, table, ids, platform, timeout_s) for table, ids in asked.items())
    looked_up = dict(zip(asked, await asyncio.gather(*look_ups), strict=True))
    return EvidenceStates(states=tuple(_state(ref, tables, looked_up) for ref in query.refs))


def _state(ref: EvidenceRef, tables: set[str], looked_up: dict[str, tuple[set[UUID], bool]]) -> str:
    if ref.source not in tables:
        return RESOLVED
    row_id = _uuid(ref.id)
    if row_id is None:
        return UNRESOLVABLE
    there, certain = looked_up[ref.source]
    if row_id in there:
        return RESOLVED
    return UNRESOLVABLE if certain else UNKNOWN


async def _existing(
    sources: Sequence[Source], table: str, row_ids: set[UUID], platform: Platform, timeout_s: float
) -> tuple[set[UUID], bool]:
    """The rows found in any of the touchpoint's sources of this table, and whether every one of them answered."""
    there: set[UUID] = set()
    answered = []
    for source in sources:
        if source.scanner not in SCANNERS or SCANNERS[source.scanner].table != table:
            continue
        try:
            scanner = scanner_for(source.scanner, source.options)
            async with asyncio.timeout(timeout_s), platform.connection(scanner.options.dsn_env) as conn:
                there |= await scanner.existing(conn, list(row_ids))
            answered.append(True)
        except (PlatformError, BadOptions, TimeoutError) as error:
            log.warning("evidence.unknown", touchpoint=source.touchpoint_id, error=type(error).__name__)
            answered.append(False)
    return there, bool(answered) and all(answered)


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text or "")
    except ValueError:
        return None
