"""A model that follows rules written in the prompt, and counts; touchpoints, suites and variants to run it on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

from libs import touchpoints
from libs.contracts.envelope import Event
from libs.contracts.evaluations import AbReport, Case, Variant
from libs.contracts.events.ab_runner import AbRequestedV1, EvalRequestedV1, ShardRequestedV1
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.prompts import PromptPart, content_sha256
from libs.contracts.queries.ab_runner import GetRun, ImportSuite
from libs.contracts.touchpoints import ModelSettings, Storage, SuiteSettings, Touchpoint
from libs.llm import Budget, ModelError, ModelPool, ModelReply, ModelRequest, Usage
from libs.service_kit.db import Database
from libs.service_kit.testing import event_of, outbox_events
from services.ab_runner import answers, handlers

TOUCHPOINT = "support.intent"
PRICE = Decimal("0.001")


class RuleModel:
    """Answers with the label of the first line `word: label` of the prompt whose word is in the input.

    `hold_after` answers are given at once; further calls wait until `release()`. `errors` are raised first.
    """

    provider = "rules"
    name = "rules-1"

    def __init__(self, hold_after: int | None = None, errors: Iterable[Exception] = ()) -> None:
        self.answered: list[tuple[str, str]] = []
        self.in_flight = self.most_in_flight = 0
        self.errors = list(errors)
        self._hold_after = hold_after
        self._released = asyncio.Event()

    def release(self) -> None:
        """Let the calls that wait go on."""
        self._hold_after = None
        self._released.set()

    def most_usd(self, request: ModelRequest) -> Decimal | None:
        """What a call costs."""
        return PRICE

    async def complete(self, request: ModelRequest) -> ModelReply:
        """One answer, or one of `errors`."""
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._complete(request)
        finally:
            self.in_flight -= 1

    async def _complete(self, request: ModelRequest) -> ModelReply:
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        if self._hold_after is not None and len(self.answered) >= self._hold_after:
            await self._released.wait()
        self.answered.append((request.system, request.input))
        rules = [line.split(": ") for line in request.system.splitlines() if ": " in line]
        label = next((label for word, label in rules if word in request.input), None)
        return ModelReply(
            text=label or "?",
            data={"label": label} if label else None,
            usage=Usage(input_tokens=10, output_tokens=1, usd=PRICE),
            model=self.name,
            provider=self.provider,
            latency_ms=1.0,
        )


BUDGET = Budget(Decimal(1_000), Decimal(1_000), at_once=None)


def models(model: RuleModel, concurrency: int = 4, budget: Budget = BUDGET) -> ModelPool:
    """A process in which `model` answers for every touchpoint."""
    return ModelPool(budget, concurrency=concurrency, opener=lambda _provider, _name: model)


def suite(n: int = 40, dev: int = 6) -> tuple[Case, ...]:
    """`n` test cases about refunds, cards and parcels in turn, and `dev` dev cases."""
    words = (("refund", "money"), ("card", "card"), ("parcel", "delivery"), ("late", "delivery"))
    test = [
        Case(case_id=f"t{i:03}", input=f"where is my {words[i % 4][0]} number {i}", expected=words[i % 4][1])
        for i in range(n)
    ]
    seen = [
        Case(case_id=f"d{i:03}", input=f"a {words[i % 4][0]} question {i}", expected=words[i % 4][1], split="dev")
        for i in range(dev)
    ]
    return (*test, *seen)


POOR = "refund: money\ncard: card\n"
GOOD = "refund: money\ncard: card\nparcel: delivery\nlate: delivery\n"


def variant(text: str, label: str = "v", **fields: Any) -> Variant:
    """A variant of one part."""
    parts = (PromptPart(path="prompt.md", text=text),)
    return Variant(label=label, parts=parts, content_sha256=content_sha256(parts), **fields)


def touchpoint(revision: int = 1, **fields: Any) -> TouchpointRegisteredV1:
    """A registered touchpoint whose model is the rule model."""
    config: dict[str, Any] = {
        "id": TOUCHPOINT,
        "scope": "global",
        "storage": Storage(adapter="feed_prompts", initial_text=POOR),
        "suite": SuiteSettings(),
        "model": ModelSettings(provider="rules", name="rules"),
        **fields,
    }
    return TouchpointRegisteredV1(touchpoint=Touchpoint(**config), revision=revision, registered_by="admin")


def ab(a: str = POOR, b: str = GOOD, **fields: Any) -> Event[AbRequestedV1]:
    """Someone asks for an A/B run."""
    asked: dict[str, Any] = {
        "run_id": uuid4(),
        "touchpoint_id": TOUCHPOINT,
        "variant_a": variant(a, "current"),
        "variant_b": variant(b, "proposed"),
        "requested_by": "admin",
        **fields,
    }
    return event_of(AbRequestedV1(**asked))


def evaluation(text: str, **fields: Any) -> Event[EvalRequestedV1]:
    """Someone asks for one text to be run against the baseline."""
    asked = {"run_id": uuid4(), "touchpoint_id": TOUCHPOINT, "requested_by": "ci", **fields}
    return event_of(EvalRequestedV1(variant=variant(text, "candidate"), **asked))


async def prepare(db: Database, cases: Sequence[Case] | None = None, **fields: Any) -> None:
    """Register the touchpoint and import a suite."""
    await touchpoints.on_registered([event_of(touchpoint(**fields))], db)
    await answers.answer_import(ImportSuite(touchpoint_id=TOUCHPOINT, cases=tuple(cases or suite()), by="admin"), db)


async def shards_of(db: Database, run_id: UUID) -> list[Event[ShardRequestedV1]]:
    """The shards that were said for a run."""
    return [event for event in await outbox_events(db, ShardRequestedV1) if event.data.run_id == run_id]


async def work_through(db: Database, run_id: UUID, by: ModelPool) -> None:
    """Handle every shard of a run, in order."""
    for shard in await shards_of(db, run_id):
        await handlers.on_shard_requested(shard, db, by)


async def run_ab(db: Database, by: ModelPool, event: Event[AbRequestedV1] | None = None, size: int = 10) -> AbReport:
    """A whole A/B run by hand."""
    event = event or ab()
    await handlers.on_ab_requested(event, db, by, size)
    await work_through(db, event.data.run_id, by)
    return await report(db, event.data.run_id)


async def report(db: Database, run_id: UUID) -> AbReport:
    """The run as `GetRun` tells it."""
    return (await answers.answer_run(GetRun(run_id=run_id), db)).run


def now() -> datetime:
    """The time, with a zone."""
    return datetime.now(UTC)


def outage() -> ModelError:
    """The model is away for a while."""
    return ModelError("rate limited", retryable=True)
