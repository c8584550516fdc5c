"""A service's wiring on FastStream's test broker: no NATS, a real database.

The test broker knows no acks, redelivery or deduplication: delivery is tested on real servers, and with
`MemoryMessage` through the same pipeline.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from faststream.nats import NatsBroker, TestNatsBroker

from libs.contracts.envelope import Event
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.topology import stream_of
from libs.contracts.touchpoints import Storage, Touchpoint
from libs.service_kit import dead_letters
from libs.service_kit.service import Service
from libs.service_kit.testing.events import event_of

MOST = 100


class Wired:
    """A service whose handlers are called without a bus."""

    def __init__(self, service: Service, broker: NatsBroker) -> None:
        self.service = service
        self._broker = broker

    async def hear(self, event: Event[Any]) -> None:
        """Deliver one event to the service."""
        await self.hear_raw(event.type, event.encode())

    async def overhear(self, event: Event[Any]) -> None:
        """Let the service overhear one event."""
        await self._broker.publish(event.encode(), event.type)

    async def hear_raw(self, subject: str, body: bytes) -> None:
        """Deliver bytes on a subject that the service hears."""
        stream = stream_of(subject)
        # Fake messages have no metadata; nats-py reads it out of where an ack would go.
        first = f"$JS.ACK.{stream}.test.1.1.1.1700000000000000000.0"
        await self._broker.publish(body, subject, stream=stream, reply_to=first)

    async def ask(self, subject: str, body: bytes) -> bytes:
        """The answer as it would stand on the bus."""
        reply: bytes = (await self._broker.request(body, subject)).body
        return reply


@asynccontextmanager
async def wired(service: Service) -> AsyncIterator[Wired]:
    """The service with its database open and its handlers on a test broker, checked as at a start."""
    service._check_wiring()
    await service.db.open()
    try:
        async with TestNatsBroker(service.broker) as broker:
            yield Wired(service, broker)
    finally:
        await service.db.close()


async def assert_wired(on: Wired) -> None:
    """What the topology says: each durable has its handler, each question its answer, whatever comes."""
    entry = on.service.entry
    for durable in entry.hears:
        await on.hear_raw(durable.event.type, b"no event")
    async with on.service.db.connection() as conn:
        letters = await dead_letters.listed(conn, entry.name, False, MOST)
    assert {letter.consumer for letter in letters} == {durable.name for durable in entry.hears}
    if any(durable.event is TouchpointRegisteredV1 for durable in entry.hears):
        event = event_of(TouchpointRegisteredV1(touchpoint=_touchpoint(), revision=1, registered_by="test"))
        await on.hear(event)
        async with on.service.db.connection() as conn:
            assert await conn.fetchval("SELECT count(*) FROM inbox WHERE event_id = $1", event.id) == 1
    for query in entry.answers:
        assert b'"code": "invalid"' in await on.ask(query.subject, b"no question"), query.subject


def _touchpoint() -> Touchpoint:
    return Touchpoint(id="wired.test", scope="global", storage=Storage(adapter="feed_prompts", initial_text="x"))
