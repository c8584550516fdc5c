"""The embedded NATS: a real server with the given configuration, and what it says about a bad one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest

from libs.embedded import EmbeddedError, EmbeddedNats, FolderInUse, PortTaken
from libs.embedded.ports import free_port
from libs.embedded.tests.conftest import SmallDisk, listening

CONFIG = """
accounts {
  BUS: { jetstream: enabled, users: [ { user: bus, password: $BUS_PASSWORD } ] }
}
"""
PASSWORD = "p-00ff"


def server_in(folder: Path, port: int | None = None, *, monitoring: bool = False) -> EmbeddedNats:
    return EmbeddedNats(folder, CONFIG, port, {"BUS_PASSWORD": PASSWORD}, monitoring=monitoring)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedNats]:
    async with server_in(tmp_path / "nats", monitoring=True) as running:
        yield running


def monitored(server: EmbeddedNats, page: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{server.monitor_url}/{page}", timeout=5) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


async def test_an_acknowledged_message_outlives_a_kill(tmp_path: Path) -> None:
    server = server_in(tmp_path)
    await server.start()
    client = await nats.connect(server.url, user="bus", password=PASSWORD, allow_reconnect=False)
    await client.jetstream().add_stream(name="FACTS", subjects=["facts.>"])
    assert (await client.jetstream().publish("facts.one", b"kept")).seq == 1
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    await client.close()
    await server.stop()
    async with server:
        client = await nats.connect(server.url, user="bus", password=PASSWORD)
        assert (await client.jetstream().get_msg("FACTS", 1)).data == b"kept"
        await client.close()


async def test_everything_acknowledged_is_on_disk(server: EmbeddedNats) -> None:
    config = monitored(server, "varz")["jetstream"]["config"]
    assert config["sync_always"] is True
    assert config["store_dir"].startswith(str(server.folder))


async def test_jetstream_of_the_given_text_cannot_relax_that(tmp_path: Path) -> None:
    config = 'jetstream { store_dir: "/nowhere", sync_interval: "2m" }\nlisten: "0.0.0.0:1"\n'
    async with EmbeddedNats(tmp_path, config, monitoring=True) as server:
        found = monitored(server, "varz")
        assert found["jetstream"]["config"]["sync_always"] is True
        assert found["host"] == "127.0.0.1"


async def test_a_stranger_is_refused_and_the_password_is_in_no_file(
    server: EmbeddedNats,
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    await reader.readline()
    writer.write(b'CONNECT {"user":"bus","pass":"guess","verbose":false}\r\nPING\r\n')
    assert b"Authorization Violation" in await reader.read()
    writer.close()
    await writer.wait_closed()
    for file in server.folder.iterdir():
        assert file.is_dir() or PASSWORD not in file.read_text()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("accounts { A: { users: [ {user: a,", "given.conf"),
        ("accounts { A: { exports: [ { nonsense: x } ] } }", "nonsense"),
        ("authorization { user: a, password: $NOT_GIVEN }", "NOT_GIVEN"),
    ],
)
async def test_a_bad_configuration_is_refused_in_the_servers_words(tmp_path: Path, config: str, message: str) -> None:
    server = EmbeddedNats(tmp_path, config)
    with pytest.raises(EmbeddedError, match=message):
        await server.start()
    assert not server.running


async def test_two_at_once_do_not_clash(server: EmbeddedNats, tmp_path: Path) -> None:
    async with server_in(tmp_path / "other") as other:
        assert other.port != server.port


async def test_a_taken_port_names_its_holder(tmp_path: Path) -> None:
    with (
        listening() as port,
        pytest.raises(PortTaken, match=rf"port {port} .* \(pid {os.getpid()}\)"),
    ):
        await server_in(tmp_path, port).start()


async def test_a_port_taken_behind_our_back_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as port:
        offers = iter([port, free_port()])
        monkeypatch.setattr(EmbeddedNats, "_some_port", lambda self, attempt: next(offers))
        async with server_in(tmp_path) as server:
            assert server.port != port


async def test_a_folder_in_use_says_so(server: EmbeddedNats) -> None:
    with pytest.raises(FolderInUse, match="in use by this process"):
        await server_in(server.folder).start()


async def test_the_port_is_kept_over_a_restart(tmp_path: Path) -> None:
    async with server_in(tmp_path) as first:
        port = first.port
    async with server_in(tmp_path) as second:
        assert second.port == port


async def test_a_small_disk_is_refused_before_anything_is_made(disk: SmallDisk) -> None:
    with disk("size=8m") as place:
        with pytest.raises(
            EmbeddedError,
            match=r"is full: the server needs 64 MB there and 8 MB are free",
        ):
            await server_in(place / "nats").start()
        assert list(place.iterdir()) == []


async def test_no_monitoring_unless_asked_for(tmp_path: Path) -> None:
    async with server_in(tmp_path) as server:
        with pytest.raises(EmbeddedError, match="no monitoring"):
            _ = server.monitor_url
