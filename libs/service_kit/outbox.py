"""The outbox: facts leave only through this table, in the transaction that made them true."""

from __future__ import annotations

from collections.abc import Sequence

from libs.service_kit.connection import Connection

_APPEND = "INSERT INTO outbox (subject, body) SELECT * FROM unnest($1::text[], $2::bytea[])"
_DEPTH = "SELECT count(*) AS depth, coalesce(extract(epoch FROM now() - min(created_at)), 0) AS age FROM outbox"


async def append(conn: Connection, rows: Sequence[tuple[str, bytes]]) -> None:
    """Add (subject, body) rows in one statement."""
    if rows:
        await conn.execute(_APPEND, [subject for subject, _ in rows], [body for _, body in rows])


async def depth(conn: Connection) -> tuple[int, float]:
    """How many facts wait, and the age of the oldest in seconds."""
    row = await conn.fetchrow(_DEPTH)
    assert row is not None
    return int(row["depth"]), float(row["age"])
