"""Proposals by models behind a real server of either wire format: written, repaired, and stopped by the budget."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from libs.contracts.events.proposal import ProposalFailedV1
from libs.contracts.queries.proposal import GetProposal, GetProposalSpending, ListProposals
from libs.contracts.touchpoints import ModelSettings
from libs.llm.testing import Chat, Messages, ModelServer
from libs.service_kit.queries import Asker
from libs.service_kit.testing import Installation
from services.proposal.app import build
from services.proposal.settings import Settings
from services.proposal.tests.factories import (
    HUNK,
    TOUCHPOINT,
    answer_of,
    connect,
    detected,
    hunk_of,
    registered,
)
from services.proposal.tests.test_service import published, say, until

A_CALL = Decimal("0.0002")  # 100 tokens at 1 USD and 20 at 5 USD, a million each
PRICES = '[{}.small]\ninput = 1\noutput = 5\nas_of = 2026-11-01\nsource = "https://prices.example"\n'
WRITTEN = json.dumps(answer_of(HUNK))
pytestmark = pytest.mark.usefixtures("neighbours")


@pytest.fixture(params=[Messages(), Chat()], ids=["anthropic", "openai"])
async def server(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ModelServer]:
    (tmp_path / "prices.toml").write_text(PRICES.format(request.param.provider))
    async with ModelServer(request.param) as here:
        for name, value in here.environment(str(tmp_path / "prices.toml")).items():
            monkeypatch.setenv(name, value)
        yield here


@asynccontextmanager
async def asking(installation: Installation, server: ModelServer, **changes: Any) -> AsyncIterator[Asker]:
    """The service runs, a pattern of a touchpoint with the server's model is detected, and it can be asked."""
    service = build(Settings(**{**installation.settings("proposal"), **changes}))
    await service.start()
    client = await connect(installation.servers, "gateway")
    try:
        model = ModelSettings(provider=server.wire.provider, name="small")
        await say(installation, "registry", registered(model=model))
        await say(installation, "pattern_detector", detected())
        yield Asker(lambda: client)
    finally:
        await client.close()
        await service.close()


async def failed(installation: Installation, asker: Asker) -> str:
    async def said() -> bool:
        return await published(installation, ProposalFailedV1) == 1

    await until(said)
    admin = await installation.bus_admin()
    try:
        message = await admin.jetstream().get_last_msg("REFINEMENT", ProposalFailedV1.type)
    finally:
        await admin.close()
    return str(json.loads(message.data or b"{}")["data"]["reason"])


async def test_a_model_writes_a_proposal_after_one_repair(installation: Installation, server: ModelServer) -> None:
    stranger = json.dumps(answer_of(hunk_of("no such passage", "x")))
    server.answers += [
        server.wire.failed(529, "overloaded_error", retry_after_ms="20"),
        server.wire.said(stranger, tokens=(1_000, 100)),
        server.wire.said(WRITTEN),
    ]
    async with asking(installation, server) as asker:

        async def generated() -> bool:
            return bool((await asker.ask(ListProposals(touchpoint_id=TOUCHPOINT))).proposals)

        await until(generated)
        (listed,) = (await asker.ask(ListProposals(touchpoint_id=TOUCHPOINT))).proposals
        proposal = (await asker.ask(GetProposal(proposal_id=listed.proposal_id))).proposal
        told = await asker.ask(GetProposalSpending(calls=10))
    assert proposal.model.startswith(f"{server.wire.provider}/small@127.0.0.1:")
    assert len(server.asked) == 3
    assert "no such passage" in server.asked[2].input  # what is to be repaired
    (day,) = told.days
    dear = Decimal("0.0015")  # 1,000 at 1 USD and 100 at 5 USD
    assert (day.caller, day.calls, day.input_tokens, day.output_tokens) == ("proposal", 2, 1_100, 120)
    assert day.usd == told.budget.used == dear + A_CALL
    assert [call.usd for call in told.calls] == [A_CALL, dear]


async def test_a_budget_that_is_used_up_by_the_first_call_lets_no_repair_begin(
    installation: Installation, server: ModelServer
) -> None:
    server.by_rule = lambda asked: server.wire.said('{"hunks": "none"}')
    async with asking(installation, server, proposal_usd_per_day=A_CALL) as asker:
        reason = await failed(installation, asker)
        told = await asker.ask(GetProposalSpending())
    assert reason == f"the model budget of {A_CALL} USD a day is used up; ask again tomorrow (UTC)"
    assert len(server.asked) == 1
    assert told.budget.used == A_CALL
    assert told.budget.left == 0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("refused", "declined to answer"),
        ("cut_off", "was cut off at 8192 output tokens"),
        ("key", "does not take the key: look at BURNISH_"),
    ],
)
async def test_what_no_second_try_mends_ends_with_its_reason(
    installation: Installation, server: ModelServer, answer: str, expected: str
) -> None:
    wire = server.wire
    server.by_rule = lambda asked: {
        "refused": wire.refused(),
        "cut_off": wire.cut_off(WRITTEN[:40]),
        "key": wire.failed(401, "authentication_error", "bad key"),
    }[answer]
    async with asking(installation, server) as asker:
        reason = await failed(installation, asker)
    assert reason.startswith("the model cannot answer: ")
    assert expected in reason
    assert len(server.asked) == 1


async def test_a_tier_or_a_setting_chooses_the_writer(
    installation: Installation, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BURNISH_MODEL_TIERS", json.dumps({"analysis": f"{server.wire.provider}/unknown"}))
    async with asking(installation, server, proposal_model="tier/drafting") as asker:
        reason = await failed(installation, asker)
    assert "no model is configured for the tier 'drafting'" in reason
    assert not server.asked


async def test_the_tier_analysis_writes_where_it_is_mapped(
    installation: Installation, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BURNISH_MODEL_TIERS", json.dumps({"analysis": f"{server.wire.provider}/unknown"}))
    async with asking(installation, server) as asker:
        reason = await failed(installation, asker)
    assert f"no price is known for {server.wire.provider}/unknown@127.0.0.1:" in reason
    assert not server.asked
