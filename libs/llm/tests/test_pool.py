"""The pool: one place for parameters, bounds, budget, books, time limits and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from prometheus_client import REGISTRY

from libs.contracts.touchpoints import ModelSettings
from libs.llm import (
    Budget,
    FreeModelsOnly,
    ModelError,
    ModelPool,
    ModelReply,
    ModelRequest,
    OverBudget,
    PriceUnknownYet,
    Settled,
    Spent,
    Usage,
)
from libs.llm.account import Order
from libs.llm.budget import how_many_may_start

SETTINGS = ModelSettings(provider="paid", name="paid-1", parameters={"temperature": 0.5, "max_output_tokens": 9})
USED = Usage(input_tokens=10, output_tokens=2, usd=Decimal("0.01"))


class PaidModel:
    """Costs a cent a call, remembers what it was asked, and fails or hangs where it is told to."""

    provider = "paid"
    name = "paid-1"

    def __init__(self, *errors: Exception, held: bool = False, most: str | None = "0.02") -> None:
        self.requests: list[ModelRequest] = []
        self.in_flight = self.most_in_flight = 0
        self.go = asyncio.Event()
        if not held:
            self.go.set()
        self._errors = list(errors)
        self._most = None if most is None else Decimal(most)

    def most_usd(self, request: ModelRequest) -> Decimal | None:
        return self._most

    async def complete(self, request: ModelRequest) -> ModelReply:
        self.requests.append(request)
        self.in_flight += 1
        self.most_in_flight = max(self.in_flight, self.most_in_flight)
        try:
            await asyncio.sleep(0)
            await self.go.wait()
            if self._errors:
                raise self._errors.pop(0)
        finally:
            self.in_flight -= 1
        return ModelReply(
            text=request.input, data=None, usage=USED, model=self.name, provider=self.provider, latency_ms=1.0
        )


class Books:
    """An account in memory, judged by the same rules as those in a database."""

    def __init__(self, limit: str = "1000", touchpoint_id: str = "t") -> None:
        self.touchpoint_id = touchpoint_id
        self.budget = Budget(Decimal(limit), Decimal(limit), at_once=None)
        self.orders: dict[UUID, Order] = {}
        self.ended: dict[UUID, Settled] = {}

    @property
    def spent(self) -> Spent:
        settled = sum((row.usage.usd for row in self.ended.values()), Decimal())
        open_ = [order for call, order in self.orders.items() if call not in self.ended]
        reserved = sum((order.most_usd for order in open_), Decimal())
        return Spent(settled + reserved, settled + reserved, len(open_), reserved, reserved)

    async def open(self, orders: Sequence[Order], budget: Budget) -> list[UUID | ModelReply]:
        await asyncio.sleep(0)
        count = how_many_may_start(budget, self.spent, [order.most_usd for order in orders])
        opened = {uuid4(): order for order in orders[:count]}
        self.orders |= opened
        return list(opened)

    async def close(self, settled: Sequence[Settled]) -> None:
        await asyncio.sleep(0)
        self.ended |= {row.call_id: row for row in settled}


def asked(count: int, task: Any = "classify") -> list[ModelRequest]:
    return [ModelRequest(task=task, system="s", input=f"question {n}", max_output_tokens=4_000) for n in range(count)]


def pool_of(model: PaidModel, books: Books | None = None, concurrency: int = 3, timeout_s: float = 60) -> ModelPool:
    budget = (books or Books()).budget
    return ModelPool(budget, concurrency=concurrency, timeout_s=timeout_s, opener=lambda _provider, _name: model)


class Kept(dict[int, str]):
    async def keep(self, replies: list[tuple[int, ModelReply]]) -> None:
        await asyncio.sleep(0)
        self.update({number: reply.text for number, reply in replies})


# --- parameters -------------------------------------------------------------------------------------------


async def test_parameters_are_applied_to_every_call_of_a_touchpoint() -> None:
    model = PaidModel()
    pool = pool_of(model)
    await pool.complete(SETTINGS, asked(1)[0], Books())
    await pool.complete_many(SETTINGS, asked(1), Books(), Kept().keep)
    await pool.complete(SETTINGS, asked(1, "propose")[0], Books())
    assert [(one.temperature, one.max_output_tokens) for one in model.requests] == [(0.5, 9), (0.5, 9), (0.5, 4_000)]


@pytest.mark.parametrize("parameters", [{"colour": "red"}, {"temperature": -1}, {"max_output_tokens": "many"}])
async def test_a_wrong_parameter_is_named_and_nothing_is_asked(parameters: dict[str, Any]) -> None:
    model, books = PaidModel(), Books()
    wrong = ModelSettings(provider="paid", name="paid-1", parameters=parameters)
    for task in ("classify", "propose"):
        with pytest.raises(ModelError, match=f"model parameter '{next(iter(parameters))}'"):
            await pool_of(model, books).complete(wrong, asked(1, task)[0], books)
        with pytest.raises(ModelError, match=f"model parameter '{next(iter(parameters))}'"):
            await pool_of(model, books).complete_many(wrong, asked(2, task), books, Kept().keep)
    assert not model.requests
    assert not books.orders


# --- books, budget ----------------------------------------------------------------------------------------


async def test_every_call_is_written_down_before_it_is_made_and_settled_after_it() -> None:
    model, books, kept = PaidModel(held=True), Books(), Kept()
    work = asyncio.create_task(pool_of(model, books).complete_many(SETTINGS, asked(4), books, kept.keep))
    while model.in_flight < 3:
        await asyncio.sleep(0)
    assert len(books.orders) == 4
    assert not books.ended
    model.go.set()
    await work
    assert books.ended.keys() == books.orders.keys()
    assert books.spent == Spent(Decimal("0.04"), Decimal("0.04"), 0)
    assert kept == {n: f"question {n}" for n in range(4)}


async def test_work_ends_with_its_reason_where_the_budget_does() -> None:
    """Fail closed: with each call at its most, the limit is crossed by one call at most; what was bought is kept."""
    model, books, kept = PaidModel(), Books("0.10"), Kept()
    with pytest.raises(OverBudget, match=r"budget of 0.10 USD a day is used up; ask again tomorrow"):
        await pool_of(model, books).complete_many(SETTINGS, asked(50), books, kept.keep)
    assert len(kept) == len(model.requests) == 10  # a cent each: all of the budget is used, and no more
    assert books.spent.today == Decimal("0.10")
    with pytest.raises(OverBudget):
        await pool_of(model, books).complete(SETTINGS, asked(1)[0], books)
    assert len(model.requests) == 10


async def test_calls_of_others_in_flight_are_waited_for_and_not_raced() -> None:
    model, books = PaidModel(held=True, most="0.06"), Books("0.10")
    pool = pool_of(model, books)
    first = asyncio.create_task(pool.complete_many(SETTINGS, asked(2), books, Kept().keep))
    while model.in_flight < 2:
        await asyncio.sleep(0)
    with pytest.raises(PriceUnknownYet) as wait:
        await pool.complete(SETTINGS, asked(1)[0], books)
    assert wait.value.retryable
    with pytest.raises(PriceUnknownYet):
        await pool.complete_many(SETTINGS, asked(2), books, Kept().keep)
    model.go.set()
    await first
    await pool.complete(SETTINGS, asked(1)[0], books)


async def test_without_an_account_only_free_models_answer() -> None:
    model = PaidModel()
    pool = ModelPool(opener=lambda _provider, _name: model)
    with pytest.raises(ModelError, match="no account to pay from"):
        await pool.complete(SETTINGS, asked(1)[0], FreeModelsOnly("t"))
    with pytest.raises(OverBudget):  # and a pool without a budget spends nothing, whoever would pay
        await pool.complete(SETTINGS, asked(1)[0], Books())
    assert not model.requests
    prompt = "## Labels\n### card\n### refund\n"
    reply = await ModelPool().complete(
        ModelSettings(), ModelRequest(task="classify", system=prompt, input="my card"), FreeModelsOnly("t")
    )
    assert (reply.data or {})["label"] == "card"


async def test_an_error_that_was_billed_is_paid_for() -> None:
    books = Books()
    model = PaidModel(ModelError("refused", retryable=False, usage=USED), ModelError("away", retryable=True))
    for _ in range(2):
        with pytest.raises(ModelError):
            await pool_of(model, books).complete(SETTINGS, asked(1)[0], books)
    assert [(row.error, row.usage.usd) for row in books.ended.values()] == [
        ("refused", Decimal("0.01")),
        ("away", Decimal(0)),
    ]


# --- time, cancellation, defects --------------------------------------------------------------------------


async def test_a_call_that_takes_too_long_counts_as_lost() -> None:
    model, books = PaidModel(held=True), Books()
    with pytest.raises(ModelError, match=r"paid did not answer within 0\.01 s") as late:
        await pool_of(model, books, timeout_s=0.01).complete(SETTINGS, asked(1)[0], books)
    assert late.value.retryable
    assert not books.ended
    assert books.spent.today == Decimal("0.02")
    assert model.in_flight == 0


async def test_waiting_for_a_turn_is_not_timed() -> None:
    model, kept = PaidModel(), Kept()
    await pool_of(model, concurrency=1, timeout_s=0.5).complete_many(SETTINGS, asked(200), Books(), kept.keep)
    assert len(kept) == 200
    assert model.most_in_flight == 1


async def test_calls_that_were_never_sent_cost_nothing() -> None:
    model, books = PaidModel(held=True), Books()
    pool = pool_of(model, books)
    work = asyncio.create_task(pool.complete_many(SETTINGS, asked(20), books, Kept().keep))
    while model.in_flight < 3:
        await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert model.in_flight == 0
    assert len(books.orders) == 9  # three times the slots
    assert books.spent == Spent(Decimal("0.06"), Decimal("0.06"), 3, Decimal("0.06"), Decimal("0.06"))


async def test_a_defect_is_raised_and_what_was_answered_is_kept() -> None:
    model, books, kept = PaidModel(ZeroDivisionError("defect")), Books(), Kept()
    with pytest.raises(ZeroDivisionError):
        await pool_of(model, books).complete_many(SETTINGS, asked(20), books, kept.keep)
    assert len(kept) == len(books.ended) == len(model.requests) - 1


async def test_replies_that_cannot_be_kept_are_not_settled() -> None:
    async def full(replies: Iterable[Any]) -> None:
        raise OSError("disk full")

    books = Books()
    with pytest.raises(OSError, match="disk full"):
        await pool_of(PaidModel(), books).complete_many(SETTINGS, asked(3), books, full)
    assert not books.ended


# --- metrics ----------------------------------------------------------------------------------------------


async def test_calls_tokens_and_usd_are_counted_by_touchpoint() -> None:
    touchpoint = f"t.{uuid4()}"
    model = PaidModel(ModelError("refused", retryable=False, usage=USED))
    pool = pool_of(model)
    with pytest.raises(ModelError):
        await pool.complete(SETTINGS, asked(1)[0], Books(touchpoint_id=touchpoint))
    await pool.complete_many(SETTINGS, asked(3), Books(touchpoint_id=touchpoint), Kept().keep)

    def value(name: str, **labels: str) -> float | None:
        return REGISTRY.get_sample_value(f"burnish_model_{name}_total", {"touchpoint": touchpoint, **labels})

    assert value("calls", provider="paid", outcome="answered") == 3
    assert value("calls", provider="paid", outcome="failed") == 1
    assert value("tokens", provider="paid", direction="input") == 40
    assert value("tokens", provider="paid", direction="output") == 8
    assert value("usd", provider="paid") == pytest.approx(0.04)


async def test_models_are_opened_once_and_unknown_ones_named() -> None:
    pool = ModelPool()
    assert pool.model(ModelSettings()) is pool.model(ModelSettings(parameters={"temperature": 1}))
    assert pool.key(ModelSettings()) == "offline/offline-1"
    with pytest.raises(ModelError, match="provider 'nowhere' is unknown"):
        pool.model(ModelSettings(provider="nowhere"))
