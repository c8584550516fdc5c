"""The only SQL of the normaliser. Functions take a connection and never commit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from libs.contracts.queries.normaliser import ListSignals, StoredSignal, TouchpointCounts
from libs.contracts.signals import SignalPayload
from libs.service_kit.db import Connection
from libs.service_kit.records import Columns
from services.normaliser.domain import Judged, Misjudged, Outcome, Rejudged

# --- intake -----------------------------------------------------------------------------------------------

_OBSERVED = """
INSERT INTO intake AS i (touchpoint_id, observed)
SELECT * FROM unnest($1::text[], $2::bigint[]) AS heard (touchpoint_id, observed) ORDER BY touchpoint_id
ON CONFLICT (touchpoint_id) DO UPDATE SET observed = i.observed + excluded.observed
"""


async def count_observed(conn: Connection, observed: Mapping[str, int]) -> None:
    """Add to the number of observations of each touchpoint; ordered, so that two replicas never deadlock."""
    await conn.execute(_OBSERVED, list(observed), list(observed.values()))


# --- signals ----------------------------------------------------------------------------------------------

# `before` is read in the snapshot of the statement, so it is never newer than the row that is updated: with two
# replicas at work a fact may be said twice, with the same event id, and never not at all.
_COLUMNS = Columns(
    """
    id uuid, touchpoint_id text, workspace_id uuid, signal_type text, severity text, evidence_ref jsonb, payload jsonb,
    actor_id text, actor_kind text, version_ref text, source_key text, first_seen timestamptz, last_seen timestamptz,
    judged_scope text, rejected text, reject_detail text
    """
)
_SAVE = f"""
WITH incoming AS MATERIALIZED (
    SELECT * FROM {_COLUMNS.records}
), before AS (
    SELECT s.id, s.last_seen, s.rejected FROM prompt_quality_signals AS s JOIN incoming USING (id)
), saved AS (
    INSERT INTO prompt_quality_signals AS s ({_COLUMNS.names}, transitions)
    SELECT {_COLUMNS.names}, (rejected IS NOT NULL)::int FROM incoming ORDER BY id
    ON CONFLICT (id) DO UPDATE SET
        (severity, evidence_ref, payload, version_ref) = (
            SELECT newest.severity, newest.evidence_ref, newest.payload, newest.version_ref
            FROM (VALUES
                (true, excluded.severity, excluded.evidence_ref, excluded.payload, excluded.version_ref),
                (false, s.severity, s.evidence_ref, s.payload, s.version_ref)
            ) AS newest (incoming, severity, evidence_ref, payload, version_ref)
            WHERE newest.incoming = (
                excluded.last_seen > s.last_seen OR (s.rejected IS NOT NULL AND excluded.rejected IS NULL)
            )
        ),
        first_seen = least(s.first_seen, excluded.first_seen),
        last_seen = greatest(s.last_seen, excluded.last_seen),
        judged_scope = excluded.judged_scope,
        rejected = excluded.rejected,
        reject_detail = excluded.reject_detail,
        transitions = s.transitions
            + (excluded.rejected IS NOT NULL AND s.rejected IS DISTINCT FROM excluded.rejected)::int
    WHERE (
        excluded.last_seen > s.last_seen
        OR excluded.first_seen < s.first_seen
        OR s.rejected IS DISTINCT FROM excluded.rejected
        OR s.judged_scope <> excluded.judged_scope
    )
    -- An invalid observation says nothing about a signal that counts.
    AND NOT (s.rejected IS NULL AND excluded.rejected IS NOT DISTINCT FROM 'invalid')
    RETURNING s.id, s.first_seen, s.last_seen, s.actor_id, s.actor_kind, s.rejected, s.transitions
), told AS (
    SELECT saved.id AS signal_id, saved.first_seen, saved.last_seen, saved.actor_id, saved.actor_kind,
        saved.transitions AS transition, CASE
        WHEN saved.rejected IS NOT NULL AND before.rejected IS DISTINCT FROM saved.rejected THEN 'rejected'
        WHEN saved.rejected IS NULL AND (
            before.rejected IS NOT NULL
            OR (before.id IS NULL OR before.last_seen < incoming.last_seen) AND saved.last_seen = incoming.last_seen
        ) THEN 'created'
    END AS fact
    FROM saved JOIN incoming USING (id) LEFT JOIN before USING (id)
)
SELECT * FROM told WHERE fact IS NOT NULL ORDER BY first_seen, signal_id
"""  # noqa: S608


async def save(conn: Connection, judged: Sequence[Judged]) -> list[Outcome]:
    """Insert or move these signals (each id once) in one statement; return what is to be said.

    A signal seen again later moves `last_seen` and takes the newer observation's words; its actor and
    `created_at` stay. One that did not count and now does takes the new observation's words too.
    """
    if not judged:
        return []
    return [Outcome(**row) for row in await conn.fetch(_SAVE, [_record(one) for one in judged])]


def _record(one: Judged) -> dict[str, object]:
    said, reject = one.newest.data, one.reject
    return {
        "id": one.signal_id,
        "touchpoint_id": said.touchpoint_id,
        "workspace_id": said.workspace_id,
        "signal_type": said.signal_type,
        "severity": one.severity,
        "evidence_ref": said.evidence_ref.model_dump(exclude_none=True),
        "payload": _payload(one),
        "actor_id": said.actor_id,
        "actor_kind": said.actor_kind,
        "version_ref": said.version_ref,
        "source_key": said.source_key,
        "first_seen": one.first_seen,
        "last_seen": one.last_seen,
        "judged_scope": one.judged_scope,
        "rejected": reject.reason if reject else None,
        "reject_detail": reject.detail if reject else None,
    }


def _payload(one: Judged) -> dict[str, Any]:
    payload = one.newest.data.payload
    if one.reject and one.reject.reason == "invalid":
        # Another key may hold the very thing that cannot be stored; the contract's own keys always can be.
        return payload.model_dump(exclude_none=True, include=set(SignalPayload.model_fields))
    return payload.model_dump(exclude_none=True)


_MARK_PROCESSED = """
UPDATE prompt_quality_signals AS s SET processed_at = p.processed_at
FROM (
    SELECT id, max(processed_at) AS processed_at
    FROM unnest($1::uuid[], $2::timestamptz[]) AS t (id, processed_at) GROUP BY id
) AS p
WHERE s.id = p.id AND (s.processed_at IS NULL OR s.processed_at < p.processed_at)
"""


async def mark_processed(conn: Connection, processed: Sequence[tuple[UUID, datetime]]) -> None:
    """Set `processed_at`, which only ever moves forward; ids that are not there are left out."""
    if processed:
        await conn.execute(_MARK_PROCESSED, [one for one, _ in processed], [at for _, at in processed])


# --- judging again ----------------------------------------------------------------------------------------

# From each touchpoint into the index: a plan that reads the signals instead would read them all, every second.
_MISJUDGED = """
SELECT s.*, t.scope
FROM known_touchpoints AS t CROSS JOIN LATERAL (
    SELECT * FROM prompt_quality_signals AS s
    WHERE s.touchpoint_id = t.touchpoint_id
        AND s.judged_scope IN ('unknown', CASE t.scope WHEN 'global' THEN 'workspace' ELSE 'global' END)
    LIMIT $1
    FOR UPDATE SKIP LOCKED
) AS s
WHERE t.scope IS NOT NULL
LIMIT $1
"""
_SAVE_REJUDGED = """
UPDATE prompt_quality_signals AS s SET
    judged_scope = r.judged_scope,
    rejected = r.rejected,
    reject_detail = r.reject_detail,
    transitions = s.transitions + (r.rejected IS NOT NULL AND s.rejected IS DISTINCT FROM r.rejected)::int
FROM jsonb_to_recordset($1) AS r (id uuid, judged_scope text, rejected text, reject_detail text)
WHERE s.id = r.id
RETURNING s.id, s.transitions
"""


async def misjudged(conn: Connection, limit: int) -> list[Misjudged]:
    """Signals whose touchpoint's scope is another than the one they were judged by, locked for this transaction."""
    rows = await conn.fetch(_MISJUDGED, limit)
    return [Misjudged(row["id"], dict(row), row["scope"]) for row in rows]


async def save_rejudged(conn: Connection, rejudged: Sequence[Rejudged]) -> dict[UUID, int]:
    """Store the new judgements; return the count of each signal's rejections so far."""
    if not rejudged:
        return {}
    records = [
        {
            "id": one.signal_id,
            "judged_scope": one.judged_scope,
            "rejected": one.reject.reason if one.reject else None,
            "reject_detail": one.reject.detail if one.reject else None,
        }
        for one in rejudged
    ]
    rows = await conn.fetch(_SAVE_REJUDGED, records)
    return {row["id"]: row["transitions"] for row in rows}


# --- reading ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the list of signals: the one after which the page begins."""

    created_at: datetime
    signal_id: UUID

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Read `<created_at>~<signal id>`. Raises ValueError for anything else."""
        at, _, identity = text.partition("~")
        created_at = datetime.fromisoformat(at)
        if created_at.tzinfo is None:
            raise ValueError("a cursor's time has an offset")
        return cls(created_at, UUID(identity))


_LIST = """
SELECT *, id AS signal_id FROM prompt_quality_signals WHERE {where} ORDER BY created_at DESC, id DESC LIMIT {limit}
"""


async def listed(
    conn: Connection, query: ListSignals, after: Cursor | None, most_bytes: int
) -> tuple[list[StoredSignal], bool]:
    """Signals newest first, and whether there are more.

    A page ends early when evidence and payloads reach `most_bytes`; it always has at least one signal.
    """
    where, values = _conditions(query, after)
    rows = await conn.fetch(_LIST.format(where=where, limit=f"${len(values) + 1}"), *values, query.limit + 1)
    page: list[StoredSignal] = []
    size = 0
    for row in rows[: query.limit]:
        size += len(json.dumps([row["evidence_ref"], row["payload"]]))
        if page and size > most_bytes:
            break
        page.append(StoredSignal(**row))
    return page, len(page) < len(rows)


def _conditions(query: ListSignals, after: Cursor | None) -> tuple[str, list[object]]:
    """Only the conditions that were asked for, so that each has a plan with its own index."""
    conditions, values = ["true"], list[object]()

    def add(condition: str, *operands: object) -> None:
        numbered = [f"${len(values) + n + 1}" for n in range(len(operands))]
        conditions.append(condition.format(*numbered))
        values.extend(operands)

    if query.touchpoint_id is not None:
        add("touchpoint_id = {}", query.touchpoint_id)
    if query.signal_id is not None:
        add("id = {}", query.signal_id)
    if query.rejected is not None:
        add("rejected IS NOT NULL" if query.rejected else "rejected IS NULL")
    if query.unprocessed is not None:
        add("processed_at IS NULL" if query.unprocessed else "processed_at IS NOT NULL")
    if after is not None:
        add("(created_at, id) < ({}, {})", after.created_at, after.signal_id)
    return " AND ".join(conditions), values


_COUNTS = """
SELECT touchpoint_id,
       count(*) FILTER (WHERE rejected IS NULL) AS stored,
       count(*) FILTER (WHERE rejected IS NULL AND processed_at IS NULL) AS unprocessed,
       count(*) FILTER (WHERE rejected IS NOT NULL) AS rejected,
       coalesce((SELECT observed FROM intake WHERE $2 AND intake.touchpoint_id = s.touchpoint_id), 0) AS observed
FROM prompt_quality_signals AS s
WHERE $1::text IS NULL OR touchpoint_id = $1
GROUP BY touchpoint_id ORDER BY touchpoint_id
"""


async def counts(
    conn: Connection, touchpoint_id: str | None, *, every_workspace: bool = True
) -> list[TouchpointCounts]:
    """Counts of one touchpoint, or of all; a touchpoint without signals has no row.

    How often signals were seen is not known of each workspace apart, so it is told to those who see all of them.
    """
    rows = await conn.fetch(_COUNTS, touchpoint_id, every_workspace)
    return [TouchpointCounts(**row) for row in rows]
