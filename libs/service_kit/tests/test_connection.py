"""The one lock that outlives a transaction."""

from __future__ import annotations

import asyncio

import pytest

from libs.service_kit.connection import session_lock
from libs.service_kit.db import Database
from libs.service_kit.testing.plugin import OpenDatabase


@pytest.fixture
async def db(database: OpenDatabase) -> Database:
    return await database("normaliser")


@pytest.mark.parametrize("key", ["a name", 7])
async def test_one_holds_it_and_the_next_waits_or_is_told(db: Database, key: str | int) -> None:
    order: list[str] = []

    async def second() -> None:
        async with db.connection() as conn, session_lock(conn, key) as got:
            assert got
            order.append("second")

    async with db.connection() as mine, db.connection() as other:
        async with session_lock(mine, key) as got:
            assert got
            async with session_lock(other, key, wait=False) as got:
                assert not got
            waiting = asyncio.create_task(second())
            while not await mine.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
                await asyncio.sleep(0.01)
            order.append("first")
        await waiting
        async with session_lock(other, key, wait=False) as got:
            assert got
    assert order == ["first", "second"]


async def test_it_ends_with_its_connection(db: Database) -> None:
    alone = await db.connect_alone()
    async with session_lock(alone, "gone"):
        alone.terminate()
        async with db.connection() as conn, asyncio.timeout(5), session_lock(conn, "gone") as got:
            assert got
