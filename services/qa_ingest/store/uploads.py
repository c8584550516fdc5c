"""Files that came through the API, whole and in pieces."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from libs.service_kit.connection import Connection

_PART = """
INSERT INTO upload_parts (workspace_id, upload_id, part, content) VALUES ($1, $2, $3, $4)
ON CONFLICT (workspace_id, upload_id, part) DO UPDATE SET content = excluded.content, came_at = now()
"""
_SIZES = """
SELECT count(*) AS parts, coalesce(sum(octet_length(content)), 0) AS bytes FROM upload_parts
WHERE workspace_id = $1 AND upload_id = $2 AND part < $3
"""
_TAKEN = "DELETE FROM upload_parts WHERE workspace_id = $1 AND upload_id = $2 RETURNING part, content"
_FORGET = "DELETE FROM upload_parts WHERE came_at < now() - interval '1 day'"
_PUT = """
INSERT INTO uploads (workspace_id, object_key, extractor, content, max_usd, run_id) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (workspace_id, object_key) DO UPDATE
SET extractor = excluded.extractor, content = excluded.content, max_usd = excluded.max_usd,
    run_id = excluded.run_id, put_at = now(), followed_at = NULL
"""
_GET = "SELECT content FROM uploads WHERE workspace_id = $1 AND object_key = $2"
_DELETE = "DELETE FROM uploads WHERE workspace_id = $1 AND object_key = $2"
_LIST = """
SELECT object_key, put_at, octet_length(content) AS bytes FROM uploads WHERE workspace_id = $1 ORDER BY object_key
"""
_WAITING = """
SELECT object_key, extractor, max_usd, run_id FROM uploads
WHERE followed_at IS NULL AND put_at < now() - interval '1 minute' ORDER BY put_at LIMIT 100
"""
_FOLLOWED = "UPDATE uploads SET followed_at = now() WHERE workspace_id = $1 AND object_key = $2"
_EXISTS = "SELECT EXISTS (SELECT FROM workspaces WHERE id = $1)"


@dataclass(frozen=True, slots=True)
class Held:
    """What is there of a file that comes in pieces."""

    parts: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A file as it is listed; `version` changes with every putting."""

    key: str
    version: str
    size: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """A file that was put and not followed; with what reading it may cost, where that costs something."""

    object_key: str
    extractor: str
    max_usd: Decimal | None = None
    run_id: UUID | None = None


async def workspace_exists(conn: Connection, workspace_id: UUID) -> bool:
    """Whether there is such a workspace, among those that the connection sees."""
    return bool(await conn.fetchval(_EXISTS, workspace_id))


async def keep_part(conn: Connection, workspace_id: UUID, upload_id: UUID, part: int, content: bytes) -> None:
    """Keep one piece; the same again replaces it."""
    await conn.execute(_PART, workspace_id, upload_id, part, content)


async def held(conn: Connection, workspace_id: UUID, upload_id: UUID, parts: int) -> Held:
    """What is there of the first `parts` pieces."""
    row = await conn.fetchrow(_SIZES, workspace_id, upload_id, parts)
    assert row is not None
    return Held(row["parts"], row["bytes"])


async def take_whole(conn: Connection, workspace_id: UUID, upload_id: UUID) -> bytes:
    """All pieces in their order; they are gone from here."""
    rows = await conn.fetch(_TAKEN, workspace_id, upload_id)
    return b"".join(row["content"] for row in sorted(rows, key=lambda row: int(row["part"])))


async def forget_parts(conn: Connection) -> None:
    """Remove pieces of files that were never whole, of the workspaces that the connection sees."""
    await conn.execute(_FORGET)


async def put(conn: Connection, workspace_id: UUID, put: Waiting, content: bytes) -> None:
    """Keep a file in place of the one of this name."""
    await conn.execute(_PUT, workspace_id, put.object_key, put.extractor, content, put.max_usd, put.run_id)


async def get(conn: Connection, workspace_id: UUID, key: str) -> bytes | None:
    """A file's bytes."""
    found = await conn.fetchval(_GET, workspace_id, key)
    return None if found is None else bytes(found)


async def delete(conn: Connection, workspace_id: UUID, key: str) -> None:
    """Remove a file."""
    await conn.execute(_DELETE, workspace_id, key)


async def listed(conn: Connection, workspace_id: UUID) -> list[Uploaded]:
    """Every file."""
    rows = await conn.fetch(_LIST, workspace_id)
    return [Uploaded(row["object_key"], row["put_at"].isoformat(), row["bytes"]) for row in rows]


async def followed(conn: Connection, workspace_id: UUID, key: str) -> None:
    """The file was looked at since it was put."""
    await conn.execute(_FOLLOWED, workspace_id, key)


async def waiting(conn: Connection) -> list[Waiting]:
    """Files that nobody has looked at within a minute: whoever took them has died."""
    return [Waiting(**row) for row in await conn.fetch(_WAITING)]
