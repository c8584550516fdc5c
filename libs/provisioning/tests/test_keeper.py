"""What the server gives up is copied to the dead letters of its service, once; what was heard makes room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.js.errors import APIError

from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.queries.dead_letters import (
    BuryStranded,
    DeadLetter,
    ListDeadLetters,
    ReplayDeadLetter,
)
from libs.contracts.topology import (
    ADVISORIES,
    SERVICES,
    dead_letter_bury_subject,
    dead_letter_list_subject,
    dead_letter_replay_subject,
    durable,
)
from libs.provisioning import topology
from libs.provisioning.bus_admin import BusAdmin
from libs.provisioning.keeper import Advisory, Keeper
from libs.provisioning.nats_config import ADMIN_USER
from libs.service_kit.db import Database
from libs.service_kit.queries import Asker
from libs.service_kit.testing import Installation
from libs.service_kit.tests.support import effects, make_effects_table, observed
from libs.service_kit.tests.test_service import build, push, until

HEARD = durable("normaliser", SignalObservedV1)


def keeper(installation: Installation, told: list[str] | None = None, **options: Any) -> Keeper:
    servers = installation.servers
    tell = (told if told is not None else []).append
    return Keeper(servers.nats_url, servers.nats_password(ADMIN_USER), on_progress=tell, **options)


@asynccontextmanager
async def kept(made: Keeper) -> AsyncIterator[Keeper]:
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
async def admin(installation: Installation) -> AsyncIterator[BusAdmin]:
    client = await installation.bus_admin()
    yield BusAdmin(client)
    await client.close()


@pytest.fixture
async def gateway(installation: Installation) -> AsyncIterator[Asker]:
    async with account(installation, "gateway") as client:
        yield Asker(lambda: client)


@asynccontextmanager
async def account(installation: Installation, service: str) -> AsyncIterator[Client]:
    servers = installation.servers
    client = await nats.connect(servers.nats_url, user=service, password=servers.nats_password(service))
    try:
        yield client
    finally:
        await client.close()


async def strand(installation: Installation, admin: BusAdmin, *, terminate: bool = False) -> None:
    """Let the server give up what waits for the normaliser: delivered twice without an answer, or ended by it."""
    config = {**topology.durable_config(HEARD), "max_deliver": 2, "ack_wait": 200_000_000}
    api = f"CONSUMER.CREATE.{HEARD.stream}.{HEARD.name}.{HEARD.event.type}"
    await admin.ask(api, {"stream_name": HEARD.stream, "config": config})
    async with account(installation, "normaliser") as client:
        subscription = await client.jetstream(prefix="bus").pull_subscribe_bind(HEARD.name, stream=HEARD.stream)
        async with asyncio.timeout(20):
            while await advisories(admin) == 0:
                try:
                    for message in await subscription.fetch(10, timeout=0.3):
                        if terminate:
                            await message.term()
                except TimeoutError:
                    continue
    await admin.ask(api, {"stream_name": HEARD.stream, "config": topology.durable_config(HEARD)})


async def advisories(admin: BusAdmin) -> int:
    """Those that nobody has dealt with."""
    info = await admin.ask(f"CONSUMER.INFO.{ADVISORIES}.{topology.KEEPER}")
    return int(info["num_pending"]) + int(info["num_ack_pending"])


async def letters(asker: Asker) -> list[DeadLetter]:
    found = await asker.ask(ListDeadLetters(include_replayed=True), subject=dead_letter_list_subject("normaliser"))
    return list(found.dead_letters)


async def nothing_waits(admin: BusAdmin) -> None:
    async def dealt_with() -> bool:
        return await advisories(admin) == 0

    await until(dealt_with)


@asynccontextmanager
async def serving(installation: Installation) -> AsyncIterator[Database]:
    """The normaliser of the kit's tests, running; its database."""
    await make_effects_table(installation.admin_dsn)
    service = build(installation)
    await service.start()
    try:
        yield service.db
    finally:
        await service.close()


@pytest.mark.parametrize("terminate", [False, True])
async def test_what_was_given_up_is_a_dead_letter_once_and_can_be_replayed(
    installation: Installation, admin: BusAdmin, gateway: Asker, terminate: bool
) -> None:
    event = observed()
    await push(installation, [event])
    await strand(installation, admin, terminate=terminate)
    async with serving(installation) as db, kept(keeper(installation, every_s=0.1)):
        await nothing_waits(admin)
        (letter,) = await letters(gateway)
        assert (letter.consumer, letter.event_id, letter.bytes) == (HEARD.name, event.id, len(event.encode()))
        assert letter.error_class == "Stranded"
        assert ("its consumer ended it" if terminate else "gave it up after 2 deliveries") in letter.error
        assert await effects(db) == []  # the server does not deliver it any more

        for _ in range(2):
            await gateway.ask(
                ReplayDeadLetter(dead_letter_id=letter.dead_letter_id),
                subject=dead_letter_replay_subject("normaliser"),
            )
        assert await effects(db) == [event.id]


async def test_the_control_without_a_keeper_nobody_hears_of_it(
    installation: Installation, admin: BusAdmin, gateway: Asker
) -> None:
    await push(installation, [observed()])
    await strand(installation, admin)
    async with serving(installation) as db:
        await asyncio.sleep(2)
        assert await letters(gateway) == []
        assert await effects(db) == []
        assert await advisories(admin) == 1


async def test_several_keepers_and_the_same_advisory_again_make_one_letter_each(
    installation: Installation, admin: BusAdmin, gateway: Asker
) -> None:
    await push(installation, [observed() for _ in range(30)])
    await strand(installation, admin)
    async with serving(installation):
        for _ in range(2):
            async with kept(keeper(installation, every_s=0.05)), kept(keeper(installation, every_s=0.05)):
                await nothing_waits(admin)
            assert len(await letters(gateway)) == 30
            # As after a restore of the bus: the durable begins at the first advisory again.
            await admin.ask(f"CONSUMER.DELETE.{ADVISORIES}.{topology.KEEPER}")
            await topology._upsert_durable(admin, ADVISORIES, topology.keeper_config())


async def test_a_service_that_is_away_gets_its_letter_when_it_is_back(
    installation: Installation, admin: BusAdmin, gateway: Asker
) -> None:
    await push(installation, [observed()])
    await strand(installation, admin)
    told: list[str] = []
    async with kept(keeper(installation, told, every_s=0.05, again_s=0.2)) as made:

        async def tried() -> bool:
            return bool(told)

        await until(tried)
        assert "is not with the dead letters of normaliser yet: NoRespondersError" in told[0]
        async with serving(installation):
            await nothing_waits(admin)
            assert len(await letters(gateway)) == 1
            assert made.kept.copied == 1


async def test_a_body_that_is_no_event_is_copied_whole(
    installation: Installation, admin: BusAdmin, gateway: Asker
) -> None:
    bodies = [b"", b"\xff\x00 not JSON", b"[" * 100_000, b"x" * (2 * 1024 * 1024 + 7)]
    await push(installation, list(bodies))
    await strand(installation, admin)
    async with serving(installation), kept(keeper(installation, every_s=0.05)):
        await nothing_waits(admin)
        assert sorted(letter.bytes for letter in await letters(gateway)) == sorted(map(len, bodies))


async def test_what_is_gone_or_belongs_to_nobody_here_is_said_and_left(
    installation: Installation, admin: BusAdmin
) -> None:
    subject = f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.REFINEMENT.{HEARD.name}"
    known = f'"type": "io.nats.jetstream.advisory.v1.max_deliver", "stream": "REFINEMENT", "consumer": "{HEARD.name}"'
    bodies = [
        "{" + known + ', "stream_seq": 999, "deliveries": 2}',
        "{" + known.replace(HEARD.name, "somebody") + ', "stream_seq": 1, "deliveries": 2}',
        "{" + known + "}",
        "[]",
        "no JSON",
    ]
    for body in bodies:
        await admin.client.jetstream().publish(subject, body.encode())
    told: list[str] = []
    async with kept(keeper(installation, told, every_s=0.05)):
        await nothing_waits(admin)
    assert sorted(told)[1:] == [
        "message 1 of REFINEMENT was given up for somebody, a durable that is not in the table",
        f"message 999 of REFINEMENT was given up for {HEARD.name}, and is no longer there to be copied",
    ]
    assert sorted(told)[0] == "an advisory cannot be read; it is left aside"


async def test_nobody_but_the_bus_can_put_a_letter_with_a_neighbours(installation: Installation) -> None:
    query = BuryStranded(
        consumer=HEARD.name, said_on=HEARD.event.type, stream_seq=1, deliveries=1, reason="forged", body=b"e30="
    )
    async with serving(installation):
        for entry in SERVICES:
            if entry.name == "normaliser":
                continue
            async with account(installation, entry.name) as client:
                with pytest.raises(NoRespondersError):
                    await client.request(
                        dead_letter_bury_subject("normaliser"), query.model_dump_json().encode(), timeout=2
                    )


async def test_a_service_keeps_nothing_for_a_durable_that_is_not_its_own(
    installation: Installation, admin: BusAdmin
) -> None:
    query = BuryStranded(consumer="registry-x", said_on="x", stream_seq=1, deliveries=1, reason="r", body=b"e30=")
    async with serving(installation):
        subject = dead_letter_bury_subject("normaliser")
        answer = await admin.client.request(subject, query.model_dump_json().encode(), timeout=5)
    assert b"normaliser has no durable registry-x" in answer.data


def test_an_advisory_of_each_kind_is_read() -> None:
    gave_up = Advisory.of(
        b'{"type":"io.nats.jetstream.advisory.v1.max_deliver","stream":"S","consumer":"c","stream_seq":8,"deliveries":5}'
    )
    assert (gave_up.stream_seq, gave_up.reason) == (8, "the server gave it up after 5 deliveries without an answer")
    ended = Advisory.of(
        b'{"type":"io.nats.jetstream.advisory.v1.terminated","stream":"S","consumer":"c","stream_seq":8,'
        b'"deliveries":1,"reason":"no"}'
    )
    assert ended.reason == "its consumer ended it after 1 deliveries: no"


# --- room ---------------------------------------------------------------------------------------------------------

MIB = 1024**2
FULL = 10077


async def resize(admin: BusAdmin, size: int) -> None:
    info = await admin.ask("STREAM.INFO.REFINEMENT")
    await admin.ask("STREAM.UPDATE.REFINEMENT", {**info["config"], "max_bytes": size})


async def fill(installation: Installation, count: int, size: int = 100_000) -> int:
    """Publish facts that the normaliser does not hear, until one is refused; how many were taken."""
    async with account(installation, "scanner") as client:
        js = client.jetstream(prefix="bus")
        for sent in range(count):
            try:
                await js.publish("refinement.scanner.run.v1", b"x" * size, stream="REFINEMENT", timeout=5)
            except APIError as error:
                if error.err_code != FULL:
                    raise
                return sent
    return count


async def test_a_full_stream_takes_no_more_and_loses_nothing(installation: Installation, admin: BusAdmin) -> None:
    """The control: without a keeper it stays full."""
    await resize(admin, 8 * MIB)
    await push(installation, [observed()])
    taken = await fill(installation, 200)
    assert 50 < taken < 100
    info = await admin.ask("STREAM.INFO.REFINEMENT")
    assert (info["state"]["first_seq"], info["state"]["messages"]) == (1, taken + 1)


async def test_the_keeper_makes_room_of_what_everybody_has_heard(installation: Installation, admin: BusAdmin) -> None:
    await resize(admin, 8 * MIB)
    async with kept(keeper(installation, every_s=0.05)) as made:
        total = 0
        async with asyncio.timeout(60):
            while total < 400:
                total += await fill(installation, 400 - total)
        assert made.kept.trimmed >= 300
    info = await admin.ask("STREAM.INFO.REFINEMENT")
    assert info["state"]["bytes"] < 8 * MIB


async def test_what_somebody_has_not_heard_is_never_trimmed(installation: Installation, admin: BusAdmin) -> None:
    await resize(admin, 8 * MIB)
    await fill(installation, 20)
    event = observed()
    await push(installation, [event])
    async with kept(keeper(installation, every_s=0.05)):
        await fill(installation, 200)
        await asyncio.sleep(1)
        info = await admin.ask("STREAM.INFO.REFINEMENT")
        assert info["state"]["first_seq"] <= 21
        assert await fill(installation, 50) < 50  # full: what is not heard stays, and facts wait in the outboxes
        async with serving(installation) as db:

            async def trimmed() -> bool:
                return int((await admin.ask("STREAM.INFO.REFINEMENT"))["state"]["first_seq"]) > 21

            await until(trimmed, 30)
            assert await effects(db) == [event.id]
        assert await fill(installation, 10) == 10
