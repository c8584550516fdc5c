"""A lock of a host that is gone without a word ends within a stated time: tried with a network that is cut."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from libs.embedded.postgres import EmbeddedPostgres
from libs.postgres import LOST_AFTER_S, VIGILANCE
from libs.service_kit.db import Database
from libs.service_kit.testing.plugin import OpenDatabase

ROOT = Path(__file__).resolve().parents[3]
TRY = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))"


@dataclass(frozen=True)
class Network:
    """A second network of this machine, joined to the first by one cable."""

    name: str
    here: str

    def command(self, *command: str) -> tuple[str, ...]:
        """`command`, as if on another host."""
        return "ip", "netns", "exec", self.name, *command

    def cut(self) -> None:
        """Pull the cable: nobody hears of it."""
        _run(*self.command("ip", "link", "set", "there", "down"))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=10)


@pytest.fixture
def network() -> Iterator[Network]:
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("needs root and iproute2, to make a network of its own")
    name = f"burnish-{secrets.token_hex(3)}"
    third = 1 + secrets.randbelow(250)
    made = Network(name, f"10.213.{third}.1")
    try:
        _run("ip", "netns", "add", name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network of its own can be made here: {error.stderr.decode().strip()}")
    here = f"b{name[-6:]}"
    try:
        _run("ip", "link", "add", here, "type", "veth", "peer", "name", "there", "netns", name)
        _run("ip", "addr", "add", f"{made.here}/24", "dev", here)
        _run("ip", "link", "set", here, "up")
        _run(*made.command("ip", "addr", "add", f"10.213.{third}.2/24", "dev", "there"))
        _run(*made.command("ip", "link", "set", "there", "up"))
        yield made
    finally:
        subprocess.run(("ip", "netns", "del", name), capture_output=True, timeout=10, check=False)
        subprocess.run(("ip", "link", "del", here), capture_output=True, timeout=10, check=False)


@pytest.fixture
async def postgres(tmp_path: Path, network: Network) -> AsyncIterator[EmbeddedPostgres]:
    """A Postgres that the other network reaches, and whose own settings are those of the factory."""
    factory = {"tcp_keepalives_idle": "0", "tcp_keepalives_interval": "0", "tcp_keepalives_count": "0"}
    factory |= {"tcp_user_timeout": "0", "client_connection_check_interval": "0"}
    settings = {"listen_addresses": "*", "fsync": "off", "idle_in_transaction_session_timeout": "0", **factory}
    server = EmbeddedPostgres(tmp_path / "postgres", settings=settings)
    await server.start()
    try:
        with (server.data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all 10.213.0.0/16 scram-sha-256\n")
        conn = await asyncpg.connect(server.admin_dsn())
        await conn.execute("SELECT pg_reload_conf()")
        await conn.close()
        yield server
    finally:
        await server.stop()


async def held(network: Network, postgres: EmbeddedPostgres, key: str, how: str) -> Process:
    """Somebody on the other network who has the lock, or a place in its queue."""
    dsn = postgres.admin_dsn().replace("127.0.0.1", network.here)
    command = network.command(sys.executable, "-m", "libs.postgres.tests.holder", dsn, key, how)
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE)
    assert process.stdout is not None
    assert (await asyncio.wait_for(process.stdout.readline(), 30)).strip() == b"held"
    return process


async def until_free(postgres: EmbeddedPostgres, key: str, patience: float) -> float | None:
    """Seconds until the lock can be had; None when it cannot."""
    started = time.monotonic()
    conn = await asyncpg.connect(postgres.admin_dsn())
    try:
        while time.monotonic() - started < patience:
            if await conn.fetchval(TRY, key):
                return time.monotonic() - started
            await asyncio.sleep(0.25)
    finally:
        await conn.close()
    return None


@pytest.mark.timeout(180)
async def test_the_locks_of_a_host_that_is_gone_end(network: Network, postgres: EmbeddedPostgres) -> None:
    """And the control: with the factory's settings they stay."""
    ours = await asyncpg.connect(postgres.admin_dsn())
    await ours.execute("SELECT pg_advisory_lock(hashtextextended('waits', 0))")
    holders = [await held(network, postgres, how, how) for how in ("session", "transaction", "waits", "careless")]
    try:
        network.cut()
        cut = time.monotonic()
        times = await asyncio.gather(
            until_free(postgres, "session", LOST_AFTER_S), until_free(postgres, "transaction", LOST_AFTER_S)
        )
        assert None not in times
        await asyncio.sleep(max(0.0, LOST_AFTER_S - (time.monotonic() - cut)))
        await ours.execute("SELECT pg_advisory_unlock_all()")
        assert await until_free(postgres, "waits", 1) is not None  # nobody dead got it
        assert await until_free(postgres, "careless", 1) is None
    finally:
        for holder in holders:
            holder.kill()
            await holder.wait()
        await ours.close()


async def test_every_connection_of_a_service_is_vigilant(database: OpenDatabase) -> None:
    db: Database = await database("normaliser")
    alone = await db.connect_alone()
    async with db.connection() as conn:
        for one in (conn, alone):
            for name, value in VIGILANCE.items():
                found = await one.fetchrow("SELECT setting, unit FROM pg_settings WHERE name = $1", name)
                assert found is not None
                assert found["setting"] == value
    await alone.close()
