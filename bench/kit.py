"""The consumer kit with a handler that does nothing, against nats-py's own pull with the same model.

`python -m bench.kit --json`. Both read the same events from the same durable and acknowledge each of them, in turns.
Batches are what a backlog gives; `one_at_a_time` is a durable with a batch of 1, where nothing is fetched ahead;
`lone` is the time from a publish into an idle bus to the handler (or to the return of nats-py's `fetch`), both on the
clock of one process, the publish's own fsync included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import click
from nats.aio.client import Client

from bench import machine
from libs.contracts import topology
from libs.contracts.envelope import Event
from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.topology import Durable
from libs.service_kit.consumers import Consumer
from libs.service_kit.db import Database
from libs.service_kit.redelivery import Redelivery
from libs.service_kit.testing import Installation

DURABLE = topology.durable("normaliser", SignalObservedV1)
ONE_AT_A_TIME = replace(DURABLE, batch=1)
GOAL, LONE_GOAL_MS = 0.8, 5.0
ROUNDS = 5
LONE_APART_S = 0.03

Note = Callable[[int], None]


@click.command()
@click.option("--quick", is_flag=True, help="A quarter of the messages.")
@click.option("--json", "as_json", is_flag=True, help="The default; for symmetry with the other benchmarks.")
def main(quick: bool, as_json: bool) -> None:
    """Measure and print one JSON object."""
    del as_json
    count = 5_000 if quick else 20_000

    async def measure(installation: Installation) -> dict[str, Any]:
        batches = [await _rates(installation, DURABLE, count) for _ in range(ROUNDS)]
        singly = [await _rates(installation, ONE_AT_A_TIME, count // 10) for _ in range(ROUNDS)]
        kit_ms = await _lone_ms(installation, _kit, count // 50)
        bare_ms = await _lone_ms(installation, _raw, count // 50)
        ratio, lone = median(kit / raw for kit, raw in batches), median(kit_ms)
        figures = {
            "ratio": round(ratio, 2),
            "kit_per_s": round(median(kit for kit, _ in batches)),
            "raw_per_s": round(median(raw for _, raw in batches)),
            "one_at_a_time": {
                "ratio": round(median(kit / raw for kit, raw in singly), 2),
                "kit_per_s": round(median(kit for kit, _ in singly)),
                "raw_per_s": round(median(raw for _, raw in singly)),
            },
            "lone_p50_ms": round(lone, 2),
            "lone_p99_ms": round(quantiles(kit_ms, n=100)[98], 2),
            "lone_bare_p50_ms": round(median(bare_ms), 2),
        }
        goal = f"ratio >= {GOAL:g}, lone_p50_ms <= {LONE_GOAL_MS:g}"
        return machine.report("kit", goal, ratio >= GOAL and lone <= LONE_GOAL_MS, figures)

    machine.run(measure)


async def _rates(installation: Installation, durable: Durable, count: int) -> tuple[float, float]:
    """Messages a second of the kit and of nats-py, from the first request to the last ack sent."""
    rates = []
    for consume in (_kit, _raw):
        await machine.fill(installation, machine.signals(count))
        client = await machine.connect(installation, "normaliser")
        took = await machine.seconds(_complete(consume, client, durable, count))
        await client.close()
        rates.append(count / took)
    return rates[0], rates[1]


Consume = Callable[[Client, Durable, Note, asyncio.Event], Awaitable[None]]


async def _complete(consume: Consume, client: Client, durable: Durable, count: int) -> None:
    handled, complete = 0, asyncio.Event()

    def note(many: int) -> None:
        nonlocal handled
        handled += many
        if handled >= count:
            complete.set()

    await consume(client, durable, note, complete)


async def _lone_ms(installation: Installation, consume: Consume, count: int) -> list[float]:
    """Milliseconds from the publish to the handler, of messages that come one by one."""
    await installation.fresh_topology()
    client, sender = await machine.connect(installation, "normaliser"), await machine.connect(installation, "scanner")
    js, bodies = sender.jetstream(prefix="bus"), [event.encode() for event in machine.signals(count + 10)]
    handled, complete = asyncio.Event(), asyncio.Event()
    took: list[float] = []

    async def consumed() -> None:
        await consume(client, DURABLE, lambda _: handled.set(), complete)

    consuming = asyncio.create_task(consumed())
    for body in bodies:
        await asyncio.sleep(LONE_APART_S)
        handled.clear()
        started = perf_counter()
        publishing = asyncio.create_task(js.publish(machine.OBSERVED, body, stream="REFINEMENT", timeout=5))
        await handled.wait()
        took.append((perf_counter() - started) * 1_000)
        await publishing
    complete.set()
    await consuming
    await client.close()
    await sender.close()
    return took[10:]


async def _kit(client: Client, durable: Durable, note: Note, complete: asyncio.Event) -> None:
    async def batch(events: list[Event[SignalObservedV1]]) -> None:
        note(len(events))

    async def each(event: Event[SignalObservedV1]) -> None:
        note(1)

    handler: Any = each if durable.batch == 1 else batch
    unused = Database("normaliser", "")  # opened only for a dead letter
    consumer = Consumer[SignalObservedV1](durable, handler, db=unused, redelivery=Redelivery(), dependencies={})
    running = asyncio.create_task(consumer.run(client, "bus"))
    await complete.wait()
    await consumer.stop()
    await running


async def _raw(client: Client, durable: Durable, note: Note, complete: asyncio.Event) -> None:
    model = Event[SignalObservedV1]
    subscription = await client.jetstream(prefix="bus").pull_subscribe_bind(durable.name, stream=durable.stream)
    while not complete.is_set():
        with suppress(TimeoutError):
            messages = await subscription.fetch(durable.batch, timeout=1)
            events = [model.model_validate_json(message.data) for message in messages]
            note(len(events))
            for message in messages:
                await message.ack()


if __name__ == "__main__":
    main()
