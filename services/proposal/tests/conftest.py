"""This service's database, its neighbours on a real bus, and its own account's questions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from libs.service_kit.db import Database
from libs.service_kit.queries import Asker
from libs.service_kit.testing.servers import Servers
from services.proposal.tests.factories import Neighbours, connect


@pytest.fixture
async def db(database: Callable[[str], Awaitable[Database]]) -> Database:
    return await database("proposal")


@pytest.fixture
async def neighbours(servers: Servers) -> AsyncIterator[Neighbours]:
    around = Neighbours()
    clients = await around.listen(servers)
    yield around
    for client in clients:
        await client.close()


@pytest.fixture
async def asker(servers: Servers, neighbours: Neighbours) -> AsyncIterator[Asker]:
    client = await connect(servers, "proposal")
    yield Asker(lambda: client)
    await client.close()
