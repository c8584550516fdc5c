from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.events.scanner import ScannerRunV1
from libs.service_kit.db import Connection
from libs.service_kit.testing import outbox_events
from services.scanner import handlers, runner, scanners, store
from services.scanner.domain import Finding, Watermark
from services.scanner.scanners.si_flag import SiFlagScanner
from services.scanner.tests.support import PlatformTables, Scanning, at, registered, source

NO_WAIT = timedelta(0)


async def keys(scanning: Scanning) -> list[str]:
    return [event.data.source_key for event in await outbox_events(scanning.db, SignalObservedV1)]


async def waits_s(scanning: Scanning) -> float:
    async with scanning.db.connection() as conn:
        value = await conn.fetchval("SELECT extract(epoch FROM next_run_at - now()) FROM sources")
    return float(value)


async def test_what_is_found_is_said_once_and_every_run_is_recorded(scanning: Scanning, tables: PlatformTables) -> None:
    flag = await tables.flag()
    await scanning.register(registered())
    [first] = await scanning.scan()
    [second] = await scanning.scan()
    assert await keys(scanning) == [f"feed_flags:{flag}"]
    assert (first.signals_emitted, first.ok, second.signals_emitted, second.ok) == (1, True, 0, True)
    runs = [event.data for event in await outbox_events(scanning.db, ScannerRunV1)]
    assert [(run.run_id, run.scanner, run.signals_emitted) for run in runs] == [
        (first.run_id, "si_flag", 1),
        (second.run_id, "si_flag", 0),
    ]


async def test_a_row_that_changes_is_said_again(scanning: Scanning, tables: PlatformTables) -> None:
    flag = await tables.flag()
    await scanning.register(registered())
    await scanning.scan()
    await tables.conn.execute("UPDATE platform.feed_flags SET updated_at = $1 WHERE id = $2", at(5), flag)
    await scanning.scan()
    signals = [event.data for event in await outbox_events(scanning.db, SignalObservedV1)]
    assert [signal.observed_at for signal in signals] == [at(0), at(5)]
    assert signals[0].signal_id == signals[1].signal_id


async def test_many_pages_in_one_run_and_the_rest_in_the_next(scanning: Scanning, tables: PlatformTables) -> None:
    await tables.many_flags(50, at(0))
    small = scanning.another(scan_page_rows=10, scan_pages=3)
    await small.register(registered())
    [first] = await small.scan()
    assert first.signals_emitted == 30
    assert await waits_s(small) <= 0
    [second] = await small.scan()
    assert second.signals_emitted == 20
    assert len(set(await keys(small))) == 50


async def test_a_row_that_is_committed_late_is_found(scanning: Scanning, tables: PlatformTables) -> None:
    """Stamped before the newest row that was read, visible after it: the overlap finds it, and nothing twice."""
    now = datetime.now(UTC)
    await scanning.register(registered())
    newest = await tables.flag(changed_at=now)
    await scanning.scan()
    late = await tables.flag(changed_at=now - timedelta(seconds=5))
    [run] = await scanning.scan()
    assert run.signals_emitted == 1
    assert await keys(scanning) == [f"feed_flags:{newest}", f"feed_flags:{late}"]


async def test_without_the_overlap_it_would_be_lost(scanning: Scanning, tables: PlatformTables) -> None:
    """The control: this is what the overlap is for."""
    now = datetime.now(UTC)
    blind = scanning.another(scan_overlap_s=0.0)
    await blind.register(registered())
    await tables.flag(changed_at=now - timedelta(seconds=1))
    await blind.scan()
    await tables.flag(changed_at=now - timedelta(seconds=5))
    [run] = await blind.scan()
    assert run.signals_emitted == 0


async def test_rows_behind_the_overlap_are_forgotten(scanning: Scanning, tables: PlatformTables) -> None:
    await scanning.register(registered())
    await tables.many_flags(20, at(0))
    await tables.flag(1)
    await scanning.scan()
    async with scanning.db.connection() as conn:
        assert await conn.fetchval("SELECT count(*) FROM recent_rows") == 1
        read_to = await store.watermark(conn, (await store.sources(conn, "support.intent"))[0])
    assert read_to.at == at(1)


async def test_a_failing_source_shows_waits_longer_each_time_and_recovers(
    scanning: Scanning, tables: PlatformTables
) -> None:
    await tables.conn.execute("ALTER TABLE platform.feed_flags RENAME TO gone")
    await scanning.register(registered())
    waits = []
    for _ in range(3):
        [run] = await scanning.scan()
        assert not run.ok
        assert run.error is not None
        assert "does not exist" in run.error
        waits.append(round(await waits_s(scanning)))
    assert waits == [5, 10, 20]
    await tables.conn.execute("ALTER TABLE platform.gone RENAME TO feed_flags")
    await tables.flag()
    [run] = await scanning.scan()
    assert (run.ok, run.error, run.signals_emitted) == (True, None, 1)
    assert round(await waits_s(scanning)) == 60
    assert [event.data.ok for event in await outbox_events(scanning.db, ScannerRunV1)] == [False] * 3 + [True]


async def test_a_misspelt_option_shows_in_the_run_and_in_the_log(
    scanning: Scanning, tables: PlatformTables, capsys: pytest.CaptureFixture[str]
) -> None:
    await scanning.register(registered(source("low_confidence", treshold=0.4)))
    [run] = await scanning.scan()
    assert run.error == (
        "options of low_confidence: treshold: is not an option; "
        "its options are content_types, dsn_env, ignore_workspace, schema, threshold"
    )
    out = "".join(capsys.readouterr())
    assert "refinement.scanner.run" in out
    assert "treshold" in out


async def test_an_unusable_row_shows_and_holds_up_no_other(scanning: Scanning, tables: PlatformTables) -> None:
    flag = await tables.flag()
    await tables.conn.execute("ALTER TABLE platform.feed_articles DROP CONSTRAINT feed_articles_label_confidence_check")
    await tables.conn.execute("UPDATE platform.feed_articles SET label_confidence = 97")
    await tables.flag(1)
    await scanning.register(registered())
    [run] = await scanning.scan()
    assert (run.ok, run.signals_emitted) == (False, 1)
    assert run.error == (
        f"1 rows cannot be signals and were skipped, first feed_flags:{flag}: confidence: less_than_equal"
    )


class Hanging(SiFlagScanner):
    """A platform that does not answer."""

    async def scan(self, conn: Connection, scope: Any, since: Watermark, limit: int) -> list[Finding]:
        await conn.execute("SELECT pg_sleep(60)")
        return []


async def test_a_source_that_hangs_or_is_down_holds_up_no_other(
    scanning: Scanning, tables: PlatformTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(scanners.SCANNERS, "hanging", Hanging)
    await tables.items(0.1)
    quick = scanning.another(scan_timeout_s=0.5)
    await quick.register(
        registered(source("hanging"), source("low_confidence"), source("si_flag", dsn_env="BURNISH_PLATFORM_DOWN"))
    )
    runs = {run.scanner: run for run in await quick.scan()}
    assert (runs["low_confidence"].ok, runs["low_confidence"].signals_emitted) == (True, 1)
    assert runs["hanging"].error == "took longer than 0.5 s"
    assert runs["si_flag"].error is not None
    assert "BURNISH_PLATFORM_DOWN cannot be reached" in runs["si_flag"].error
    assert runs["low_confidence"].duration_ms < 500


async def test_two_replicas_never_run_one_source_at_once(scanning: Scanning, tables: PlatformTables) -> None:
    await scanning.register(registered())
    async with scanning.db.connection() as conn:
        taken = await asyncio.gather(*(take(scanning) for _ in range(4)))
        assert sorted(taken) == [0, 0, 0, 1]
        await conn.execute("UPDATE sources SET leased_until = now() - interval '1 s'")
        assert await take(scanning) == 1


async def take(scanning: Scanning) -> int:
    async with scanning.db.transaction() as tx:
        return len(await store.lease_due(tx.conn, 10, timedelta(seconds=30)))


async def test_a_run_whose_lease_ran_out_says_nothing_more(
    scanning: Scanning, tables: PlatformTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tables.flag()
    await scanning.register(registered())
    whole_scan = SiFlagScanner.scan

    async def overtaken(self: SiFlagScanner, *args: Any) -> list[Finding]:
        async with scanning.db.connection() as conn:
            await conn.execute("UPDATE sources SET lease = gen_random_uuid()")
        return await whole_scan(self, *args)

    monkeypatch.setattr(SiFlagScanner, "scan", overtaken)
    [run] = await scanning.scan()
    assert run.signals_emitted == 0
    assert await keys(scanning) == []


async def test_a_request_makes_it_due_also_while_it_runs(scanning: Scanning, tables: PlatformTables) -> None:
    await scanning.register(registered())
    await scanning.scan()
    async with scanning.db.connection() as conn:
        await conn.execute("UPDATE sources SET next_run_at = now()")
    async with scanning.db.transaction() as tx:
        [leased] = await store.lease_due(tx.conn, 1, timedelta(seconds=30))
    async with scanning.db.transaction() as tx:
        assert await store.request(tx.conn, "support.intent", "si_flag") == 1
    async with scanning.db.transaction() as tx:
        await store.rest(tx.conn, leased.lease, 0, timedelta(seconds=60))
    assert await waits_s(scanning) <= 0


async def test_changed_options_read_everything_anew(scanning: Scanning, tables: PlatformTables) -> None:
    await tables.items(0.3, 0.6)
    await scanning.register(registered(source("low_confidence")))
    [before] = await scanning.scan()
    await scanning.register(registered(source("low_confidence", threshold=0.7), revision=2))
    [after] = await scanning.scan()
    assert (before.signals_emitted, after.signals_emitted) == (1, 2)
    ids = [event.id for event in await outbox_events(scanning.db, SignalObservedV1)]
    assert (len(ids), len(set(ids))) == (3, 2)


async def test_a_new_revision_that_changes_no_source_goes_on(scanning: Scanning, tables: PlatformTables) -> None:
    await tables.flag()
    await scanning.register(registered())
    await scanning.scan()
    await scanning.register(registered(revision=2))
    assert await waits_s(scanning) > 50
    [run] = await scanning.scan()
    assert run.signals_emitted == 0


async def test_removed_and_inactive_sources_are_not_run_and_go_on_later(
    scanning: Scanning, tables: PlatformTables
) -> None:
    await tables.flag()
    await scanning.register(registered())
    await scanning.scan()
    await scanning.register(registered(source("low_confidence"), revision=2))
    assert [run.scanner for run in await scanning.scan()] == ["low_confidence"]
    await scanning.register(registered(active=False, revision=3))
    assert await scanning.scan() == []
    await scanning.register(registered(revision=4))
    [run] = await scanning.scan()
    assert (run.scanner, run.signals_emitted) == ("si_flag", 0)


async def test_an_older_revision_is_ignored(scanning: Scanning) -> None:
    await scanning.register(registered(source("low_confidence"), revision=2), registered(revision=1))
    async with scanning.db.connection() as conn:
        assert [one.name for one in await store.sources(conn, "support.intent")] == ["low_confidence"]


async def test_stopping_gives_the_sources_back(
    scanning: Scanning, tables: PlatformTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "STOP_PATIENCE_S", 0.05)
    monkeypatch.setitem(scanners.SCANNERS, "si_flag", Hanging)
    await scanning.register(registered())
    await scanning.runner.tick()
    await scanning.runner.stop()
    assert await scanning.runs() == []
    assert await take(scanning) == 1


async def test_old_runs_are_forgotten(scanning: Scanning, tables: PlatformTables) -> None:
    await scanning.register(registered())
    await scanning.scan()
    await handlers.forget_old_runs(scanning.db, timedelta(days=1))
    assert len(await scanning.runs()) == 1
    await handlers.forget_old_runs(scanning.db, NO_WAIT)
    assert await scanning.runs() == []
