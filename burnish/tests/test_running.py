"""Real starts, real kills. The whole installation once, parts of it where a part is enough."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import asyncpg
import httpx
import psutil
import pytest
import pytest_asyncio

from burnish.errors import InstallationError
from burnish.installation import SERVICE_NAMES, External, Installation
from burnish.supervisor import RunningInstallation, Supervisor, running_installation
from libs.embedded import FolderInUse, PortTaken

pytestmark = pytest.mark.timeout(400)
ROOT = Path(__file__).parents[2]
SCRIPT = """
import asyncio, json, sys
from pathlib import Path
from burnish.supervisor import running_installation

async def main():
    async with running_installation(Path(sys.argv[1]), services=("qa_ingest", "normaliser")) as running:
        print(json.dumps(running.pids()), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("BURNISH_")}


def burnish(data: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "burnish", *words, "--data", str(data)]
    return subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is killed at the end if it is still there."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment(), text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def processes(pids: Mapping[str, int]) -> list[psutil.Process]:
    """Those processes with whatever they started: handles that know them from others that get their pids."""
    found = [psutil.Process(pid) for pid in pids.values()]
    return [*found, *(child for process in found for child in process.children(recursive=True))]


def left(handles: list[psutil.Process], patience: float = 15) -> list[psutil.Process]:
    """Those that are still there after a while."""
    _, alive = psutil.wait_procs(handles, timeout=patience)
    return [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


async def until(holds: Callable[[], bool], patience: float = 60) -> None:
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        await asyncio.sleep(0.05)


# --- the whole, as a person runs it ---------------------------------------------------------------------------


def test_the_whole_installation_runs_is_watched_and_stops(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started("-m", "burnish", "up", "--data", str(data), "--repository", str(tmp_path), "--json") as up:
        assert up.stdout is not None
        assert up.stderr is not None
        told = up.stdout.readline()
        if not told:
            pytest.fail(up.stderr.read())
        ready = json.loads(told + "".join(iter(up.stdout.readline, "}\n")) + "}")
        assert set(ready["pids"]) == {*SERVICE_NAMES, "mcp", "postgres", "nats"}
        agents_find_the_library(ready["mcp"], burnish(data, "token").stdout.strip())

        doctor = burnish(data, "doctor", "--json")
        findings = json.loads(doctor.stdout)["findings"]
        assert [one for one in findings if one["level"] != "ok"] == []
        assert doctor.returncode == 0
        assert {*SERVICE_NAMES, "postgres", "migrations", "topology"} <= {one["check"] for one in findings}

        second = burnish(data, "up")
        assert (second.returncode, second.stdout) == (1, "")
        assert f"{data} is in use by process {up.pid}" in second.stderr

        port = ready["url"].rpartition(":")[2]
        taken = burnish(tmp_path / "other", "up", "--port", port)
        assert taken.returncode == 1
        assert f"port {port} on 127.0.0.1 is taken" in taken.stderr
        assert not (tmp_path / "other").exists()

        listed = burnish(data, "touchpoints", "list", "--json")
        assert (listed.returncode, json.loads(listed.stdout)) == (0, [])
        assert burnish(data, "migrate").stderr == "nothing to do: every schema is up to date\n"
        assert burnish(data, "topology").returncode == 0

        handles = [*processes(ready["pids"]), *psutil.Process(up.pid).children(recursive=True)]
        up.send_signal(signal.SIGTERM)
        assert up.wait(60) == 0
        assert left(handles) == []
        assert up.stderr.read().endswith("stopped\n")
    assert not (data / "installation.json").exists()
    assert burnish(data, "patterns", "list").returncode == 3


def agents_find_the_library(url: str, token: str) -> None:
    """It is started last and not waited for."""
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    with httpx.Client(trust_env=False, transport=httpx.HTTPTransport(retries=8)) as client:
        answer = client.post(url, json=asked, headers=headers)
    assert "q_a_search" in {tool["name"] for tool in answer.json()["result"]["tools"]}


# --- parts ----------------------------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def told() -> list[str]:
    return []


@pytest_asyncio.fixture
async def running(
    tmp_path: Path, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RunningInstallation]:
    for name in [name for name in os.environ if name.startswith("BURNISH_")]:
        monkeypatch.delenv(name)
    async with running_installation(tmp_path, services=("qa_ingest", "normaliser"), on_progress=told.append) as made:
        yield made


async def test_what_is_killed_comes_back(running: RunningInstallation, told: list[str]) -> None:
    before = running.pids()
    os.kill(before["qa_ingest"], signal.SIGKILL)
    await until(lambda: running.restart_counts["qa_ingest"] == 1)
    await running.until_ready()
    after = running.pids()
    assert after["qa_ingest"] != before["qa_ingest"]
    assert after["normaliser"] == before["normaliser"]
    assert "qa_ingest ended (SIGKILL); starting it again in 0.1 s" in told

    # With the process that services are forked from, all of them end, and all come back.
    (forkserver,) = {psutil.Process(pid).ppid() for name, pid in after.items() if name in ("qa_ingest", "normaliser")}
    handles = processes({name: after[name] for name in ("qa_ingest", "normaliser")})
    os.kill(forkserver, signal.SIGKILL)
    assert left(handles) == []
    await until(lambda: running.restart_counts["normaliser"] == 1 and running.restart_counts["qa_ingest"] == 2)
    await running.until_ready()

    for server in ("postgres", "nats"):
        os.kill(running.pids()[server], signal.SIGKILL)
        await until(lambda server=server: running.restart_counts[server] == 1)  # type: ignore[misc]
        await running.until_ready()
    assert running.restart_counts["postgres"] == 1


async def test_platform_tables_can_be_read_and_nothing_else(running: RunningInstallation) -> None:
    assert running.platform_admin_dsn is not None
    reader = running.installation.platform_dsn
    assert reader is not None
    admin = await asyncpg.connect(running.platform_admin_dsn)
    await admin.execute("CREATE TABLE platform.things AS SELECT 1 AS n")
    await admin.close()
    conn = await asyncpg.connect(reader)
    assert await conn.fetchval("SELECT n FROM platform.things") == 1
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await conn.execute("INSERT INTO platform.things VALUES (2)")
    await conn.close()


async def test_a_second_installation_is_refused_and_the_first_is_left_alone(running: RunningInstallation) -> None:
    with pytest.raises(FolderInUse, match="in use by this process"):
        async with running_installation(running.data):
            pytest.fail("it started")
    await running.until_ready()
    port = running.installation.port_of("normaliser")
    with pytest.raises(PortTaken, match=f"port {port} "):
        async with running_installation(running.data / "other", port=port):
            pytest.fail("it started")


async def test_ready_means_ready(running: RunningInstallation) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        for name in ("qa_ingest", "normaliser"):
            answer = await client.get(f"{running.installation.health_url(name)}/health/ready")
            assert answer.json()["ready"] is True


async def test_a_port_that_somebody_takes_meanwhile_is_replaced(tmp_path: Path) -> None:
    installation = Installation(tmp_path, external=External())
    supervisor = Supervisor(installation, services=("qa_ingest",))
    installation.open = Mock(side_effect=lambda: taken.append(_take(installation)))  # type: ignore[method-assign]
    taken: list[socket.socket] = []
    await supervisor.start()
    try:
        assert installation.port_of("qa_ingest") != taken[0].getsockname()[1]
        assert supervisor.restart_counts["qa_ingest"] >= 1
    finally:
        await supervisor.stop()
        taken[0].close()


def _take(installation: Installation) -> socket.socket:
    """Open the installation, then listen where one of its services is going to."""
    Installation.open(installation)
    return socket.create_server(("127.0.0.1", installation.port_of("qa_ingest")))


async def test_a_service_that_cannot_run_ends_the_start(tmp_path: Path) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with pytest.raises(InstallationError, match=r"(?s)qa_ingest ended 3 times while starting.*pool_size"):
        async with running_installation(tmp_path, services=("qa_ingest",), settings={"BURNISH_POOL_SIZE": "none"}):
            pytest.fail("it started")
    assert [child for child in psutil.Process().children(recursive=True) if child.pid not in before] == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_the_supervisor_and_the_folder_can_be_used_again(tmp_path: Path, how: signal.Signals) -> None:
    for _ in range(2 if how == signal.SIGKILL else 1):
        with started("-c", SCRIPT, str(tmp_path)) as supervisor:
            assert supervisor.stdout is not None
            line = supervisor.stdout.readline()
            assert line, supervisor.stderr.read() if supervisor.stderr else ""
            handles = processes(json.loads(line))
            supervisor.send_signal(how)
            supervisor.wait(60)
            assert left(handles) == []


def test_topology_stays_and_looks_after_the_bus_when_asked(tmp_path: Path) -> None:
    with started("-m", "burnish", "topology", "--keep", "--data", str(tmp_path / "data")) as keeping:
        assert keeping.stderr is not None
        told = list(iter(keeping.stderr.readline, "looking after the bus, until Ctrl-C\n"))
        assert "stream REFINEMENT\n" in told
        handles = psutil.Process(keeping.pid).children(recursive=True)
        keeping.send_signal(signal.SIGINT)
        assert keeping.wait(30) == 130
        assert "Traceback" not in keeping.stderr.read()
    assert left(handles) == []


def test_a_bus_that_cannot_be_prepared_is_an_answer(tmp_path: Path) -> None:
    nowhere = {**environment(), "BURNISH_NATS_URL": "nats://127.0.0.1:1"}
    much = {**environment(), "BURNISH_BUS_STORE": "a lot"}
    for variables, told in ((nowhere, "NATS cannot be reached as bus_admin"), (much, "BURNISH_BUS_STORE: ")):
        command = [sys.executable, "-m", "burnish", "topology", "--data", str(tmp_path / "data")]
        done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (1, False)
        assert f"error: {told}" in done.stderr
