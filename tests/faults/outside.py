"""The kill drill from outside: `burnish up` is a process of its own, and dies like the others."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from pathlib import Path
from time import monotonic

import httpx
import psutil

from burnish.data_folder import DataFolder
from tests.faults.drill import SERVERS, VICTIMS, Plan, Result, push_all, register, settle

SUPERVISOR = "supervisor"
EVERYBODY = (*VICTIMS, *SERVERS, SUPERVISOR)
START_S = 180.0
BACK_S = 20.0
"""How long a victim that is just starting again is waited for: a kill that meets nobody is none."""


class Outside:
    """`burnish up` on a folder; started again, it uses the same ports, keys and data."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self._folder = folder
        self._environment = {**os.environ, **settings}
        self._process: Process | None = None

    async def start(self) -> None:
        """Until it says that it is ready."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "burnish", "up", "--json", "--data", str(self._folder)),
            env=self._environment,
            stdout=PIPE,
            stderr=DEVNULL,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(START_S):
            told = b""
            while not _is_whole(told):
                line = await self._process.stdout.readline()
                assert line, "burnish up ended before it was ready"
                told += line

    async def stop(self) -> None:
        """As a person stops it."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
        await self._process.wait()

    async def kill(self, victim: str) -> bool:
        """Kill it where it runs; the supervisor is started again at once, as whoever watches it would."""
        if victim == SUPERVISOR:
            assert self._process is not None
            self._process.kill()
            await self._process.wait()
            await self.start()
            return True
        pid = await self._pid_of(victim)
        if pid is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return True

    async def _pid_of(self, victim: str) -> int | None:
        deadline = monotonic() + BACK_S
        while (pid := self._listening().get(DataFolder(self._folder).ports().get(victim, 0))) is None:
            if monotonic() > deadline:
                return None
            await asyncio.sleep(0.2)
        return pid

    def client(self) -> httpx.AsyncClient:
        """For the gateway; its key, and so the token, outlives a restart."""
        note = DataFolder(self._folder).running()
        assert note is not None
        headers = {"Authorization": f"Bearer {note.token}"}
        return httpx.AsyncClient(base_url=note.url, headers=headers, timeout=30, trust_env=False)

    def _listening(self) -> dict[int, int]:
        """Which of its processes listens on which port."""
        assert self._process is not None
        found: dict[int, int] = {}
        with suppress(psutil.Error):
            for child in psutil.Process(self._process.pid).children(recursive=True):
                with suppress(psutil.Error):
                    for one in child.net_connections("tcp"):
                        if one.status == psutil.CONN_LISTEN:
                            # A parent that hands its socket on is met before its child: the first one counts.
                            found.setdefault(one.laddr.port, child.pid)
        return found


def _is_whole(told: bytes) -> bool:
    try:
        return isinstance(json.loads(told), dict)
    except ValueError:
        return False


async def run(plan: Plan, folder: Path) -> Result:
    """Run the drill in `folder` from outside, and count."""
    result, started = Result(), monotonic()
    under_fire = folder.with_suffix(".under-fire")
    outside = Outside(folder, plan.settings(under_fire))
    await outside.start()
    try:
        async with outside.client() as client:
            await register(client)
            under_fire.touch()
            pushing = asyncio.create_task(push_all(client, plan, result))
            for pause, victim in plan.victims():
                await asyncio.sleep(pause)
                result.kills[victim] += await outside.kill(victim)
            await pushing
            under_fire.unlink()
            await settle(client, result)
    finally:
        await outside.stop()
    result.elapsed_s = round(monotonic() - started, 1)
    return result
