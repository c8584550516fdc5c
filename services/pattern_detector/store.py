"""The only SQL of the pattern detector. Functions take a connection and never commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np

from libs.contracts.events.gateway import ExposureRecordedV1
from libs.contracts.events.normaliser import SignalCreatedV1
from libs.contracts.events.registry import VersionActivatedV1, VersionRolledBackV1
from libs.contracts.patterns import EvidenceItem, PatternDetail, PatternSummary
from libs.contracts.queries.pattern_detector import DetectorStatus
from libs.contracts.signals import EvidenceRef
from libs.embeddings import STORED_DIMENSIONS
from libs.service_kit.db import Connection
from services.pattern_detector.domain import Known, Pattern, Signal, Standing, Vector
from services.pattern_detector.strategies.categorical import FIELDS

MOST_EVIDENCE = 50
EXCERPT = 400
"""Characters of a text in a list of evidence: fifty pieces stay far below the limit of an event."""


# --- signals ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NewSignal:
    """A signal as it was said, with its vector where it has words and the embedder answered."""

    said: SignalCreatedV1
    vector: Vector | None
    model: str | None


_UPSERT_SIGNALS = """
INSERT INTO signals (signal_id, touchpoint_id, workspace_id, signal_type, severity, evidence_ref, item, text, reason,
                     expected, got, fields, actor_id, actor_kind, version_ref, source_key, first_seen, last_seen,
                     received_at, model, embedding)
SELECT signal_id, touchpoint_id, workspace_id, signal_type, severity, evidence_ref, item, text, reason,
       expected, got, fields, actor_id, actor_kind, version_ref, source_key, first_seen, last_seen,
       $1, model, embedding::vector
FROM unnest($2::uuid[], $3::text[], $4::uuid[], $5::text[], $6::text[], $7::jsonb[], $8::text[], $9::text[],
            $10::text[], $11::text[], $12::text[], $13::jsonb[], $14::text[], $15::text[], $16::text[], $17::text[],
            $18::timestamptz[], $19::timestamptz[], $20::text[], $21::text[])
     AS new (signal_id, touchpoint_id, workspace_id, signal_type, severity, evidence_ref, item, text, reason,
             expected, got, fields, actor_id, actor_kind, version_ref, source_key, first_seen, last_seen,
             model, embedding)
ON CONFLICT (signal_id) DO UPDATE SET
    first_seen = least(signals.first_seen, EXCLUDED.first_seen),
    last_seen = greatest(signals.last_seen, EXCLUDED.last_seen)
"""


_HEARD = """
INSERT INTO intake AS i (touchpoint_id, heard)
SELECT * FROM unnest($1::text[], $2::bigint[]) AS new (touchpoint_id, heard) ORDER BY touchpoint_id
ON CONFLICT (touchpoint_id) DO UPDATE SET heard = i.heard + excluded.heard
"""


async def count_heard(conn: Connection, heard: Mapping[str, int]) -> None:
    """Add to the number of events of each touchpoint that took effect."""
    await conn.execute(_HEARD, list(heard), list(heard.values()))


async def unknown(conn: Connection, signal_ids: Sequence[UUID]) -> set[UUID]:
    """Those that are not in the projection yet."""
    rows = await conn.fetch("SELECT signal_id FROM signals WHERE signal_id = ANY($1::uuid[])", signal_ids)
    return set(signal_ids) - {row["signal_id"] for row in rows}


async def save_signals(conn: Connection, new: Iterable[NewSignal], received_at: datetime) -> None:
    """Add signals in one statement; of one that is there, only the times at which it was seen move.

    No signal may come twice in `new`. Rows are written in order of id, so that two writers do not deadlock.
    """
    rows = [_signal_row(one) for one in sorted(new, key=lambda one: one.said.signal_id)]
    if rows:
        await conn.execute(_UPSERT_SIGNALS, received_at, *(list(column) for column in zip(*rows, strict=True)))


def _signal_row(new: NewSignal) -> tuple[Any, ...]:
    said, payload = new.said, new.said.payload
    return (
        said.signal_id,
        said.touchpoint_id,
        said.workspace_id,
        said.signal_type,
        said.severity,
        said.evidence_ref.model_dump(mode="json", exclude_none=True),
        _clean(item_of(said)),
        _clean(payload.text or ""),
        _clean(payload.reason or ""),
        _label(payload.expected),
        _label(payload.got),
        fields_of(said),
        _clean(said.actor_id),
        said.actor_kind,
        _label(said.version_ref),
        _clean(said.source_key),
        said.first_seen,
        said.last_seen,
        new.model if new.vector is not None else None,
        None if new.vector is None else _vector_text(new.vector),
    )


def item_of(said: SignalCreatedV1) -> str:
    """The case or item that the evidence is about: two findings about one item are one case."""
    ref = said.evidence_ref
    return said.payload.case_id or ref.case_id or (f"{ref.source}:{ref.id}" if ref.id else said.source_key)


def fields_of(said: SignalCreatedV1) -> dict[str, str]:
    """The payload fields that are grouped by, as text; anything but text and numbers is no category."""
    extra = said.payload.model_extra or {}
    known = {"category": said.payload.category, "case_id": said.payload.case_id or said.evidence_ref.case_id}
    found = {name: known.get(name, extra.get(name)) for name in FIELDS}
    return {
        name: text
        for name, value in found.items()
        if isinstance(value, str | int | float) and not isinstance(value, bool) and (text := _clean(str(value)).strip())
    }


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


_SEEN = (
    *("signal_id", "signal_type", "severity", "actor_id", "actor_kind", "item"),
    *("first_seen", "last_seen", "text", "reason", "expected", "got", "fields"),
)
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


async def vectors(conn: Connection, signal_ids: Sequence[UUID], model: str, dimensions: int) -> dict[UUID, Vector]:
    """The vectors that this model made, without the padding."""
    rows = await conn.fetch(
        "SELECT signal_id, vector_send(subvector(embedding, 1, $3)) AS sent FROM signals"
        " WHERE signal_id = ANY($1::uuid[]) AND model = $2",
        signal_ids,
        model,
        dimensions,
    )
    return {row["signal_id"]: _read_vector(row["sent"]) for row in rows}


async def words_of(conn: Connection, signal_ids: Sequence[UUID]) -> dict[UUID, tuple[str, str]]:
    """Whole text and reason of signals that are to be embedded."""
    rows = await conn.fetch("SELECT signal_id, text, reason FROM signals WHERE signal_id = ANY($1::uuid[])", signal_ids)
    return {row["signal_id"]: (row["text"], row["reason"]) for row in rows}


async def save_vectors(conn: Connection, made: dict[UUID, Vector], model: str) -> None:
    """Replace the vectors of these signals, in one statement."""
    await conn.execute(
        "UPDATE signals s SET model = $3, embedding = made.embedding::vector"
        " FROM unnest($1::uuid[], $2::text[]) AS made (signal_id, embedding) WHERE s.signal_id = made.signal_id",
        list(made),
        [_vector_text(vector) for vector in made.values()],
        model,
    )


async def actors(conn: Connection, touchpoint_id: str) -> list[tuple[str, int, int]]:
    """(actor, kept, bad) of every actor of whom a reviewer called a signal bad."""
    rows = await conn.fetch(
        """
        SELECT actor_id, count(*) FILTER (WHERE left_out IS DISTINCT FROM 'bad_signals') AS kept,
               count(*) FILTER (WHERE left_out = 'bad_signals') AS bad
        FROM signals
        WHERE touchpoint_id = $1 AND actor_id IN (
            SELECT actor_id FROM signals WHERE touchpoint_id = $1 AND left_out = 'bad_signals')
        GROUP BY actor_id
        """,
        touchpoint_id,
    )
    return [(row["actor_id"], row["kept"], row["bad"]) for row in rows]


# --- signals that do not count ----------------------------------------------------------------------------


@dataclass(frozen=True)
class LeftOut:
    """A signal that stopped counting just now: the transition is what is said, once."""

    signal_id: UUID
    touchpoint_id: str
    source_key: str
    transition: int


async def leave_out_bad(
    conn: Connection, touchpoint_id: str, workspace_id: UUID | None, signal_ids: Sequence[UUID]
) -> list[LeftOut]:
    """Take signals that a reviewer called bad out of the pool, for good. Those that are out already are not told."""
    return await _leave_out(
        conn,
        """
        UPDATE signals SET left_out = 'bad_signals', transitions = transitions + 1
        WHERE touchpoint_id = $1 AND workspace_id IS NOT DISTINCT FROM $2 AND signal_id = ANY($3::uuid[])
          AND left_out IS DISTINCT FROM 'bad_signals'
        RETURNING signal_id, touchpoint_id, source_key, transitions
        """,
        touchpoint_id,
        workspace_id,
        signal_ids,
    )


async def leave_out_unresolvable(conn: Connection, signal_ids: Sequence[UUID]) -> list[LeftOut]:
    """Leave signals out of this run and those after it until their evidence is found again."""
    return await _leave_out(
        conn,
        """
        UPDATE signals SET left_out = 'unresolvable', transitions = transitions + 1
        WHERE signal_id = ANY($1::uuid[]) AND left_out IS NULL
        RETURNING signal_id, touchpoint_id, source_key, transitions
        """,
        signal_ids,
    )


async def _leave_out(conn: Connection, statement: str, *values: object) -> list[LeftOut]:
    rows = await conn.fetch(statement, *values)
    found = [LeftOut(row["signal_id"], row["touchpoint_id"], row["source_key"], row["transitions"]) for row in rows]
    return sorted(found, key=lambda one: one.signal_id)


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


async def evidence_of(conn: Connection, pattern_id: UUID) -> list[UUID]:
    """Every signal that is evidence of a pattern."""
    rows = await conn.fetch("SELECT signal_id FROM pattern_evidence WHERE pattern_id = $1", pattern_id)
    return [row["signal_id"] for row in rows]


async def run_again(conn: Connection, touchpoint_ids: Iterable[str], at: datetime) -> None:
    """Have these touchpoints run again, as their pool changed."""
    await conn.execute(
        "INSERT INTO reruns SELECT id, $2 FROM unnest($1::text[]) AS id ON CONFLICT (touchpoint_id)"
        " DO UPDATE SET since = greatest(EXCLUDED.since, reruns.since + interval '1 microsecond')",
        sorted(set(touchpoint_ids)),
        at,
    )


# --- patterns of a run ------------------------------------------------------------------------------------


async def known_patterns(
    conn: Connection, touchpoint_id: str, model: str, dimensions: int
) -> list[tuple[UUID | None, Known]]:
    """(workspace, pattern) of every pattern of a touchpoint, surfaced or not."""
    rows = await conn.fetch(
        """
        SELECT p.pattern_id, p.workspace_id, p.strategy, p.key, p.title, p.expected, p.got, p.state, p.judged_count,
               p.judged_at, p.occurrence, p.automatic, p.first_seen, p.last_seen,
               CASE WHEN p.model = $2 THEN vector_send(subvector(p.centroid, 1, $3)) END AS sent,
               coalesce(e.ids, '{}') AS evidence
        FROM patterns p
        LEFT JOIN LATERAL (SELECT array_agg(signal_id) AS ids FROM pattern_evidence WHERE pattern_id = p.pattern_id) e
          ON true
        WHERE p.touchpoint_id = $1
        """,
        touchpoint_id,
        model,
        dimensions,
    )
    return [(row["workspace_id"], _known(row)) for row in rows]


def _known(row: asyncpg.Record) -> Known:
    return Known(
        pattern_id=row["pattern_id"],
        strategy=row["strategy"],
        key=row["key"],
        title=row["title"],
        expected=row["expected"],
        got=row["got"],
        standing=Standing(row["state"], row["judged_count"], row["judged_at"]),
        occurrence=row["occurrence"],
        automatic=row["automatic"],
        evidence=frozenset(row["evidence"]),
        first_seen=row["first_seen"],
        last_seen=row["last_seen"],
        centroid=None if row["sent"] is None else _read_vector(row["sent"]),
    )


_UPSERT_PATTERNS = """
INSERT INTO patterns (touchpoint_id, workspace_id, updated_run, pattern_id, strategy, key, title, expected, got, state,
                      occurrence, automatic, evidence_count, actors, human_actors, machine_cases, score, score_parts,
                      first_seen, last_seen, judged_count, judged_at, model, centroid)
SELECT $1, $2, $3, pattern_id, strategy, key, title, expected, got, state,
       occurrence, automatic, evidence_count, actors, human_actors, machine_cases, score, score_parts,
       first_seen, last_seen, judged_count, judged_at, model, centroid::vector
FROM unnest($4::uuid[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
            $11::int[], $12::boolean[], $13::int[], $14::int[], $15::int[], $16::int[], $17::float8[], $18::jsonb[],
            $19::timestamptz[], $20::timestamptz[], $21::int[], $22::timestamptz[], $23::text[], $24::text[])
     AS new (pattern_id, strategy, key, title, expected, got, state,
             occurrence, automatic, evidence_count, actors, human_actors, machine_cases, score, score_parts,
             first_seen, last_seen, judged_count, judged_at, model, centroid)
ON CONFLICT (pattern_id) DO UPDATE SET
    updated_run = EXCLUDED.updated_run, title = EXCLUDED.title, expected = EXCLUDED.expected, got = EXCLUDED.got,
    state = EXCLUDED.state, occurrence = EXCLUDED.occurrence, automatic = EXCLUDED.automatic,
    evidence_count = EXCLUDED.evidence_count, actors = EXCLUDED.actors, human_actors = EXCLUDED.human_actors,
    machine_cases = EXCLUDED.machine_cases, score = EXCLUDED.score, score_parts = EXCLUDED.score_parts,
    first_seen = EXCLUDED.first_seen, last_seen = EXCLUDED.last_seen, judged_count = EXCLUDED.judged_count,
    judged_at = EXCLUDED.judged_at, model = EXCLUDED.model, centroid = EXCLUDED.centroid
"""


async def save_patterns(
    conn: Connection,
    run_id: UUID,
    touchpoint_id: str,
    workspace_id: UUID | None,
    patterns: Sequence[Pattern],
    model: str,
) -> None:
    """Write the patterns of one scope as this run leaves them, with their evidence and the changes of state.

    Those below the gates that were not found again are forgotten. Evidence that is no longer in the pool stays with
    its pattern, not live, so that the pattern is recognised when it comes back.
    """
    rows = [_pattern_row(pattern, model) for pattern in patterns]
    if rows:
        columns = [list(column) for column in zip(*rows, strict=True)]
        await conn.execute(_UPSERT_PATTERNS, touchpoint_id, workspace_id, run_id, *columns)
    await conn.execute(
        "DELETE FROM patterns WHERE touchpoint_id = $1 AND workspace_id IS NOT DISTINCT FROM $2"
        " AND state IS NULL AND updated_run <> $3",
        touchpoint_id,
        workspace_id,
        run_id,
    )
    await _save_evidence(conn, touchpoint_id, workspace_id, patterns)


async def _save_evidence(
    conn: Connection, touchpoint_id: str, workspace_id: UUID | None, patterns: Sequence[Pattern]
) -> None:
    evidence = [(one.signal.signal_id, p.pattern_id, one.weight, one.strength) for p in patterns for one in p.evidence]
    await conn.execute(
        """
        UPDATE pattern_evidence e SET live = false, weight = 0, strength = 0
        FROM patterns p
        WHERE p.pattern_id = e.pattern_id AND p.touchpoint_id = $1 AND p.workspace_id IS NOT DISTINCT FROM $2
          AND NOT e.signal_id = ANY($3::uuid[])
        """,
        touchpoint_id,
        workspace_id,
        [row[0] for row in evidence],
    )
    await conn.execute(
        """
        INSERT INTO pattern_evidence (signal_id, pattern_id, weight, strength, live)
        SELECT signal_id, pattern_id, weight, strength, true
        FROM unnest($1::uuid[], $2::uuid[], $3::float8[], $4::float8[])
             AS new (signal_id, pattern_id, weight, strength)
        ORDER BY signal_id
        ON CONFLICT (signal_id) DO UPDATE SET pattern_id = EXCLUDED.pattern_id, weight = EXCLUDED.weight,
            strength = EXCLUDED.strength, live = true
        """,
        *([row[n] for row in evidence] for n in range(4)),
    )


def _pattern_row(pattern: Pattern, model: str) -> tuple[Any, ...]:
    return (
        pattern.pattern_id,
        pattern.strategy,
        pattern.key,
        pattern.title,
        pattern.expected,
        pattern.got,
        pattern.standing.state,
        pattern.occurrence,
        pattern.automatic,
        pattern.counts.evidence,
        pattern.counts.actors,
        pattern.counts.human_actors,
        pattern.counts.machine_cases,
        pattern.score,
        pattern.parts.model_dump(),
        pattern.first_seen,
        pattern.last_seen,
        pattern.standing.judged_count,
        pattern.standing.judged_at,
        None if pattern.centroid is None else model,
        None if pattern.centroid is None else _vector_text(pattern.centroid),
    )


async def add_history(conn: Connection, run_id: UUID, changed: Sequence[Pattern], at: datetime) -> None:
    """Remember each change of state."""
    await conn.executemany(
        "INSERT INTO pattern_history (pattern_id, run_id, from_state, to_state, evidence_count, score, at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7)",
        [(p.pattern_id, run_id, p.before, p.standing.state, p.counts.evidence, p.score, at) for p in changed],
    )


async def mark_processed(conn: Connection, run_id: UUID, signal_ids: Sequence[UUID]) -> list[UUID]:
    """Mark signals as taken into account; those that this run was the first to."""
    rows = await conn.fetch(
        "UPDATE signals SET processed_run = $1 WHERE signal_id = ANY($2::uuid[]) AND processed_run IS NULL"
        " AND left_out IS NULL RETURNING signal_id",
        run_id,
        signal_ids,
    )
    return sorted(row["signal_id"] for row in rows)


# --- runs -------------------------------------------------------------------------------------------------


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


async def rerun_since(conn: Connection, touchpoint_id: str) -> datetime | None:
    """When the pool last changed without a new signal, if no run has taken that into account yet."""
    since: datetime | None = await conn.fetchval("SELECT since FROM reruns WHERE touchpoint_id = $1", touchpoint_id)
    return since


async def add_run(conn: Connection, run: Run, rerun: datetime | None) -> None:
    """Record a run; the rerun that it saw before it read the pool is thereby done."""
    await conn.execute(
        """
        INSERT INTO runs (run_id, touchpoint_id, trigger, started_at, finished_at, request_id,
                          signals, processed, rejected, patterns, detected, changed)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        """,
        *astuple(run),
    )
    # By what was seen and not by time: one that was committed meanwhile may bear an earlier time.
    await conn.execute("DELETE FROM reruns WHERE touchpoint_id = $1 AND since = $2", run.touchpoint_id, rerun)


async def is_done(conn: Connection, request_id: UUID) -> bool:
    """Whether a run answered this request."""
    done: bool = await conn.fetchval("SELECT EXISTS (SELECT FROM runs WHERE request_id = $1)", request_id)
    return done


# --- versions ---------------------------------------------------------------------------------------------

_ADD_ACTIVATION = """
INSERT INTO activations (activation_id, touchpoint_id, workspace_id, kind, version_ref, previous_ref, proposal_id, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING
"""


async def add_activations(conn: Connection, activated: Iterable[VersionActivatedV1]) -> None:
    """Remember what became live."""
    rows = [
        (a.activation_id, a.touchpoint_id, a.workspace_id, "activated", a.version_ref, a.previous_ref, a.proposal_id,
         a.activated_at)
        for a in activated
    ]  # fmt: skip
    await conn.executemany(_ADD_ACTIVATION, rows)


async def add_rollbacks(conn: Connection, rolled_back: Iterable[VersionRolledBackV1]) -> None:
    """Remember what was put back."""
    rows = [
        (r.activation_id, r.touchpoint_id, r.workspace_id, "rolled_back", r.to_version, r.from_version, r.proposal_id,
         r.rolled_back_at)
        for r in rolled_back
    ]  # fmt: skip
    await conn.executemany(_ADD_ACTIVATION, rows)


async def add_exposures(conn: Connection, exposed: Iterable[ExposureRecordedV1]) -> None:
    """Remember how often a version was served."""
    await conn.executemany(
        "INSERT INTO exposures (exposure_id, touchpoint_id, workspace_id, version_ref, count, window_start,"
        " window_end) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
        [
            (e.exposure_id, e.touchpoint_id, e.workspace_id, e.version_ref, e.count, e.window_start, e.window_end)
            for e in exposed
        ],
    )


# --- answers ----------------------------------------------------------------------------------------------

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


async def top_patterns(
    conn: Connection,
    *,
    touchpoint_id: str | None,
    since: datetime | None,
    include_resolved: bool,
    limit: int,
) -> list[PatternSummary]:
    """Surfaced patterns, highest score first."""
    rows = await conn.fetch(_TOP, touchpoint_id, since, include_resolved, limit)
    return [PatternSummary(**row) for row in rows]


async def pattern(conn: Connection, pattern_id: UUID) -> PatternDetail | None:
    """A surfaced pattern with its strongest evidence; a resolved one is shown with the evidence that it had."""
    row = await conn.fetchrow(f"{_SUMMARY} WHERE pattern_id = $1 AND state IS NOT NULL", pattern_id)
    if row is None:
        return None
    evidence = await conn.fetch(
        """
        SELECT s.signal_id, s.signal_type, left(s.text, $4) AS text, left(s.reason, $4) AS reason,
               left(s.expected, $4) AS expected, left(s.got, $4) AS got, s.actor_kind, s.severity, e.weight, s.last_seen
        FROM pattern_evidence e JOIN signals s USING (signal_id)
        WHERE e.pattern_id = $1 AND (e.live OR $2) ORDER BY e.strength DESC, s.last_seen DESC, signal_id LIMIT $3
        """,
        pattern_id,
        row["state"] == "resolved",
        MOST_EVIDENCE,
        EXCERPT,
    )
    return PatternDetail(**row, evidence=tuple(EvidenceItem(**one) for one in evidence))


async def status(conn: Connection, touchpoint_id: str | None) -> DetectorStatus:
    """Counts of the projection and the newest run, of one touchpoint or of all."""
    row = await conn.fetchrow(
        """
        SELECT (SELECT count(*) FROM signals WHERE $1::text IS NULL OR touchpoint_id = $1) AS signals,
               (SELECT count(*) FROM signals WHERE processed_run IS NULL AND left_out IS NULL
                   AND ($1::text IS NULL OR touchpoint_id = $1)) AS unprocessed,
               (SELECT count(*) FROM patterns WHERE state IS NOT NULL AND state <> 'resolved'
                   AND ($1::text IS NULL OR touchpoint_id = $1)) AS patterns,
               (SELECT coalesce(sum(heard), 0)::bigint FROM intake
                   WHERE $1::text IS NULL OR touchpoint_id = $1) AS heard,
               last.run_id AS last_run_id, last.finished_at AS last_run_at, asked.request_id AS last_request_id
        FROM (SELECT) AS always
        LEFT JOIN LATERAL (SELECT run_id, finished_at FROM runs WHERE $1::text IS NULL OR touchpoint_id = $1
                           ORDER BY finished_at DESC LIMIT 1) last ON true
        LEFT JOIN LATERAL (SELECT request_id FROM runs WHERE request_id IS NOT NULL
                           AND ($1::text IS NULL OR touchpoint_id = $1)
                           ORDER BY finished_at DESC LIMIT 1) asked ON true
        """,
        touchpoint_id,
    )
    assert row is not None
    return DetectorStatus(**row)


# --- values -----------------------------------------------------------------------------------------------


def _clean(text: str) -> str:
    # Postgres cannot hold NUL in text.
    return text.replace("\x00", "")


def _label(text: str | None) -> str | None:
    """A label without space around it; nothing is no label."""
    return _clean(text).strip() or None if text is not None else None


def _vector_text(vector: Vector) -> str:
    padding = ",0" * (STORED_DIMENSIONS - len(vector))
    return f"[{','.join(map(repr, vector.tolist()))}{padding}]"


def _read_vector(sent: bytes) -> Vector:
    """pgvector's binary form: two 16-bit integers (dimensions, unused), then big-endian 32-bit floats."""
    return np.frombuffer(sent, dtype=">f4", offset=4).astype(np.float32)
