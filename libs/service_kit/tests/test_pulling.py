"""Pulling on a real server: nothing waits for company, nothing spins, and who stops gives back what is not begun."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any
from uuid import UUID

import nats
import pytest
from nats.aio.client import Client

from libs.contracts import topology
from libs.contracts.envelope import Event
from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.topology import Durable
from libs.service_kit.consumers import Consumer
from libs.service_kit.db import Database
from libs.service_kit.pulling import Pull, Trouble
from libs.service_kit.redelivery import Redelivery
from libs.service_kit.testing import Installation
from libs.service_kit.tests.support import observed

DURABLE = replace(topology.durable("normaliser", SignalObservedV1), batch=100, workers=1)
IMPATIENT_S = DURABLE.ack_wait_s / 3
Connect = Callable[[str], Awaitable[Client]]


@pytest.fixture
async def connect(installation: Installation) -> AsyncIterator[Connect]:
    async with AsyncExitStack() as stack:

        async def connected(service: str) -> Client:
            settings = installation.settings(service)
            client = await nats.connect(settings["nats_url"], user=service, password=settings["nats_password"])
            stack.push_async_callback(client.close)
            return client

        yield connected


async def emit(connect: Connect, count: int) -> list[UUID]:
    events = [observed(key=f"k{n}") for n in range(count)]
    js = (await connect("scanner")).jetstream(prefix="bus")
    await asyncio.gather(*(js.publish(e.type, e.encode(), stream="REFINEMENT", timeout=10) for e in events))
    return [event.id for event in events]


def consumer(handler: Any, durable: Durable = DURABLE) -> Consumer[SignalObservedV1]:
    unused = Database("normaliser", "")  # opened only for a dead letter
    return Consumer(durable, handler, db=unused, redelivery=Redelivery(), dependencies={})


async def until(condition: Callable[[], bool], seconds: float = IMPATIENT_S) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_backlog_comes_in_full_batches_and_the_rest_at_once(connect: Connect) -> None:
    sizes: list[int] = []

    async def note(events: list[Event[SignalObservedV1]]) -> None:
        sizes.append(len(events))

    await emit(connect, 250)
    hearing = consumer(note)
    running = asyncio.create_task(hearing.run(await connect("normaliser"), "bus"))
    await until(lambda: sum(sizes) == 250)
    await hearing.stop()
    await running
    assert sizes == [100, 100, 50]


async def test_batches_are_handled_one_after_the_other_and_in_order(connect: Connect) -> None:
    handled: list[UUID] = []
    inside = 0

    async def slowly(events: list[Event[SignalObservedV1]]) -> None:
        nonlocal inside
        inside += 1
        assert inside == 1
        await asyncio.sleep(0.02)
        handled.extend(event.id for event in events)
        inside -= 1

    js = (await connect("scanner")).jetstream(prefix="bus")
    events = [observed(key=f"k{n}") for n in range(250)]
    for event in events:
        await js.publish(event.type, event.encode(), stream="REFINEMENT", timeout=10)
    hearing = consumer(slowly)
    running = asyncio.create_task(hearing.run(await connect("normaliser"), "bus"))
    await until(lambda: len(handled) >= 250)
    await hearing.stop()
    await running
    assert handled == [event.id for event in events]


async def test_as_many_batches_at_a_time_as_there_are_workers(connect: Connect) -> None:
    inside, most, handled = 0, 0, 0

    async def slowly(events: list[Event[SignalObservedV1]]) -> None:
        nonlocal inside, most, handled
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.05)
        handled += len(events)
        inside -= 1

    await emit(connect, 600)
    hearing = consumer(slowly, replace(DURABLE, workers=2))
    running = asyncio.create_task(hearing.run(await connect("normaliser"), "bus"))
    await until(lambda: handled == 600)
    await hearing.stop()
    await running
    assert most == 2


async def test_who_stops_gives_back_what_it_fetched_ahead(connect: Connect, installation: Installation) -> None:
    """One batch is in hand, one parsed, one on its way: the next replica has all but the first before any ack wait."""
    handled: Counter[UUID] = Counter()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def stuck(events: list[Event[SignalObservedV1]]) -> None:
        begun.set()
        await go_on.wait()
        handled.update(event.id for event in events)

    async def note(events: list[Event[SignalObservedV1]]) -> None:
        handled.update(event.id for event in events)

    ids = await emit(connect, 500)
    leaving, staying = consumer(stuck), consumer(note)
    first = asyncio.create_task(leaving.run(await connect("normaliser"), "bus"))
    await begun.wait()
    admin = await installation.bus_admin()
    async with asyncio.timeout(10):
        while (await admin.jetstream().consumer_info("REFINEMENT", DURABLE.name)).num_ack_pending < 300:
            await asyncio.sleep(0.01)
    await admin.close()
    await leaving.stop()
    second = asyncio.create_task(staying.run(await connect("normaliser"), "bus"))
    await until(lambda: len(handled) >= 400 - 100)
    go_on.set()
    await first
    await until(lambda: len(handled) == 500)
    await staying.stop()
    await second
    assert handled == Counter(ids), "none twice, none lost"


async def test_what_was_fetched_ahead_is_kept_alive(connect: Connect) -> None:
    """Without heartbeats the batch that waits behind a slow one would come again to somebody else."""
    pull = Pull(await connect("normaliser"), "bus", replace(DURABLE, ack_wait_s=0.2))
    beats = 0
    await emit(connect, 3)
    await pull.open()
    await pull.ask(100)
    await pull.answered()
    for message in pull._here:

        async def beat() -> None:
            nonlocal beats
            beats += 1

        message.in_progress = beat  # type: ignore[method-assign]
    await until(lambda: beats >= 6)
    assert len(pull.take(100)) == 3
    await pull.close()


async def test_a_durable_that_is_gone_is_asked_for_now_and_then(connect: Connect, installation: Installation) -> None:
    admin = await installation.bus_admin()
    await admin.jetstream().delete_consumer("REFINEMENT", DURABLE.name)
    await admin.close()

    async def nothing(events: list[Event[SignalObservedV1]]) -> None: ...

    hearing = consumer(nothing)
    running = asyncio.create_task(hearing.run(await connect("normaliser"), "bus"))
    await asyncio.sleep(1.5)
    assert hearing._pull is not None
    assert hearing._pull._requests <= 3
    await hearing.stop()
    await running


async def test_trouble_is_told(connect: Connect, installation: Installation) -> None:
    pull = Pull(await connect("normaliser"), "bus", DURABLE)
    await pull.open()
    await pull.ask(10)
    admin = await installation.bus_admin()
    async with asyncio.timeout(10):
        while not (await admin.jetstream().consumer_info("REFINEMENT", DURABLE.name)).num_waiting:
            await asyncio.sleep(0.01)
    await admin.jetstream().delete_consumer("REFINEMENT", DURABLE.name)
    await admin.close()
    with pytest.raises(Trouble, match="409"):
        await asyncio.wait_for(pull.answered(), IMPATIENT_S)
    await pull.close()


async def test_many_idle_replicas_and_few_messages_do_not_spin(connect: Connect) -> None:
    """The server answers at once that what there is has been promised to others; asking again at once would spin."""
    handled: Counter[UUID] = Counter()

    async def note(events: list[Event[SignalObservedV1]]) -> None:
        handled.update(event.id for event in events)

    replicas = [consumer(note) for _ in range(4)]
    running = [asyncio.create_task(each.run(await connect("normaliser"), "bus")) for each in replicas]
    ids: list[UUID] = []
    js = (await connect("scanner")).jetstream(prefix="bus")
    for n in range(40):
        event = observed(key=f"k{n}")
        await js.publish(event.type, event.encode(), stream="REFINEMENT", timeout=10)
        ids.append(event.id)
    await until(lambda: len(handled) == 40)
    requests = sum(each._pull._requests for each in replicas if each._pull)
    assert requests <= 40 * 2 + 2 * len(replicas)
    await asyncio.gather(*(each.stop() for each in replicas))
    await asyncio.gather(*running)
    assert handled == Counter(ids)


async def test_workers_take_no_more_than_they_can_begin(connect: Connect, installation: Installation) -> None:
    """A slow message must not wait behind another one here while a replica is idle."""
    begun, go_on = 0, asyncio.Event()

    async def slow(event: Event[SignalObservedV1]) -> None:
        nonlocal begun
        begun += 1
        await go_on.wait()

    await emit(connect, 10)
    hearing = consumer(slow, replace(DURABLE, batch=1, workers=3))
    running = asyncio.create_task(hearing.run(await connect("normaliser"), "bus"))
    await until(lambda: begun == 3)
    admin = await installation.bus_admin()
    assert (await admin.jetstream().consumer_info("REFINEMENT", DURABLE.name)).num_ack_pending == 3
    await admin.close()
    go_on.set()
    await until(lambda: begun == 10)
    await hearing.stop()
    await running
