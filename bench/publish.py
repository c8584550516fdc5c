"""Durable publishing: the outbox relay, from the rows to the last row deleted, against awaited single publishes.

`python -m bench.publish --json`. `sync_interval: always` for both, in turns, on the same bodies; the single publishes
read no outbox. The rows are there before the clock starts. `fsyncs_a_message` are those of the bus, counted by strace
in a pass of its own (null where there is no strace); `database_cpu_us` is what Postgres used for a message.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import click
import psutil
from nats.js.client import JetStreamContext

from bench import machine
from libs.service_kit.db import Database
from libs.service_kit.publishing import Publisher
from libs.service_kit.relay import Relay
from libs.service_kit.testing import Installation

GOAL, FSYNCS_GOAL = 10.0, 0.05
ROUNDS = 5


@click.command()
@click.option("--quick", is_flag=True, help="A quarter of the messages.")
@click.option("--json", "as_json", is_flag=True, help="The default; for symmetry with the other benchmarks.")
def main(quick: bool, as_json: bool) -> None:
    """Measure and print one JSON object."""
    del as_json
    count = 2_560 if quick else 10_240

    async def measure(installation: Installation) -> dict[str, Any]:
        bodies = [event.encode() for event in machine.signals(count)]
        await installation.fresh_topology()
        client = await machine.connect(installation, "scanner")
        js = client.jetstream(prefix="bus")
        db = Database("scanner", installation.settings("scanner")["database_url"], pool_size=2)
        await db.open()
        relay = Relay(db, Publisher(client, js))
        single, relayed, cpu = [], [], []
        for _ in range(ROUNDS):
            single.append(count / 8 / await machine.seconds(_singly(js, bodies[: count // 8])))
            await _fill(db, bodies)
            before = _database_cpu_s()
            relayed.append(count / await machine.seconds(_drained(relay)))
            cpu.append((_database_cpu_s() - before) / count * 1e6)
        fsyncs = await _fsyncs(db, relay, bodies)
        await db.close()
        await client.close()
        ratio = median(many / one for many, one in zip(relayed, single, strict=True))
        met = ratio >= GOAL and (fsyncs is None or fsyncs <= FSYNCS_GOAL)
        figures = {
            "ratio": round(ratio, 2),
            "single_per_s": round(median(single)),
            "relayed_per_s": round(median(relayed)),
            "fsyncs_a_message": fsyncs,
            "database_cpu_us": round(median(cpu), 1),
        }
        return machine.report("publish", f"ratio >= {GOAL:g}, fsyncs_a_message <= {FSYNCS_GOAL}", met, figures)

    machine.run(measure)


async def _singly(js: JetStreamContext, bodies: Sequence[bytes]) -> None:
    for body in bodies:
        await js.publish(machine.OBSERVED, body, stream="REFINEMENT", timeout=5)


async def _drained(relay: Relay) -> None:
    while await relay.drain_once():
        pass


async def _fill(db: Database, bodies: Sequence[bytes]) -> None:
    for start in range(0, len(bodies), 100):
        async with db.transaction() as tx:
            for body in bodies[start : start + 100]:
                tx.emit_raw(machine.OBSERVED, body)


def _database_cpu_s() -> float:
    """Seconds of CPU that every process of the database has used, those that ended included."""
    used = 0.0
    for process in psutil.Process().children(recursive=True):
        if process.name().startswith("postgres"):
            times = process.cpu_times()
            used += times.user + times.system + times.children_user + times.children_system
    return used


async def _fsyncs(db: Database, relay: Relay, bodies: Sequence[bytes]) -> float | None:
    strace = shutil.which("strace")
    bus = next((each for each in psutil.Process().children(recursive=True) if "nats" in each.name()), None)
    if strace is None or bus is None:
        return None
    await _fill(db, bodies)
    with TemporaryDirectory() as folder:
        told = Path(folder) / "calls"
        tracer = await asyncio.create_subprocess_exec(
            strace, "-f", "-q", "-e", "trace=fsync,fdatasync", "-o", str(told), "-p", str(bus.pid)
        )
        await asyncio.sleep(1)  # strace says nowhere that it has begun
        await _drained(relay)
        tracer.send_signal(signal.SIGINT)
        await tracer.wait()
        calls = sum("sync(" in line for line in told.read_text().splitlines())
    return round(calls / len(bodies), 4) if calls else None


if __name__ == "__main__":
    main()
