"""Nothing lost, nothing doubled, whatever is killed; and the control that would show it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults import outside
from tests.faults.drill import SERVERS, VICTIMS, Plan, Result, run


def tell(result: Result) -> None:
    print("\n" + json.dumps(result.summary()))


def assert_reconciles(result: Result, signals: int) -> None:
    assert len(result.accepted) == signals
    assert result.stored == result.observed == signals
    assert result.projected == result.heard == signals
    assert result.dead_letters == 0


@pytest.mark.timeout(300)
async def test_a_few_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    """The drill in small, for every run of the tests."""
    result = await run(Plan(signals=1_000, kills=len(VICTIMS), seed=1, suicide=0.02), tmp_path / "data")
    tell(result)
    assert_reconciles(result, 1_000)


@pytest.mark.drill
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("seed", [11, 12])
async def test_every_service_killed_under_5000_signals(tmp_path: Path, seed: int) -> None:
    result = await run(Plan(signals=5_000, kills=28, seed=seed, suicide=0.02), tmp_path / "data")
    tell(result)
    assert set(result.kills) == set(VICTIMS)
    assert result.restarts > sum(result.kills.values()), "none died between commit and ack, or PubAck and mark"
    assert_reconciles(result, 5_000)


@pytest.mark.drill
@pytest.mark.timeout(1_200)
async def test_postgres_and_nats_killed_too(tmp_path: Path) -> None:
    plan = Plan(signals=5_000, kills=27, seed=13, suicide=0.02, among=(*VICTIMS, *SERVERS))
    result = await run(plan, tmp_path / "data")
    tell(result)
    assert set(SERVERS) <= set(result.kills)
    assert_reconciles(result, 5_000)


@pytest.mark.drill
@pytest.mark.timeout(1_800)
async def test_the_supervisor_killed_too(tmp_path: Path) -> None:
    """Everything that runs is killed four times, `burnish up` itself among it, while 20,000 signals are pushed."""
    plan = Plan(signals=20_000, kills=44, seed=14, suicide=0.01, among=outside.EVERYBODY)
    result = await outside.run(plan, tmp_path / "data")
    tell(result)
    assert set(result.kills) == set(outside.EVERYBODY)
    assert sum(result.kills.values()) >= 40
    assert_reconciles(result, 20_000)


@pytest.mark.drill
@pytest.mark.timeout(1_200)
async def test_the_control_without_the_inbox_shows_duplicates(tmp_path: Path) -> None:
    """Without the inbox the same kills must show, or the drill shows nothing."""
    result = await run(Plan(signals=5_000, kills=28, seed=11, suicide=0.02, inbox=False), tmp_path / "data")
    tell(result)
    assert result.stored == 5_000
    assert result.observed > 5_000 or result.heard > 5_000


def test_the_same_seed_repeats_the_same_kill_plan() -> None:
    assert list(Plan(100, 20, 5).victims()) == list(Plan(100, 20, 5).victims())
    assert list(Plan(100, 20, 5).victims()) != list(Plan(100, 20, 6).victims())
    assert {name for _, name in Plan(100, len(VICTIMS), 5).victims()} == set(VICTIMS)
