"""Pairs that perhaps ask the same: by their words, and by their vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from libs.service_kit.connection import Connection
from services.qa_ingest.store.search import by_index

NEIGHBOURS = 10
_WAITING = """
SELECT pair.id AS pair_id, pair.version FROM q_a_pairs AS pair
WHERE pair.workspace_id = $1 AND pair.archived_at IS NULL AND pair.superseded_by IS NULL
  AND NOT EXISTS (SELECT FROM compared_pairs AS done
                  WHERE done.pair_id = pair.id AND done.version = pair.version AND done.model = $2)
  AND NOT EXISTS (SELECT FROM question_variants AS asked
                  WHERE asked.pair_id = pair.id AND asked.embedding_model IS DISTINCT FROM $2)
ORDER BY pair.id LIMIT $3
"""
# The oldest of those that ask the same stands for all of them.
_SAME = """
WITH asked AS (
    SELECT DISTINCT normalised FROM question_variants WHERE pair_id = ANY($2::uuid[]) AND normalised <> ''
), asking AS (
    SELECT DISTINCT ON (asked.normalised, pair.id) asked.normalised, pair.id, pair.created_at
    FROM asked JOIN question_variants AS variant ON variant.workspace_id = $1 AND variant.normalised = asked.normalised
    JOIN q_a_pairs AS pair ON pair.id = variant.pair_id AND pair.archived_at IS NULL AND pair.superseded_by IS NULL
)
SELECT first.id AS pair_id, other.id AS other_pair_id, other.normalised AS question
FROM asking AS other JOIN LATERAL (
    SELECT id FROM asking WHERE asking.normalised = other.normalised ORDER BY created_at, id LIMIT 1
) AS first ON first.id <> other.id
ORDER BY other.normalised, other.id
"""
_NEAR = f"""
SELECT least(mine.pair_id, near.pair_id) AS pair_id, greatest(mine.pair_id, near.pair_id) AS other_pair_id,
       max(near.similarity) AS similarity
FROM question_variants AS mine CROSS JOIN LATERAL (
    SELECT other.pair_id, 1 - (other.embedding <=> mine.embedding) AS similarity FROM question_variants AS other
    WHERE other.workspace_id = $1 AND other.embedding_model = $3 AND other.pair_id <> mine.pair_id
    ORDER BY other.embedding <=> mine.embedding LIMIT {NEIGHBOURS}
) AS near
JOIN q_a_pairs AS pair ON pair.id = near.pair_id AND pair.archived_at IS NULL AND pair.superseded_by IS NULL
WHERE mine.pair_id = ANY($2::uuid[]) AND mine.embedding_model = $3 AND near.similarity >= $4
GROUP BY 1, 2
"""  # noqa: S608  # a constant
_DONE = """
INSERT INTO compared_pairs (pair_id, workspace_id, version, model)
SELECT pair_id, $1, version, $2 FROM unnest($3::uuid[], $4::int[]) AS given (pair_id, version)
ON CONFLICT (pair_id) DO UPDATE SET version = excluded.version, model = excluded.model
"""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pair that was not compared as it is now."""

    pair_id: UUID
    version: int


@dataclass(frozen=True, slots=True)
class SameQuestion:
    """A pair that asks, in some phrasing, what an older one asks."""

    pair_id: UUID
    other_pair_id: UUID
    question: str


@dataclass(frozen=True, slots=True)
class Near:
    """Two pairs with phrasings that are near to each other, the lesser id first."""

    pair_id: UUID
    other_pair_id: UUID
    similarity: float


async def waiting(conn: Connection, workspace_id: UUID, model: str, limit: int) -> list[Waiting]:
    """Pairs to compare that have all their vectors."""
    return [Waiting(**row) for row in await conn.fetch(_WAITING, workspace_id, model, limit)]


async def same_questions(conn: Connection, workspace_id: UUID, pair_ids: Sequence[UUID]) -> list[SameQuestion]:
    """Everything that asks the same as one of these."""
    return [SameQuestion(**row) for row in await conn.fetch(_SAME, workspace_id, list(pair_ids))]


async def near(
    conn: Connection, workspace_id: UUID, pair_ids: Sequence[UUID], model: str, similarity: float
) -> list[Near]:
    """What is at least so near to one of these, as far as it is among the nearest few."""
    return [Near(**row) for row in await by_index(conn, _NEAR, [workspace_id, list(pair_ids), model, similarity])]


async def compared(conn: Connection, workspace_id: UUID, model: str, pairs: Sequence[Waiting]) -> None:
    """Remember that these were compared."""
    ids, versions = [pair.pair_id for pair in pairs], [pair.version for pair in pairs]
    await conn.execute(_DONE, workspace_id, model, ids, versions)
