"""The consumer kit with a handler that does nothing, against a raw pull loop that parses into the same model.

`python -m bench.kit --json`. Both read the same events from the same durable and acknowledge each of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import click
from nats.aio.client import Client
from nats.js.client import JetStreamContext

from bench import machine
from libs.contracts import topology
from libs.contracts.envelope import Event
from libs.contracts.events.normaliser import SignalObservedV1
from libs.service_kit.consumers import Consumer
from libs.service_kit.db import Database
from libs.service_kit.redelivery import Redelivery
from libs.service_kit.testing import Installation

DURABLE = topology.durable("normaliser", SignalObservedV1)
GOAL = 0.6


@click.command()
@click.option("--quick", is_flag=True, help="A quarter of the messages.")
@click.option("--json", "as_json", is_flag=True, help="The default; for symmetry with the other benchmarks.")
def main(quick: bool, as_json: bool) -> None:
    """Measure and print one JSON object."""
    del as_json
    count = 10_000 if quick else 40_000

    async def measure(installation: Installation) -> dict[str, Any]:
        kit = await _rate(installation, count, kit=True)
        raw = await _rate(installation, count, kit=False)
        figures = {"ratio": round(kit / raw, 2), "kit_per_s": round(kit), "raw_per_s": round(raw)}
        return machine.report("kit", f"ratio >= {GOAL:g}", kit / raw >= GOAL, figures)

    machine.run(measure)


async def _rate(installation: Installation, count: int, *, kit: bool) -> float:
    """Messages a second from the first fetch to the last ack sent."""
    await machine.fill(installation, machine.signals(count))
    client = await machine.connect(installation, "normaliser")
    js = client.jetstream(prefix="bus")
    work: Awaitable[None] = _kit(client, count) if kit else _raw(js, count)
    took = await machine.seconds(work)
    await client.close()
    return count / took


async def _kit(client: Client, count: int) -> None:
    handled, complete = 0, asyncio.Event()

    async def nothing(events: list[Event[SignalObservedV1]]) -> None:
        nonlocal handled
        handled += len(events)
        if handled >= count:
            complete.set()

    unused = Database("normaliser", "")  # opened only for a dead letter
    consumer = Consumer[SignalObservedV1](DURABLE, nothing, db=unused, redelivery=Redelivery(), dependencies={})
    running = asyncio.create_task(consumer.run(client, "bus"))
    await complete.wait()
    await consumer.stop()
    await running


async def _raw(js: JetStreamContext, count: int) -> None:
    model = Event[SignalObservedV1]
    subscription = await js.pull_subscribe_bind(DURABLE.name, stream=DURABLE.stream)
    handled = 0
    while handled < count:
        messages = await subscription.fetch(DURABLE.batch, timeout=5)
        handled += len([model.model_validate_json(message.data) for message in messages])
        for message in messages:
            await message.ack()


if __name__ == "__main__":
    main()
