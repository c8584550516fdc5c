"""Forms on their way, and the record of pairs that were used in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from libs.service_kit.connection import Connection

KEPT_S = 15 * 60
_ENTER = """
INSERT INTO forms (form_id, workspace_id, asked_by, expires_at)
VALUES ($1, $2, $3, now() + make_interval(secs => $4))
ON CONFLICT (form_id) DO NOTHING
"""
_HELD = """
SELECT coalesce(sum(length(part.content)), 0) FROM forms AS form JOIN form_parts AS part USING (form_id)
WHERE form.asked_by = $1 AND form.expires_at > now()
"""
_IS_OF = "SELECT EXISTS (SELECT FROM forms WHERE form_id = $1 AND asked_by = $2 AND expires_at > now())"
_PUT = """
INSERT INTO form_parts (form_id, side, ordinal, workspace_id, content) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (form_id, side, ordinal) DO UPDATE SET content = excluded.content
"""
_COUNT = "SELECT count(*) FROM form_parts WHERE form_id = $1 AND side = 'sent'"
_TAKE = """
WITH taken AS (
    DELETE FROM form_parts WHERE form_id = $1 AND side = 'sent' RETURNING ordinal, content
)
SELECT ordinal, content FROM taken ORDER BY ordinal
"""
_FILLED = """
UPDATE forms SET content_type = $2, sha256 = $3, expires_at = now() + make_interval(secs => $4)
WHERE form_id = $1 RETURNING expires_at
"""
_DROP = "DELETE FROM forms WHERE form_id = $1"
_PART = """
SELECT form.content_type, form.sha256, form.expires_at, part.content,
       (SELECT count(*) FROM form_parts AS other WHERE other.form_id = form.form_id AND other.side = 'filled') AS parts,
       (SELECT sum(length(other.content)) FROM form_parts AS other
        WHERE other.form_id = form.form_id AND other.side = 'filled') AS bytes
FROM forms AS form JOIN form_parts AS part ON part.form_id = form.form_id AND part.side = 'filled'
WHERE form.form_id = $1 AND part.ordinal = $2 AND form.asked_by = $3 AND form.expires_at > now()
"""
_FORGET = "DELETE FROM forms WHERE expires_at <= now()"
_CITE = """
INSERT INTO citations (workspace_id, pair_id, citing_entity, citing_id, citation_kind, confidence, created_by)
SELECT pair.workspace_id, pair.id, 'form', $1, 'q_a_match', row.confidence, $2
FROM q_a_pairs AS pair JOIN unnest($3::uuid[], $4::real[]) AS row (id, confidence) ON row.id = pair.id
ON CONFLICT (pair_id, citing_entity, citing_id, citation_kind) DO NOTHING
"""


@dataclass(frozen=True, slots=True)
class Key:
    """Whose form it is: an id alone is not enough."""

    form_id: UUID
    workspace_id: UUID
    asked_by: str


async def enter(conn: Connection, key: Key) -> bool:
    """Make room for a form; False where the id is somebody else's, or expired."""
    await conn.execute(_ENTER, key.form_id, key.workspace_id, key.asked_by, KEPT_S)
    return bool(await conn.fetchval(_IS_OF, key.form_id, key.asked_by))


async def held_bytes(conn: Connection, asked_by: str) -> int:
    """How much of somebody's forms is kept now."""
    return int(await conn.fetchval(_HELD, asked_by))


async def put(conn: Connection, key: Key, side: str, ordinal: int, content: bytes) -> None:
    """Keep a part."""
    await conn.execute(_PUT, key.form_id, side, ordinal, key.workspace_id, content)


async def count_sent(conn: Connection, form_id: UUID) -> int:
    """How many parts were sent."""
    return int(await conn.fetchval(_COUNT, form_id))


async def take(conn: Connection, key: Key) -> list[bytes] | None:
    """The parts that were sent, which are gone then; None where it is nobody's, or somebody else's."""
    if not await conn.fetchval(_IS_OF, key.form_id, key.asked_by):
        return None
    return [bytes(row["content"]) for row in await conn.fetch(_TAKE, key.form_id)]


async def keep_filled(conn: Connection, key: Key, parts: Sequence[bytes], content_type: str, sha256: str) -> datetime:
    """Keep a filled form; until when."""
    for ordinal, part in enumerate(parts):
        await put(conn, key, "filled", ordinal, part)
    expires_at: datetime = await conn.fetchval(_FILLED, key.form_id, content_type, sha256, KEPT_S)
    return expires_at


async def drop(conn: Connection, form_id: UUID) -> None:
    """Forget a form."""
    await conn.execute(_DROP, form_id)


async def part(conn: Connection, form_id: UUID, ordinal: int, asked_by: str) -> Any | None:
    """One part of a filled form, with what the whole of it is."""
    return await conn.fetchrow(_PART, form_id, ordinal, asked_by)


async def forget_expired(conn: Connection) -> int:
    """Remove what nobody can fetch any more; how many forms there were."""
    return int((await conn.execute(_FORGET)).split()[-1])


async def cite(conn: Connection, form_sha256: str, by: str, used: Mapping[UUID, float]) -> None:
    """Record that these pairs answer questions of a form; once a form, however often it is filled."""
    await conn.execute(_CITE, form_sha256, by, list(used), list(used.values()))
