"""What is away while a request runs is a 503 that says so; what comes back is used again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx
import pytest

from libs.service_kit.causes import cause_of
from libs.service_kit.db import Database
from libs.service_kit.errors import NotOpen
from libs.service_kit.testing import Installation
from services.registry.store import entries
from services.registry.tests.support import in_table
from tests.api.conftest import Api, cut
from tests.api.test_api import SIGNAL, is_problem, register

ROOT = "/api/refinement"
AT = f"{ROOT}/touchpoints/summary"


@asynccontextmanager
async def admin_of(installation: Installation) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    conn = await asyncpg.connect(installation.admin_dsn)
    yield conn
    await conn.close()


CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND usename = $1"


@asynccontextmanager
async def shut(installation: Installation, service: str) -> AsyncIterator[None]:
    """The database lets nobody of this service in, and those inside are thrown out, again and again."""
    role = f"burnish_{service}"
    async with admin_of(installation) as conn:
        found = await conn.fetchval("SELECT rolname FROM pg_roles WHERE rolname LIKE '%' || $1", service)
        role = str(found)
        await conn.execute(f"ALTER ROLE {role} CONNECTION LIMIT 0")
        stopped = asyncio.Event()

        async def throw_out() -> None:
            while not stopped.is_set():
                await conn.execute(CUT, role)
                await asyncio.sleep(0.02)

        cutting = asyncio.create_task(throw_out())
        try:
            yield
        finally:
            stopped.set()
            await cutting
            await conn.execute(f"ALTER ROLE {role} CONNECTION LIMIT -1")


async def requests(client: httpx.AsyncClient, number: int) -> list[httpx.Response]:
    """Reads and changes of every kind that needs a database, at once."""
    key = {"Idempotency-Key": f"k{number}"}
    body = {"version_ref": "x", "expected_live": None, "reason": "x"}
    return list(
        await asyncio.gather(
            client.get(f"{ROOT}/touchpoints"),
            client.get(f"{ROOT}/ledger"),
            client.get(f"{AT}/versions"),
            client.post(f"{ROOT}/signals", json=SIGNAL, headers=key),
            client.post(f"{AT}/detect", headers={"Idempotency-Key": f"d{number}"}),
            client.post(f"{AT}/activate", json=body),
        )
    )


@pytest.mark.parametrize("service", ["registry", "gateway"])
async def test_a_database_that_goes_in_the_middle_is_a_503_and_comes_back(
    api: Api, installation: Installation, service: str
) -> None:
    client = await api.admin()
    await register(client, in_table())
    seen = set()
    async with shut(installation, service):
        for number in range(10):
            for response in await requests(client, number):
                seen.add(response.status_code)
                if response.status_code >= 500:
                    is_problem(response, 503, "unavailable")
                    assert response.json()["service"] == service
                    assert response.headers["retry-after"] == "2"
    assert 503 in seen
    async with asyncio.timeout(20):
        while (await client.get(f"{ROOT}/touchpoints")).status_code != 200:
            await asyncio.sleep(0.1)


async def test_a_bus_that_is_away_is_a_503(api: Api) -> None:
    client = await api.admin()
    await register(client, in_table())
    bus = api.service.bus.client
    bus.options["reconnect_time_wait"] = 1.0
    before = bus.stats["reconnects"]
    cut(api.service)
    while bus.is_connected and bus.stats["reconnects"] == before:  # it may be back before anybody looks
        await asyncio.sleep(0.01)
    response = await client.get(f"{ROOT}/touchpoints", timeout=30)
    if response.status_code != 200:  # it may have waited until the bus was back
        is_problem(response, 503, "unavailable")
    async with asyncio.timeout(20):
        while (await client.get(f"{ROOT}/touchpoints")).status_code != 200:
            await asyncio.sleep(0.1)


async def test_a_registry_that_is_away_is_named(api: Api) -> None:
    client = await api.admin()
    await api.registry.close()
    for response in (await client.get(f"{ROOT}/ledger"), await client.get(f"{AT}/live")):
        assert is_problem(response, 503, "unavailable")["service"] == "registry"


FULL = 'could not extend file "base/1/2": No space left on device'
UNFORESEEN: list[tuple[Exception, int, str]] = [
    (asyncpg.DiskFullError(FULL), 503, "unavailable"),
    (asyncpg.TooManyConnectionsError("sorry"), 503, "unavailable"),
    (asyncpg.ConnectionDoesNotExistError("gone"), 503, "unavailable"),
    (asyncpg.ReadOnlySQLTransactionError("a replica"), 503, "unavailable"),
    (NotOpen("not open"), 503, "unavailable"),
    (OSError("Multiple exceptions: refused, refused"), 503, "unavailable"),
    (OSError(28, "No space left on device"), 503, "unavailable"),
    (OSError(36, "File name too long"), 500, "failed"),
    (FileNotFoundError(2, "No such file"), 500, "failed"),
    (asyncpg.NumericValueOutOfRangeError("canary-7"), 422, "not_storable"),
    (asyncpg.UntranslatableCharacterError("canary-7"), 422, "not_storable"),
    (ValueError("canary-7"), 500, "failed"),
    (KeyError("canary-7"), 500, "failed"),
    (asyncpg.UndefinedColumnError("canary-7"), 500, "failed"),
]


@pytest.mark.parametrize("where", ["registry", "gateway"])
async def test_each_error_is_classed_by_its_cause_wherever_it_is_raised(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    client = await api.admin()
    raised: list[Exception] = []

    async def broken(*_: Any, **__: Any) -> Any:
        raise raised[-1]

    if where == "registry":
        monkeypatch.setattr(entries, "listed", broken)
    else:
        monkeypatch.setattr(api.service.asker, "ask", broken)
    for error, status, code in UNFORESEEN:
        raised.append(error)
        is_problem(await client.get(f"{ROOT}/ledger"), status, code)
    captured = capsys.readouterr()
    assert "canary-7" not in captured.out + captured.err


async def test_a_pool_that_is_not_open_yet_is_away() -> None:
    with pytest.raises(NotOpen) as no:
        async with Database("gateway", "postgresql://nowhere/x").connection():
            raise AssertionError("unreachable")
    assert cause_of(no.value) == "away"
