"""A service in trouble says so and goes on: a stream that takes nothing, a disk that takes no log."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator

import httpx
import pytest

from libs.provisioning.bus_admin import BusAdmin
from libs.service_kit.service import Service
from libs.service_kit.testing import Installation
from libs.service_kit.tests.support import effects, make_effects_table, observed
from libs.service_kit.tests.test_service import build, push, until

LOGS = """
import logging, sys
from libs.service_kit import logging as ours
ours.configure("test")
for number in range(2_000):
    ours.get("part").error("disk.full", number=number)
    logging.getLogger("other").warning("as well")
print("went on")
"""
ROOM = 8 * 1024**2


@pytest.fixture
async def admin(installation: Installation) -> AsyncIterator[BusAdmin]:
    client = await installation.bus_admin()
    yield BusAdmin(client)
    await client.close()


async def resize(admin: BusAdmin, size: int) -> None:
    info = await admin.ask("STREAM.INFO.REFINEMENT")
    await admin.ask("STREAM.UPDATE.REFINEMENT", {**info["config"], "max_bytes": size})


async def outbox_check(service: Service) -> tuple[int, str]:
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"http://127.0.0.1:{service.http_port}/health/ready", timeout=20)
    return answer.status_code, answer.json()["checks"]["outbox"]


async def test_facts_that_a_full_stream_refuses_wait_readiness_says_why_and_they_leave(
    installation: Installation, admin: BusAdmin
) -> None:
    await make_effects_table(installation.admin_dsn)
    event = observed()
    await push(installation, [event])
    await resize(admin, int((await admin.ask("STREAM.INFO.REFINEMENT"))["state"]["bytes"]))
    service = build(installation)
    await service.start()
    try:

        async def red() -> bool:
            status, told = await outbox_check(service)
            return status == 503 and "maximum bytes exceeded" in told

        await until(red, 30)
        assert await effects(service.db) == [event.id]
        await resize(admin, ROOM)

        async def green() -> bool:
            return await outbox_check(service) == (200, "ok")

        await until(green, 30)
        async with service.db.connection() as conn:
            assert await conn.fetchval("SELECT count(*) FROM outbox") == 0
    finally:
        await service.close()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_logging_to_a_full_disk_ends_nothing() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", LOGS], stdout=subprocess.PIPE, stderr=full, check=False)
    assert done.stdout == b"went on\n"


def test_what_can_be_written_is_written() -> None:
    done = subprocess.run([sys.executable, "-c", LOGS], capture_output=True, text=True, check=True)
    assert len(done.stderr.splitlines()) == 4_000
