"""What extractors found: written once, then only promoted, invalidated and embedded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from libs.service_kit.connection import Connection
from services.qa_ingest.domain.changes import Live
from services.qa_ingest.domain.envelope import Envelope
from services.qa_ingest.store.documents import Received

COLUMNS = (
    "workspace_id, document_id, run_id, object_key, object_version, extractor_kind, extractor_version, layout, ordinal,"
    " content_sha256, question_text, answer_text, answer_standard, answer_advanced, variants, source_file_basename,"
    " source_section_path, source_sheet, source_table_index, source_row_index, source_line, source_id_token, scope_tag,"
    " anti_scope_tag, primary_domain, primary_subtopic, secondary_domain, secondary_subtopic, provenance, confidence,"
    " publication_status, valid_from, valid_to, sources, verified_at, verified_by, layer, next_review_date,"
    " review_cadence_days, sensitive, revised, fragment, citations, metadata, promoted_to_pair_id, promoted_at,"
    " promoted_by"
)
_INSERT = f"""
INSERT INTO q_a_extractions ({COLUMNS})
SELECT {COLUMNS} FROM jsonb_populate_recordset(NULL::q_a_extractions, $1)
ON CONFLICT DO NOTHING RETURNING ordinal, id
"""  # noqa: S608  # a constant
_LIVE = """
SELECT id AS extraction_id, ordinal, content_sha256, question_text AS question, answer_text AS answer,
       source_id_token AS id_token, promoted_to_pair_id AS pair_id
FROM q_a_extractions WHERE document_id = $1 AND invalidated_at IS NULL ORDER BY ordinal
"""
_INVALIDATE = """
UPDATE q_a_extractions SET invalidated_at = now(), invalidation_reason = $2
WHERE document_id = $1 AND invalidated_at IS NULL RETURNING id
"""
_PROMOTE = """
UPDATE q_a_extractions SET promoted_to_pair_id = given.pair_id, promoted_at = now(), promoted_by = $3
FROM unnest($1::uuid[], $2::uuid[]) AS given (extraction_id, pair_id) WHERE id = given.extraction_id
"""


async def live(conn: Connection, document_id: UUID) -> list[Live]:
    """The extractions of a document that are served."""
    return [Live(**row) for row in await conn.fetch(_LIVE, document_id)]


async def add(
    conn: Connection,
    received: Received,
    document_id: UUID,
    run_id: UUID,
    found: Sequence[tuple[Envelope, str]],
    carried: Mapping[int, UUID],
    at: str,
) -> dict[int, UUID]:
    """Write extractions with their hashes; their ids by ordinal. `carried` are promotions that go on; `at` is now."""
    rows = [
        _row(received, document_id, run_id, envelope, sha, carried.get(envelope.ordinal), at) for envelope, sha in found
    ]
    inserted = await conn.fetch(_INSERT, rows) if rows else []
    return {row["ordinal"]: row["id"] for row in inserted}


async def invalidate(conn: Connection, document_id: UUID, reason: str) -> list[UUID]:
    """Serve a document's extractions no longer; which they were."""
    return [row["id"] for row in await conn.fetch(_INVALIDATE, document_id, reason)]


async def promote(conn: Connection, pairs: Mapping[UUID, UUID], by: str) -> None:
    """Say which pair each extraction became."""
    if pairs:
        await conn.execute(_PROMOTE, list(pairs), list(pairs.values()), by)


def _row(
    received: Received, document_id: UUID, run_id: UUID, found: Envelope, sha: str, pair_id: UUID | None, at: str
) -> dict[str, Any]:
    said = found.model_dump(mode="json")
    return {
        "workspace_id": received.workspace_id,
        "document_id": document_id,
        "run_id": run_id,
        "object_key": received.object_key,
        "object_version": received.object_version,
        "extractor_kind": received.extractor,
        "extractor_version": received.extractor_version,
        "layout": found.extractor,
        "content_sha256": sha,
        "question_text": found.question,
        "source_file_basename": received.object_key.rsplit("/", 1)[-1],
        "source_section_path": list(found.place.section_path),
        "source_sheet": found.place.sheet,
        "source_table_index": found.place.table_index,
        "source_row_index": found.place.row_index,
        "source_line": found.place.line,
        "source_id_token": found.id_token,
        "scope_tag": list(found.scope_tags),
        "anti_scope_tag": list(found.anti_scope_tags),
        "promoted_to_pair_id": pair_id,
        "promoted_at": at if pair_id else None,
        "promoted_by": "ingest" if pair_id else None,
        **{name: said[name] for name in _SAME},
    }


_SAME = (
    *("ordinal", "answer_text", "answer_standard", "answer_advanced", "variants", "primary_domain", "primary_subtopic"),
    *("secondary_domain", "secondary_subtopic", "provenance", "confidence", "publication_status", "valid_from"),
    *("valid_to", "sources", "verified_at", "verified_by", "layer", "next_review_date", "review_cadence_days"),
    *("sensitive", "revised", "fragment", "citations", "metadata"),
)
