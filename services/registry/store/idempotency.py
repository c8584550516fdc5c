"""Table `idempotency_keys`: the answer a push had, for the same push sent again."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from libs.service_kit.db import Connection

_CLAIM = """
INSERT INTO idempotency_keys (caller, key, request_sha256, signal_ids) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING RETURNING true
"""
_GET = "SELECT request_sha256, signal_ids FROM idempotency_keys WHERE caller = $1 AND key = $2"
_FORGET = "DELETE FROM idempotency_keys WHERE created_at < now() - make_interval(hours => $1)"


class Answered(NamedTuple):
    """What was sent under a key, and the ids it was answered with."""

    request_sha256: str
    signal_ids: list[UUID]


async def claim(conn: Connection, caller: str, key: str, answer: Answered) -> Answered:
    """Take the key for this answer, or find the answer that took it. A concurrent claim is waited for."""
    if await conn.fetchval(_CLAIM, caller, key, *answer):
        return answer
    row = await conn.fetchrow(_GET, caller, key)
    assert row is not None
    return Answered(row["request_sha256"], list(row["signal_ids"]))


async def forget(conn: Connection, hours: int) -> None:
    """Remove keys older than that."""
    await conn.execute(_FORGET, hours)
