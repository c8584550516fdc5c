"""Signal intake: bus → inbox, row and outbox → ack, in batches; against one transaction a message and bare acks.

`python -m bench.intake --json`. All three read the same events, of a registered touchpoint, from a durable of the
normaliser, in turns; `bare` is nats-py's `fetch` with an ack for each message, and reads no body. Ratios are the median
of the rounds. `p99_ms` is the time from the hand-over of a batch to its last ack.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import click
from nats.aio.client import Client

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
ROUNDS = 3


class Timed(Consumer[SignalObservedV1]):
    """A consumer that notes how long each delivery took, in milliseconds, and when all have been delivered."""

    took_ms: list[float]
    missing: int
    complete: asyncio.Event

    async def deliver(self, messages: Sequence[Message]) -> None:
        started = perf_counter()
        await super().deliver(messages)
        self.took_ms.append((perf_counter() - started) * 1_000)
        self.missing -= len(messages)
        if self.missing <= 0:
            self.complete.set()


@click.command()
@click.option("--quick", is_flag=True, help="A quarter of the messages.")
@click.option("--json", "as_json", is_flag=True, help="The default; for symmetry with the other benchmarks.")
def main(quick: bool, as_json: bool) -> None:
    """Measure and print one JSON object."""
    del as_json
    count = 5_000 if quick else 20_000

    async def measure(installation: Installation) -> dict[str, Any]:
        took_ms: list[float] = []
        batched, single, bare = [], [], []
        for _ in range(ROUNDS):
            batched.append(await _rate(installation, count, lambda db: _batched(db, took_ms)))
            single.append(await _rate(installation, count // 10, _single))
            bare.append(await _rate(installation, count, None))
        to_single = median(many / one for many, one in zip(batched, single, strict=True))
        to_bare = median(whole / part for whole, part in zip(batched, bare, strict=True))
        p99 = quantiles(took_ms, n=100)[98]
        figures = {
            "ratios": {"to_single": round(to_single, 2), "to_bare": round(to_bare, 3)},
            "batched_per_s": round(median(batched)),
            "single_per_s": round(median(single)),
            "bare_per_s": round(median(bare)),
            "p50_ms": round(median(took_ms), 1),
            "p99_ms": round(p99, 1),
        }
        met = to_single >= RATIO_GOAL and to_bare >= BARE_GOAL and p99 <= P99_GOAL_MS
        goal = f"to_single >= {RATIO_GOAL:g}, to_bare >= {BARE_GOAL}, p99_ms <= {P99_GOAL_MS:g}"
        return machine.report("intake", goal, met, figures)

    machine.run(measure)


def _batched(db: Database, took_ms: list[float]) -> Timed:
    consumer = Timed(DURABLE, handlers.on_signals_observed, db=db, redelivery=Redelivery(), dependencies={"db": db})
    consumer.took_ms = took_ms
    return consumer


def _single(db: Database) -> Timed:
    async def one(event: Event[SignalObservedV1], db: Database) -> None:
        await handlers.on_signals_observed([event], db)

    durable = replace(DURABLE, batch=1)
    consumer = Timed(durable, one, db=db, redelivery=Redelivery(), dependencies={"db": db})
    consumer.took_ms = []
    return consumer


async def _rate(installation: Installation, count: int, make: Callable[[Database], Timed] | None) -> float:
    """Messages a second from the first request to the last ack."""
    await machine.fill(installation, machine.signals(count))
    name = await installation.servers.clone()
    db = Database("normaliser", installation.servers.role_dsn("normaliser", name), pool_size=2)
    await db.open()
    async with db.connection() as conn:
        await touchpoints.keep(conn, [_touchpoint()])
    client = await machine.connect(installation, "normaliser")
    work = _bare(client, count) if make is None else _consume(make(db), client, count)
    took = await machine.seconds(work)
    await client.close()
    await db.close()
    return count / took


def _touchpoint() -> TouchpointRegisteredV1:
    touchpoint = Touchpoint(
        id=machine.TOUCHPOINT, scope="global", storage=Storage(adapter="feed_prompts", initial_text="x")
    )
    return TouchpointRegisteredV1(touchpoint=touchpoint, revision=1, registered_by="bench")


async def _consume(consumer: Timed, client: Client, count: int) -> None:
    consumer.missing, consumer.complete = count, asyncio.Event()
    running = asyncio.create_task(consumer.run(client, "bus"))
    await consumer.complete.wait()
    await client.flush()
    await consumer.stop()
    await running


async def _bare(client: Client, count: int) -> None:
    subscription = await client.jetstream(prefix="bus").pull_subscribe_bind(DURABLE.name, stream=DURABLE.stream)
    done = 0
    while done < count:
        messages = await subscription.fetch(DURABLE.batch, timeout=5)
        for message in messages:
            await message.ack()
        done += len(messages)
    await client.flush()


if __name__ == "__main__":
    main()
