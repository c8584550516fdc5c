"""The service on a real NATS and Postgres: asked, told, worked by two replicas, on real data."""

from __future__ import annotations

import asyncio
import csv
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import nats
import pytest
from nats.aio.client import Client

from libs.contracts.envelope import Event, EventData
from libs.contracts.evaluations import AbReport, Case
from libs.contracts.events.ab_runner import AbExecutedV1, AbRequestedV1, ShardRequestedV1
from libs.contracts.queries.ab_runner import GetDevCases, GetRun, ImportSuite, ListSuites
from libs.contracts.touchpoints import ModelSettings
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused, Unavailable
from libs.service_kit.queries import Asker
from libs.service_kit.service import Service
from libs.service_kit.testing import Installation, event_of
from services.ab_runner.answers import answer_run
from services.ab_runner.app import build
from services.ab_runner.settings import Settings
from services.ab_runner.tests.replica import CONCURRENCY
from services.ab_runner.tests.support import GOOD, TOUCHPOINT, RuleModel, ab, suite, touchpoint

ROOT = Path(__file__).resolve().parents[3]
REDELIVERY = "redelivery_delays_s"
DATA = Path(os.environ.get("BURNISH_SHARED_DATA", Path(__file__).parents[4] / "shared" / "data")) / "banking77"


class Gateway:
    """Asks with the gateway's account, and says with the bus's own what the gateway and the registry say."""

    def __init__(self, client: Client, bus: Client) -> None:
        self._bus = bus
        self.asker = Asker(lambda: client)

    async def emit(self, event: Event[Any]) -> None:
        """Publish an event to its stream."""
        js = self._bus.jetstream()
        await js.publish(event.type, event.encode(), stream="REFINEMENT", timeout=5)

    async def run(self, run_id: UUID) -> AbReport:
        """The run as it is now."""
        return (await self.asker.ask(GetRun(run_id=run_id))).run

    async def ended(self, run_id: UUID, seconds: float = 60) -> AbReport:
        """The run, once it is over."""
        async with asyncio.timeout(seconds):
            while True:
                try:
                    report = await self.run(run_id)
                    if report.finished_at is not None:
                        return report
                except (Refused, Unavailable):
                    pass  # not heard of yet, or nobody is there yet
                await asyncio.sleep(0.05)


@pytest.fixture
async def gateway(installation: Installation) -> AsyncIterator[Gateway]:
    client = await nats.connect(
        installation.servers.nats_url, user="gateway", password=installation.servers.nats_password("gateway")
    )
    bus = await installation.bus_admin()
    yield Gateway(client, bus)
    await bus.close()
    await client.close()


@asynccontextmanager
async def running(installation: Installation, by: RuleModel | None = None, **changes: Any) -> AsyncIterator[Service]:
    settings = Settings(**{**installation.settings("ab_runner"), "pool_size": 8, "model_concurrency": 4, **changes})
    service = build(settings) if by is None else build(settings, lambda _provider, _name: by)
    await service.start()
    try:
        yield service
    finally:
        await service.close()


async def on_the_stream(installation: Installation, kind: type[EventData]) -> int:
    """How many events of a type the stream holds."""
    admin = await installation.bus_admin()
    info = await admin.jetstream().stream_info("REFINEMENT", subjects_filter=kind.type)
    await admin.close()
    return int((info.state.subjects or {}).get(kind.type, 0))


async def until_on_the_stream(installation: Installation, kind: type[EventData]) -> None:
    """Until the relay has published one: the report is there a moment before."""
    async with asyncio.timeout(30):
        while not await on_the_stream(installation, kind):
            await asyncio.sleep(0.02)


async def registered(gateway: Gateway, **fields: Any) -> None:
    """The touchpoint is known and its suite imported, once somebody is there to answer."""
    await gateway.emit(event_of(touchpoint(**fields)))
    async with asyncio.timeout(60):
        while True:
            try:
                await gateway.asker.ask(ImportSuite(touchpoint_id=TOUCHPOINT, cases=suite(), by="admin"))
                return
            except Unavailable:
                await asyncio.sleep(0.05)


async def measured(gateway: Gateway, event: Event[AbRequestedV1]) -> AbReport:
    """The outcome of a run that is asked for now."""
    await gateway.emit(event)
    return await gateway.ended(event.data.run_id)


async def test_from_import_to_report_over_the_bus(installation: Installation, gateway: Gateway) -> None:
    async with running(installation, model := RuleModel(), shard_cases=10):
        await registered(gateway)
        (listed,) = (await gateway.asker.ask(ListSuites())).suites
        report = await measured(gateway, ab())
        assert (report.status, report.verdict, report.n) == ("completed", "better", 40)
        assert report.suite_sha256 == listed.suite_sha256
        assert len(model.answered) == 80
        again = await measured(gateway, ab())
        assert (again.model_calls, again.metrics) == (0, report.metrics)
        with pytest.raises(Refused) as no:
            await gateway.run(uuid4())
        assert no.value.status == 404
        with pytest.raises(Unavailable):  # the bus does not let the gateway's account ask for cases
            await gateway.asker.ask(GetDevCases(touchpoint_id=TOUCHPOINT))
        failed = await measured(gateway, ab(case_ids=("nope",)))
        assert (failed.status, failed.error) == ("failed", "the test split of the current suite has no case 'nope'")


async def test_two_replicas_share_the_shards_and_end_each_run_once(
    installation: Installation, gateway: Gateway
) -> None:
    model = RuleModel()
    async with (
        running(installation, model, shard_cases=4),
        running(installation, model, shard_cases=4),
    ):
        await registered(gateway)
        await measured(gateway, ab())
        before = await on_the_stream(installation, AbExecutedV1)
        runs = [ab(b=f"{GOOD}extra{i}: card\n") for i in range(5)]
        await asyncio.gather(*(gateway.emit(event) for event in runs))
        reports = [await gateway.ended(event.data.run_id) for event in runs]
    assert {report.status for report in reports} == {"completed"}
    assert len(model.answered) == len(set(model.answered)) == 80 + 5 * 40
    assert await on_the_stream(installation, AbExecutedV1) == before + 5


async def test_a_replica_killed_in_a_run_is_taken_over(
    installation: Installation, gateway: Gateway, tmp_path: Path
) -> None:
    account, event = tmp_path / "answers", ab()
    async with replica(installation, account, delay_s=0.03) as doomed:
        await registered(gateway)
        await gateway.emit(event)
        await answered(account, 20)
        doomed.kill()
        await doomed.wait()
    killed_at = len(account.read_text().split())
    assert (await stored_report(installation, event.data.run_id)).status == "running"
    async with replica(installation, account, delay_s=0):
        # The server would bring back what the dead one had in work, after its ack wait of a minute.
        for shard in range(8):
            await redelivered(installation, event.data.run_id, shard)
        report = await gateway.ended(event.data.run_id)
        await until_on_the_stream(installation, AbExecutedV1)
    paid = account.read_text().split()
    assert killed_at < 80
    assert len(set(paid)) == 80
    assert len(paid) <= 80 + CONCURRENCY  # answers that came in the very moment of the kill
    assert (report.verdict, report.model_calls, report.n) == ("better", 80, 40)
    assert await on_the_stream(installation, AbExecutedV1) == 1


@asynccontextmanager
async def replica(installation: Installation, account: Path, delay_s: float) -> AsyncIterator[Process]:
    """The service in a process of its own; killed at the end when it is still there."""
    settings = installation.settings("ab_runner")
    environment = {f"BURNISH_{name.upper()}": str(value) for name, value in settings.items() if name != REDELIVERY}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.ab_runner.tests.replica", str(account), str(delay_s)),
        env={**os.environ, **environment, "BURNISH_SHARD_CASES": "10", "PYTHONHASHSEED": "7"},
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def answered(account: Path, count: int) -> None:
    """Until so many answers were paid for."""
    async with asyncio.timeout(60):
        while not account.exists() or len(account.read_text().split()) < count:
            await asyncio.sleep(0.02)


async def stored_report(installation: Installation, run_id: UUID) -> AbReport:
    """The run as it stands in the database, with nobody there to answer."""
    db = Database("ab_runner", installation.settings("ab_runner")["database_url"])
    await db.open()
    try:
        return (await answer_run(GetRun(run_id=run_id), db)).run
    finally:
        await db.close()


async def redelivered(installation: Installation, run_id: UUID, shard: int) -> None:
    """The same shard message once more, as a redelivery would bring it."""
    admin = await installation.bus_admin()
    event = event_of(ShardRequestedV1(run_id=run_id, shard=shard))
    await admin.jetstream().publish(event.type, event.encode(), stream="WORK")
    await admin.close()


@pytest.mark.skipif(
    not DATA.is_dir(), reason="needs Banking77: set BURNISH_SHARED_DATA to the folder that holds banking77/"
)
async def test_seven_prompts_on_banking77(installation: Installation, gateway: Gateway) -> None:
    """One live prompt and six changes of it, with the offline model: every baseline answer is bought once."""
    cases, prompts = banking77()
    async with running(installation):
        await gateway.emit(event_of(touchpoint(model=ModelSettings())))
        await gateway.asker.ask(ImportSuite(touchpoint_id=TOUCHPOINT, cases=cases, by="admin"), timeout_s=30)
        await measured(gateway, ab(prompts[0], prompts[0], case_ids=(cases[0].case_id,)))
        runs = [ab(prompts[0], prompt) for prompt in prompts[1:]]
        await asyncio.gather(*(gateway.emit(event) for event in runs))
        reports = [await gateway.ended(event.data.run_id, 120) for event in runs]
    assert {(report.status, report.n) for report in reports} == {("completed", len(cases))}
    assert all(0.5 < report.metrics[0].a < 0.6 for report in reports)
    assert sum(report.model_calls for report in reports) < 7 * len(cases)
    assert {report.metrics[0].a for report in reports} == {reports[0].metrics[0].a}
    assert len({report.verdict for report in reports}) > 1


def banking77() -> tuple[tuple[Case, ...], list[str]]:
    """The test set as cases; a prompt of label names, and six that add examples for a few labels each."""
    train, test = rows("train"), rows("test")
    cases = tuple(Case(case_id=f"t{i:04}", input=text, expected=label) for i, (text, label) in enumerate(test))
    labels = sorted({label for _, label in train})
    examples = {label: [text for text, of in train if of == label][:5] for label in labels}
    changed = [labels[at::6] for at in range(6)]
    return cases, [skill(labels, {}), *(skill(labels, {label: examples[label] for label in some}) for some in changed)]


def skill(labels: list[str], examples: dict[str, list[str]]) -> str:
    said = {label: "\n".join(["Examples:", *(f"- {text}" for text in texts)]) for label, texts in examples.items()}
    return "## Labels\n\n" + "".join(f"### {label}\n{said.get(label, '')}\n\n" for label in labels)


def rows(name: str) -> list[tuple[str, str]]:
    with (DATA / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return [(" ".join(row["text"].split()), row["category"]) for row in csv.DictReader(file)]
