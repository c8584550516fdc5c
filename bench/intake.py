"""Signal intake: bus → inbox, row and outbox → ack, in batches; against one transaction a message and bare acks.

`python -m bench.intake --json`. All three read the same events, of a registered touchpoint, from a durable of the
normaliser. `p99_ms` is the time from a batch's arrival to its last ack.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import quantiles
from time import perf_counter
from typing import Any

import click
from nats.aio.client import Client
from nats.js.client import JetStreamContext

from bench import machine
from libs import touchpoints
from libs.contracts import topology
from libs.contracts.envelope import Event
from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.touchpoints import Storage, Touchpoint
from libs.service_kit.consumers import Consumer
from libs.service_kit.db import Database
from libs.service_kit.outcomes import Message
from libs.service_kit.redelivery import Redelivery
from libs.service_kit.testing import Installation
from services.normaliser import handlers

DURABLE = topology.durable("normaliser", SignalObservedV1)
RATIO_GOAL, BARE_GOAL, P99_GOAL_MS = 10.0, 0.3, 50.0


class Timed(Consumer[SignalObservedV1]):
    """A consumer that notes how long each delivery took, in milliseconds."""

    took_ms: list[float]

    async def deliver(self, messages: Sequence[Message]) -> None:
        """Deliver, and note."""
        started = perf_counter()
        await super().deliver(messages)
        self.took_ms.append((perf_counter() - started) * 1_000)


@click.command()
@click.option("--quick", is_flag=True, help="A quarter of the messages.")
@click.option("--json", "as_json", is_flag=True, help="The default; for symmetry with the other benchmarks.")
def main(quick: bool, as_json: bool) -> None:
    """Measure and print one JSON object."""
    del as_json
    count = 5_000 if quick else 20_000

    async def measure(installation: Installation) -> dict[str, Any]:
        took_ms: list[float] = []
        batched = await _rate(installation, count, lambda db: _batched(db, took_ms))
        single = await _rate(installation, count // 10, _single)
        bare = await _rate(installation, count, None)
        p99 = quantiles(took_ms, n=100)[98]
        figures = {
            "ratios": {"to_single": round(batched / single, 2), "to_bare": round(batched / bare, 3)},
            "batched_per_s": round(batched),
            "single_per_s": round(single),
            "bare_per_s": round(bare),
            "p99_ms": round(p99, 1),
        }
        met = batched / single >= RATIO_GOAL and batched / bare >= BARE_GOAL and p99 <= P99_GOAL_MS
        goal = f"to_single >= {RATIO_GOAL:g}, to_bare >= {BARE_GOAL}, p99_ms <= {P99_GOAL_MS:g}"
        return machine.report("intake", goal, met, figures)

    machine.run(measure)


def _batched(db: Database, took_ms: list[float]) -> Consumer[SignalObservedV1]:
    consumer = Timed(DURABLE, handlers.on_signals_observed, db=db, redelivery=Redelivery(), dependencies={"db": db})
    consumer.took_ms = took_ms
    return consumer


def _single(db: Database) -> Consumer[SignalObservedV1]:
    async def one(event: Event[SignalObservedV1], db: Database) -> None:
        await handlers.on_signals_observed([event], db)

    return Consumer(replace(DURABLE, batch=1), one, db=db, redelivery=Redelivery(), dependencies={"db": db})


async def _rate(
    installation: Installation, count: int, make: Callable[[Database], Consumer[SignalObservedV1]] | None
) -> float:
    """Messages a second from the first fetch to the last ack."""
    await machine.fill(installation, machine.signals(count))
    name = await installation.servers.clone()
    db = Database("normaliser", installation.servers.role_dsn("normaliser", name), pool_size=2)
    await db.open()
    async with db.connection() as conn:
        await touchpoints.keep(conn, [_touchpoint()])
    client = await machine.connect(installation, "normaliser")
    js = client.jetstream(prefix="bus")
    work = _bare(js, count) if make is None else _consume(make(db), client, js)
    took = await machine.seconds(work)
    await client.close()
    await db.close()
    return count / took


def _touchpoint() -> TouchpointRegisteredV1:
    touchpoint = Touchpoint(
        id=machine.TOUCHPOINT, scope="global", storage=Storage(adapter="feed_prompts", initial_text="x")
    )
    return TouchpointRegisteredV1(touchpoint=touchpoint, revision=1, registered_by="bench")


async def _consume(consumer: Consumer[SignalObservedV1], client: Client, js: JetStreamContext) -> None:
    running = asyncio.create_task(consumer.run(client, "bus"))
    while True:
        info = await js.consumer_info(DURABLE.stream, DURABLE.name)
        if info.num_pending == 0 and info.num_ack_pending == 0:
            break
        await asyncio.sleep(0.02)
    await consumer.stop()
    await running


async def _bare(js: JetStreamContext, count: int) -> None:
    subscription = await js.pull_subscribe_bind(DURABLE.name, stream=DURABLE.stream)
    done = 0
    while done < count:
        messages = await subscription.fetch(DURABLE.batch, timeout=5)
        for message in messages:
            await message.ack()
        done += len(messages)


if __name__ == "__main__":
    main()
