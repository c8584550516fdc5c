"""Vectors of questions, and the cache that keeps a question from being embedded twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from libs.service_kit.connection import Connection

_MISSING = """
SELECT * FROM (
    SELECT question, question_sha256 AS sha FROM question_variants WHERE embedding_model IS DISTINCT FROM $1
    UNION
    SELECT question_text, encode(sha256(convert_to(question_text, 'UTF8')), 'hex') FROM q_a_extractions
    WHERE embedding_model IS DISTINCT FROM $1 AND invalidated_at IS NULL
) AS missing ORDER BY sha LIMIT $2
"""
_CACHED = "SELECT text_sha256, embedding::text FROM embedding_cache WHERE model = $1 AND text_sha256 = ANY($2::text[])"
_KEEP = """
INSERT INTO embedding_cache (workspace_id, model, text_sha256, embedding)
SELECT $1, $2, sha, vector::vector FROM unnest($3::text[], $4::text[]) AS given (sha, vector)
ON CONFLICT (workspace_id, model, text_sha256) DO UPDATE SET used_at = now()
"""
# A vector is written only where the text is still the one that it is of.
_VARIANTS = """
UPDATE question_variants SET embedding = given.vector::vector, embedding_model = $1
FROM unnest($2::text[], $3::text[]) AS given (sha, vector) WHERE question_sha256 = given.sha
  AND embedding_model IS DISTINCT FROM $1
"""
_EXTRACTIONS = """
UPDATE q_a_extractions SET embedding = given.vector::vector, embedding_model = $1
FROM unnest($2::text[], $3::text[]) AS given (sha, vector)
WHERE encode(sha256(convert_to(question_text, 'UTF8')), 'hex') = given.sha
  AND embedding_model IS DISTINCT FROM $1 AND invalidated_at IS NULL
"""


@dataclass(frozen=True, slots=True)
class Unembedded:
    """A question without a vector of the model, and the hash of its text."""

    question: str
    sha: str


async def missing(conn: Connection, model: str, limit: int) -> list[Unembedded]:
    """Questions that have no vector of this model yet, each text once."""
    return [Unembedded(**row) for row in await conn.fetch(_MISSING, model, limit)]


async def cached(conn: Connection, model: str, shas: Sequence[str]) -> dict[str, str]:
    """The vectors of texts that were embedded before, as pgvector writes them."""
    rows = await conn.fetch(_CACHED, model, list(shas))
    return {row["text_sha256"]: row["embedding"] for row in rows}


async def write(conn: Connection, workspace_id: UUID, model: str, vectors: Mapping[str, str]) -> None:
    """Give every question with one of these texts its vector, and remember it."""
    shas, values = list(vectors), list(vectors.values())
    await conn.execute(_KEEP, workspace_id, model, shas, values)
    await conn.execute(_VARIANTS, model, shas, values)
    await conn.execute(_EXTRACTIONS, model, shas, values)
