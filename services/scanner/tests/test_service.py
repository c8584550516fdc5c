from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import nats
import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext
from pydantic import SecretStr

from libs.contracts import topology
from libs.contracts.envelope import Event
from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.events.scanner import ScanRequestedV1
from libs.contracts.queries.scanner import ListScanRuns
from libs.service_kit.queries import Asker
from libs.service_kit.testing import Installation, event_of
from services.scanner.app import build
from services.scanner.settings import Settings
from services.scanner.tests.support import PlatformTables, at, registered, source


@pytest.fixture
async def gateway(installation: Installation) -> AsyncIterator[Client]:
    """A connection in the name of the gateway, which asks the scanner."""
    settings = installation.settings("gateway")
    client = await nats.connect(settings["nats_url"], user=settings["nats_user"], password=settings["nats_password"])
    yield client
    await client.close()


async def test_the_running_service_scans_on_schedule_and_on_demand_and_over_a_restart(
    installation: Installation, gateway: Client, tables: PlatformTables
) -> None:
    admin = await installation.bus_admin()
    js = admin.jetstream()
    settings = Settings(
        **installation.settings("scanner"),
        platform_dsn=SecretStr(installation.admin_dsn),
        scan_poll_s=0.05,
    )
    asker = Asker(lambda: gateway)

    async def publish(event: Event[Any]) -> None:
        await js.publish(event.type, event.encode(), stream="REFINEMENT")

    await tables.many_flags(700, at(0))
    service = build(settings)
    await service.start()
    try:
        await publish(registered(source("si_flag", every_s=3600)))
        heard = await hear(js, 700)
        assert len({event.data.signal_id for event in heard}) == 700
    finally:
        await service.close()

    service = build(settings)
    await service.start()
    try:
        flag = await tables.flag(1)
        await publish(event_of(ScanRequestedV1(request_id=uuid4(), touchpoint_id="support.intent", requested_by="me")))
        [event] = await hear(js, 1)
        assert event.data.source_key == f"feed_flags:{flag}"
        async with asyncio.timeout(10):
            # The run is recorded after what it emitted.
            while len(runs := (await asker.ask(ListScanRuns())).runs) < 2:
                await asyncio.sleep(0.01)
        assert [(run.signals_emitted, run.ok) for run in runs] == [(1, True), (700, True)]
    finally:
        await service.close()
        await admin.close()


async def hear(js: JetStreamContext, count: int) -> list[Event[SignalObservedV1]]:
    """The next `count` signals that the normaliser would hear."""
    durable = topology.durable("normaliser", SignalObservedV1)
    subscription = await js.pull_subscribe_bind(durable.name, stream=durable.stream)
    heard: list[Event[SignalObservedV1]] = []
    async with asyncio.timeout(30):
        while len(heard) < count:
            for message in await subscription.fetch(count, timeout=10):
                heard.append(Event[SignalObservedV1].model_validate_json(message.data))
                await message.ack()
    return heard
