"""How a service becomes a process: forked from the forkserver on Linux, spawned elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from burnish.errors import InstallationError
from libs.embedded import process

STATISTICS = ("scipy.stats", "scipy.optimize", "sklearn.base")
ALSO_SHARED = {"pattern_detector": STATISTICS, "ab_runner": STATISTICS}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


class Running(Protocol):
    """A process that was started."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None:
        """None while it runs; then its exit code, or minus the signal that ended it."""

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when it has ended."""


class Starter(Protocol):
    """Makes processes of services."""

    async def open(self) -> None:
        """Get ready to start quickly."""

    async def start(self, service: str, environment: Mapping[str, str], log: Path, gate: Path) -> Running:
        """A process that runs `service` once nobody holds `gate`, and that ends when this one does."""

    async def close(self) -> None:
        """Give up what is needed to start more. Processes that run still end now."""


def quickest_first(services: Sequence[str]) -> list[str]:
    """Those first that need not wait until what only some services share is imported."""
    return sorted(services, key=lambda service: len(ALSO_SHARED.get(service, ())))


def starter(folder: Path, environment: Mapping[str, str]) -> Starter:
    """The quickest safe way on this system. `environment` is what an import may look at, not a service's own."""
    return Forkserver(folder, environment) if sys.platform == "linux" else Spawner(folder)


# --- spawned: works everywhere --------------------------------------------------------------------------------


class Spawned:
    """See `Running`."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        return self._child.poll()

    def send_signal(self, number: signal.Signals) -> None:
        self._child.send_signal(number)


class Spawner:
    """A fresh interpreter for each service."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def open(self) -> None: ...

    async def start(self, service: str, environment: Mapping[str, str], log: Path, gate: Path) -> Running:
        return Spawned(
            process.spawn(
                [sys.executable, "-P", "-m", "burnish.child", service, gate],
                log=log,
                cwd=self._folder,
                death_signal=signal.SIGKILL,
                environment={**ONE_THREAD, **environment},
            )
        )

    async def close(self) -> None: ...


# --- forked from the forkserver ----------------------------------------------------------------------------------


class Forked:
    """See `Running`. The forkserver tells when it ended."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._returncode: int | None = None

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def returncode(self) -> int | None:
        return self._returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self._returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def ended(self, status: int) -> None:
        self._returncode = status


class Forkserver:
    """Speaks to `burnish.forkserver`, and starts it when it does not run: at first, and when it was killed."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = {**environment, **ONE_THREAD}
        self._umask = _umask()
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._born: asyncio.Queue[int | None] = asyncio.Queue()
        self._children: dict[int, Forked] = {}
        self._one_at_a_time = asyncio.Lock()

    async def open(self) -> None:
        """Start it; what services share is imported while we do other things."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = process.spawn(
                [sys.executable, "-P", "-m", "burnish.forkserver", str(theirs.fileno())],
                log=self._folder / "logs" / "forkserver.log",
                cwd=self._folder,
                death_signal=signal.SIGKILL,
                environment=self._environment,
                keep_open=[theirs.fileno()],
            )
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._born = asyncio.Queue()
        self._reading = asyncio.create_task(self._read(reader, self._born), name="forkserver")

    async def start(self, service: str, environment: Mapping[str, str], log: Path, gate: Path) -> Running:
        request = {
            "start": service,
            "import": ALSO_SHARED.get(service, ()),
            "environment": dict(environment),
            "log": str(log),
            "gate": str(gate),
            "umask": self._umask,
        }
        async with self._one_at_a_time:
            if self._reading is None or self._reading.done():
                await self.close()
                await self.open()
            assert self._writer is not None
            with contextlib.suppress(ConnectionError):
                self._writer.write(json.dumps(request).encode() + b"\n")
                await self._writer.drain()
            pid = await self._born.get()
        if pid is None:
            raise InstallationError("no service can be started", f"see {self._folder / 'logs' / 'forkserver.log'}")
        return self._children[pid]

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(ConnectionError):
                await self._writer.wait_closed()
        if self._process is not None and not await process.ended(self._process, 5):
            process.stop_now(self._process, signal.SIGKILL, 5)
        if self._reading is not None:
            await self._reading
        self._writer = self._process = self._reading = None

    async def _read(self, reader: asyncio.StreamReader, born: asyncio.Queue[int | None]) -> None:
        """What the forkserver tells, until it ends: then its children have ended with it."""
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                told = json.loads(line)
                if "started" in told:
                    self._children[told["pid"]] = Forked(told["pid"])
                    born.put_nowait(told["pid"])
                else:
                    self._children.pop(told["ended"]).ended(told["status"])
        for child in self._children.values():
            child.ended(-signal.SIGKILL)
        self._children.clear()
        born.put_nowait(None)


def _umask() -> int:
    """Ours, which a service gets: the folder's own files are made with a stricter one."""
    current = os.umask(0o077)
    os.umask(current)
    return current
