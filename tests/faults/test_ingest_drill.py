"""Files of three stores end in the same rows, whoever dies; and the controls that show what holds it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from libs.service_kit.testing import Installation
from libs.service_kit.testing.servers import Servers
from services.qa_ingest.tests.conftest import s3 as s3
from services.qa_ingest.tests.s3_server import S3Server
from tests.faults.ingest_drill import POINTS, Plan, Result, differences, run

Fresh = Callable[[], Awaitable[Installation]]


@pytest_asyncio.fixture
async def fresh(servers: Servers) -> AsyncIterator[Fresh]:
    """Makes installations: an empty database and an empty bus, one after the other."""
    async with AsyncExitStack() as stack:

        async def make() -> Installation:
            name = await servers.clone()
            stack.push_async_callback(servers.drop, name)
            made = Installation(servers, name)
            await made.fresh_topology()
            return made

        yield make


def tell(name: str, result: Result) -> None:
    print(f"\n{name}: {json.dumps(result.summary())}")


async def both(plan: Plan, folder: Path, fresh: Fresh, s3: S3Server) -> tuple[Result, Result]:
    """The plan, and the same without any disturbance."""
    calm = await run(Plan.undisturbed(plan), folder / "calm", await fresh(), s3)
    tell("undisturbed", calm)
    drilled = await run(plan, folder / "drilled", await fresh(), s3)
    tell("drilled", drilled)
    return calm, drilled


@pytest.mark.timeout(400)
async def test_a_few_deaths_change_no_row(tmp_path: Path, fresh: Fresh, s3: Callable[[], S3Server]) -> None:
    """The drill in small, for every run of the tests."""
    calm, drilled = await both(Plan(files=36, deaths=4, seed=1, chance=0.2), tmp_path, fresh, s3())
    assert sum(drilled.deaths.values()) >= 2
    assert differences(calm.rows, drilled.rows) == {}


@pytest.mark.drill
@pytest.mark.timeout(3_000)
async def test_2000_files_with_deaths_at_every_step(tmp_path: Path, fresh: Fresh, s3: Callable[[], S3Server]) -> None:
    calm, drilled = await both(Plan(files=2_000, deaths=60, seed=2, chance=0.01), tmp_path, fresh, s3())
    assert set(drilled.deaths) == set(POINTS)
    assert sum(drilled.deaths.values()) >= 40
    assert differences(calm.rows, drilled.rows) == {}


@pytest.mark.drill
@pytest.mark.timeout(1_200)
async def test_the_control_without_locks_does_things_twice(
    tmp_path: Path, fresh: Fresh, s3: Callable[[], S3Server]
) -> None:
    """What holds is the lock of an object, under which it is read; without it two replicas do the same work."""
    calm, drilled = await both(Plan(files=120, deaths=0, seed=3, locks=False), tmp_path, fresh, s3())
    found = differences(calm.rows, drilled.rows)
    print(f"differ: {found}")
    assert found.get("runs") or found.get("facts")


@pytest.mark.drill
@pytest.mark.timeout(1_200)
async def test_the_control_without_locks_and_uniqueness_doubles_live_rows(
    tmp_path: Path, fresh: Fresh, s3: Callable[[], S3Server]
) -> None:
    """Behind the lock stands the unique index of live extractions: without both, rows are there twice."""
    plan = Plan(files=120, deaths=0, seed=3, locks=False, unique=False)
    calm, drilled = await both(plan, tmp_path, fresh, s3())
    found = differences(calm.rows, drilled.rows)
    print(f"differ: {found}")
    assert sum(drilled.rows["live"].values()) > sum(calm.rows["live"].values()) or found.get("invalidated")
