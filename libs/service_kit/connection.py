"""A connection to the service's database: its type, how it is prepared, its lock, and whose rows it sees."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import asyncpg
from asyncpg.pool import PoolConnectionProxy
from pgvector.asyncpg import register_vector

if TYPE_CHECKING:
    Connection: TypeAlias = PoolConnectionProxy[asyncpg.Record]
    AnyConnection: TypeAlias = Connection | asyncpg.Connection[Any]
else:
    Connection = AnyConnection = PoolConnectionProxy  # not generic at run time

ROWS_SEEN, EVERY_WORKSPACE = "burnish.workspaces", "*"
"""What row-level security reads: ids with commas, or this sign. A connection that sets nothing sees nothing."""


async def see_only(conn: Connection, workspaces: Collection[UUID]) -> None:
    """See rows of these workspaces, and rows of none, until the transaction ends."""
    # One that nobody has, where there are none: naming nothing would show not even the rows of none.
    named = ",".join(str(one) for one in workspaces) or str(UUID(int=0))
    await conn.execute("SELECT set_config($1, $2, true)", ROWS_SEEN, named)


@asynccontextmanager
async def session_lock(conn: AnyConnection, key: str | int, *, wait: bool = True) -> AsyncIterator[bool]:
    """Hold the advisory lock `key` for the block; without `wait`, False where somebody else has it.

    A session lock outlives transactions and ends with the connection, so a killed process leaves none behind.
    """
    number = "hashtextextended($1, 0)" if isinstance(key, str) else "$1::bigint"
    if wait:
        await conn.execute(f"SELECT pg_advisory_lock({number})", key)
    elif not await conn.fetchval(f"SELECT pg_try_advisory_lock({number})", key):
        yield False
        return
    try:
        yield True
    finally:
        with suppress(asyncpg.InterfaceError):  # the connection is gone, and the lock with it
            await conn.execute(f"SELECT pg_advisory_unlock({number})", key)


async def prepare(conn: asyncpg.Connection[asyncpg.Record]) -> None:
    """Make JSON columns take and give Python values, and vectors pgvector's."""
    for kind in ("json", "jsonb"):
        await conn.set_type_codec(kind, encoder=_to_json, decoder=json.loads, schema="pg_catalog")
    await register_vector(conn, schema="extensions")


_to_json = json.JSONEncoder(default=str, allow_nan=False).encode  # json.dumps would build one a value
