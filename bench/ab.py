"""A/B runs through the real service, bus and database, against the sum of the model's own latencies.

`python -m bench.ab --json` prints one JSON object; `--quick` takes a smaller suite and leaves Banking77 out.
"""

from __future__ import annotations

import asyncio
import csv
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import click
import nats
from nats.aio.client import Client

from libs.contracts.envelope import Event
from libs.contracts.evaluations import AbReport, Case, Variant
from libs.contracts.events.ab_runner import AbRequestedV1
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.prompts import PromptPart, content_sha256
from libs.contracts.queries.ab_runner import GetRun, ImportSuite
from libs.contracts.touchpoints import ModelSettings, Storage, SuiteSettings, Touchpoint
from libs.llm import ModelReply, ModelRequest, OfflineModel, Usage
from libs.service_kit import logging
from libs.service_kit.errors import Refused
from libs.service_kit.queries import Asker
from libs.service_kit.testing import Installation
from libs.service_kit.testing.servers import running as servers_running
from services.ab_runner.app import build
from services.ab_runner.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
BANKING77 = Path(os.environ.get("BURNISH_SHARED_DATA", ROOT.parent / "shared" / "data")) / "banking77"
TOUCHPOINT = "bench.ab"
GOAL, BANKING_BUDGET_S = 1.15, 20.0
CONCURRENCY, CASES, QUICK_CASES = 16, 500, 300
FASTEST_S, SLOWEST_S = 0.06, 0.18
VARIANTS = 7
PRICE = Decimal("0.0001")
BUDGETS: dict[str, Any] = {"ab_usd_per_day": 1_000, "ab_usd_per_touchpoint_day": 1_000}


class LatencyModel:
    """A model as it behaves over a network: each answer takes its own time, the same in every run."""

    provider, name = "latency", "latency-1"

    def __init__(self) -> None:
        self.calls, self.latency_s = 0, 0.0

    def most_usd(self, request: ModelRequest) -> Decimal:
        return PRICE

    async def complete(self, request: ModelRequest) -> ModelReply:
        drawn = sha256(f"{request.system}|{request.input}".encode()).digest()
        latency = FASTEST_S + (SLOWEST_S - FASTEST_S) * drawn[0] / 255
        await asyncio.sleep(latency)
        self.calls += 1
        self.latency_s += latency  # as drawn: a loop that wakes up late is the service's cost, not the model's
        return ModelReply(
            text="",
            data={"label": f"label{drawn[1] % 4}"},
            usage=Usage(input_tokens=100, output_tokens=5, usd=PRICE),
            model=self.name,
            provider=self.provider,
            latency_ms=latency * 1000,
        )


class CountedOffline(OfflineModel):
    """The offline model, which counts its calls and their time."""

    calls, latency_s = 0, 0.0

    async def classify_many(self, system: str, inputs: Sequence[str]) -> list[ModelReply]:
        started = time.perf_counter()
        replies = await super().classify_many(system, inputs)
        self.latency_s += time.perf_counter() - started
        self.calls += len(replies)
        return replies


@dataclass
class Bench:
    """A running service and the gateway's account to ask it with."""

    asker: Asker
    client: Client

    async def prepare(self, provider: str, cases: Sequence[Case], revision: int) -> None:
        touchpoint = Touchpoint(
            id=TOUCHPOINT,
            scope="global",
            storage=Storage(adapter="feed_prompts", initial_text="x"),
            suite=SuiteSettings(),
            model=ModelSettings(provider=provider, name=provider),
        )
        await self._say(TouchpointRegisteredV1(touchpoint=touchpoint, revision=revision, registered_by="bench"))
        await self.asker.ask(ImportSuite(touchpoint_id=TOUCHPOINT, cases=tuple(cases), by="bench"), timeout_s=60)
        await asyncio.sleep(0.5)  # the registration is heard by a durable of its own

    async def run(self, pairs: Sequence[tuple[str, str]]) -> tuple[float, list[AbReport]]:
        """Ask for a run of every pair of texts at once; seconds until the last has ended, and the reports."""
        asked = [
            AbRequestedV1(
                run_id=uuid4(),
                touchpoint_id=TOUCHPOINT,
                variant_a=_variant("a", a),
                variant_b=_variant("b", b),
                requested_by="bench",
            )
            for a, b in pairs
        ]
        started = time.perf_counter()
        for request in asked:
            await self._say(request)
        reports = [await self._ended(request) for request in asked]
        return time.perf_counter() - started, reports

    async def _ended(self, request: AbRequestedV1) -> AbReport:
        while True:
            await asyncio.sleep(0.02)
            try:
                report = (await self.asker.ask(GetRun(run_id=request.run_id))).run
            except Refused:
                continue
            if report.finished_at is not None:
                if report.status != "completed":
                    raise RuntimeError(f"run failed: {report.error}")
                return report

    async def _say(self, data: Any) -> None:
        event = Event.of(data, source="burnish/bench")
        await self.client.jetstream().publish(event.type, event.encode(), stream="REFINEMENT")


@asynccontextmanager
async def service(installation: Installation, model: Any) -> AsyncIterator[Bench]:
    """The service with `model` answering for everything."""
    settings = {**installation.settings("ab_runner"), "pool_size": 12, "model_concurrency": CONCURRENCY, **BUDGETS}
    running = build(Settings(**settings), lambda _provider, _name: model)
    await running.start()
    password = installation.servers.nats_password("gateway")
    client = await nats.connect(installation.servers.nats_url, user="gateway", password=password)
    bus = await installation.bus_admin()
    try:
        yield Bench(Asker(lambda: client), bus)
    finally:
        await bus.close()
        await client.close()
        await running.close()


async def measure_latency(installation: Installation, n: int) -> dict[str, Any]:
    """One run with a model that takes 60 to 180 ms an answer, then the same run again."""
    model = LatencyModel()
    cases = [Case(case_id=f"c{i:05}", input=f"question {i}", expected=f"label{i % 4}") for i in range(n)]
    async with service(installation, model) as bench:
        await bench.prepare("latency", cases, 1)
        took, (first,) = await bench.run([("prompt one", "prompt two")])
        calls, ideal = model.calls, model.latency_s / CONCURRENCY
        again, (second,) = await bench.run([("prompt one", "prompt two")])
    return {
        "cases": n,
        "concurrency": CONCURRENCY,
        "calls": calls,
        "seconds": round(took, 3),
        "model_seconds_by_concurrency": round(ideal, 3),
        "ratio": round(took / ideal, 3),
        "calls_of_the_second_run": model.calls - calls,
        "seconds_of_the_second_run": round(again, 3),
        "same_report": (first.metrics, first.flips) == (second.metrics, second.flips),
    }


async def measure_banking77(installation: Installation) -> dict[str, Any]:
    """A prompt and six changes of it over the test set with the offline model, asked for at once."""
    model = CountedOffline()
    cases, prompts = banking77()
    pairs = [(prompts[0], prompt) for prompt in prompts[1:]]
    async with service(installation, model) as bench:
        await bench.prepare("offline", cases, 2)
        took, reports = await bench.run(pairs)
        calls, busy = model.calls, model.latency_s
        again, _ = await bench.run(pairs)
    return {
        "cases": len(cases),
        "variants": len(prompts),
        "calls": calls,
        "seconds": round(took, 2),
        "model_seconds": round(busy, 2),
        "calls_of_the_second_run": model.calls - calls,
        "seconds_of_the_second_run": round(again, 2),
        "verdicts": [report.verdict for report in reports],
        "budget_s": BANKING_BUDGET_S,
    }


def banking77() -> tuple[list[Case], list[str]]:
    """The test set, a prompt of label names, and six that add five examples to a sixth of the labels each."""
    train, test = _rows("train"), _rows("test")
    cases = [Case(case_id=f"t{i:04}", input=text, expected=label) for i, (text, label) in enumerate(test)]
    labels = sorted({label for _, label in train})
    examples = {label: [text for text, of in train if of == label][:5] for label in labels}
    changes = [labels[at :: VARIANTS - 1] for at in range(VARIANTS - 1)]
    return cases, [_skill(labels, {}), *(_skill(labels, {name: examples[name] for name in some}) for some in changes)]


def _skill(labels: Sequence[str], examples: dict[str, list[str]]) -> str:
    said = {name: "\n".join(["Examples:", *(f"- {text}" for text in texts)]) for name, texts in examples.items()}
    return "## Labels\n\n" + "".join(f"### {name}\n{said.get(name, '')}\n\n" for name in labels)


def _rows(name: str) -> list[tuple[str, str]]:
    with (BANKING77 / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return [(" ".join(row["text"].split()), row["category"]) for row in csv.DictReader(file)]


def _variant(label: str, text: str) -> Variant:
    parts = (PromptPart(path="prompt.md", text=text),)
    return Variant(label=label, parts=parts, content_sha256=content_sha256(parts))


def run(quick: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, servers_running(Path(folder)) as servers:

        async def measure() -> None:
            installation = Installation(servers, await servers.clone())
            await installation.fresh_topology()
            figures["latency"] = await measure_latency(installation, QUICK_CASES if quick else CASES)
            if not quick and BANKING77.is_dir():
                figures["banking77"] = await measure_banking77(installation)

        asyncio.run(measure())
    latency, banking = figures["latency"], figures.get("banking77")
    return {
        "name": "ab",
        "ratio": latency["ratio"],
        "goal": {
            "ratio": f"at most {GOAL} of the model's latencies divided by the concurrency",
            "second run": "no call, the same report",
            "banking77": f"3,080 cases and {VARIANTS} variants within {BANKING_BUDGET_S:g} s, offline",
        },
        "met": latency["ratio"] <= GOAL
        and latency["calls_of_the_second_run"] == 0
        and latency["same_report"]
        and (banking is None or (banking["seconds"] <= BANKING_BUDGET_S and banking["calls_of_the_second_run"] == 0)),
        **figures,
        "machine": {"python": platform.python_version(), "cpu": platform.machine(), "cores": os.cpu_count()},
    }


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of a short summary.")
@click.option("--quick", is_flag=True, help=f"{QUICK_CASES} cases and no Banking77.")
def main(as_json: bool, quick: bool) -> None:
    """Measures what the service adds to its model; exits 1 when a goal is missed."""
    logging.configure("bench", "WARNING")
    result = run(quick)
    click.echo(json.dumps(result) if as_json else json.dumps(result, indent=2))
    sys.exit(0 if result["met"] else 1)


if __name__ == "__main__":
    main()
