"""Runs the sources that are due: each in its own task with its own time limit, so that none holds up another."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any
from uuid import uuid4

from libs.contracts.events.scanner import ScannerRunV1
from libs.contracts.queries.scanner import ScanRun
from libs.service_kit import logging
from libs.service_kit.db import Database, Transaction
from services.scanner import domain, metrics, store
from services.scanner.domain import Finding, Watermark
from services.scanner.platform import Platform, PlatformError
from services.scanner.scanners import BadOptions, SignalSource, scanner_for
from services.scanner.settings import Settings
from services.scanner.store import Leased

log = logging.get(__name__)

STOP_PATIENCE_S = 5.0


class LeaseLost(Exception):
    """The source was changed, or taken by another replica: this run must leave it alone."""


@dataclass
class Tally:
    """What a run has come to so far."""

    emitted: int = 0
    unusable: int = 0
    first_unusable: domain.Unusable | None = None
    more: bool = False

    @property
    def error(self) -> str | None:
        """What is wrong with rows that were skipped, if any were."""
        if self.first_unusable is None:
            return None
        one = self.first_unusable
        return f"{self.unusable} rows cannot be signals and were skipped, first {one.source_key}: {one.why}"


class Runner:
    """Takes due sources and runs them. `tick()` returns at once; `stop()` ends what is running."""

    def __init__(self, db: Database, platform: Platform, settings: Settings) -> None:
        self._db = db
        self._platform = platform
        self._settings = settings
        self._lease = timedelta(seconds=settings.scan_lease_s)
        self._overlap = timedelta(seconds=settings.scan_overlap_s)
        self._running: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def tick(self) -> None:
        """Start every source that is due, as far as there are free slots."""
        free = self._settings.scan_slots - len(self._running)
        if free <= 0 or self._stopping:
            return
        async with self._db.transaction() as tx:
            due = await store.lease_due(tx.conn, free, self._lease)
        for leased in due:
            task = asyncio.create_task(self._run(leased), name=f"scan {leased.source.name}")
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def idle(self) -> None:
        """Wait until nothing is running."""
        while self._running:
            await asyncio.wait(self._running)

    async def stop(self) -> None:
        """Let the page in hand be finished, then cut; sources that were not finished stay due."""
        self._stopping = True
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=STOP_PATIENCE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._platform.close()

    # --- one run ------------------------------------------------------------------------------------------

    async def _run(self, leased: Leased) -> None:
        source, tally, error = leased.source, Tally(), None
        started_at, started = datetime.now(UTC), perf_counter()
        try:
            async with asyncio.timeout(self._settings.scan_timeout_s):
                await self._scan(leased, tally)
        except LeaseLost:
            log.info("scan.left", touchpoint=source.touchpoint_id, scanner_name=source.name)
        except asyncio.CancelledError:
            await self._give_back(leased)
            raise
        except Exception as trouble:
            error = self._told(trouble)
        run = ScanRun(
            run_id=uuid4(),
            touchpoint_id=source.touchpoint_id,
            scanner=source.name,
            started_at=started_at,
            duration_ms=round((perf_counter() - started) * 1000, 3),
            signals_emitted=tally.emitted,
            ok=(error or tally.error) is None,
            error=error or tally.error,
        )
        await self._finish(leased, run, tally)

    async def _scan(self, leased: Leased, tally: Tally) -> None:
        source = leased.source
        scanner = scanner_for(source.scanner, source.options)
        async with self._db.connection() as conn:
            since = await store.watermark(conn, source)
        async with self._platform.connection(scanner.options.dsn_env) as conn:
            clock: datetime = await conn.fetchval("SELECT now()")
        for _ in range(self._settings.scan_pages):
            found = await self._page(scanner, leased, since)
            tally.more = len(found) == self._settings.scan_page_rows
            if found:
                since = found[-1].place
            await self._keep(leased, found, domain.resume_at(since, clock, self._overlap), tally)
            if not tally.more or self._stopping:
                return

    async def _page(self, scanner: SignalSource[Any], leased: Leased, since: Watermark) -> list[Finding]:
        async with self._platform.connection(scanner.options.dsn_env) as conn:
            return await scanner.scan(conn, leased.source.scope, since, self._settings.scan_page_rows)

    async def _keep(self, leased: Leased, found: list[Finding], resume: Watermark, tally: Tally) -> None:
        """Say what was found and move the watermark, in one transaction."""
        source = leased.source
        signals, unusable = domain.observed(source.touchpoint_id, found)
        async with self._db.transaction() as tx:
            if not await store.renew(tx.conn, leased.lease, self._lease):
                raise LeaseLost
            fresh = await store.unsaid(tx.conn, source, signals)
            tx.emit(*fresh)
            await store.advance(tx.conn, source, resume)
        tally.emitted += len(fresh)
        tally.unusable += len(unusable)
        tally.first_unusable = tally.first_unusable or next(iter(unusable), None)

    async def _finish(self, leased: Leased, run: ScanRun, tally: Tally) -> None:
        failures = 0 if run.ok else leased.failures + 1
        async with self._db.transaction() as tx:
            await record(tx, run)
            await store.rest(tx.conn, leased.lease, failures, self._wait(leased, failures, tally.more))
        announce(run)

    def _wait(self, leased: Leased, failures: int, more: bool) -> timedelta:
        every_s = leased.source.every_s
        if failures:
            return timedelta(seconds=domain.backoff_s(every_s, failures, self._settings.scan_backoff_most_s))
        return timedelta(seconds=0.0 if more else every_s)

    async def _give_back(self, leased: Leased) -> None:
        with suppress(Exception):
            async with self._db.transaction() as tx:
                await store.release(tx.conn, leased.lease)

    def _told(self, error: Exception) -> str:
        if isinstance(error, PlatformError | BadOptions):
            return str(error)[:2000]
        if isinstance(error, TimeoutError):
            return f"took longer than {self._settings.scan_timeout_s:g} s"
        return logging.describe(error)


async def record(tx: Transaction[Any], run: ScanRun, **because: Any) -> None:
    """Record a run and say it, in the transaction of what it found. `because` is passed on to `tx.emit`."""
    await store.add_run(tx.conn, run)
    tx.emit(ScannerRunV1(**run.model_dump()), **because)


def announce(run: ScanRun) -> None:
    """Tell the log and the metrics about a run: every run, so that a dead scanner shows."""
    metrics.observe(run)
    tell = log.info if run.ok else log.warning
    tell(
        "refinement.scanner.run",
        touchpoint=run.touchpoint_id,
        scanner_name=run.scanner,
        signals_emitted=run.signals_emitted,
        duration_ms=run.duration_ms,
        ok=run.ok,
        error=run.error,
    )
