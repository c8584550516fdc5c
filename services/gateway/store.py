"""The tables of the gateway: answers for requests sent again, and when limited requests were made."""

from __future__ import annotations

from typing import Any, NamedTuple

from libs.service_kit.db import Connection
from services.gateway.domain import Limit, admitted

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


_KNOWN = "INSERT INTO recent_requests (kind, subject) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_TIMES = """
SELECT times, clock_timestamp() AS at FROM recent_requests WHERE kind = $1 AND subject = $2 FOR UPDATE
"""
_ASKED = "UPDATE recent_requests SET times = $3 WHERE kind = $1 AND subject = $2"


async def admit(conn: Connection, limit: Limit, subject: str) -> float | None:
    """Count one request of `subject`, in a transaction; seconds to wait where it is one too many, and not counted."""
    await conn.execute(_KNOWN, limit.kind, subject)
    row = await conn.fetchrow(_TIMES, limit.kind, subject)
    assert row is not None
    times, wait_s = admitted(row["times"], row["at"], limit)
    if wait_s is None:
        await conn.execute(_ASKED, limit.kind, subject, times)
    return wait_s
