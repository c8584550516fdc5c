"""The embedded Postgres: a real server, and each way a start can find the world in disorder."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import psutil
import pytest

from libs.embedded import (
    EmbeddedError,
    EmbeddedPostgres,
    FolderInUse,
    PortTaken,
)
from libs.embedded.folder import Record
from libs.embedded.ports import free_port
from libs.embedded.tests.conftest import Owner, SmallDisk, listening


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has been started once, to copy."""
    folder = tmp_path_factory.mktemp("prepared")

    async def once() -> None:
        async with EmbeddedPostgres(folder):
            pass

    asyncio.run(once())
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    """A folder with data, of a server that was stopped."""
    target = tmp_path / "pg"
    shutil.copytree(prepared, target)
    if os.geteuid() == 0:
        owner = (prepared / "data").stat()
        for path in [target / "data", *(target / "data").rglob("*")]:
            os.chown(path, owner.st_uid, owner.st_gid)
    return target


@pytest.fixture
async def server(folder: Path) -> AsyncIterator[EmbeddedPostgres]:
    async with EmbeddedPostgres(folder) as running:
        yield running


async def value(server: EmbeddedPostgres, query: str, database: str = "postgres") -> object:
    connection = await asyncpg.connect(server.admin_dsn(database))
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def test_a_fresh_folder_becomes_a_server(tmp_path: Path) -> None:
    async with EmbeddedPostgres(tmp_path / "new" / "pg") as server:
        assert "PostgreSQL 18" in str(await value(server, "SELECT version()"))
        password = tmp_path / "new" / "pg" / "admin.password"
        assert stat.S_IMODE(password.stat().st_mode) == 0o600
    assert not server.running


async def test_data_and_port_outlive_a_restart_in_another_event_loop(
    folder: Path,
) -> None:
    server = EmbeddedPostgres(folder)

    async def write() -> int:
        await server.start()
        await value(server, "CREATE TABLE kept AS SELECT 42 AS answer")
        return server.port

    port = await asyncio.to_thread(asyncio.run, write())
    await server.stop()
    async with server:
        assert await value(server, "SELECT answer FROM kept") == 42
        assert server.port == port


async def test_settings_are_the_promised_ones(server: EmbeddedPostgres) -> None:
    wanted = {
        "fsync": "on",
        "synchronous_commit": "on",
        "max_connections": "200",
        "shared_buffers": "128MB",
        "server_encoding": "UTF8",
        "listen_addresses": "127.0.0.1",
    }
    found = {name: await value(server, f"SHOW {name}") for name in wanted}
    assert found == wanted
    assert await value(server, "SELECT datlocale FROM pg_database WHERE datname = 'postgres'") == "C.UTF-8"


async def test_extensions_work(server: EmbeddedPostgres) -> None:
    await value(server, "CREATE EXTENSION vector")
    await value(server, "CREATE EXTENSION pg_trgm")
    assert await value(server, "SELECT ('[1,0]'::vector <=> '[0,1]'::vector)") == 1.0
    assert await value(server, "SELECT similarity('Größe', 'Größen') > similarity('Gre', 'Größen')") is True


async def test_passwords_are_asked_for(server: EmbeddedPostgres) -> None:
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(server.dsn("postgres", password="wrong"))


async def test_a_template_can_be_cloned(server: EmbeddedPostgres) -> None:
    await value(server, "CREATE DATABASE model")
    await value(server, "CREATE TABLE t AS SELECT 7 AS seven", "model")
    await value(server, "CREATE DATABASE clone TEMPLATE model")
    assert await value(server, "SELECT seven FROM t", "clone") == 7


async def test_a_failing_row_does_not_reach_the_log(server: EmbeddedPostgres) -> None:
    await value(
        server,
        "CREATE TABLE guarded (word text PRIMARY KEY CHECK (word <> 'canary-1'))",
    )
    await value(server, "INSERT INTO guarded VALUES ('canary-2')")
    for word in ("canary-1", "canary-2"):
        with pytest.raises(asyncpg.IntegrityConstraintViolationError):
            await value(server, f"INSERT INTO guarded VALUES ('{word}')")
    assert "canary" not in server.log.read_text()


async def test_two_at_once_do_not_clash(server: EmbeddedPostgres, prepared: Path) -> None:
    async with EmbeddedPostgres(prepared) as other:
        assert other.port != server.port
        assert await value(other, "SELECT 1") == await value(server, "SELECT 1")


async def test_an_asked_port_is_used(folder: Path) -> None:
    port = free_port()
    async with EmbeddedPostgres(folder, port) as server:
        assert server.port == port


async def test_a_taken_port_names_its_holder_and_leaves_nothing(tmp_path: Path) -> None:
    with (
        listening() as port,
        pytest.raises(PortTaken, match=rf"port {port} .* \(pid {os.getpid()}\)"),
    ):
        await EmbeddedPostgres(tmp_path / "pg", port).start()
    assert not (tmp_path / "pg" / "data").exists()


async def test_a_port_taken_behind_our_back_is_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as port:
        offers = iter([port, free_port()])
        monkeypatch.setattr(EmbeddedPostgres, "_some_port", lambda self, attempt: next(offers))
        async with EmbeddedPostgres(folder) as server:
            assert server.port != port


async def test_a_folder_in_use_names_the_process(owner: Owner, tmp_path: Path) -> None:
    with pytest.raises(FolderInUse, match=f"in use by process {owner.process.pid}"):
        await EmbeddedPostgres(tmp_path / "pg").start()


async def test_a_folder_in_use_by_us_says_so(server: EmbeddedPostgres) -> None:
    with pytest.raises(FolderInUse, match="in use by this process"):
        await EmbeddedPostgres(server.folder).start()
    assert await value(server, "SELECT 1") == 1


async def test_a_server_started_by_hand_is_left_alone(server: EmbeddedPostgres) -> None:
    pid = server.pid
    server._folder.close()
    (server.folder / "server.json").unlink()
    with pytest.raises(FolderInUse, match=f"process {pid}"):
        await EmbeddedPostgres(server.folder).start()
    assert server.running


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_an_ended_owner_leaves_no_orphans(owner: Owner, tmp_path: Path, number: signal.Signals) -> None:
    workers = owner.workers()
    assert len(workers) > 4
    owner.process.send_signal(number)
    owner.process.wait()
    _, alive = await asyncio.to_thread(psutil.wait_procs, workers, 10)
    assert alive == []
    assert "database system is shut down" in (tmp_path / "pg" / "postgres.log").read_text()


async def test_the_next_start_waits_for_a_dying_server(owner: Owner, tmp_path: Path) -> None:
    owner.process.kill()
    owner.process.wait()
    async with EmbeddedPostgres(tmp_path / "pg") as server:
        assert await value(server, "SELECT 1") == 1
        assert server.pid != owner.servers[0].pid


async def test_a_killed_server_is_recovered(folder: Path) -> None:
    server = EmbeddedPostgres(folder)
    await server.start()
    await value(server, "CREATE TABLE kept AS SELECT 42 AS answer")
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    await server.stop()
    async with server:
        assert await value(server, "SELECT answer FROM kept") == 42


async def test_a_pid_file_of_another_program_is_removed(folder: Path) -> None:
    stale = f"{os.getpid()}\n{folder / 'data'}\n1700000000\n5432\n\n127.0.0.1\n\nready\n"
    (folder / "data" / "postmaster.pid").write_text(stale)
    server = EmbeddedPostgres(folder)
    server._folder.record = Record(port=free_port(), pid=os.getpid(), created=1.0)
    async with server:
        assert await value(server, "SELECT 1") == 1


async def test_a_half_finished_start_is_begun_again(tmp_path: Path) -> None:
    half = tmp_path / "pg" / "data.new"
    (half / "base" / "1").mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    (tmp_path / "pg" / "admin.password").write_text("kept")
    async with EmbeddedPostgres(tmp_path / "pg") as server:
        assert await value(server, "SELECT 1") == 1
        assert not half.exists()


async def test_a_cancelled_start_leaves_nothing(tmp_path: Path) -> None:
    start = asyncio.create_task(EmbeddedPostgres(tmp_path / "pg").start())
    while not (tmp_path / "pg" / "data.new" / "PG_VERSION").exists():
        await asyncio.sleep(0.01)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert not list((tmp_path / "pg").glob("data*"))
    async with EmbeddedPostgres(tmp_path / "pg") as server:
        assert server.running


async def test_data_of_another_major_is_refused(folder: Path) -> None:
    (folder / "data" / "PG_VERSION").write_text("17\n")
    with pytest.raises(EmbeddedError, match="made by PostgreSQL 17; this server is PostgreSQL 18"):
        await EmbeddedPostgres(folder).start()


async def test_foreign_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "thesis.txt").write_text("mine")
    with pytest.raises(EmbeddedError, match="no PostgreSQL data folder"):
        await EmbeddedPostgres(tmp_path).start()
    assert (tmp_path / "data" / "thesis.txt").read_text() == "mine"


async def test_a_broken_setting_quotes_the_log(folder: Path) -> None:
    with pytest.raises(EmbeddedError, match="invalid value for parameter"):
        await EmbeddedPostgres(folder, settings={"shared_buffers": "much"}).start()


async def test_settings_can_be_given(folder: Path) -> None:
    async with EmbeddedPostgres(folder, settings={"fsync": "off"}) as server:
        assert await value(server, "SHOW fsync") == "off"


async def test_a_small_disk_is_refused_before_anything_is_made(disk: SmallDisk) -> None:
    with disk("size=20m") as place:
        with pytest.raises(EmbeddedError, match=rf"disk of {place}/pg is full: the server needs 200 MB"):
            await EmbeddedPostgres(place / "pg").start()
        assert list(place.iterdir()) == []


async def test_a_disk_that_fills_up_leaves_nothing_half_made(disk: SmallDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmbeddedPostgres, "needs_fresh", 1)
    with disk("size=20m") as place:
        with pytest.raises(EmbeddedError, match="is full"):
            await EmbeddedPostgres(place / "pg").start()
        assert not list((place / "pg").glob("data*"))


async def test_a_read_only_disk_is_named(disk: SmallDisk) -> None:
    with (
        disk("ro") as place,
        pytest.raises(EmbeddedError, match="cannot be written: Read-only"),
    ):
        await EmbeddedPostgres(place / "pg").start()


async def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "pg").write_text("")
    with pytest.raises(EmbeddedError, match="cannot be a folder"):
        await EmbeddedPostgres(tmp_path / "pg").start()
