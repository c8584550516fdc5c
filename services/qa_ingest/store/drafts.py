"""Documents that are versions of one by their names, and what is served of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from libs.service_kit.connection import Connection
from services.qa_ingest.domain.drafts import Said
from services.qa_ingest.store.extractions import COLUMNS

SUPERSEDED = "superseded_by_final"

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('qa.name.' || $1::uuid || '.' || $2, 0))"
_NAME = "UPDATE documents SET name_stem = $2 WHERE id = $1"
_VERSIONS = """
SELECT id, object_key FROM documents
WHERE workspace_id = $1 AND name_stem = $2 AND state IN ('live', 'stale') ORDER BY object_key, id
"""
# What is served, and what a final took the place of and nothing was served instead of since.
_SAID = """
SELECT DISTINCT ON (document_id, ordinal)
    id AS extraction_id, question_text AS question,
    ARRAY[coalesce(answer_standard, answer_text), coalesce(answer_advanced, '')] AS answers,
    content_sha256 AS sha256, promoted_to_pair_id AS pair_id, invalidated_at IS NULL AS live
FROM q_a_extractions
WHERE document_id = ANY($1::uuid[]) AND (invalidated_at IS NULL OR invalidation_reason = $2)
ORDER BY document_id, ordinal, invalidated_at DESC NULLS FIRST
"""
_SUPERSEDE = """
UPDATE q_a_extractions SET invalidated_at = now(), invalidation_reason = $2
WHERE id = ANY($1::uuid[]) AND invalidated_at IS NULL
"""
# An invalidated extraction stays so; it is served again as a new one that says the same.
_RESTORE = f"""
INSERT INTO q_a_extractions ({COLUMNS}, embedding, embedding_model)
SELECT {COLUMNS}, embedding, embedding_model FROM q_a_extractions WHERE id = ANY($1::uuid[])
"""  # noqa: S608  # a constant
# Only pairs that a file made and nobody has touched since.
_SUPERSEDE_PAIRS = """
UPDATE q_a_pairs AS pair SET superseded_by = given.by
FROM unnest($1::uuid[], $2::uuid[]) AS given (id, by)
WHERE pair.id = given.id AND pair.superseded_by IS NULL AND pair.version = 1 AND pair.publication_status = 'draft'
RETURNING pair.id
"""
_SUGGEST = """
INSERT INTO suggestions AS old (workspace_id, kind, pair_id, extraction_id, natural_key, detail, created_by)
SELECT workspace_id, 'draft_final', pair_id, extraction_id, natural_key, detail, 'ingest'
FROM jsonb_populate_recordset(NULL::suggestions, $1)
ON CONFLICT (workspace_id, kind, natural_key) DO UPDATE
SET state = 'open', decided_at = NULL, decided_by = NULL, pair_id = excluded.pair_id,
    extraction_id = excluded.extraction_id, detail = excluded.detail
WHERE old.state = 'outdated'
"""
_OUTDATE = """
UPDATE suggestions SET state = 'outdated', decided_at = now(), decided_by = 'ingest'
WHERE kind = 'draft_final' AND state = 'open' AND workspace_id = $1 AND extraction_id IN
    (SELECT id FROM q_a_extractions WHERE document_id = ANY($2::uuid[])) AND natural_key <> ALL($3::text[])
"""


async def lock(conn: Connection, workspace_id: UUID, stem: str) -> None:
    """One transaction at a time for all versions of a document, so that each sees what the others wrote."""
    await conn.execute(_LOCK, workspace_id, stem)


async def name(conn: Connection, document_id: UUID, stem: str) -> None:
    """Remember what a document's name comes to."""
    await conn.execute(_NAME, document_id, stem)


async def versions(conn: Connection, workspace_id: UUID, stem: str) -> list[tuple[UUID, str]]:
    """The documents of a stem that are served: id and key."""
    return [(row["id"], row["object_key"]) for row in await conn.fetch(_VERSIONS, workspace_id, stem)]


async def said(conn: Connection, document_ids: Sequence[UUID]) -> list[Said]:
    """What documents say, in their order; also what a final took the place of."""
    rows = await conn.fetch(_SAID, list(document_ids), SUPERSEDED)
    return [Said(**{**dict(row), "answers": tuple(row["answers"])}) for row in rows]


async def supersede(conn: Connection, extraction_ids: Sequence[UUID]) -> None:
    """Serve these no longer."""
    if extraction_ids:
        await conn.execute(_SUPERSEDE, list(extraction_ids), SUPERSEDED)


async def restore(conn: Connection, extraction_ids: Sequence[UUID]) -> None:
    """Serve again what these said."""
    if extraction_ids:
        await conn.execute(_RESTORE, list(extraction_ids))


async def supersede_pairs(conn: Connection, pairs: Sequence[tuple[UUID, UUID]]) -> None:
    """Let pairs (old, new) that a file made be superseded, unless somebody has touched the old one."""
    await conn.execute(_SUPERSEDE_PAIRS, [old for old, _ in pairs], [new for _, new in pairs])


async def suggest(conn: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Keep suggestions; one that was outdated is open again."""
    if rows:
        await conn.execute(_SUGGEST, list(rows))


async def outdate(conn: Connection, workspace_id: UUID, document_ids: Sequence[UUID], kept: Sequence[str]) -> None:
    """Nobody need look at suggestions about these documents but at those with the keys `kept`."""
    await conn.execute(_OUTDATE, workspace_id, list(document_ids), list(kept))
