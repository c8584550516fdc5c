"""Tables `runs` and `reruns`: when a touchpoint is due, what each run did, and how far the detector is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from libs.contracts.queries.pattern_detector import DetectorStatus
from libs.service_kit.db import Connection
from libs.service_kit.records import Columns


@dataclass(frozen=True)
class Run:
    """What one run did. `trigger`: requested, arrivals or refresh."""

    run_id: UUID
    touchpoint_id: str
    trigger: str
    started_at: datetime
    finished_at: datetime
    request_id: UUID | None = None
    signals: int = 0
    processed: int = 0
    rejected: int = 0
    patterns: int = 0
    detected: int = 0
    changed: int = 0


# Arrivals are due when they have been quiet, or the oldest has waited long enough; a pool that changed is due at
# once; and open patterns are due when they were not judged for long, since weights and states move with time alone.
_DUE = """
SELECT touchpoint_id, 'arrivals' AS trigger FROM signals
WHERE processed_run IS NULL AND left_out IS NULL
GROUP BY touchpoint_id HAVING max(received_at) <= $1 OR min(received_at) <= $2
UNION
SELECT touchpoint_id, 'refresh' FROM reruns
UNION
SELECT p.touchpoint_id, 'refresh' FROM patterns p
WHERE p.state IS NOT NULL AND p.state <> 'resolved'
  AND NOT EXISTS (SELECT FROM runs r WHERE r.touchpoint_id = p.touchpoint_id AND r.finished_at > $3)
ORDER BY touchpoint_id, trigger
"""


async def due(conn: Connection, quiet: datetime, waited: datetime, refreshed: datetime) -> dict[str, str]:
    """Touchpoints that should be run now, each with what makes it due."""
    found: dict[str, str] = {}
    for row in await conn.fetch(_DUE, quiet, waited, refreshed):
        found.setdefault(row["touchpoint_id"], row["trigger"])
    return found


_RUN_AGAIN = """
INSERT INTO reruns SELECT id, $2 FROM unnest($1::text[]) AS id
ON CONFLICT (touchpoint_id) DO UPDATE SET since = greatest(EXCLUDED.since, reruns.since + interval '1 microsecond')
"""


async def run_again(conn: Connection, touchpoint_ids: Iterable[str], at: datetime) -> None:
    """Have these touchpoints run again, as their pool changed."""
    await conn.execute(_RUN_AGAIN, sorted(set(touchpoint_ids)), at)


async def rerun_since(conn: Connection, touchpoint_id: str) -> datetime | None:
    """When the pool last changed without a new signal, if no run has taken that into account yet."""
    since: datetime | None = await conn.fetchval("SELECT since FROM reruns WHERE touchpoint_id = $1", touchpoint_id)
    return since


_COLUMNS = Columns(
    """
    run_id uuid, touchpoint_id text, trigger text, started_at timestamptz, finished_at timestamptz, request_id uuid,
    signals int, processed int, rejected int, patterns int, detected int, changed int
    """
)
_ADD = _COLUMNS.insert_into("runs")


async def add(conn: Connection, run: Run, rerun: datetime | None) -> None:
    """Record a run; the rerun that it saw before it read the pool is thereby done."""
    await conn.execute(_ADD, [asdict(run)])
    # By what was seen and not by time: one that was committed meanwhile may bear an earlier time.
    await conn.execute("DELETE FROM reruns WHERE touchpoint_id = $1 AND since = $2", run.touchpoint_id, rerun)


async def is_done(conn: Connection, request_id: UUID) -> bool:
    """Whether a run answered this request."""
    done: bool = await conn.fetchval("SELECT EXISTS (SELECT FROM runs WHERE request_id = $1)", request_id)
    return done


_STATUS = """
SELECT (SELECT count(*) FROM signals WHERE $1::text IS NULL OR touchpoint_id = $1) AS signals,
       (SELECT count(*) FROM signals WHERE processed_run IS NULL AND left_out IS NULL
           AND ($1::text IS NULL OR touchpoint_id = $1)) AS unprocessed,
       (SELECT count(*) FROM patterns WHERE state IS NOT NULL AND state <> 'resolved'
           AND ($1::text IS NULL OR touchpoint_id = $1)) AS patterns,
       (SELECT coalesce(sum(heard), 0)::bigint FROM intake
           WHERE ($1::text IS NULL OR touchpoint_id = $1)
           AND ($2 OR touchpoint_id IN (SELECT touchpoint_id FROM known_touchpoints WHERE scope = 'global'))) AS heard,
       last.run_id AS last_run_id, last.finished_at AS last_run_at, asked.request_id AS last_request_id
FROM (SELECT) AS always
LEFT JOIN LATERAL (SELECT run_id, finished_at FROM runs WHERE $1::text IS NULL OR touchpoint_id = $1
                   ORDER BY finished_at DESC LIMIT 1) last ON true
LEFT JOIN LATERAL (SELECT request_id FROM runs WHERE request_id IS NOT NULL
                   AND ($1::text IS NULL OR touchpoint_id = $1)
                   ORDER BY finished_at DESC LIMIT 1) asked ON true
"""


async def status(conn: Connection, touchpoint_id: str | None, *, every_workspace: bool = True) -> DetectorStatus:
    """Counts of the projection and the newest run, of one touchpoint or of all.

    What was heard is not known of each workspace apart, so it is told to those who see all of them.
    """
    row = await conn.fetchrow(_STATUS, touchpoint_id, every_workspace)
    assert row is not None
    return DetectorStatus(**row)
