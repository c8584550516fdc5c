"""Publishing, consuming and asking on a real server, each service in its own account."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from uuid import uuid4

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.js.errors import APIError

from libs.contracts import topology
from libs.contracts.envelope import Event
from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.topology import SERVICES
from libs.service_kit.consumers import Consumer
from libs.service_kit.db import Database
from libs.service_kit.outcomes import Message
from libs.service_kit.publishing import Outgoing, Publisher
from libs.service_kit.redelivery import Redelivery
from libs.service_kit.testing import Installation

OBSERVED = "refinement.signal.observed.v1"


async def connect(installation: Installation, service: str) -> Client:
    settings = installation.settings(service)
    return await nats.connect(
        settings["nats_url"], user=service, password=settings["nats_password"], max_reconnect_attempts=1
    )


async def stored(installation: Installation, stream: str = "REFINEMENT") -> int:
    admin = await installation.bus_admin()
    try:
        info = await admin.jetstream().stream_info(stream)
        return int(info.state.messages)
    finally:
        await admin.close()


async def test_a_batch_is_stored_once_however_often_it_is_published(installation: Installation) -> None:
    client = await connect(installation, "scanner")
    publisher = Publisher(client, client.jetstream(prefix="bus"))
    messages = [Outgoing(uuid4(), OBSERVED, b"{}") for _ in range(100)]
    first = await publisher.publish(messages)
    again = await publisher.publish(messages)
    assert first == again == {message.msg_id for message in messages}
    assert await stored(installation) == 100
    await client.close()


async def test_a_service_cannot_say_what_is_not_its_own(installation: Installation) -> None:
    client = await connect(installation, "scanner")
    with pytest.raises(NoRespondersError):
        await client.request("refinement.proposal.approved.v1", b"{}", timeout=1)
    await client.publish("refinement.proposal.approved.v1", b"{}")
    await client.flush()
    assert await stored(installation) == 0
    await client.close()


async def test_the_process_that_faces_the_network_cannot_say_a_fact_of_the_ledger(installation: Installation) -> None:
    """Nor forge one for those who overhear it."""
    gateway, replica = await connect(installation, "gateway"), await connect(installation, "gateway")
    registry = await connect(installation, "registry")
    heard: list[bytes] = []

    async def hear(message: Msg) -> None:
        heard.append(message.data)

    mine = {event.type for event in topology.service("gateway").says}
    ledger = [event.type for event in topology.EVENTS if event.type not in mine]
    assert {"refinement.version.activated.v1", "refinement.proposal.approved.v1"} <= set(ledger)
    for subject in ledger:
        with pytest.raises(NoRespondersError):
            await gateway.request(subject, b"{}", timeout=1)
    assert await stored(installation) == 0
    for event in topology.service("gateway").overhears:
        await replica.subscribe(event.type, cb=hear)
    await replica.flush()
    js = registry.jetstream(prefix="bus")
    await js.publish("refinement.version.activated.v1", b"said", stream="REFINEMENT", timeout=5)
    publisher = Publisher(registry, js)
    await publisher.publish([Outgoing(uuid4(), "refinement.version.rolled_back.v1", b"in a batch") for _ in range(3)])
    async with asyncio.timeout(5):
        while len(heard) < 4:
            await asyncio.sleep(0.01)
    assert heard == [b"said", *[b"in a batch"] * 3]
    for client in (gateway, replica, registry):
        await client.close()


async def test_a_service_cannot_read_a_neighbours_durable_or_change_its_own(installation: Installation) -> None:
    client = await connect(installation, "qa_ingest")
    js = client.jetstream(prefix="bus", timeout=1)
    with pytest.raises((APIError, NoRespondersError, TimeoutError, nats.js.errors.Error)):
        await js.consumer_info("REFINEMENT", "registry-refinement_proposal_approved_v1")
    with pytest.raises((APIError, NoRespondersError, TimeoutError, nats.js.errors.Error)):
        await js.delete_consumer("REFINEMENT", "qa_ingest-refinement_touchpoint_registered_v1")
    await client.close()


async def test_a_reply_subject_cannot_forge_a_neighbours_event(installation: Installation) -> None:
    """The attack on one shared account: ask for one's own message with a foreign subject as the reply."""
    client = await connect(installation, "qa_ingest")
    durable = "qa_ingest-refinement_touchpoint_registered_v1"
    body = json.dumps({"batch": 1, "no_wait": True}).encode()
    await client.publish(f"bus.CONSUMER.MSG.NEXT.REFINEMENT.{durable}", body, reply="refinement.proposal.approved.v1")
    await client.flush()
    await asyncio.sleep(0.1)
    assert await stored(installation) == 0
    await client.close()


async def test_every_service_can_see_its_own_durables(installation: Installation) -> None:
    for entry in SERVICES:
        client = await connect(installation, entry.name)
        js = client.jetstream(prefix="bus", timeout=2)
        for durable in entry.hears:
            info = await js.consumer_info(durable.stream, durable.name)
            assert info.name == durable.name
        await client.close()


async def test_a_consumer_that_stopped_takes_no_message_from_the_next(installation: Installation) -> None:
    """Its last request is still with the server, which would send the message there, to wait for `ack_wait`."""
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    class Hearing(Consumer[SignalObservedV1]):
        async def deliver(self, messages: Sequence[Message]) -> None:
            for message in messages:
                heard.put_nowait(message.data)
                await message.ack()

    async def nothing(events: list[Event[SignalObservedV1]]) -> None: ...

    durable = topology.durable("normaliser", SignalObservedV1)
    db = Database("normaliser", "")
    first, second = (Hearing(durable, nothing, db=db, redelivery=Redelivery(), dependencies={}) for _ in range(2))
    client, sender = await connect(installation, "normaliser"), await connect(installation, "scanner")
    running = asyncio.create_task(first.run(client, "bus"))
    said = sender.jetstream(prefix="bus")
    await said.publish(OBSERVED, b"1", stream="REFINEMENT", timeout=5)
    assert await asyncio.wait_for(heard.get(), 5) == b"1"
    admin = await installation.bus_admin()
    async with asyncio.timeout(5):
        while not (await admin.jetstream().consumer_info("REFINEMENT", durable.name)).num_waiting:
            await asyncio.sleep(0.01)
    await first.stop()
    await running
    await client.flush()
    await said.publish(OBSERVED, b"2", stream="REFINEMENT", timeout=5)
    running = asyncio.create_task(second.run(client, "bus"))
    assert await asyncio.wait_for(heard.get(), 5) == b"2"
    await second.stop()
    await running
    for each in (admin, sender, client):
        await each.close()
