"""Durable publishing: the relay's atomic batches, against awaited single publishes. `sync_interval: always` for both.

`python -m bench.publish --json`.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import click

from bench import machine
from libs.service_kit.outbox import BATCH_ROWS
from libs.service_kit.publishing import Outgoing, Publisher
from libs.service_kit.testing import Installation

GOAL = 10.0


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

        async def singly() -> None:
            for body in bodies[: count // 4]:
                await js.publish(machine.OBSERVED, body, stream="REFINEMENT", timeout=5)

        async def in_batches() -> None:
            publisher = Publisher(client, js)
            for start in range(0, count, BATCH_ROWS):
                part = [Outgoing(uuid4(), machine.OBSERVED, body) for body in bodies[start : start + BATCH_ROWS]]
                assert len(await publisher.publish(part)) == len(part)

        single = count // 4 / await machine.seconds(singly())
        batch = count / await machine.seconds(in_batches())
        await client.close()
        figures = {"ratio": round(batch / single, 2), "single_per_s": round(single), "batch_per_s": round(batch)}
        return machine.report("publish", f"ratio >= {GOAL:g}", batch / single >= GOAL, figures)

    machine.run(measure)


if __name__ == "__main__":
    main()
