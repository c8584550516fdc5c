"""Runs an installation: servers and services as children of this process, watched, restarted, and stopped in order."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from uuid import UUID

import psutil

from burnish.child import APPS
from burnish.children import Running, Starter, quickest_first, starter
from burnish.data_folder import RunningNote
from burnish.errors import InstallationError
from burnish.installation import GATEWAY, SERVICE_NAMES, Installation, Progress, inherited_environment
from libs.embedded import process
from libs.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from libs.provisioning.keeper import Keeper

WATCH_S = 0.1
TROUBLE_S = 1.0
LOGS_S = 10.0
READY_POLL_S = 0.1
READY_PATIENCE_S = 90.0
STOP_PATIENCE_S = 20.0
BACKOFF_S = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
SETTLED_S = 15.0
GIVE_UP_AFTER = 3


@dataclass
class Child:
    """One service's process, and how often it had to be started again."""

    name: str
    process: Running
    started: float
    log_from: int
    restarts: int = 0
    failures: int = field(default=0)  # in a row, without having run for `SETTLED_S`
    again_at: float | None = None

    @property
    def runs(self) -> bool:
        """Whether its process is there."""
        return self.process.returncode is None


class Supervisor:
    """Starts every service, and what serves agents; starts again what ends unasked, and stops all.

    A service that is killed comes back after 0.1 s, and later each time it does not last 15 seconds (up to 30 s). The
    embedded servers are watched in the same way.
    """

    def __init__(
        self,
        installation: Installation,
        on_progress: Progress = lambda _: None,
        services: Sequence[str] = SERVICE_NAMES,
    ) -> None:
        self.installation = installation
        self.services = tuple(services)
        self._on_progress = on_progress
        self._children: dict[str, Child] = {}
        self._server_restarts = {"postgres": 0, "nats": 0}
        self._stopping = False
        self._launching: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._logs_seen = time.monotonic()
        self._keeper: Keeper | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._starter: Starter | None = None

    # --- what a drill and a report want to know -----------------------------------------------------------

    def pids(self) -> dict[str, int]:
        """The process of each service, and of `postgres` and `nats` where they are embedded."""
        pids = {name: child.process.pid for name, child in self._children.items() if child.runs}
        for name, server in self._servers().items():
            if server.pid is not None:
                pids[name] = server.pid
        return pids

    @property
    def restart_counts(self) -> dict[str, int]:
        """How often each was started again."""
        return {**{name: child.restarts for name, child in self._children.items()}, **self._server_restarts}

    def log(self, service: str) -> Path:
        """Where a service's output goes."""
        return self.installation.folder.logs / f"{service}.log"

    # --- life ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start servers and services; return when each service is ready. On an error nothing is left running."""
        self.installation.open()
        try:
            self._starter = starter(self.installation.folder.path, inherited_environment())
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        installation = self.installation
        room = installation.room()
        self._on_progress(f"disk: {room}")
        if not room.comfortable:
            self._on_progress(
                "when the disk is full, facts wait in the outboxes; BURNISH_BUS_STORE makes the bus smaller"
            )
        self._on_progress("starting Postgres and NATS")
        await _all_of(self.starter.open(), installation.start_servers())
        with self._closed_gate():
            self._launching = asyncio.create_task(self._launch_all(), name="launching")
            self._on_progress("preparing the database and the bus")
            await _all_of(installation.migrate(), installation.apply_topology(), installation.prepare_platform())
        self._on_progress("starting the services")
        await self._launching
        self._keeper = installation.keeper(self._on_progress)
        self._keeping = asyncio.create_task(self._keeper.run(), name="keeper")
        self._watcher = asyncio.create_task(self._watch(), name="supervisor")
        await self.until_ready()
        if GATEWAY in self.services:  # what asks it is not waited for
            for name in APPS:
                await self._launch(name)
        installation.announced = True
        installation.folder.remember_running(self._note())

    async def stop(self) -> None:
        """Stop the services, then NATS, then Postgres, each cleanly. Harmless when nothing runs."""
        self._stopping = True
        for task in (self._launching, self._watcher, self._keeping):
            while task is not None and not task.done():
                task.cancel()  # again, where a library in it lost the first one
                await asyncio.wait([task], timeout=1.0)
        stopping = asyncio.create_task(self._stop())
        while not stopping.done():  # a second SIGTERM or Ctrl-C does not leave anything half stopped
            with suppress(asyncio.CancelledError):
                await asyncio.shield(stopping)
        await stopping

    async def _stop(self) -> None:
        running = [child for child in self._children.values() if child.runs]
        for child in running:
            child.process.send_signal(signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._until_ended(running), STOP_PATIENCE_S)
        for child in running:
            child.process.send_signal(signal.SIGKILL)
        await self._until_ended(running)
        if self._starter is not None:
            await self._starter.close()
        await self.installation.stop_servers()
        self.installation.close()

    @staticmethod
    async def _until_ended(children: Sequence[Child]) -> None:
        for child in children:
            while child.runs:  # noqa: ASYNC110 - the kernel tells, not an event of ours
                await asyncio.sleep(process.POLL_S)

    async def until_ready(self, names: Sequence[str] = (), patience_s: float = READY_PATIENCE_S) -> None:
        """Return when each of these services (all, when none is named) says that it is ready.

        Raises `InstallationError` naming those that are not, and why.
        """
        import httpx

        waiting = dict.fromkeys(names or self.services, "it has not answered yet")
        deadline = time.monotonic() + patience_s
        async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
            while waiting:
                for name, why in zip(waiting, await self._asked(client, list(waiting)), strict=True):
                    waiting[name] = why
                ready = [name for name, why in waiting.items() if not why]
                waiting = {name: why for name, why in waiting.items() if why}
                if ready and waiting:
                    self._on_progress(f"waiting for {', '.join(waiting)}")
                self._give_up_on(waiting, deadline)
                if waiting:
                    await asyncio.sleep(READY_POLL_S)

    async def _asked(self, client: object, names: list[str]) -> list[str]:
        return await asyncio.gather(*(self._why_not_ready(client, name) for name in names))

    async def _why_not_ready(self, client: object, name: str) -> str:
        """Empty when it is ready, else what it waits for."""
        import httpx

        assert isinstance(client, httpx.AsyncClient)
        try:
            answer = await client.get(f"{self.installation.health_url(name)}/health/ready")
        except httpx.HTTPError as error:
            return f"it does not answer ({type(error).__name__})"
        if not self._listens(name):
            return "another program answers on its port"
        if answer.status_code == 200:
            return ""
        with suppress(ValueError, AttributeError, KeyError):
            checks = answer.json()["checks"]
            return "; ".join(f"{check}: {outcome}" for check, outcome in checks.items() if outcome != "ok")
        return f"it answers {answer.status_code}"

    def _listens(self, name: str) -> bool:
        """Whether it is our process that answers there, and not one of another installation."""
        port = self.installation.port_of(name)
        with suppress(psutil.Error):
            connections = psutil.Process(self._children[name].process.pid).net_connections(kind="tcp")
            return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in connections)
        return False

    def _give_up_on(self, waiting: Mapping[str, str], deadline: float) -> None:
        for name in waiting:
            child = self._children[name]
            if child.failures >= GIVE_UP_AFTER:
                raise InstallationError(
                    f"{name} ended {child.failures} times while starting; its last words:\n{self._last_words(child)}",
                    f"see {self.log(name)}",
                )
        if waiting and time.monotonic() > deadline:
            told = "\n".join(f"  {name}: {why}" for name, why in waiting.items())
            raise InstallationError(f"not ready in time:\n{told}", f"see the logs in {self.installation.folder.logs}")

    def _last_words(self, child: Child) -> str:
        with self.log(child.name).open("rb") as stream:
            end = stream.seek(0, os.SEEK_END)
            begun = child.log_from if child.log_from <= end else 0  # it was put aside meanwhile
            stream.seek(max(begun, end - 4_096))
            lines = stream.read().decode("utf-8", errors="replace").splitlines()
        return "\n".join(f"  {line[:500]}" for line in lines[-8:])

    @property
    def starter(self) -> Starter:
        """What makes the processes; only while starting and running."""
        assert self._starter is not None
        return self._starter

    # --- children -----------------------------------------------------------------------------------------

    async def _launch_all(self) -> None:
        for name in quickest_first(self.services):
            await self._launch(name)

    async def _launch(self, name: str) -> None:
        known = self._children.get(name)
        log = process.Log(self.log(name))
        log.mark()
        log_from = log.path.stat().st_size if log.path.exists() else 0
        environment = self.installation.environment_of(name)
        started = await self.starter.start(name, environment, log.path, self._gate)
        if known is None:
            self._children[name] = Child(name, started, time.monotonic(), log_from)
            return
        known.process, known.started, known.again_at = started, time.monotonic(), None
        known.restarts += 1

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            try:
                await self._look_after_all()
            except Exception as error:  # whatever it is, those that run are watched on
                self._on_progress(f"nothing can be started now: {error}")
                await asyncio.sleep(TROUBLE_S)

    async def _look_after_all(self) -> None:
        for name in ("postgres", "nats"):
            await self._look_after_server(name)
        await self._let_the_bus_write_again()
        self._keep_logs_small()
        for child in self._children.values():
            await self._look_after(child)

    async def _look_after(self, child: Child) -> None:
        if child.runs:
            return
        now = time.monotonic()
        if child.again_at is None:
            lasted = now - child.started
            child.failures = 0 if lasted > SETTLED_S else child.failures + 1
            delay = BACKOFF_S[min(max(child.failures - 1, 0), len(BACKOFF_S) - 1)]
            child.again_at = now + delay
            how = _how(child.process.returncode or 0)
            self._on_progress(f"{child.name} ended ({how}); starting it again in {delay:g} s")
        elif now >= child.again_at:
            self.installation.renew_port(child.name)
            await self._launch(child.name)

    async def _look_after_server(self, name: str) -> None:
        server = self._servers().get(name)
        if server is None or server.running:
            return
        self._on_progress(f"{name} ended; starting it again")
        await server.stop()
        await (self.installation.start_postgres() if name == "postgres" else self.installation.start_nats())
        self._server_restarts[name] += 1

    def _keep_logs_small(self) -> None:
        if time.monotonic() - self._logs_seen > LOGS_S:
            self._logs_seen = time.monotonic()
            servers = [server.log for server in self._servers().values()]
            for path in (*map(self.log, self._children), *servers):
                process.Log(path).keep_small()

    async def _let_the_bus_write_again(self) -> None:
        """A stream whose write failed takes nothing more until its server is started again, room or not."""
        nats, keeper = self.installation.nats, self._keeper
        if nats is None or keeper is None or not keeper.kept.trouble or not nats.running:
            return
        if shutil.disk_usage(nats.folder).free < nats.needs_again:
            return
        self._on_progress("there is room on the disk: starting nats again")
        keeper.kept.trouble = {}
        await nats.stop()
        await self.installation.start_nats()
        self._server_restarts["nats"] += 1

    def _servers(self) -> dict[str, EmbeddedServer]:
        found = {"postgres": self.installation.postgres, "nats": self.installation.nats}
        return {name: server for name, server in found.items() if server is not None}

    # --- gate and note ------------------------------------------------------------------------------------

    @property
    def _gate(self) -> Path:
        return self.installation.folder.path / "gate"

    @contextlib.contextmanager
    def _closed_gate(self) -> Iterator[None]:
        """Services import meanwhile, and go on when it opens."""
        gate = os.open(self._gate, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(gate, fcntl.LOCK_EX)
            yield
        finally:
            os.close(gate)

    def _note(self) -> RunningNote:
        installation = self.installation
        return RunningNote(
            pid=os.getpid(),
            created=psutil.Process().create_time(),
            url=installation.url,
            token=installation.token(),
            nats_url=installation.nats_url,
            admin_dsn=installation.admin_dsn,
            services={name: installation.health_url(name) for name in self.services},
            platform=installation.platform,
        )


class RunningInstallation:
    """An installation that runs: where it is, who may enter, and which processes it is made of."""

    def __init__(self, installation: Installation, supervisor: Supervisor) -> None:
        self.installation = installation
        self.supervisor = supervisor
        self.data = installation.folder.path
        self.url = installation.url
        self.mcp_url = installation.mcp_url
        self.nats_url = installation.nats_url
        self.admin_dsn = installation.admin_dsn
        self.platform_admin_dsn = installation.platform_admin_dsn

    def token(
        self,
        role: str = "admin",
        subject: str = "admin",
        *,
        workspaces: Sequence[UUID] | Literal["*"] = "*",
        scopes: Sequence[str] = (),
        lifetime_s: float = 86_400.0,
    ) -> str:
        """A token for the gateway; see `Installation.token`."""
        return self.installation.token(role, subject, workspaces=workspaces, scopes=scopes, lifetime_s=lifetime_s)

    def pids(self) -> dict[str, int]:
        """The process of each service and embedded server that runs now."""
        return self.supervisor.pids()

    @property
    def restart_counts(self) -> dict[str, int]:
        """How often each was started again."""
        return self.supervisor.restart_counts

    async def until_ready(self, names: Sequence[str] = (), patience_s: float = READY_PATIENCE_S) -> None:
        """Wait until these services (all, when none is named) are ready (again)."""
        await self.supervisor.until_ready(names, patience_s)


@asynccontextmanager
async def running_installation(
    data: Path,
    *,
    port: int | None = None,
    platform_dsn: str | None = None,
    repositories: Sequence[Path] = (),
    settings: Mapping[str, str] | None = None,
    services: Sequence[str] = SERVICE_NAMES,
    on_progress: Progress = lambda _: None,
) -> AsyncIterator[RunningInstallation]:
    """Everything, running and ready; stopped in order at the end, also on SIGTERM and Ctrl-C.

    `settings` are more environment variables for every service, e.g. `{"BURNISH_INBOX": "false"}` in a drill.
    Raises `InstallationError`, `EmbeddedError` or `MigrationError` with nothing left running.
    """
    installation = Installation(
        data, port=port, platform_dsn=platform_dsn, repositories=repositories, settings=settings
    )
    supervisor = Supervisor(installation, on_progress, services)
    with _cancelled_by_sigterm():
        await supervisor.start()
        try:
            yield RunningInstallation(installation, supervisor)
        finally:
            await supervisor.stop()


@contextlib.contextmanager
def _cancelled_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the task that runs the installation as Ctrl-C does; a second one changes nothing."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    try:
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    except (NotImplementedError, RuntimeError, ValueError):  # not the main thread: whoever owns it decides
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def _all_of(*work: Awaitable[object]) -> None:
    """Do all at once; when one fails, let the others end before raising, so that none goes on unwatched."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


def _how(returncode: int) -> str:
    """`status 1` or `SIGKILL`."""
    if returncode >= 0:
        return f"status {returncode}"
    with suppress(ValueError):
        return signal.Signals(-returncode).name
    return f"signal {-returncode}"
