"""The running service on a real bus and database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext

from libs.contracts import topology
from libs.contracts.envelope import Event
from libs.contracts.events.pattern_detector import DetectRequestedV1, PatternDetectedV1, SignalProcessedV1
from libs.contracts.queries.pattern_detector import DetectorStatus, GetDetectorStatus, ListPatterns
from libs.service_kit.service import Service
from libs.service_kit.testing import Installation, event_of
from services.pattern_detector.app import build
from services.pattern_detector.settings import Settings
from services.pattern_detector.tests.support import NOON, TOUCHPOINT, created, registered


@pytest.fixture
async def admin(installation: Installation) -> AsyncIterator[Client]:
    client = await installation.bus_admin()
    yield client
    await client.close()


async def test_the_running_service_detects_by_itself_and_when_asked(installation: Installation, admin: Client) -> None:
    """No scanner is running: its silence costs no evidence, and does not hold the run up for long."""
    settings = Settings(
        **installation.settings("pattern_detector"),
        detect_every_s=0.05,
        detect_quiet_s=0.3,
        resolve_timeout_s=0.2,
    )
    started = datetime.now(UTC)
    service = build(settings, lambda: NOON + (datetime.now(UTC) - started))
    await service.start()
    try:
        js = admin.jetstream()
        signals = [created(n) for n in range(30)]
        events: list[Event[Any]] = [registered(), *signals, *signals]
        for event in events:
            await js.publish(event.type, event.encode(), stream="REFINEMENT")
        detected = await hear_detected(js)
        assert detected.data.pattern.title == "refund_status answered as card_charge"
        assert detected.data.pattern.automatic
        await until_processed(js, {event.data.signal_id for event in signals})
        asked = event_of(DetectRequestedV1(request_id=uuid4(), touchpoint_id=TOUCHPOINT, requested_by="admin"))
        for _ in range(2):
            await js.publish(asked.type, asked.encode(), stream="REFINEMENT")
        async with asyncio.timeout(20):
            while (await status(service)).last_request_id != asked.data.request_id:
                await asyncio.sleep(0.05)
        assert (await status(service)).signals == 30
        assert b'"evidence_count":30' in await answer(service, ListPatterns(touchpoint_id=TOUCHPOINT))
    finally:
        await service.close()


async def hear_detected(js: JetStreamContext) -> Event[PatternDetectedV1]:
    """The first pattern that the proposal service would hear of."""
    async for body in heard(js, topology.durable("proposal", PatternDetectedV1)):
        return Event[PatternDetectedV1].model_validate_json(body)
    raise AssertionError("no pattern was said")


async def until_processed(js: JetStreamContext, wanted: set[UUID]) -> None:
    """Wait until the normaliser would have heard that all of these were processed, each once."""
    found: list[UUID] = []
    async for body in heard(js, topology.durable("normaliser", SignalProcessedV1)):
        found += Event[SignalProcessedV1].model_validate_json(body).data.signal_ids
        if set(found) == wanted:
            break
    assert sorted(found) == sorted(wanted)


async def heard(js: JetStreamContext, durable: topology.Durable) -> AsyncIterator[bytes]:
    """What another service would hear, for at most half a minute."""
    subscription = await js.pull_subscribe_bind(durable.name, stream=durable.stream)
    for _ in range(60):
        with suppress(TimeoutError):
            for message in await subscription.fetch(10, timeout=0.5):
                await message.ack()
                yield message.data


async def status(service: Service) -> DetectorStatus:
    body = await answer(service, GetDetectorStatus(touchpoint_id=TOUCHPOINT))
    return DetectorStatus.model_validate_json(body.removeprefix(b'{"reply":').removesuffix(b"}"))


async def answer(service: Service, query: GetDetectorStatus | ListPatterns) -> bytes:
    [responder] = [one for one in service._responders if one.subject == query.subject]
    return await responder.answer(query.model_dump_json().encode())
