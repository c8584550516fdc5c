"""What the benchmarks of the bus share: real servers as they ship, signals to send, and the JSON they end with."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import platform
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import nats
import structlog
from nats.aio.client import Client

from libs.contracts.envelope import Event
from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.signals import EvidenceRef, SignalPayload
from libs.service_kit.publishing import Outgoing, Publisher
from libs.service_kit.testing import Installation
from libs.service_kit.testing.servers import running

OBSERVED = SignalObservedV1.type
TOUCHPOINT = "bench.intent"
Measure = Callable[[Installation], Awaitable[dict[str, Any]]]


def report(name: str, goal: str, met: bool, figures: dict[str, Any]) -> dict[str, Any]:
    """The one JSON object of a benchmark."""
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "load": round(os.getloadavg()[0], 2)}
    return {"name": name, **figures, "goal": goal, "met": met, "machine": machine}


def run(measure: Measure) -> None:
    """Start the servers, measure, print the object."""
    gc.freeze()  # as `Service.run` does
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with (
        tempfile.TemporaryDirectory(prefix="burnish-bench-") as folder,
        running(Path(folder), durable=True) as servers,
    ):

        async def measured() -> dict[str, Any]:
            return await measure(Installation(servers, await servers.clone()))

        print(json.dumps(asyncio.run(measured())))


async def connect(installation: Installation, service: str) -> Client:
    """A connection to a service's account."""
    settings = installation.settings(service)
    return await nats.connect(settings["nats_url"], user=service, password=settings["nats_password"])


def signals(count: int) -> list[Event[SignalObservedV1]]:
    """Distinct observations of about 700 bytes each."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        Event.of(
            SignalObservedV1(
                touchpoint_id=TOUCHPOINT,
                signal_type="flag",
                evidence_ref=EvidenceRef(source="feed_flags", id=str(n)),
                payload=SignalPayload(text=f"message number {n} about a card", expected="a", got="b"),
                actor_id=f"user-{n % 50}",
                actor_kind="human",
                source_key=f"bench:{n}",
                observed_at=at,
            ),
            source="burnish/scanner",
        )
        for n in range(count)
    ]


async def fill(installation: Installation, events: Sequence[Event[SignalObservedV1]]) -> None:
    """Empty streams, and these events on them."""
    await installation.fresh_topology()
    client = await connect(installation, "scanner")
    publisher = Publisher(client, client.jetstream(prefix="bus"))
    for start in range(0, len(events), 256):
        part = [Outgoing(uuid4(), OBSERVED, event.encode()) for event in events[start : start + 256]]
        assert len(await publisher.publish(part)) == len(part)
    await client.close()


async def seconds(work: Awaitable[Any]) -> float:
    """How long it takes."""
    started = time.perf_counter()
    await work
    return time.perf_counter() - started
