"""Table `waiting_cases`: published pairs of the library that wait for the next cut of a suite."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from libs.contracts.evaluations import WaitingCase
from libs.service_kit.db import Connection
from libs.service_kit.records import Columns
from services.ab_runner.waiting import Standing

_ROW = Columns(
    "pair_id uuid, workspace_id uuid, touchpoint_id text, version int, waits boolean, input text, expected text,"
    " said_at timestamptz"
)
# The newest version counts, whichever comes first, and what was said of it last.
_KEEP = f"""
{_ROW.insert_into("waiting_cases")}
ON CONFLICT (pair_id) DO UPDATE SET
    workspace_id = excluded.workspace_id, touchpoint_id = excluded.touchpoint_id, version = excluded.version,
    waits = excluded.waits, input = excluded.input, expected = excluded.expected, said_at = excluded.said_at,
    heard_at = now()
WHERE (excluded.version, excluded.said_at) > (waiting_cases.version, waiting_cases.said_at)
"""
_LIST = """
SELECT pair_id, workspace_id, touchpoint_id, version, input, left(expected, 200) AS answer_preview,
    said_at AS published_at
FROM waiting_cases WHERE waits AND ($1::text IS NULL OR touchpoint_id = $1)
ORDER BY touchpoint_id, said_at DESC, pair_id LIMIT $2
"""
_COUNT = """
SELECT touchpoint_id, count(*) AS waiting FROM waiting_cases
WHERE waits AND ($1::text IS NULL OR touchpoint_id = $1) GROUP BY touchpoint_id ORDER BY touchpoint_id
"""


async def keep(conn: Connection, standings: Collection[Standing]) -> None:
    """What is known of these pairs now, one row a pair; older versions than those kept are passed by."""
    if standings:
        rows = sorted(standings, key=lambda one: one.pair_id)  # in one order, so that two replicas do not deadlock
        await conn.execute(_KEEP, [one.row() for one in rows])


async def listed(conn: Connection, touchpoint_id: str | None, limit: int) -> Sequence[WaitingCase]:
    """Those that wait, by touchpoint, newest first."""
    return [WaitingCase(**row) for row in await conn.fetch(_LIST, touchpoint_id, limit)]


async def counts(conn: Connection, touchpoint_id: str | None) -> dict[str, int]:
    """How many wait, by touchpoint."""
    return {row["touchpoint_id"]: row["waiting"] for row in await conn.fetch(_COUNT, touchpoint_id)}
