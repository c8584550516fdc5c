"""Tables `signals` and `intake`: the projection of signals, and the pool that a run reads out of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

import asyncpg

from libs.contracts.signals import EvidenceRef
from libs.service_kit.db import Connection
from libs.service_kit.records import Columns
from services.pattern_detector.domain import Projected, Signal, Vector
from services.pattern_detector.store import vectors as form

# --- coming in --------------------------------------------------------------------------------------------

_COLUMNS = Columns(
    """
    signal_id uuid, touchpoint_id text, workspace_id uuid, signal_type text, severity text, evidence_ref jsonb,
    item text, text text, reason text, expected text, got text, fields jsonb, actor_id text, actor_kind text,
    version_ref text, source_key text, first_seen timestamptz, last_seen timestamptz, model text, embedding vector
    """
)
_UPSERT = f"""
{_COLUMNS.insert_into("signals", received_at="$2")}
ON CONFLICT (signal_id) DO UPDATE SET
    first_seen = least(signals.first_seen, EXCLUDED.first_seen),
    last_seen = greatest(signals.last_seen, EXCLUDED.last_seen)
"""
_HEARD = """
INSERT INTO intake AS i (touchpoint_id, heard)
SELECT * FROM unnest($1::text[], $2::bigint[]) AS new (touchpoint_id, heard) ORDER BY touchpoint_id
ON CONFLICT (touchpoint_id) DO UPDATE SET heard = i.heard + excluded.heard
"""


@dataclass(frozen=True)
class NewSignal:
    """A signal with its vector, where it has words and the embedder answered."""

    signal: Projected
    vector: Vector | None
    model: str | None


async def count_heard(conn: Connection, heard: Mapping[str, int]) -> None:
    """Add to the number of events of each touchpoint that took effect."""
    await conn.execute(_HEARD, list(heard), list(heard.values()))


async def unknown(conn: Connection, signal_ids: Sequence[UUID]) -> set[UUID]:
    """Those that are not in the projection yet."""
    rows = await conn.fetch("SELECT signal_id FROM signals WHERE signal_id = ANY($1::uuid[])", signal_ids)
    return set(signal_ids) - {row["signal_id"] for row in rows}


async def save(conn: Connection, new: Iterable[NewSignal], received_at: datetime) -> None:
    """Add signals in one statement; of one that is there, only the times at which it was seen move.

    No signal may come twice in `new`. Rows are written in order of id, so that two writers do not deadlock.
    """
    rows = [_record(one) for one in sorted(new, key=lambda one: one.signal.signal_id)]
    if rows:
        await conn.execute(_UPSERT, rows, received_at)


def _record(new: NewSignal) -> dict[str, object]:
    model = new.model if new.vector is not None else None
    return {**vars(new.signal), "model": model, "embedding": form.written(new.vector)}


# --- the pool of a run ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pooled:
    """A signal in the pool, and what a run must know beside what the strategies see."""

    signal: Signal
    workspace_id: UUID | None
    source_key: str
    ref: EvidenceRef
    unresolvable: bool
    checked_at: datetime | None


_SEEN = tuple(field.name for field in fields(Signal) if field.name != "vector")
_POOL = """
SELECT signal_id, workspace_id, signal_type, severity, actor_id, actor_kind, item, first_seen, last_seen,
       left(text, 1000) AS text, left(reason, 1000) AS reason, expected, got, fields, evidence_ref, source_key,
       left_out, checked_at
FROM signals
WHERE touchpoint_id = $1 AND last_seen > $2 AND left_out IS DISTINCT FROM 'bad_signals'
ORDER BY last_seen DESC, signal_id LIMIT $3
"""


async def pool(conn: Connection, touchpoint_id: str, live_since: datetime, most: int) -> list[Pooled]:
    """The newest live signals, newest first, without vectors. Those that were unresolvable come along to be checked."""
    return [_pooled(row) for row in await conn.fetch(_POOL, touchpoint_id, live_since, most)]


def _pooled(row: asyncpg.Record) -> Pooled:
    return Pooled(
        signal=Signal(**{name: row[name] for name in _SEEN}),
        workspace_id=row["workspace_id"],
        source_key=row["source_key"],
        ref=EvidenceRef.model_validate(row["evidence_ref"]),
        unresolvable=row["left_out"] == "unresolvable",
        checked_at=row["checked_at"],
    )


async def unprocessed(conn: Connection, touchpoint_id: str) -> list[UUID]:
    """Signals that count and that no run has taken into account."""
    rows = await conn.fetch(
        "SELECT signal_id FROM signals WHERE touchpoint_id = $1 AND processed_run IS NULL AND left_out IS NULL",
        touchpoint_id,
    )
    return [row["signal_id"] for row in rows]


async def mark_processed(conn: Connection, run_id: UUID, signal_ids: Sequence[UUID]) -> list[UUID]:
    """Mark signals as taken into account; those that this run was the first to."""
    rows = await conn.fetch(
        "UPDATE signals SET processed_run = $1 WHERE signal_id = ANY($2::uuid[]) AND processed_run IS NULL"
        " AND left_out IS NULL RETURNING signal_id",
        run_id,
        signal_ids,
    )
    return sorted(row["signal_id"] for row in rows)


_ACTORS = """
SELECT actor_id, count(*) FILTER (WHERE left_out IS DISTINCT FROM 'bad_signals') AS kept,
       count(*) FILTER (WHERE left_out = 'bad_signals') AS bad
FROM signals
WHERE touchpoint_id = $1 AND actor_id IN (
    SELECT actor_id FROM signals WHERE touchpoint_id = $1 AND left_out = 'bad_signals')
GROUP BY actor_id
"""


async def actors(conn: Connection, touchpoint_id: str) -> list[tuple[str, int, int]]:
    """(actor, kept, bad) of every actor of whom a reviewer called a signal bad."""
    return [(row["actor_id"], row["kept"], row["bad"]) for row in await conn.fetch(_ACTORS, touchpoint_id)]


# --- vectors ----------------------------------------------------------------------------------------------


async def vectors(conn: Connection, signal_ids: Sequence[UUID], model: str, dimensions: int) -> dict[UUID, Vector]:
    """The vectors that this model made, without the padding."""
    rows = await conn.fetch(
        "SELECT signal_id, vector_send(subvector(embedding, 1, $3)) AS sent FROM signals"
        " WHERE signal_id = ANY($1::uuid[]) AND model = $2",
        signal_ids,
        model,
        dimensions,
    )
    return {row["signal_id"]: vector for row in rows if (vector := form.read(row["sent"])) is not None}


async def words_of(conn: Connection, signal_ids: Sequence[UUID]) -> dict[UUID, tuple[str, str]]:
    """Whole text and reason of signals that are to be embedded."""
    rows = await conn.fetch("SELECT signal_id, text, reason FROM signals WHERE signal_id = ANY($1::uuid[])", signal_ids)
    return {row["signal_id"]: (row["text"], row["reason"]) for row in rows}


async def save_vectors(conn: Connection, made: Mapping[UUID, Vector], model: str) -> None:
    """Replace the vectors of these signals, in one statement."""
    await conn.execute(
        "UPDATE signals s SET model = $3, embedding = made.embedding::vector"
        " FROM unnest($1::uuid[], $2::text[]) AS made (signal_id, embedding) WHERE s.signal_id = made.signal_id",
        list(made),
        [form.written(vector) for vector in made.values()],
        model,
    )


# --- signals that do not count ----------------------------------------------------------------------------


@dataclass(frozen=True)
class LeftOut:
    """A signal that stopped counting just now: the transition is what is said, once."""

    signal_id: UUID
    touchpoint_id: str
    source_key: str
    transition: int


_LEAVE_OUT_BAD = """
UPDATE signals SET left_out = 'bad_signals', transitions = transitions + 1
WHERE touchpoint_id = $1 AND workspace_id IS NOT DISTINCT FROM $2 AND signal_id = ANY($3::uuid[])
  AND left_out IS DISTINCT FROM 'bad_signals'
RETURNING signal_id, touchpoint_id, source_key, transitions AS transition
"""
_LEAVE_OUT_UNRESOLVABLE = """
UPDATE signals SET left_out = 'unresolvable', transitions = transitions + 1
WHERE signal_id = ANY($1::uuid[]) AND left_out IS NULL
RETURNING signal_id, touchpoint_id, source_key, transitions AS transition
"""


async def leave_out_bad(
    conn: Connection, touchpoint_id: str, workspace_id: UUID | None, signal_ids: Sequence[UUID]
) -> list[LeftOut]:
    """Take signals that a reviewer called bad out of the pool, for good. Those that are out already are not told."""
    return _left_out(await conn.fetch(_LEAVE_OUT_BAD, touchpoint_id, workspace_id, signal_ids))


async def leave_out_unresolvable(conn: Connection, signal_ids: Sequence[UUID]) -> list[LeftOut]:
    """Leave signals out of this run and those after it until their evidence is found again."""
    return _left_out(await conn.fetch(_LEAVE_OUT_UNRESOLVABLE, signal_ids))


def _left_out(rows: Iterable[asyncpg.Record]) -> list[LeftOut]:
    return sorted((LeftOut(**row) for row in rows), key=lambda one: one.signal_id)


async def count_again(conn: Connection, signal_ids: Sequence[UUID]) -> list[UUID]:
    """Let signals whose evidence was found again count; a run has to take them into account anew."""
    rows = await conn.fetch(
        "UPDATE signals SET left_out = NULL, processed_run = NULL"
        " WHERE signal_id = ANY($1::uuid[]) AND left_out = 'unresolvable' RETURNING signal_id",
        signal_ids,
    )
    return [row["signal_id"] for row in rows]


async def checked(conn: Connection, signal_ids: Sequence[UUID], at: datetime) -> None:
    """Remember when the evidence of these signals was last asked after."""
    await conn.execute("UPDATE signals SET checked_at = $2 WHERE signal_id = ANY($1::uuid[])", signal_ids, at)
