"""Vectors of questions and chunks, and the cache that keeps a text from being embedded twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from pgvector import Vector

from libs.service_kit.connection import Connection

_SHA = "encode(sha256(convert_to({text}, 'UTF8')), 'hex')"
# Extractions that became pairs are found as those.
_MISSING = f"""
SELECT DISTINCT ON (sha) sha, text FROM (
    SELECT question_sha256 AS sha, question AS text FROM question_variants WHERE embedding_model IS DISTINCT FROM $1
    UNION ALL
    SELECT {_SHA.format(text="question_text")}, question_text FROM q_a_extractions
    WHERE embedding_model IS DISTINCT FROM $1 AND invalidated_at IS NULL AND promoted_to_pair_id IS NULL
    UNION ALL
    SELECT content_sha256, content FROM chunks WHERE embedding_model IS DISTINCT FROM $1 AND invalidated_at IS NULL
) AS missing WHERE sha > $2 ORDER BY sha LIMIT $3
"""  # noqa: S608  # constants
_CACHED = """
UPDATE embedding_cache SET used_at = now() WHERE workspace_id = $1 AND model = $2 AND text_sha256 = ANY($3::text[])
RETURNING text_sha256, embedding
"""
_KEEP = """
INSERT INTO embedding_cache (workspace_id, model, text_sha256, embedding)
SELECT $1, $2, sha, embedding FROM unnest($3::text[], $4::vector[]) AS given (sha, embedding)
ON CONFLICT (workspace_id, model, text_sha256) DO NOTHING
"""
# A vector is written only where the text is still the one that it is of.
_VARIANTS = """
UPDATE question_variants SET embedding = given.embedding, embedding_model = $2
FROM unnest($3::text[], $4::vector[]) AS given (sha, embedding)
WHERE workspace_id = $1 AND question_sha256 = given.sha AND embedding_model IS DISTINCT FROM $2
"""
_EXTRACTIONS = f"""
UPDATE q_a_extractions SET embedding = given.embedding, embedding_model = $2
FROM unnest($3::text[], $4::vector[]) AS given (sha, embedding)
WHERE workspace_id = $1 AND embedding_model IS DISTINCT FROM $2 AND invalidated_at IS NULL
  AND promoted_to_pair_id IS NULL AND {_SHA.format(text="question_text")} = given.sha
"""  # noqa: S608  # constants
_CHUNKS = """
UPDATE chunks SET embedding = given.embedding, embedding_model = $2
FROM unnest($3::text[], $4::vector[]) AS given (sha, embedding)
WHERE workspace_id = $1 AND content_sha256 = given.sha AND embedding_model IS DISTINCT FROM $2
  AND invalidated_at IS NULL
"""


@dataclass(frozen=True, slots=True)
class Unembedded:
    """A text without a vector of the model, and its hash."""

    text: str
    sha: str


async def missing(conn: Connection, model: str, after: str, limit: int) -> list[Unembedded]:
    """Texts that have no vector of this model yet, each once, in the order of their hashes."""
    return [Unembedded(**row) for row in await conn.fetch(_MISSING, model, after, limit)]


async def cached(conn: Connection, workspace_id: UUID, model: str, shas: Sequence[str]) -> dict[str, Vector]:
    """The vectors of texts that were embedded before, for this workspace."""
    rows = await conn.fetch(_CACHED, workspace_id, model, list(shas))
    return {row["text_sha256"]: row["embedding"] for row in rows}


async def write(conn: Connection, workspace_id: UUID, model: str, vectors: Mapping[str, Vector]) -> None:
    """Give everything with one of these texts its vector, and remember it."""
    values = (workspace_id, model, list(vectors), list(vectors.values()))
    for statement in (_KEEP, _VARIANTS, _EXTRACTIONS, _CHUNKS):
        await conn.execute(statement, *values)
