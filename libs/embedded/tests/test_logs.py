"""The log of a process that runs for long is kept small, while it writes on."""

from __future__ import annotations

import asyncio
import signal
import stat
import sys
from pathlib import Path

import pytest

from libs.embedded import process
from libs.embedded.tests.conftest import SmallDisk

WRITER = "import time\nfor n in range(10**6): print('x' * 100, n, flush=True); time.sleep(0.001)"


async def until_larger(log: Path, size: int) -> None:
    async with asyncio.timeout(30):
        while not log.exists() or log.stat().st_size <= size:
            await asyncio.sleep(0.02)


async def test_a_log_is_put_aside_while_its_process_writes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.Log, "KEEP", 20_000)
    log = process.Log(tmp_path / "a.log")
    command = [sys.executable, "-c", WRITER]
    child = process.spawn(command, log=log.path, cwd=tmp_path, death_signal=signal.SIGKILL)
    try:
        for _ in range(3):
            await until_larger(log.path, 20_000)
            log.keep_small()
            assert log.path.stat().st_size < 20_000
        aside = tmp_path / "a.log.1"
        assert aside.stat().st_size > 20_000
        assert stat.S_IMODE(aside.stat().st_mode) == 0o600
        await until_larger(log.path, 500)
        assert b"\0" not in log.path.read_bytes()
        assert all(line.startswith("x") for line in log.text().splitlines()[1:-1])
    finally:
        child.kill()
        child.wait()


def test_a_small_log_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("a line\n")
    process.Log(tmp_path / "a.log").keep_small()
    process.Log(tmp_path / "none.log").keep_small()
    assert [path.name for path in tmp_path.iterdir()] == ["a.log"]
    assert (tmp_path / "a.log").read_text() == "a line\n"


def test_on_a_full_disk_a_log_is_emptied_all_the_same(disk: SmallDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.Log, "KEEP", 100_000)
    with disk("size=1m") as place:
        log = place / "a.log"
        log.write_bytes(b"x" * 800_000)
        process.Log(log).keep_small()
        assert log.stat().st_size == 0
