"""The only SQL on the scanner's own tables. Functions take a connection and never commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg

from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.queries.scanner import ListScanRuns, ScanRun
from libs.service_kit.db import Connection
from libs.service_kit.records import Columns
from services.scanner.domain import Source, Watermark

# --- sources of a touchpoint -------------------------------------------------------------------------------

_DISABLE_OTHERS = """
UPDATE sources SET enabled = false, lease = NULL, leased_until = NULL
WHERE touchpoint_id = $1 AND enabled AND name <> ALL ($2::text[])
"""
# Other options find other rows, so reading begins anew; signals that were said before are the same signals again.
_FORGET_PROGRESS = """
WITH changed AS (
    SELECT touchpoint_id, name FROM sources
    WHERE touchpoint_id = $1 AND name = $2 AND (scanner, scope, options) IS DISTINCT FROM ($3, $4, $5::jsonb)
), watermarks_gone AS (
    DELETE FROM watermarks USING changed
    WHERE watermarks.touchpoint_id = changed.touchpoint_id AND watermarks.source = changed.name
)
DELETE FROM recent_rows USING changed
WHERE recent_rows.touchpoint_id = changed.touchpoint_id AND recent_rows.source = changed.name
"""
_SAVE_SOURCE = """
INSERT INTO sources AS s (touchpoint_id, name, scanner, scope, options, every_s)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (touchpoint_id, name) DO UPDATE SET
    scanner = excluded.scanner, scope = excluded.scope, options = excluded.options, every_s = excluded.every_s,
    enabled = true, failures = 0, next_run_at = now(), lease = NULL, leased_until = NULL
WHERE (s.scanner, s.scope, s.options, s.every_s, s.enabled)
    IS DISTINCT FROM (excluded.scanner, excluded.scope, excluded.options, excluded.every_s, true)
"""


async def save_sources(conn: Connection, touchpoint_id: str, sources: Sequence[Source]) -> None:
    """Make these the touchpoint's sources. One that changed is due at once, and a run of it in progress is cut off."""
    await conn.execute(_DISABLE_OTHERS, touchpoint_id, [source.name for source in sources])
    for source in sources:
        what = (touchpoint_id, source.name, source.scanner, source.scope, dict(source.options))
        await conn.execute(_FORGET_PROGRESS, *what)
        await conn.execute(_SAVE_SOURCE, *what, source.every_s)


async def sources(conn: Connection, touchpoint_id: str) -> list[Source]:
    """The touchpoint's sources that are read now."""
    rows = await conn.fetch("SELECT * FROM sources WHERE touchpoint_id = $1 AND enabled ORDER BY name", touchpoint_id)
    return [_source(row) for row in rows]


_REQUEST = """
UPDATE sources SET next_run_at = now(), requested_at = now()
WHERE enabled AND ($1::text IS NULL OR touchpoint_id = $1) AND ($2::text IS NULL OR scanner = $2 OR name = $2)
"""


async def request(conn: Connection, touchpoint_id: str | None, scanner: str | None) -> int:
    """Make the sources of a touchpoint (or of all) due now, also those that wait after a failure; how many."""
    status = await conn.execute(_REQUEST, touchpoint_id, scanner)
    return int(status.split()[-1])


def _source(row: asyncpg.Record) -> Source:
    return Source(row["touchpoint_id"], row["name"], row["scanner"], row["scope"], row["options"], row["every_s"])


# --- leases -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leased:
    """A source that is this process's to run until the lease ends."""

    source: Source
    lease: UUID
    failures: int


_LEASE_DUE = """
UPDATE sources AS s SET lease = gen_random_uuid(), leased_until = now() + $2, leased_at = now()
FROM (
    SELECT touchpoint_id, name FROM sources
    WHERE enabled AND next_run_at <= now() AND (leased_until IS NULL OR leased_until < now())
    ORDER BY next_run_at LIMIT $1 FOR UPDATE SKIP LOCKED
) AS due
WHERE s.touchpoint_id = due.touchpoint_id AND s.name = due.name
RETURNING s.*
"""
_RENEW = "UPDATE sources SET leased_until = now() + $2 WHERE lease = $1"
_RELEASE = "UPDATE sources SET lease = NULL, leased_until = NULL WHERE lease = $1"
# A request that came while the run was on asks for another one.
_REST = """
UPDATE sources SET lease = NULL, leased_until = NULL, failures = $2,
    next_run_at = CASE WHEN requested_at >= leased_at THEN now() ELSE now() + $3 END
WHERE lease = $1
"""


async def lease_due(conn: Connection, limit: int, lease: timedelta) -> list[Leased]:
    """Take up to `limit` sources that are due and nobody's."""
    rows = await conn.fetch(_LEASE_DUE, limit, lease)
    return [Leased(_source(row), row["lease"], row["failures"]) for row in rows]


async def renew(conn: Connection, lease: UUID, length: timedelta) -> bool:
    """Lengthen the lease and lock its source for this transaction. False when it is no longer ours."""
    return await conn.execute(_RENEW, lease, length) == "UPDATE 1"


async def release(conn: Connection, lease: UUID) -> None:
    """Give the source back; it stays due."""
    await conn.execute(_RELEASE, lease)


async def rest(conn: Connection, lease: UUID, failures: int, wait: timedelta) -> None:
    """Give the source back; it is due again after `wait`."""
    await conn.execute(_REST, lease, failures, wait)


# --- progress ---------------------------------------------------------------------------------------------

_ADVANCE = """
INSERT INTO watermarks (touchpoint_id, source, read_to, row_id) VALUES ($1, $2, $3, $4)
ON CONFLICT (touchpoint_id, source) DO UPDATE SET read_to = excluded.read_to, row_id = excluded.row_id
"""
_UNSAID = """
INSERT INTO recent_rows (touchpoint_id, source, row_key, changed_at)
SELECT $1, $2, row_key, changed_at FROM unnest($3::text[], $4::timestamptz[]) AS t (row_key, changed_at)
ON CONFLICT DO NOTHING
RETURNING row_key
"""
_FORGET_ROWS = "DELETE FROM recent_rows WHERE touchpoint_id = $1 AND source = $2 AND changed_at < $3"


async def watermark(conn: Connection, source: Source) -> Watermark:
    """Where the source is read on from."""
    row = await conn.fetchrow(
        "SELECT read_to, row_id FROM watermarks WHERE touchpoint_id = $1 AND source = $2",
        source.touchpoint_id,
        source.name,
    )
    return Watermark(row["read_to"], row["row_id"]) if row else Watermark()


async def advance(conn: Connection, source: Source, to: Watermark) -> None:
    """Move the watermark, and forget the rows that will not be read again."""
    await conn.execute(_ADVANCE, source.touchpoint_id, source.name, to.at, to.row_id)
    await conn.execute(_FORGET_ROWS, source.touchpoint_id, source.name, to.at)


async def unsaid(conn: Connection, source: Source, signals: Sequence[SignalObservedV1]) -> list[SignalObservedV1]:
    """Those signals that were not said before at this time of change; they are remembered as said now."""
    if not signals:
        return []
    rows = await conn.fetch(
        _UNSAID,
        source.touchpoint_id,
        source.name,
        [signal.source_key for signal in signals],
        [signal.observed_at for signal in signals],
    )
    fresh = {row["row_key"] for row in rows}
    return [signal for signal in signals if signal.source_key in fresh]


# --- runs -------------------------------------------------------------------------------------------------


_RUNS = """
SELECT * FROM scan_runs
WHERE ($2::text IS NULL OR touchpoint_id = $2)
  AND (NOT $3 OR touchpoint_id IN (SELECT touchpoint_id FROM known_touchpoints WHERE scope = 'global'))
ORDER BY started_at DESC, run_id LIMIT $1
"""


_RUN = Columns(
    """
    run_id uuid, touchpoint_id text, scanner text, started_at timestamptz, duration_ms float8, signals_emitted int,
    ok boolean, error text
    """
)
_ADD_RUN = _RUN.insert_into("scan_runs")


async def add_run(conn: Connection, run: ScanRun) -> None:
    """Record a run."""
    await conn.execute(_ADD_RUN, [run.model_dump()])


async def runs(conn: Connection, query: ListScanRuns) -> list[ScanRun]:
    """The newest runs, of one touchpoint or of all; a run over several workspaces counts for all of them."""
    rows = await conn.fetch(_RUNS, query.limit, query.touchpoint_id, query.shared_only)
    return [ScanRun(**{name: row[name] for name in ScanRun.model_fields}) for row in rows]


async def forget_runs(conn: Connection, older_than: datetime) -> None:
    """Delete runs that began before `older_than`."""
    await conn.execute("DELETE FROM scan_runs WHERE started_at < $1", older_than)
