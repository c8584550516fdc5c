"""Pairs as their curators change them: locked rows, versions, operations, citations, and what waits for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from libs.contracts.queries.qa_curation import DueReview, ListReviews, ListSuggestions, SuggestionView
from libs.service_kit.connection import Connection
from services.qa_ingest.domain.curation import Version

COLUMNS = (
    *("question_text", "alternate_question_phrasings", "variant_details", "answer_standard", "answer_advanced"),
    *("source_id_token", "source_document_id", "promoted_from_extraction_id", "promoted_from_answer", "origin_kind"),
    *("ingest_source", "sources", "primary_domain", "primary_subtopic", "secondary_domain", "secondary_subtopic"),
    *("classification_confidence", "scope_tag", "anti_scope_tag", "provenance", "confidence", "valid_from", "valid_to"),
    *("publication_status", "superseded_by", "sensitive", "layer", "verified_at", "verified_by"),
    *("governance_review_status", "governance_review_due", "governance_reviewer", "next_review_date"),
    *("review_cadence_days", "metadata", "archived_at", "archived_by", "archive_reason"),
)
"""What of a pair may be another after a change; versions, times and authors are the trigger's."""

_LIST = ", ".join(COLUMNS)
_ROW = f"id, workspace_id, version, created_at, created_by, updated_at, updated_by, {_LIST}"
_LOCKED = f"""
SELECT {_ROW} FROM q_a_pairs WHERE id = ANY($1::uuid[]) AND (NOT sensitive OR $2) ORDER BY id FOR UPDATE
"""  # noqa: S608  # constants
_UPDATE = f"""
UPDATE q_a_pairs AS pair SET ({_LIST}) = (SELECT {_LIST} FROM jsonb_populate_record(pair, $2)) WHERE id = $1
"""  # noqa: S608
_INSERT = f"""
INSERT INTO q_a_pairs (id, workspace_id, version, created_at, updated_at, created_by, updated_by, {_LIST})
SELECT id, workspace_id, 1, now(), now(), created_by, created_by, {_LIST}
FROM jsonb_populate_recordset(NULL::q_a_pairs, $1)
"""  # noqa: S608
_DELETE = "DELETE FROM q_a_pairs WHERE id = $1"
_SUPERSEDED = "SELECT count(*) FROM q_a_pairs WHERE superseded_by = $1"
_ASKING_THE_SAME = """
SELECT id FROM q_a_pairs
WHERE workspace_id = $1 AND normalised = normalised_question($2) AND id <> $3 AND archived_at IS NULL
  AND superseded_by IS NULL
ORDER BY created_at LIMIT 1
"""
_EXTRACTION = "SELECT * FROM q_a_extractions WHERE id = $1 AND (NOT sensitive OR $2) FOR UPDATE"
_WORKSPACE = "SELECT true FROM workspaces WHERE id = $1"
_VERSIONS = """
SELECT pair_id, version_number AS number, change_type, snapshot FROM q_a_pair_history
WHERE pair_id = $1 AND version_number < $2 ORDER BY version_number DESC LIMIT 500
"""
_VERSIONS_OF = """
SELECT pair_id, version_number AS number, change_type FROM q_a_pair_history WHERE operation_id = $1
"""
_SNAPSHOT = "SELECT snapshot FROM q_a_pair_history WHERE pair_id = $1 AND version_number = $2"

_RECORD = """
INSERT INTO operations (operation_id, workspace_id, kind, done_by, done_by_kind, reason, detail)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_OPERATION = "SELECT * FROM operations WHERE operation_id = $1 FOR UPDATE"
_UNDONE = "UPDATE operations SET undone_by_id = $2 WHERE operation_id = $1"

_CITE = """
INSERT INTO citations (workspace_id, pair_id, citing_entity, citing_id, citation_kind, created_by)
VALUES ($1, $2, $3, $4, 'source', $5) ON CONFLICT DO NOTHING RETURNING id
"""
_COPY_CITATIONS = """
INSERT INTO citations (workspace_id, pair_id, citing_entity, citing_id, citation_kind, confidence, created_by,
                       invalidated_at)
SELECT cited.workspace_id, onto.id, cited.citing_entity, cited.citing_id, cited.citation_kind, max(cited.confidence),
       $3, CASE WHEN bool_and(cited.invalidated_at IS NOT NULL) THEN max(cited.invalidated_at) END
FROM citations AS cited CROSS JOIN unnest($2::uuid[]) AS onto (id) WHERE cited.pair_id = ANY($1::uuid[])
GROUP BY cited.workspace_id, onto.id, cited.citing_entity, cited.citing_id, cited.citation_kind
ON CONFLICT DO NOTHING RETURNING id
"""
_REMOVE_CITATIONS = "DELETE FROM citations WHERE id = ANY($1::uuid[])"
_UNPROMOTE = """
UPDATE q_a_extractions SET promoted_to_pair_id = NULL, promoted_at = NULL, promoted_by = NULL WHERE id = ANY($1::uuid[])
"""

_SUGGESTIONS = """
SELECT suggestion.id AS suggestion_id, suggestion.workspace_id, kind, state, pair_id, other_pair_id, extraction_id,
       pair.question_text AS question, other.question_text AS other_question, pair.version, detail,
       suggestion.created_at, suggestion.created_by, decided_at, decided_by
FROM suggestions AS suggestion
LEFT JOIN q_a_pairs AS pair ON pair.id = pair_id
LEFT JOIN q_a_pairs AS other ON other.id = other_pair_id
LEFT JOIN q_a_extractions AS found ON found.id = extraction_id
WHERE ($1::boolean OR NOT (coalesce(pair.sensitive, false) OR coalesce(other.sensitive, false)
                           OR coalesce(found.sensitive, false)))
"""
_LIST_SUGGESTIONS = f"""{_SUGGESTIONS}
  AND state = $2 AND ($3::text IS NULL OR kind = $3) AND ($4::uuid IS NULL OR $4 IN (pair_id, other_pair_id))
ORDER BY suggestion.created_at, suggestion.id LIMIT $5
"""
_ONE_SUGGESTION = f"{_SUGGESTIONS} AND suggestion.id = $2 FOR UPDATE OF suggestion"
_PROPOSE = """
INSERT INTO suggestions (workspace_id, kind, pair_id, natural_key, detail, created_by)
VALUES ($1, 'proposed_edit', $2, $3, $4, $5)
ON CONFLICT (workspace_id, kind, natural_key) DO UPDATE SET natural_key = excluded.natural_key
RETURNING id
"""
_DECIDE = "UPDATE suggestions SET state = $2, decided_at = now(), decided_by = $3 WHERE id = $1"
_REOPEN = "UPDATE suggestions SET state = 'open', decided_at = NULL, decided_by = NULL WHERE id = $1"

_DUE = "least(governance_review_due, next_review_date::timestamp AT TIME ZONE 'UTC')"
_WAITING = f"""
SELECT id AS pair_id, workspace_id, version, question_text AS question, publication_status,
       governance_review_status AS review_status, {_DUE} AS due_at,
       {_DUE} < $3::timestamptz OR coalesce(governance_review_status, '') = 'review_overdue' AS overdue,
       review_cadence_days, governance_reviewer AS reviewer
FROM q_a_pairs
WHERE archived_at IS NULL AND superseded_by IS NULL AND (NOT sensitive OR $1) AND {_DUE} <= $2::timestamptz
  AND (NOT $4::boolean OR {_DUE} < $3::timestamptz OR governance_review_status = 'review_overdue')
ORDER BY due_at, id LIMIT $5
"""  # noqa: S608
_OVERDUE = f"""
UPDATE q_a_pairs SET governance_review_status = 'review_overdue'
WHERE id IN (
    SELECT id FROM q_a_pairs
    WHERE workspace_id = $1 AND archived_at IS NULL AND superseded_by IS NULL AND {_DUE} < $2::timestamptz
      AND coalesce(governance_review_status, '') NOT IN ('review_overdue', 'changes_requested')
    ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED
)
RETURNING id
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Done:
    """An operation that was done."""

    operation_id: UUID
    workspace_id: UUID
    kind: str
    detail: Mapping[str, Any]
    undone_by_id: UUID | None


# --- pairs ------------------------------------------------------------------------------------------------------


async def locked(conn: Connection, pair_ids: Sequence[UUID], *, sensitive: bool) -> dict[UUID, dict[str, Any]]:
    """The rows of these pairs, locked in one order, so that two who want the same ones wait and do not embrace."""
    rows = await conn.fetch(_LOCKED, sorted(set(pair_ids)), sensitive)
    return {row["id"]: dict(row) for row in rows}


async def update(conn: Connection, pair_id: UUID, columns: Mapping[str, Any]) -> None:
    """Set columns of a pair. Raises the driver's errors for what a constraint does not let stand."""
    await conn.execute(_UPDATE, pair_id, dict(columns))


async def insert(conn: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write new pairs; what of `COLUMNS` a row does not name is null."""
    await conn.execute(_INSERT, [dict(row) for row in rows])


async def delete(conn: Connection, pair_id: UUID) -> None:
    """Remove a pair with its history."""
    await conn.execute(_DELETE, pair_id)


async def count_superseded_by(conn: Connection, pair_id: UUID) -> int:
    """For how many pairs this one stands in."""
    count = await conn.fetchval(_SUPERSEDED, pair_id)
    return int(count)


async def asking_the_same(conn: Connection, workspace_id: UUID, question: str, besides: UUID) -> UUID | None:
    """The oldest other pair that asks this."""
    found = await conn.fetchval(_ASKING_THE_SAME, workspace_id, question, besides)
    return found if isinstance(found, UUID) else None


async def extraction(conn: Connection, extraction_id: UUID, *, sensitive: bool) -> dict[str, Any] | None:
    """An extraction, locked."""
    row = await conn.fetchrow(_EXTRACTION, extraction_id, sensitive)
    return None if row is None else dict(row)


async def has_workspace(conn: Connection, workspace_id: UUID) -> bool:
    """Is there such a workspace?"""
    return bool(await conn.fetchval(_WORKSPACE, workspace_id))


# --- history and operations -------------------------------------------------------------------------------------


async def versions_before(conn: Connection, pair_id: UUID, number: int) -> list[Version]:
    """The history of a pair before that version, the newest first."""
    return [Version(**row) for row in await conn.fetch(_VERSIONS, pair_id, number)]


async def versions_of(conn: Connection, operation_id: UUID) -> list[Version]:
    """What an operation wrote into histories."""
    return [Version(**row) for row in await conn.fetch(_VERSIONS_OF, operation_id)]


async def snapshot(conn: Connection, pair_id: UUID, number: int) -> dict[str, Any]:
    """A pair as it was, as far as a change may touch it."""
    found = await conn.fetchval(_SNAPSHOT, pair_id, number)
    return {name: found[name] for name in COLUMNS if name in found}


async def record(
    conn: Connection,
    operation_id: UUID,
    workspace_id: UUID,
    kind: str,
    *,
    by: str,
    by_kind: str,
    reason: str,
    detail: Mapping[str, Any],
) -> None:
    """Keep that an operation was done."""
    await conn.execute(_RECORD, operation_id, workspace_id, kind, by, by_kind, reason, dict(detail))


async def operation(conn: Connection, operation_id: UUID) -> Done | None:
    """An operation, locked."""
    row = await conn.fetchrow(_OPERATION, operation_id)
    if row is None:
        return None
    return Done(row["operation_id"], row["workspace_id"], row["kind"], row["detail"], row["undone_by_id"])


async def mark_undone(conn: Connection, operation_id: UUID, by_id: UUID) -> None:
    """An operation is undone once."""
    await conn.execute(_UNDONE, operation_id, by_id)


# --- citations and promotions -----------------------------------------------------------------------------------


async def cite(conn: Connection, workspace_id: UUID, pair_id: UUID, entity: str, identity: str, by: str) -> list[UUID]:
    """Keep what a pair is made of; the new citation, if it is new."""
    return [row["id"] for row in await conn.fetch(_CITE, workspace_id, pair_id, entity, identity[:500], by)]


async def copy_citations(conn: Connection, of: Sequence[UUID], onto: Sequence[UUID], by: str) -> list[UUID]:
    """Let these pairs be cited as those are, each citation once; which were new."""
    return [row["id"] for row in await conn.fetch(_COPY_CITATIONS, list(of), list(onto), by)]


async def remove_citations(conn: Connection, citation_ids: Sequence[str]) -> None:
    """Take citations back."""
    await conn.execute(_REMOVE_CITATIONS, [UUID(each) for each in citation_ids])


async def unpromote(conn: Connection, extraction_ids: Sequence[str]) -> None:
    """Let extractions be promoted again."""
    await conn.execute(_UNPROMOTE, [UUID(each) for each in extraction_ids])


# --- what waits for people --------------------------------------------------------------------------------------


async def suggestions(conn: Connection, query: ListSuggestions) -> list[SuggestionView]:
    """Suggestions, the oldest first."""
    rows = await conn.fetch(
        _LIST_SUGGESTIONS, query.sees_sensitive, query.state, query.kind, query.pair_id, query.limit
    )
    return [SuggestionView(**row) for row in rows]


async def suggestion(conn: Connection, suggestion_id: UUID, *, sensitive: bool) -> SuggestionView | None:
    """One suggestion, locked."""
    row = await conn.fetchrow(_ONE_SUGGESTION, sensitive, suggestion_id)
    return None if row is None else SuggestionView(**row)


async def propose(
    conn: Connection, workspace_id: UUID, pair_id: UUID, key: str, detail: Mapping[str, Any], by: str
) -> UUID:
    """Keep a proposed edit; the one that is there already where the same was proposed before."""
    made = await conn.fetchval(_PROPOSE, workspace_id, pair_id, key, dict(detail), by)
    assert isinstance(made, UUID)
    return made


async def decide(conn: Connection, suggestion_id: UUID, state: str, by: str) -> None:
    """Accepted or dismissed."""
    await conn.execute(_DECIDE, suggestion_id, state, by)


async def reopen(conn: Connection, suggestion_id: UUID) -> None:
    """Undecided again."""
    await conn.execute(_REOPEN, suggestion_id)


async def reviews(conn: Connection, query: ListReviews, until: datetime, overdue_before: datetime) -> list[DueReview]:
    """Pairs that wait for a review until then, the longest due first."""
    only_overdue = query.state == "overdue"
    rows = await conn.fetch(_WAITING, query.sees_sensitive, until, overdue_before, only_overdue, query.limit)
    return [DueReview(**row) for row in rows]


async def mark_overdue(conn: Connection, workspace_id: UUID, overdue_before: datetime, limit: int) -> int:
    """Say of pairs whose review was due before then that it is overdue; of how many."""
    return len(await conn.fetch(_OVERDUE, workspace_id, overdue_before, limit))
