"""What both embedded servers share: one folder, one port, one child process, and the way it starts and ends."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from libs.embedded import ports, process
from libs.embedded.account import Account
from libs.embedded.errors import EmbeddedError, PortTaken, disk_full
from libs.embedded.folder import ServerFolder

PORT_ATTEMPTS = 5
FULL = 1_000_000


class EmbeddedServer(ABC):
    """A server that runs as a child of this process, in one folder, on 127.0.0.1.

    It may be started in one event loop and stopped in another. It ends with this process however that ends.
    """

    name: ClassVar[str]
    death_signal: ClassVar[signal.Signals]
    ladder: ClassVar[Sequence[tuple[signal.Signals, float]]]
    ready_s: ClassVar[float] = 60.0
    needs_fresh: int
    needs_again: int

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self._folder = ServerFolder(folder)
        self._asked = port
        self._port: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()

    @property
    def folder(self) -> Path:
        """The one folder that holds all data, settings and logs."""
        return self._folder.path

    @property
    def log(self) -> Path:
        """The file the server writes its log to."""
        return self.folder / f"{self.name.lower()}.log"

    @property
    def port(self) -> int:
        """The port the server listens on; an error before `start`."""
        if self._port is None:
            raise EmbeddedError(
                f"{self.name} in {self.folder} has not been started",
                "await start() first",
            )
        return self._port

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        """Whether the server process is there."""
        return self._process is not None and self._process.poll() is None

    async def start(self) -> None:
        """Start the server and return when it answers.

        Raises `EmbeddedError` (`PortTaken`, `FolderInUse`) with nothing left running or half made.
        """
        if self._process is not None:
            raise EmbeddedError(f"{self.name} in {self.folder} is started already")
        needs = self.needs_fresh if self._is_fresh() else self.needs_again
        self._owner = os.getpid()
        try:
            self._folder.open(needs)
            with self._folder.explained(needs):
                await self._finish_leftovers()
                if self._asked is not None:
                    ports.require_free(self._asked)
                await self._prepare()
                await self._launch()
        except BaseException:
            self._abandon()
            raise
        atexit.register(self._at_exit)

    async def stop(self) -> None:
        """Stop the server cleanly and let others have its folder. Harmless when it does not run."""
        atexit.unregister(self._at_exit)
        if self._process is not None:
            await process.stop(self._process, self.ladder)
        self._process = None
        self._folder.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @abstractmethod
    def _is_fresh(self) -> bool:
        """Whether the folder holds no data yet."""

    @abstractmethod
    async def _finish_leftovers(self) -> None:
        """Deal with what a killed process left here; the folder is locked."""

    @abstractmethod
    async def _prepare(self) -> None:
        """Make the data folder and the settings that do not depend on the port."""

    @abstractmethod
    async def _command(self, port: int) -> Sequence[str | Path]:
        """The command line that listens on `port`."""

    @abstractmethod
    async def _is_ready(self) -> bool:
        """Whether the server, listening on `_port`, answers."""

    def _account(self) -> Account | None:
        return None

    def _environment(self) -> Mapping[str, str]:
        return {}

    def _working_folder(self) -> Path:
        return self.folder

    async def _launch(self) -> None:
        for attempt in range(1, PORT_ATTEMPTS + 1):
            try:
                await self._launch_on(self._asked or self._some_port(attempt))
            except PortTaken:  # somebody took it between our look and the server's
                if self._asked is not None or attempt == PORT_ATTEMPTS:
                    raise
            else:
                return

    async def _launch_on(self, port: int) -> None:
        log = process.Log(self.log)
        log.mark()
        self._port = port
        self._process = process.spawn(
            await self._command(port),
            log=self.log,
            cwd=self._working_folder(),
            death_signal=self.death_signal,
            account=self._account(),
            environment=self._environment(),
        )
        self._folder.record = process.record_of(port, self._process.pid)
        await self._until_ready(self._process, log)

    def _some_port(self, attempt: int) -> int:
        """The port of last time, so that what connected then still does; a free one when that is taken."""
        record = self._folder.record
        if attempt == 1 and record is not None and ports.is_free(record.port):
            return record.port
        return ports.free_port()

    async def _until_ready(self, child: subprocess.Popen[bytes], log: process.Log) -> None:
        deadline = time.monotonic() + self.ready_s
        while not await self._is_ready():
            if child.poll() is not None:
                raise self._failure(f"{self.name} did not start", log)
            if time.monotonic() > deadline:
                process.stop_now(child, self.death_signal, 5)
                raise self._failure(f"{self.name} did not answer within {self.ready_s:.0f} s", log)
            await asyncio.sleep(process.POLL_S)

    def _failure(self, what: str, log: process.Log) -> EmbeddedError:
        if log.says("address already in use"):
            return ports.taken(self.port)
        if log.says("no space left on device") or shutil.disk_usage(self.folder).free < FULL:
            return disk_full(self.folder, self.needs_again)
        return EmbeddedError(f"{what} in {self.folder}; its last words:\n{log.tail()}", f"see {self.log}")

    def _abandon(self) -> None:
        """Leave nothing running after a start that failed or was cancelled."""
        if self._process is not None:
            process.stop_now(self._process, self.death_signal, 10)
        self._process = self._port = None
        self._folder.close()

    def _at_exit(self) -> None:
        if self._owner == os.getpid():  # not in a forked child, whose server it is not
            self._abandon()
