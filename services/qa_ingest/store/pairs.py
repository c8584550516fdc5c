"""Pairs: what people vouch for. The history of each is written by a trigger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from libs.contracts.library import Citation, PairDetail, PairKind, PairVersion
from libs.service_kit.connection import Connection
from services.qa_ingest.domain.envelope import Envelope

_COLUMNS = (
    "id, workspace_id, question_text, alternate_question_phrasings, variant_details, answer_standard, answer_advanced,"
    " source_id_token, source_document_id, promoted_from_extraction_id, origin_kind, ingest_source, sources,"
    " primary_domain, primary_subtopic, secondary_domain, secondary_subtopic, scope_tag, anti_scope_tag, provenance,"
    " confidence, valid_from, valid_to, publication_status, sensitive, layer, verified_at, verified_by,"
    " next_review_date, review_cadence_days, metadata, created_by, updated_by, version, created_at, updated_at"
)
_INSERT = f"""
INSERT INTO q_a_pairs ({_COLUMNS})
SELECT {_COLUMNS} FROM jsonb_populate_recordset(NULL::q_a_pairs, $1)
"""  # noqa: S608  # a constant
_WITH_IDS = """
SELECT source_id_token AS token, id, question_text, answer_standard, answer_advanced
FROM q_a_pairs WHERE workspace_id = $1 AND source_id_token = ANY($2::text[])
"""
_BY_QUESTION = """
SELECT id, question_text, answer_standard, answer_advanced,
       archived_at IS NULL AND superseded_by IS NULL AS in_use
FROM q_a_pairs WHERE workspace_id = $1
  AND normalised = ANY(SELECT normalised_question(question) FROM unnest($2::text[]) AS question)
ORDER BY created_at, id
"""
_FLAG = """
UPDATE q_a_pairs
SET governance_review_status = 'pending', governance_review_due = coalesce(governance_review_due, now())
WHERE id = ANY($1::uuid[]) AND archived_at IS NULL
RETURNING id
"""
_SERVED = """
SELECT id, version, question_text, answer_standard FROM q_a_pairs
WHERE workspace_id = $1 AND publication_status = 'published' AND superseded_by IS NULL AND NOT sensitive
"""
_PAIR = "SELECT * FROM q_a_pairs WHERE id = $1 AND (NOT sensitive OR $2)"
_EXTRACTION = "SELECT * FROM q_a_extractions WHERE id = $1 AND (NOT sensitive OR $2)"
_HISTORY = """
SELECT version_number AS version, change_type, change_reason, changed_by, changed_at, operation_id
FROM q_a_pair_history WHERE pair_id = $1 ORDER BY version_number DESC LIMIT 200
"""
_CITATIONS = """
SELECT id, citing_entity, citing_id, citation_kind, round(confidence::numeric, 4)::float AS confidence, created_at,
       invalidated_at
FROM citations WHERE pair_id = $1 ORDER BY created_at, id LIMIT 200
"""


async def add(conn: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write new pairs, as `row_of` gives them."""
    if rows:
        await conn.execute(_INSERT, [dict(row) for row in rows])


def row_of(
    pair_id: UUID,
    workspace_id: UUID,
    found: Envelope,
    *,
    at: str,
    by: str,
    document_id: UUID,
    extraction_id: UUID | None,
    trusted: bool,
) -> dict[str, Any]:
    """A new pair out of a bundle's block. What only its author claims counts where the bucket is trusted."""
    said = found.model_dump(mode="json")
    details = {
        variant.question: {"source": variant.source, "detail": variant.detail}
        for variant in found.variants
        if variant.source or variant.detail
    }
    claims = {name: said[name] for name in ("publication_status", "verified_at", "verified_by")}
    unproved = {name: value for name, value in claims.items() if value is not None and value != "draft"}
    return {
        "id": pair_id,
        "workspace_id": workspace_id,
        "question_text": found.question,
        "alternate_question_phrasings": list(dict.fromkeys(variant.question for variant in found.variants)),
        "variant_details": details,
        "source_id_token": found.id_token,
        "source_document_id": document_id,
        "promoted_from_extraction_id": extraction_id,
        "origin_kind": "curated_explicit",
        "ingest_source": "qa_bundle",
        "scope_tag": list(found.scope_tags),
        "anti_scope_tag": list(found.anti_scope_tags),
        "metadata": {**said["metadata"], **({"claimed": unproved} if unproved and not trusted else {})},
        "created_by": by,
        "updated_by": by,
        "version": 1,
        "created_at": at,
        "updated_at": at,
        **{name: said[name] for name in _SAME},
        **(claims if trusted else {"publication_status": "draft", "verified_at": None, "verified_by": None}),
        "valid_from": said["valid_from"] or at,
    }


async def by_token(conn: Connection, workspace_id: UUID, tokens: Sequence[str]) -> dict[str, Any]:
    """The pairs that have these ids of their authors'."""
    return {row["token"]: row for row in await conn.fetch(_WITH_IDS, workspace_id, list(tokens))}


async def by_question(conn: Connection, workspace_id: UUID, questions: Sequence[str]) -> Sequence[Any]:
    """The pairs that ask one of these, oldest first; `in_use` where it is neither archived nor superseded."""
    return await conn.fetch(_BY_QUESTION, workspace_id, list(questions))


async def flag(conn: Connection, pair_ids: Sequence[UUID]) -> list[UUID]:
    """Ask for a review of these pairs; which were there to be flagged."""
    return [row["id"] for row in await conn.fetch(_FLAG, list(pair_ids))]


async def served(conn: Connection, workspace_id: UUID) -> list[Any]:
    """The pairs that everybody finds: published, with nothing in their place, and not sensitive."""
    return list(await conn.fetch(_SERVED, workspace_id))


async def get(
    conn: Connection, kind: PairKind, identity: UUID, *, citations: bool = False, history: bool, sensitive: bool
) -> PairDetail | None:
    """One pair or extraction that the connection sees."""
    row = await conn.fetchrow(_PAIR if kind == "curated" else _EXTRACTION, identity, sensitive)
    if row is None:
        return None
    curated = kind == "curated"
    cited = await conn.fetch(_CITATIONS, identity) if citations and curated else []
    versions = await conn.fetch(_HISTORY, identity) if history and curated else []
    return _detail(
        kind,
        row,
        tuple(Citation(**citation) for citation in cited),
        tuple(PairVersion(**version) for version in versions),
    )


def _detail(kind: PairKind, row: Any, citations: tuple[Citation, ...], history: tuple[PairVersion, ...]) -> PairDetail:
    curated = kind == "curated"
    return PairDetail(
        kind=kind,
        id=row["id"],
        workspace_id=row["workspace_id"],
        version=row["version"] if curated else 1,
        question=row["question_text"],
        alternate_phrasings=tuple(
            row["alternate_question_phrasings"] if curated else (each["question"] for each in row["variants"])
        ),
        answer_standard=row["answer_standard"] or row["answer_text"],
        answer_advanced=row["answer_advanced"],
        id_token=row["source_id_token"],
        scope_tags=tuple(row["scope_tag"]),
        anti_scope_tags=tuple(row["anti_scope_tag"]),
        primary_domain=row["primary_domain"],
        primary_subtopic=row["primary_subtopic"],
        secondary_domain=row["secondary_domain"],
        secondary_subtopic=row["secondary_subtopic"],
        provenance=row["provenance"],
        confidence=round(row["confidence"], 4),
        valid_from=row["valid_from"],
        valid_to=row["valid_to"],
        publication_status=row["publication_status"],
        sensitive=row["sensitive"],
        verified_at=row["verified_at"],
        verified_by=row["verified_by"],
        review_status=row["governance_review_status"] if curated else None,
        origin_kind=row["origin_kind"] if curated else None,
        extractor=None if curated else row["extractor_kind"],
        source_document_id=row["source_document_id"] if curated else row["document_id"],
        source_file=None if curated else row["source_file_basename"],
        superseded_by=row["superseded_by"] if curated else None,
        metadata=row["metadata"],
        citations=citations,
        history=history,
    )


_SAME = (
    *("answer_standard", "answer_advanced", "sources", "primary_domain", "primary_subtopic", "secondary_domain"),
    *("secondary_subtopic", "provenance", "confidence", "valid_to", "sensitive", "layer", "next_review_date"),
    "review_cadence_days",
)
