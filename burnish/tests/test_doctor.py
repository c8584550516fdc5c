"""What the doctor says of the disk, the streams, messages that were given up, and inboxes."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import asyncpg
import pytest

from burnish.doctor import _disk, _inboxes
from burnish.doctor_bus import examine_bus
from burnish.finding import Finding
from burnish.installation import Installation
from burnish.room import room
from libs.contracts.topology import ADVISORIES
from libs.provisioning.bus_admin import BusAdmin
from libs.provisioning.settings import MIB, BusSettings
from libs.provisioning.topology import upsert
from libs.service_kit import testing
from libs.service_kit.testing.plugin import OpenDatabase

MB = 1_000_000


def free(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Let the disk have so much left."""
    monkeypatch.setattr("burnish.room.shutil.disk_usage", lambda _: SimpleNamespace(free=size))


@pytest.mark.parametrize(
    ("left", "level", "told"),
    [
        (
            50_000 * MB,
            "ok",
            "50.0 GB free; starting needs 300 MB, the bus and Postgres' log of changes may take",
        ),
        (2_000 * MB, "ok", "2.0 GB free"),
        (900 * MB, "warn", "900 MB free; starting needs 300 MB"),
        (299 * MB, "fail", "299 MB free; starting needs 300 MB"),
    ],
)
def test_the_disk_is_told_in_what_is_needed_and_what_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, left: int, level: str, told: str
) -> None:
    free(monkeypatch, left)
    found = _disk(tmp_path / "data")
    assert (found.level, found.message[: len(told)]) == (level, told)
    assert bool(found.todo) == (level != "ok")


def test_what_is_taken_up_already_is_not_needed_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fresh = room(tmp_path, BusSettings())
    (tmp_path / "ports.json").write_text("{}")
    blocks = tmp_path / "nats" / "jetstream" / "x"
    blocks.mkdir(parents=True)
    (blocks / "1.blk").write_bytes(b"x" * 5 * MB)
    again = room(tmp_path, BusSettings())
    assert again.needed < fresh.needed
    assert again.may_grow == fresh.may_grow - 5 * MB
    assert room(tmp_path, BusSettings(), postgres=False, nats=False).may_grow < 512 * MIB


def test_a_wrong_size_is_told_and_not_a_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BURNISH_BUS_STORE", "much")
    found = _disk(tmp_path)
    assert found.level == "fail"
    assert "BURNISH_BUS_STORE" in found.message


# --- the bus --------------------------------------------------------------------------------------------------


@pytest.fixture
async def admin(installation: testing.Installation) -> AsyncIterator[BusAdmin]:
    client = await installation.bus_admin()
    yield BusAdmin(client)
    await client.close()


async def examined(installation: testing.Installation, url: str = "") -> dict[str, Finding]:
    """The findings about the test's bus."""
    servers = installation.servers
    reached: Any = SimpleNamespace(nats_url=url or servers.nats_url, nats_password=servers.nats_password)
    return {finding.check: finding for finding in await examine_bus(cast("Installation", reached))}


async def test_a_bus_that_is_well(installation: testing.Installation) -> None:
    found = await examined(installation)
    assert {finding.level for finding in found.values()} == {"ok"}
    assert found["streams"].message.startswith("512.0MiB reserved: REFINEMENT holds 0B of 256.0MiB, QA holds ")


async def test_a_stream_that_is_nearly_full_is_named(installation: testing.Installation, admin: BusAdmin) -> None:
    info = await admin.ask("STREAM.INFO.QA")
    await admin.ask("STREAM.UPDATE.QA", {**info["config"], "max_bytes": 1_000_000})
    await admin.client.jetstream().publish("qa.x", b"x" * 950_000)
    found = (await examined(installation))["streams"]
    assert (found.level, found.message[:18]) == ("warn", "QA nearly full; 41")


async def test_a_stream_that_stayed_large_is_told(
    installation: testing.Installation, admin: BusAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await admin.client.jetstream().publish("refinement.scanner.run.v1", b"x" * 900_000)
    for _ in range(9):
        await admin.client.jetstream().publish("qa.x", b"x" * 1_000_000)
    monkeypatch.setenv("BURNISH_BUS_STREAMS", '{"QA": "8MiB"}')
    servers = installation.servers
    await upsert(servers.nats_url, servers.nats_password("bus_admin"))
    found = await examined(installation)
    assert found["topology"].level == "ok"
    assert found["streams"].level == "warn"
    assert found["streams"].message.startswith("QA holds 8.6MiB, more than the 8.0MiB it is to have")


async def test_another_size_than_the_configured_one_is_for_the_topology_step(
    installation: testing.Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BURNISH_BUS_STORE", "1GiB")
    found = (await examined(installation))["topology"]
    assert (found.level, found.todo) == ("fail", "run `burnish topology`")
    assert "the stream REFINEMENT has another max_bytes" in found.message


async def test_messages_that_were_given_up_are_counted(installation: testing.Installation, admin: BusAdmin) -> None:
    for subject in ("MAX_DELIVERIES", "MSG_TERMINATED"):
        await admin.client.jetstream().publish(f"$JS.EVENT.ADVISORY.CONSUMER.{subject}.S.c", b"{}", stream=ADVISORIES)
    found = (await examined(installation))["given up"]
    assert (found.level, found.message[:25]) == ("warn", "2 messages were given up ")


async def test_a_bus_that_is_not_there_is_one_line(installation: testing.Installation) -> None:
    found = await examined(installation, "nats://127.0.0.1:1")
    assert [(finding.check, finding.level) for finding in found.values()] == [("nats", "fail")]


async def test_an_inbox_that_is_not_pruned_is_told(installation: testing.Installation, database: OpenDatabase) -> None:
    await database("normaliser")
    conn = await asyncpg.connect(installation.admin_dsn)
    assert (await _inboxes(conn)).message == "nothing is remembered yet"
    await conn.execute("INSERT INTO normaliser.inbox VALUES ('c', gen_random_uuid(), now() - interval '99 days')")
    assert (await _inboxes(conn)).level == "ok"
    await conn.execute("INSERT INTO scanner.inbox VALUES ('c', gen_random_uuid(), now() - interval '200 days')")
    found = await _inboxes(conn)
    assert (found.level, found.message) == ("warn", "the oldest event remembered is 200.0 days old (scanner)")
    await conn.close()


def test_the_machine_of_this_test_is_told(tmp_path: Path) -> None:
    assert _disk(tmp_path).message.startswith(f"{shutil.disk_usage(tmp_path).free / 1e9:.1f}"[:1])
