"""Table `idempotency_keys`: the answer a request had, for the same request sent again."""

from __future__ import annotations

from typing import Any, NamedTuple

from libs.service_kit.db import Connection

_CLAIM = """
INSERT INTO idempotency_keys (caller, key, request_sha256, answer) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING RETURNING true
"""
_GET = "SELECT request_sha256, answer FROM idempotency_keys WHERE caller = $1 AND key = $2"
_FORGET = "DELETE FROM idempotency_keys WHERE created_at < now() - make_interval(hours => $1)"


class Answered(NamedTuple):
    """What was sent under a key, and what it was answered with."""

    request_sha256: str
    answer: dict[str, Any]


async def get(conn: Connection, caller: str, key: str) -> Answered | None:
    """The answer that took the key."""
    row = await conn.fetchrow(_GET, caller, key)
    return None if row is None else Answered(**row)


async def claim(conn: Connection, caller: str, key: str, mine: Answered) -> Answered:
    """Take the key for this answer, or find the answer that took it. A concurrent claim is waited for."""
    if await conn.fetchval(_CLAIM, caller, key, *mine):
        return mine
    theirs = await get(conn, caller, key)
    assert theirs is not None
    return theirs


async def forget(conn: Connection, hours: int) -> None:
    """Remove keys older than that."""
    await conn.execute(_FORGET, hours)
