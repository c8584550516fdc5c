"""pytest fixtures on real servers. Every test gets its own clone of a migrated template database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
import pytest_asyncio

from libs.service_kit.db import Database
from libs.service_kit.testing.installation import Installation
from libs.service_kit.testing.servers import Servers, running

OpenDatabase = Callable[[str], Awaitable[Database]]


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Postgres and NATS of this test process, started once."""
    with running(tmp_path_factory.mktemp("servers")) as started:
        yield started


@pytest_asyncio.fixture
async def clone(servers: Servers) -> AsyncIterator[str]:
    """The name of this test's own database."""
    name = await servers.clone()
    yield name
    await servers.drop(name)


@pytest_asyncio.fixture
async def database(servers: Servers, clone: str) -> AsyncIterator[OpenDatabase]:
    """Opens a `Database` with the role of a service, on this test's clone."""
    opened: list[Database] = []

    async def open_database(service: str) -> Database:
        db = Database(service, servers.role_dsn(service, clone), pool_size=4)
        await db.open()
        opened.append(db)
        return db

    yield open_database
    for db in opened:
        await db.close()


@pytest_asyncio.fixture
async def installation(servers: Servers, clone: str) -> Installation:
    """This test's clone and a bus with empty streams."""
    made = Installation(servers, clone)
    await made.fresh_topology()
    return made
