"""On a disk of 2 GB: it starts, starts again with data, outlives a full disk, and says what it needs when it cannot."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import httpx
import pytest

from burnish.data_folder import NEEDS_BYTES
from burnish.supervisor import RunningInstallation, running_installation
from libs.provisioning.bus_admin import bus_admin
from libs.provisioning.settings import BusSettings
from libs.provisioning.topology import look
from tests.faults.drill import Plan, Result, run

pytestmark = pytest.mark.timeout(400)
ROOT = Path(__file__).parents[2]
SIZE = 2_000_000_000
STARTED_BYTES = 250_000_000


class Disk:
    """A small file system, and a file on it that takes up what is free."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._ballast = place / "ballast"

    @property
    def free(self) -> int:
        return shutil.disk_usage(self.place).free

    @property
    def used(self) -> int:
        """What is taken up."""
        return shutil.disk_usage(self.place).used

    def fill(self, leave: int = 0) -> None:
        """Take up all but `leave` bytes."""
        with self._ballast.open("ab") as file:
            while (room := self.free - leave) > 0:
                try:
                    os.posix_fallocate(file.fileno(), file.tell() if file.tell() else 0, room)
                except OSError:
                    break
                file.seek(0, os.SEEK_END)

    def clear(self) -> None:
        self._ballast.unlink(missing_ok=True)


def mounted(tmp_path: Path, size: int) -> Iterator[Disk]:
    """A disk of so many bytes; skips, with the reason, where none can be mounted."""
    image, place = tmp_path / "image", tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("needs root and mkfs.ext4, to mount a small disk")
    with image.open("wb") as file:
        file.truncate(size)
    subprocess.run(("mkfs.ext4", "-q", "-m", "0", str(image)), check=True, capture_output=True)
    done = subprocess.run(("mount", "-o", "loop", str(image), str(place)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
    try:
        yield Disk(place)
    finally:
        subprocess.run(("umount", str(place)), check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    yield from mounted(tmp_path, SIZE)


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Disk]:
    yield from mounted(tmp_path, 120_000_000)


async def readiness(running: RunningInstallation, service: str) -> tuple[int, str]:
    """The status, and what its outbox check says."""
    url = running.installation.health_url(service)
    async with httpx.AsyncClient(timeout=20, trust_env=False) as client:
        answer = await client.get(f"{url}/health/ready")
        return answer.status_code, str(answer.json()["checks"].get("outbox"))


def burnish(data: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "burnish", *words, "--data", str(data)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


async def test_it_starts_works_through_a_full_disk_and_starts_again(disk: Disk) -> None:
    """Signals are pushed all the while; those that were accepted arrive, once."""
    data = disk.place / "data"

    async def fill_twice(_: RunningInstallation, __: Plan, ___: Result, pushing: asyncio.Task[None]) -> None:
        assert disk.used < STARTED_BYTES
        for _turn in range(2):
            await asyncio.wait([pushing], timeout=2)
            disk.fill()
            await asyncio.wait([pushing], timeout=6)
            disk.clear()

    result = await run(Plan(signals=2_000, kills=30, seed=5), data, fill_twice)
    assert len(result.accepted) == 2_000
    assert result.stored == result.observed == 2_000
    assert result.projected == result.heard == 2_000
    assert result.dead_letters == 0

    told: list[str] = []
    async with running_installation(data, on_progress=told.append) as running:
        async with bus_admin(running.nats_url, running.installation.nats_password("bus_admin")) as admin:
            found = await look(admin)
        assert sum(stream.reserved for stream in found.values()) == BusSettings().total()
        assert disk.used < 2 * STARTED_BYTES


async def test_a_bus_without_room_keeps_facts_waiting_and_goes_on_by_itself(tiny: Disk, tmp_path: Path) -> None:
    """Only NATS is on the small disk: its streams stop taking facts, and would for ever without a new start."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "nats").symlink_to(tiny.place)
    told: list[str] = []
    async with running_installation(data, services=("normaliser", "qa_ingest"), on_progress=told.append) as running:
        tiny.fill(leave=1_000_000)
        conn = await asyncpg.connect(running.admin_dsn)
        await conn.execute(
            "INSERT INTO normaliser.outbox (subject, body) SELECT 'refinement.signal.rejected.v1', "
            "convert_to(repeat('x', 100000), 'UTF8') FROM generate_series(1, 60)"
        )

        async def red() -> bool:
            status, outbox = await readiness(running, "normaliser")
            return status == 503 and "facts wait" in outbox

        await until(red)
        assert await conn.fetchval("SELECT count(*) FROM normaliser.outbox") > 0
        url = running.installation.health_url("normaliser")
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"{url}/health/live")).status_code == 200

        async def seen() -> bool:
            return any("takes nothing: no space left on device" in line for line in told)

        await until(seen)
        tiny.clear()

        async def gone() -> bool:
            return bool(await conn.fetchval("SELECT count(*) = 0 FROM normaliser.outbox"))

        await until(gone)
        await running.until_ready(("normaliser",))
        await conn.close()
        async with bus_admin(running.nats_url, running.installation.nats_password("bus_admin")) as admin:
            state = (await admin.ask("STREAM.INFO.REFINEMENT", {"subjects_filter": "refinement.signal.rejected.v1"}))[
                "state"
            ]
        assert state["subjects"] == {"refinement.signal.rejected.v1": 60}
        assert running.restart_counts["nats"] >= 1


def test_a_disk_without_room_is_an_answer(tiny: Disk) -> None:
    tiny.fill(leave=20_000_000)
    data = tiny.place / "data"
    for words in (("up",), ("migrate",), ("topology",), ("doctor",)):
        done = burnish(data, *words)
        assert "Traceback" not in done.stderr
        assert done.returncode == (2 if words == ("doctor",) else 1)
        assert f"{NEEDS_BYTES // 1_000_000} MB" in done.stderr + done.stdout


async def until(holds: object, patience: float = 60) -> None:
    async with asyncio.timeout(patience):
        while not await holds():  # type: ignore[operator]
            await asyncio.sleep(0.2)
