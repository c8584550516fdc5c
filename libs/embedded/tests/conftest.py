"""What the tests of the embedded servers share."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

REPOSITORY = Path(__file__).parents[3]

OWNER = """
import asyncio, json, sys
from pathlib import Path
from libs.embedded import EmbeddedNats, EmbeddedPostgres

async def main(folder):
    postgres, nats = EmbeddedPostgres(folder / "pg"), EmbeddedNats(folder / "nats", "")
    await postgres.start()
    await nats.start()
    print(json.dumps([postgres.pid, nats.pid]), flush=True)
    await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1])))
"""


@dataclass
class Owner:
    """Another process that runs both servers in `folder/pg` and `folder/nats`."""

    process: subprocess.Popen[str]
    servers: list[psutil.Process]

    def workers(self) -> list[psutil.Process]:
        """The servers and all processes they have started."""
        return [
            *self.servers,
            *(child for server in self.servers for child in server.children(recursive=True)),
        ]


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    """A second process that has started both servers in `tmp_path`."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    assert process.stdout is not None
    try:
        pids = json.loads(process.stdout.readline())
        yield Owner(process, [psutil.Process(pid) for pid in pids])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


SmallDisk = Callable[[str], AbstractContextManager[Path]]


@pytest.fixture
def disk(tmp_path: Path) -> SmallDisk:
    """Mounts a memory disk with the given options, e.g. `size=20m`; skips where that is not allowed."""

    @contextmanager
    def mounted(options: str) -> Iterator[Path]:
        place = tmp_path / "disk"
        place.mkdir()
        if os.geteuid() != 0 or sys.platform != "linux":
            pytest.skip("only root on Linux can mount a small disk")
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)],
            capture_output=True,
            check=False,
            text=True,
        )
        if done.returncode != 0:
            pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
        try:
            yield place
        finally:
            subprocess.run(["umount", str(place)], check=True)

    return mounted


@contextmanager
def listening() -> Iterator[int]:
    """A port somebody listens on."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]
