"""Holds locks in a Postgres until it is killed: `python -m libs.postgres.tests.holder DSN KEY HOW`.

It says `held` when it has what it wants, or, for the one who waits, when it has asked.
"""

from __future__ import annotations

import asyncio
import sys

import asyncpg

from libs.postgres import session_settings
from libs.service_kit.connection import session_lock


async def hold(dsn: str, key: str, how: str) -> None:
    """A `session` lock, one of a `transaction`, or a place in the queue (`waits`); `careless` is the control."""
    settings = {} if how == "careless" else session_settings("holder")
    conn = await asyncpg.connect(dsn, server_settings=settings)
    if how == "waits":
        task = asyncio.create_task(_wait(conn, key))
        await asyncio.sleep(1)
        print("held", flush=True)
        await task
    elif how == "transaction":
        async with conn.transaction():
            await conn.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", key)
            print("held", flush=True)
            await asyncio.sleep(600)
    else:
        async with session_lock(conn, key):
            print("held", flush=True)
            await asyncio.sleep(600)


async def _wait(conn: asyncpg.Connection[asyncpg.Record], key: str) -> None:
    async with session_lock(conn, key):
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(hold(*sys.argv[1:4]))
