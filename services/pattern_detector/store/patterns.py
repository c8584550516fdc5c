"""Tables `patterns`, `pattern_evidence` and `pattern_history`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg

from libs.contracts.patterns import EvidenceItem, PatternDetail, PatternSummary
from libs.service_kit.db import Connection
from libs.service_kit.records import Columns
from services.pattern_detector.domain import Known, Pattern, Standing
from services.pattern_detector.store import vectors as form

MOST_EVIDENCE = 50
EXCERPT = 400
"""Characters of a text in a list of evidence: fifty pieces stay far below the limit of an event."""

# --- as a run finds and leaves them -----------------------------------------------------------------------

_KNOWN = """
SELECT p.workspace_id, p.pattern_id, p.strategy, p.key, p.title, p.expected, p.got, p.state, p.judged_count,
       p.judged_at, p.occurrence, p.automatic, p.first_seen, p.last_seen,
       CASE WHEN p.model = $2 THEN vector_send(subvector(p.centroid, 1, $3)) END AS centroid,
       coalesce(e.ids, '{}') AS evidence
FROM patterns p
LEFT JOIN LATERAL (SELECT array_agg(signal_id) AS ids FROM pattern_evidence WHERE pattern_id = p.pattern_id) e
  ON true
WHERE p.touchpoint_id = $1
"""


async def known(conn: Connection, touchpoint_id: str, model: str, dimensions: int) -> list[tuple[UUID | None, Known]]:
    """(workspace, pattern) of every pattern of a touchpoint, surfaced or not."""
    return [_known(row) for row in await conn.fetch(_KNOWN, touchpoint_id, model, dimensions)]


def _known(row: asyncpg.Record) -> tuple[UUID | None, Known]:
    columns = dict(row)
    workspace_id = columns.pop("workspace_id")
    standing = Standing(columns.pop("state"), columns.pop("judged_count"), columns.pop("judged_at"))
    evidence, centroid = frozenset(columns.pop("evidence")), form.read(columns.pop("centroid"))
    return workspace_id, Known(**columns, standing=standing, evidence=evidence, centroid=centroid)


_COLUMNS = Columns(
    """
    pattern_id uuid, touchpoint_id text, workspace_id uuid, updated_run uuid, strategy text, key text, title text,
    expected text, got text, state text, occurrence int, automatic boolean, evidence_count int, actors int,
    human_actors int, machine_cases int, score float8, score_parts jsonb, first_seen timestamptz,
    last_seen timestamptz, judged_count int, judged_at timestamptz, model text, centroid vector
    """
)
_UPSERT = f"""
{_COLUMNS.insert_into("patterns")}
ON CONFLICT (pattern_id) DO UPDATE SET
    updated_run = EXCLUDED.updated_run, title = EXCLUDED.title, expected = EXCLUDED.expected, got = EXCLUDED.got,
    state = EXCLUDED.state, occurrence = EXCLUDED.occurrence, automatic = EXCLUDED.automatic,
    evidence_count = EXCLUDED.evidence_count, actors = EXCLUDED.actors, human_actors = EXCLUDED.human_actors,
    machine_cases = EXCLUDED.machine_cases, score = EXCLUDED.score, score_parts = EXCLUDED.score_parts,
    first_seen = EXCLUDED.first_seen, last_seen = EXCLUDED.last_seen, judged_count = EXCLUDED.judged_count,
    judged_at = EXCLUDED.judged_at, model = EXCLUDED.model, centroid = EXCLUDED.centroid
"""
_FORGET = """
DELETE FROM patterns WHERE touchpoint_id = $1 AND workspace_id IS NOT DISTINCT FROM $2
  AND state IS NULL AND updated_run <> $3
"""
_NOT_LIVE = """
UPDATE pattern_evidence e SET live = false, weight = 0, strength = 0
FROM patterns p
WHERE p.pattern_id = e.pattern_id AND p.touchpoint_id = $1 AND p.workspace_id IS NOT DISTINCT FROM $2
  AND NOT e.signal_id = ANY($3::uuid[])
"""
_EVIDENCE = Columns("signal_id uuid, pattern_id uuid, weight float8, strength float8, live boolean")
_SAVE_EVIDENCE = f"""
{_EVIDENCE.insert_into("pattern_evidence")}
ORDER BY signal_id
ON CONFLICT (signal_id) DO UPDATE SET pattern_id = EXCLUDED.pattern_id, weight = EXCLUDED.weight,
    strength = EXCLUDED.strength, live = EXCLUDED.live
"""


async def save(
    conn: Connection,
    run_id: UUID,
    touchpoint_id: str,
    workspace_id: UUID | None,
    found: Sequence[Pattern],
    model: str,
) -> None:
    """Write the patterns of one scope as this run leaves them, with their evidence.

    Those below the gates that were not found again are forgotten. Evidence that is no longer in the pool stays with
    its pattern, not live, so that the pattern is recognised when it comes back.
    """
    scope = {"touchpoint_id": touchpoint_id, "workspace_id": workspace_id, "updated_run": run_id}
    if found:
        await conn.execute(_UPSERT, [{**scope, **_record(pattern, model)} for pattern in found])
    await conn.execute(_FORGET, touchpoint_id, workspace_id, run_id)
    evidence = [
        {
            "signal_id": one.signal.signal_id,
            "pattern_id": pattern.pattern_id,
            "weight": one.weight,
            "strength": one.strength,
            "live": True,
        }
        for pattern in found
        for one in pattern.evidence
    ]
    await conn.execute(_NOT_LIVE, touchpoint_id, workspace_id, [one["signal_id"] for one in evidence])
    await conn.execute(_SAVE_EVIDENCE, evidence)


def _record(pattern: Pattern, model: str) -> dict[str, object]:
    return {
        "pattern_id": pattern.pattern_id,
        "strategy": pattern.strategy,
        "key": pattern.key,
        "title": pattern.title,
        "expected": pattern.expected,
        "got": pattern.got,
        "state": pattern.standing.state,
        "occurrence": pattern.occurrence,
        "automatic": pattern.automatic,
        "evidence_count": pattern.counts.evidence,
        "actors": pattern.counts.actors,
        "human_actors": pattern.counts.human_actors,
        "machine_cases": pattern.counts.machine_cases,
        "score": pattern.score,
        "score_parts": pattern.parts.model_dump(),
        "first_seen": pattern.first_seen,
        "last_seen": pattern.last_seen,
        "judged_count": pattern.standing.judged_count,
        "judged_at": pattern.standing.judged_at,
        "model": None if pattern.centroid is None else model,
        "centroid": form.written(pattern.centroid),
    }


_HISTORY = Columns(
    "pattern_id uuid, run_id uuid, from_state text, to_state text, evidence_count int, score float8, at timestamptz"
)
_ADD_HISTORY = _HISTORY.insert_into("pattern_history")


async def add_history(conn: Connection, run_id: UUID, changed: Sequence[Pattern], at: datetime) -> None:
    """Remember each change of state."""
    rows = [
        {
            "pattern_id": pattern.pattern_id,
            "run_id": run_id,
            "from_state": pattern.before,
            "to_state": pattern.standing.state,
            "evidence_count": pattern.counts.evidence,
            "score": pattern.score,
            "at": at,
        }
        for pattern in changed
    ]
    await conn.execute(_ADD_HISTORY, rows)


async def evidence_of(conn: Connection, pattern_id: UUID) -> list[UUID]:
    """Every signal that is evidence of a pattern."""
    rows = await conn.fetch("SELECT signal_id FROM pattern_evidence WHERE pattern_id = $1", pattern_id)
    return [row["signal_id"] for row in rows]


# --- as they are shown ------------------------------------------------------------------------------------

_SUMMARY = """
SELECT pattern_id, touchpoint_id, workspace_id, title, strategy, state, expected, got, evidence_count, actors,
       human_actors, machine_cases, actors = 1 AS single_actor, automatic, score, score_parts, first_seen, last_seen
FROM patterns
"""
_TOP = f"""
{_SUMMARY} WHERE state IS NOT NULL AND ($3 OR state <> 'resolved')
  AND ($1::text IS NULL OR touchpoint_id = $1)
  AND ($2::timestamptz IS NULL OR last_seen >= $2)
ORDER BY score DESC, pattern_id LIMIT $4
"""
_ONE = f"{_SUMMARY} WHERE pattern_id = $1 AND state IS NOT NULL"
_STRONGEST = """
SELECT s.signal_id, s.signal_type, left(s.text, $4) AS text, left(s.reason, $4) AS reason,
       left(s.expected, $4) AS expected, left(s.got, $4) AS got, s.actor_kind, s.severity, e.weight, s.last_seen
FROM pattern_evidence e JOIN signals s USING (signal_id)
WHERE e.pattern_id = $1 AND (e.live OR $2) ORDER BY e.strength DESC, s.last_seen DESC, signal_id LIMIT $3
"""


async def top(
    conn: Connection, *, touchpoint_id: str | None, since: datetime | None, include_resolved: bool, limit: int
) -> list[PatternSummary]:
    """Surfaced patterns, highest score first."""
    rows = await conn.fetch(_TOP, touchpoint_id, since, include_resolved, limit)
    return [PatternSummary(**row) for row in rows]


async def detail(conn: Connection, pattern_id: UUID) -> PatternDetail | None:
    """A surfaced pattern with its strongest evidence; a resolved one is shown with the evidence that it had."""
    row = await conn.fetchrow(_ONE, pattern_id)
    if row is None:
        return None
    evidence = await conn.fetch(_STRONGEST, pattern_id, row["state"] == "resolved", MOST_EVIDENCE, EXCERPT)
    return PatternDetail(**row, evidence=tuple(EvidenceItem(**one) for one in evidence))
