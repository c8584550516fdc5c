from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import nats
import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext

from libs.contracts import topology
from libs.contracts.envelope import Event
from libs.contracts.events.normaliser import SignalCreatedV1
from libs.contracts.queries.normaliser import CountSignals, ListSignals
from libs.service_kit.queries import Asker
from libs.service_kit.testing import Installation
from services.normaliser.app import build
from services.normaliser.settings import Settings
from services.normaliser.tests.support import observed, registered


@pytest.fixture
async def gateway(installation: Installation) -> AsyncIterator[Client]:
    """A connection in the name of the gateway, which asks the normaliser."""
    settings = installation.settings("gateway")
    client = await nats.connect(settings["nats_url"], user=settings["nats_user"], password=settings["nats_password"])
    yield client
    await client.close()


async def test_the_running_service_stores_says_and_answers(installation: Installation, gateway: Client) -> None:
    """Signals before and after the registration, some twice, over the real bus: each is one signal."""
    admin = await installation.bus_admin()
    js = admin.jetstream()
    service = build(Settings(**installation.settings("normaliser"), rejudge_every_s=0.05))
    await service.start()
    try:
        early = [observed(f"early:{n}") for n in range(50)]
        late = [observed(f"late:{n}") for n in range(150)]
        bodies = [
            *((event.type, event.encode()) for event in early),
            (registered().type, registered().encode()),
            *((event.type, event.encode()) for event in [*late, *early]),
        ]
        for subject, body in bodies:
            await js.publish(subject, body, stream="REFINEMENT")
        heard = await hear(js, count=200)
        assert {event.data.signal_id for event in heard} == {event.data.signal_id for event in [*early, *late]}

        asker = Asker(lambda: gateway)
        [count] = (await asker.ask(CountSignals(touchpoint_id="support.intent"))).counts
        assert (count.stored, count.unprocessed, count.rejected) == (200, 200, 0)
        page = await asker.ask(ListSignals(limit=10))
        assert len(page.signals) == 10
        assert page.next is not None
    finally:
        await service.close()
        await admin.close()


async def hear(js: JetStreamContext, count: int) -> list[Event[SignalCreatedV1]]:
    """The first `count` signals that the detector would hear."""
    durable = topology.durable("pattern_detector", SignalCreatedV1)
    subscription = await js.pull_subscribe_bind(durable.name, stream=durable.stream)
    heard: list[Event[SignalCreatedV1]] = []
    async with asyncio.timeout(30):
        while len(heard) < count:
            for message in await subscription.fetch(count, timeout=10):
                heard.append(Event[SignalCreatedV1].model_validate_json(message.data))
                await message.ack()
    return heard
