"""The SDK's warm prompt against a dict look-up in the same loop, and how soon an activation is seen.

`python -m bench.sdk --json` prints one JSON object; the gateway, Postgres and NATS are real.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import click
from burnish_sdk import Client
from burnish_sdk.tests.real import TOUCHPOINT, Real, real_gateway

from bench import machine
from libs.service_kit.testing import Installation

CALLS, ROUNDS, ACTIVATIONS = 200_000, 7, 20
WARM_GOAL_US, SEEN_GOAL_S = 5.0, 1.0
ID = str(TOUCHPOINT["id"])


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object, as every benchmark prints.")
def main(as_json: bool) -> None:
    """A warm prompt is a look-up; a change is there within a second."""
    machine.run(measure)


async def measure(installation: Installation) -> dict[str, Any]:
    await installation.fresh_topology()
    with tempfile.TemporaryDirectory() as folder:
        async with real_gateway(installation, Path(folder)) as real:
            return await asyncio.to_thread(_figures, real)


def _figures(real: Real) -> dict[str, Any]:
    with Client(real.url, real.token) as client:
        client.request("PUT", "/touchpoints", body={"touchpoints": [TOUCHPOINT]})
        first = client.prompts.get(ID)
        looked_up, warm = _warm(client)
        seen = _seen(client, [first.version_ref, _recorded(client, first.parts[0].path)])
    figures = {
        "warm_us": round(warm, 3),
        "dict_us": round(looked_up, 3),
        "ratio": round(warm / looked_up, 1),
        "seen_after_s": {"p50": round(median(seen), 3), "max": round(max(seen), 3), "activations": len(seen)},
    }
    met = warm <= WARM_GOAL_US and max(seen) <= SEEN_GOAL_S
    return machine.report("sdk", "a warm prompt <= 5 us; an activation is seen within 1 s", met, figures)


def _warm(client: Client) -> tuple[float, float]:
    """Microseconds of a look-up and of a warm prompt: the median of rounds that take turns."""
    known, get = {(ID, None): client.prompts.get(ID)}, client.prompts.get
    sides: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(CALLS):
            known[(ID, None)]
        sides[0].append(time.perf_counter() - started)
        started = time.perf_counter()
        for _ in range(CALLS):
            get(ID)
        sides[1].append(time.perf_counter() - started)
    looked_up, warm = (median(side) * 1e6 / CALLS for side in sides)
    return looked_up, warm


def _recorded(client: Client, path: str) -> str:
    body = {"parts": [{"path": path, "text": "Be brief."}]}
    return str(client.request("POST", f"/touchpoints/{ID}/versions", body=body)["version_ref"])


def _seen(client: Client, versions: list[str]) -> list[float]:
    """Seconds from the answer to an activation until the prompt in memory is the new one."""
    found = []
    for number in range(ACTIVATIONS):
        before, after = versions[number % 2], versions[(number + 1) % 2]
        change = {"version_ref": after, "expected_live": before, "reason": "bench"}
        client.request("POST", f"/touchpoints/{ID}/activate", body=change)
        started = time.perf_counter()
        while client.prompts.get(ID).version_ref != after:
            time.sleep(0.001)
        found.append(time.perf_counter() - started)
    return found


if __name__ == "__main__":
    main()
