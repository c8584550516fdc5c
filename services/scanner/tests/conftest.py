"""What the scanner's tests share: the platform's tables beside the service's own, and a runner over both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from libs.service_kit.db import Database
from libs.service_kit.testing.servers import Servers
from services.scanner.platform import Platform
from services.scanner.runner import Runner
from services.scanner.settings import Settings
from services.scanner.tests.support import MORE_TABLES, PLATFORM_SQL, PlatformTables, Scanning

OpenDatabase = Callable[[str], Awaitable[Database]]


@pytest.fixture
async def db(database: OpenDatabase) -> Database:
    return await database("scanner")


@pytest.fixture
async def tables(servers: Servers, clone: str) -> AsyncIterator[PlatformTables]:
    conn = await asyncpg.connect(servers.admin_dsn(clone))
    await conn.execute(PLATFORM_SQL.read_text("utf-8") + MORE_TABLES)
    yield PlatformTables(conn)
    await conn.close()


@pytest.fixture
async def platform(servers: Servers, clone: str) -> AsyncIterator[Platform]:
    dsns = {"BURNISH_PLATFORM_DSN": servers.admin_dsn(clone), "BURNISH_PLATFORM_DOWN": "postgresql://127.0.0.1:9/x"}
    platform = Platform(dsns.get, pool_size=4, statement_timeout_s=5)
    yield platform
    await platform.close()


@pytest.fixture
async def scanning(db: Database, platform: Platform) -> AsyncIterator[Scanning]:
    settings = Settings(database_url="postgresql://unused", scan_timeout_s=10)
    made = Scanning(db, platform, settings, Runner(db, platform, settings))
    yield made
    await made.runner.stop()
