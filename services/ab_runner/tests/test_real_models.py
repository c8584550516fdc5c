"""Runs with models behind a real server of either wire format: what they measure, cost, and do at the budget's end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from libs.contracts.queries.ab_runner import GetRunSpending
from libs.contracts.touchpoints import ModelSettings
from libs.llm.testing import Asked, Chat, Messages, ModelServer, Wire, Written
from libs.service_kit.testing import Installation
from services.ab_runner.tests.support import GOOD, TOUCHPOINT, ab
from services.ab_runner.tests.test_service import Gateway, gateway, measured, registered, running

__all__ = ["gateway"]  # a fixture
A_CALL = Decimal("0.0002")  # 100 tokens at 1 USD and 20 at 5 USD, a million each
SOON: dict[str, Any] = {"redelivery_delays_s": (0.05,) * 40}
PRICES = '[{}.small]\ninput = 1\noutput = 5\nas_of = 2026-11-01\nsource = "https://prices.example"\n'


@pytest.fixture(params=[Messages(), Chat()], ids=["anthropic", "openai"])
async def server(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ModelServer]:
    """Answers with the label of the first line `word: label` of the prompt whose word is in the input."""
    wire: Wire = request.param

    def by_rule(asked: Asked) -> Written:
        rules = [line.split(": ") for line in asked.system.splitlines() if ": " in line]
        label = next((label for word, label in rules if word in asked.input), "none")
        return wire.said(json.dumps({"label": label}))

    (tmp_path / "prices.toml").write_text(PRICES.format(wire.provider))
    async with ModelServer(wire, by_rule) as here:
        for name, value in here.environment(str(tmp_path / "prices.toml")).items():
            monkeypatch.setenv(name, value)
        yield here


def small(server: ModelServer, name: str = "small") -> ModelSettings:
    return ModelSettings(provider=server.wire.provider, name=name)


async def test_a_run_measures_and_its_cost_is_told(
    installation: Installation, gateway: Gateway, server: ModelServer
) -> None:
    server.answers += [server.wire.failed(429, "rate_limit_error", retry_after_ms="50"), server.wire.said("no JSON")]
    async with running(installation, shard_cases=10, **SOON):
        await registered(gateway, model=small(server))
        report = await measured(gateway, ab())
        told = await gateway.asker.ask(GetRunSpending(touchpoint_id=TOUCHPOINT, calls=3))
    assert (report.status, report.verdict, report.n) == ("completed", "better", 40)
    assert report.usd == 80 * A_CALL
    assert len(server.asked) == 81  # one of them was told to come again
    (day,) = told.days
    assert (day.caller, day.touchpoint_id, day.provider) == ("ab_runner", TOUCHPOINT, server.wire.provider)
    assert (day.calls, day.input_tokens, day.output_tokens, day.usd) == (80, 8_000, 1_600, 80 * A_CALL)
    assert day.model.startswith("small@127.0.0.1:")
    assert not day.open_calls
    assert told.budget.used == 80 * A_CALL
    assert told.budget.left == told.budget.per_day - 80 * A_CALL
    assert [(call.work_id, call.usd) for call in told.calls] == [(report.run_id, A_CALL)] * 3


async def test_a_budget_that_ends_in_the_middle_ends_the_run_with_its_reason(
    installation: Installation, gateway: Gateway, server: ModelServer
) -> None:
    limit = 25 * A_CALL
    async with running(installation, shard_cases=10, ab_usd_per_day=limit, **SOON):
        await registered(gateway, model=small(server))
        report = await measured(gateway, ab())
        assert report.status == "failed"
        assert f"the model budget of {limit} USD a day is used up" in (report.error or "")
        spent = len(server.asked) * A_CALL
        assert limit <= spent <= limit + A_CALL
        asked = len(server.asked)
        again = await measured(gateway, ab(a=f"{GOOD}more: card\n"))
        assert "is used up" in (again.error or "")
        told = await gateway.asker.ask(GetRunSpending())
    assert len(server.asked) == asked
    assert told.budget.used == spent
    assert told.budget.left == 0


async def test_a_model_without_a_price_is_not_asked(
    installation: Installation, gateway: Gateway, server: ModelServer
) -> None:
    async with running(installation, **SOON):
        await registered(gateway, model=small(server, "brand-new"))
        report = await measured(gateway, ab())
    assert report.status == "failed"
    assert "no price is known for" in (report.error or "")
    assert not server.asked


async def test_an_answer_that_is_cut_off_ends_the_run_and_is_paid(
    installation: Installation, gateway: Gateway, server: ModelServer
) -> None:
    server.by_rule = lambda asked: server.wire.cut_off('{"la')
    async with running(installation, **SOON):
        await registered(gateway, model=small(server))
        report = await measured(gateway, ab())
        told = await gateway.asker.ask(GetRunSpending(calls=500))
    assert "raise max_output_tokens in model.parameters" in (report.error or "")
    assert told.budget.used == len(server.asked) * A_CALL
    assert all("cut off" in (call.error or "") for call in told.calls)
