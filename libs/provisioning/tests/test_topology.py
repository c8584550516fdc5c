"""The topology step on a real NATS: it looks before it creates, makes large streams smaller, and explains itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from libs.contracts.topology import STREAMS, bus_users
from libs.embedded import nats as embedded
from libs.embedded.nats import EmbeddedNats
from libs.provisioning import topology
from libs.provisioning.bus_admin import bus_admin
from libs.provisioning.errors import TopologyError
from libs.provisioning.nats_config import ADMIN_USER, password_variable, server_config
from libs.provisioning.settings import MIB, BusSettings
from libs.provisioning.streams import Found, stream_config

GIB = 1024 * MIB
PASSWORD = "p-0123456789abcdef"
SMALL = BusSettings(bus_store=64 * MIB)
Start = Callable[..., Awaitable[EmbeddedNats]]


@pytest.fixture
async def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    """Starts a NATS with the accounts of the table, with a limit of its own where one is given; again in its folder."""
    running: list[EmbeddedNats] = []

    async def start_one(limit: int = embedded.NO_LIMIT) -> EmbeddedNats:
        for server in running:
            await server.stop()
        monkeypatch.setattr(embedded, "NO_LIMIT", limit)
        users = {password_variable(name): PASSWORD for name in [ADMIN_USER, *bus_users()]}
        server = EmbeddedNats(tmp_path / "nats", server_config(), environment=users)
        running.append(server)
        await server.start()
        return server

    yield start_one
    for server in running:
        await server.stop()


async def streams_of(server: EmbeddedNats) -> dict[str, Found]:
    async with bus_admin(server.url, PASSWORD) as admin:
        return await topology.look(admin)


async def make_large(server: EmbeddedNats, held: int = 0) -> None:
    """REFINEMENT as an earlier version made it, with so many bytes in it."""
    async with bus_admin(server.url, PASSWORD) as admin:
        await admin.ask("STREAM.CREATE.REFINEMENT", {**stream_config(STREAMS[0], 8 * GIB, 1), "discard": "old"})
        for _ in range(held // MIB):
            await admin.client.jetstream().publish("refinement.signal.observed.v1", b"x" * MIB)


async def test_a_fresh_server_gets_streams_of_the_sizes_that_are_set(start: Start) -> None:
    server = await start()
    told: list[str] = []
    await topology.upsert(server.url, PASSWORD, settings=SMALL, on_progress=told.append)
    found = await streams_of(server)
    assert {name: one.config["max_bytes"] for name, one in found.items()} == {
        stream.name: SMALL.size_of(stream) for stream in STREAMS
    }
    assert told[-1].startswith("durables of ")


async def test_it_fits_a_server_that_allows_just_enough_again_and_again(start: Start) -> None:
    """It creates nothing that is there: by the sum of both the server would refuse."""
    server = await start(SMALL.total())
    for _ in range(3):
        await topology.upsert(server.url, PASSWORD, settings=SMALL)
    server = await start(SMALL.total())
    await topology.upsert(server.url, PASSWORD, settings=SMALL)


async def test_a_stream_of_before_gives_its_room_back(start: Start) -> None:
    server = await start()
    await make_large(server, held=3 * MIB)
    await topology.upsert(server.url, PASSWORD, settings=SMALL)
    found = (await streams_of(server))["REFINEMENT"]
    assert (found.config["max_bytes"], found.config["discard"]) == (32 * MIB, "new")
    assert found.held > 3 * MIB


async def test_what_does_not_fit_stays_whole_and_is_said(start: Start) -> None:
    server = await start()
    await make_large(server, held=33 * MIB)
    told: list[str] = []
    await topology.upsert(server.url, PASSWORD, settings=SMALL, on_progress=told.append)
    found = (await streams_of(server))["REFINEMENT"]
    assert (found.config["max_bytes"], found.config["discard"]) == (8 * GIB, "new")
    assert found.held > 33 * MIB
    assert [line for line in told if line.startswith("REFINEMENT holds 33.")]


async def test_a_server_without_room_is_told_in_numbers(start: Start) -> None:
    server = await start(40 * MIB)
    with pytest.raises(TopologyError) as no:
        await topology.upsert(server.url, PASSWORD, settings=SMALL)
    assert "the NATS server has no room for the stream" in no.value.message
    assert "max_file_store" in no.value.hint


async def test_an_account_without_room_is_told_before_anything_is_made(tmp_path: Path) -> None:
    config = server_config().replace("jetstream: enabled", "jetstream: { max_file: 50MB }")
    users = {password_variable(name): PASSWORD for name in [ADMIN_USER, *bus_users()]}
    async with EmbeddedNats(tmp_path / "nats", config, environment=users) as server:
        with pytest.raises(TopologyError, match=r"streams need 77.8MiB of storage, and the account may have 50.0MiB"):
            await topology.upsert(server.url, PASSWORD, settings=SMALL)
        assert await streams_of(server) == {}


async def test_replicas_need_a_cluster(start: Start) -> None:
    server = await start()
    three = SMALL.model_copy(update={"bus_replicas": 3})
    with pytest.raises(TopologyError, match="cannot have 3 replicas"):
        await topology.upsert(server.url, PASSWORD, settings=three)


async def test_what_a_stream_cannot_become_is_explained(start: Start) -> None:
    server = await start()
    async with bus_admin(server.url, PASSWORD) as admin:
        config: dict[str, Any] = {**stream_config(STREAMS[0], MIB, 1), "storage": "memory"}
        await admin.ask("STREAM.CREATE.REFINEMENT", config)
    with pytest.raises(TopologyError, match="REFINEMENT cannot be made as the table says"):
        await topology.upsert(server.url, PASSWORD, settings=SMALL)


async def test_a_server_that_is_not_there_or_not_ours_is_an_answer(start: Start, tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="cannot be reached"):
        await topology.upsert("nats://127.0.0.1:1", PASSWORD)
    with pytest.raises(TopologyError, match="cannot be reached"):
        await topology.upsert((await start()).url, "p-wrong")
    users = f"accounts {{ BUS {{ users: [{{user: {ADMIN_USER}, password: {PASSWORD}}}] }} }}"
    async with EmbeddedNats(tmp_path / "other", users) as other:
        with pytest.raises(TopologyError, match="JetStream"):
            await topology.upsert(other.url, PASSWORD)
