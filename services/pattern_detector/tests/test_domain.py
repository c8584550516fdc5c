"""Weights, gates, score and states: the laws that must hold for any evidence."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.touchpoints import Thresholds
from services.pattern_detector import domain
from services.pattern_detector.domain import Signal, Standing
from services.pattern_detector.tests.support import NOON, signal

GATES = Thresholds()
DAY = timedelta(days=1)


def evidence(*per_actor: int, **changes: object) -> list[Signal]:
    """So many signals of each of several actors."""
    return [
        signal(f"{actor}-{n}", actor_id=f"user-{actor}", **changes)
        for actor, count in enumerate(per_actor)
        for n in range(count)
    ]


def surfaces(signals: list[Signal], gates: Thresholds = GATES) -> bool:
    return domain.surfaces(domain.count(signals, {}, gates), gates)


def automatic(signals: list[Signal], trusted: dict[str, float] | None = None) -> bool:
    return domain.is_automatic(domain.count(signals, trusted or {}, GATES), GATES)


def scored(signals: list[Signal], trusted: dict[str, float] | None = None) -> float:
    return domain.score(domain.score_parts(domain.weigh(signals, trusted or {}, NOON), trusted or {}, NOON))


@pytest.mark.parametrize(
    ("age", "weight"),
    [
        (timedelta(0), 1.0),
        (-DAY, 1.0),
        (30 * DAY - timedelta(microseconds=1), 1.0),
        (30 * DAY, 0.5),
        (90 * DAY - timedelta(microseconds=1), 0.5),
        (90 * DAY, 0.25),
        (4_000 * DAY, 0.25),
    ],
)
def test_weight_halves_at_30_days_and_quarters_at_90(age: timedelta, weight: float) -> None:
    assert domain.decay(NOON - age, NOON) == weight


@pytest.mark.parametrize(
    ("per_actor", "passes"),
    [((4,), False), ((5,), True), ((1, 1), False), ((2, 1), True), ((1, 1, 1), True), ((), False)],
)
def test_both_gates_must_pass(per_actor: tuple[int, ...], passes: bool) -> None:
    assert surfaces(evidence(*per_actor)) is passes


def test_the_evidence_gate_is_never_below_two() -> None:
    assert surfaces(evidence(1, 1), Thresholds(min_evidence=2))
    assert not surfaces(evidence(1), Thresholds(min_evidence=2, single_actor_evidence=2))


def test_gates_look_at_undecayed_counts() -> None:
    assert surfaces(evidence(2, 1, last_seen=NOON - 170 * DAY))


def test_three_people_make_a_proposal_and_so_do_five_cases_of_a_machine() -> None:
    assert automatic(evidence(1, 1, 1))
    assert not automatic(evidence(8, 8))
    machine = [signal(n, actor_id="scanner", actor_kind="machine") for n in range(5)]
    assert automatic(machine)
    assert not automatic([*machine[:4], signal("again", actor_id="scanner", actor_kind="machine", item="item-0")])


def test_actors_that_lost_their_trust_do_not_make_a_proposal() -> None:
    assert not automatic(evidence(2, 2, 2), {"user-1": domain.trust(kept=1, bad=3)})


@given(flood=st.integers(1, 2_000))
def test_one_actor_never_makes_a_proposal(flood: int) -> None:
    assert not automatic(evidence(flood))


@given(one=st.integers(1, 800), other=st.integers(1, 800), honest=st.integers(0, 1))
def test_two_who_collude_are_not_completed_by_an_honest_coincidence(one: int, other: int, honest: int) -> None:
    """Below four signals from the largest, nothing tells them from three people who agree."""
    if max(one, other) >= 4:
        assert not automatic(evidence(one, other, *[1] * honest))


# --- score ------------------------------------------------------------------------------------------------

AGES = st.integers(0, 170)
SEVERITIES = st.sampled_from(["low", "medium", "high", "critical"])
PIECES = st.lists(st.tuples(st.integers(0, 6), AGES, SEVERITIES), min_size=1, max_size=30)


def pieces(drawn: list[tuple[int, int, str]]) -> list[Signal]:
    return [
        signal(n, actor_id=f"user-{actor}", last_seen=NOON - age * DAY, severity=severity)
        for n, (actor, age, severity) in enumerate(drawn)
    ]


@given(PIECES, st.tuples(st.integers(0, 9), AGES, SEVERITIES))
def test_more_evidence_never_lowers_the_score(drawn: list[tuple[int, int, str]], more: tuple[int, int, str]) -> None:
    assert scored(pieces([*drawn, more])) >= scored(pieces(drawn)) - 1e-6


@given(PIECES, st.data())
def test_fresher_or_graver_evidence_never_lowers_the_score(
    drawn: list[tuple[int, int, str]], data: st.DataObject
) -> None:
    n = data.draw(st.integers(0, len(drawn) - 1))
    actor, age, _ = drawn[n]
    graver = [*drawn[:n], (actor, age // 2, "critical"), *drawn[n + 1 :]]
    assert scored(pieces(graver)) >= scored(pieces(drawn)) - 1e-6


@given(PIECES, st.randoms())
def test_the_score_does_not_depend_on_order(drawn: list[tuple[int, int, str]], random: object) -> None:
    signals = pieces(drawn)
    shuffled = sorted(signals, key=lambda one: one.signal_id, reverse=True)
    assert scored(shuffled) == pytest.approx(scored(signals), abs=1e-6)


def test_the_score_is_the_product_of_its_parts() -> None:
    parts = domain.score_parts(domain.weigh(evidence(3, 2, 1), {}, NOON), {}, NOON)
    product = parts.weight * parts.actors * parts.recency * parts.severity
    assert domain.score(parts) == pytest.approx(product, abs=1e-6)
    assert (parts.recency, parts.severity) == (1.0, 1.0)
    assert parts.actors == math.log2(4)


def test_one_actor_saturates() -> None:
    assert scored(evidence(500)) < 1.01 * scored(evidence(20))
    assert scored(evidence(500)) < scored(evidence(2, 2, 2))


def test_a_burst_of_new_actors_does_not_pay_in_proportion() -> None:
    """Ten times the actors for less than four times the score, and less again with every further ten times."""
    ten, hundred, thousand = (scored(evidence(*[1] * count)) for count in (10, 100, 1_000))
    assert hundred < 4 * ten
    assert thousand < 2.5 * hundred


def test_trust_lowers_the_score() -> None:
    assert scored(evidence(3, 3), {"user-0": 0.2}) < scored(evidence(3, 3))
    assert domain.actor_trust([("a", 5, 0), ("b", 0, 500)]) == {"b": pytest.approx(1 / 501)}


# --- states -----------------------------------------------------------------------------------------------


def judged(standing: Standing, count: int, *, quiet_days: float = 0, now_days: float = 0) -> Standing:
    now = NOON + now_days * DAY
    counts = domain.count(evidence(*[1] * count), {}, GATES)
    return domain.next_state(standing, counts, domain.surfaces(counts, GATES), now - quiet_days * DAY, now)


def test_the_life_of_a_pattern() -> None:
    standing = judged(Standing(), 2)
    assert standing.state is None
    standing = judged(standing, 3)
    assert standing.state == "new"
    standing = judged(standing, 3, now_days=1)
    assert standing.state == "new"
    standing = judged(standing, 5, now_days=2)
    assert standing.state == "growing"
    standing = judged(standing, 5, now_days=8.9)
    assert standing.state == "growing"
    standing = judged(standing, 5, quiet_days=9, now_days=11)
    assert standing.state == "steady"
    standing = judged(standing, 5, quiet_days=30, now_days=32)
    assert standing.state == "receding"
    standing = judged(standing, 4, now_days=33)
    assert standing.state == "receding"
    standing = judged(standing, 0, now_days=34)
    assert standing.state == "resolved"
    standing = judged(standing, 2, now_days=35)
    assert standing.state == "resolved"
    standing = judged(standing, 3, now_days=36)
    assert standing.state == "reopened"


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60)), max_size=12))
def test_nothing_surfaces_below_the_gates_and_nothing_turns_back_into_new(steps: list[tuple[int, int]]) -> None:
    standing, day = Standing(), 0
    for count, days in steps:
        day += days
        before, standing = standing, judged(standing, count, quiet_days=days, now_days=day)
        open_now = standing.state not in (None, "resolved")
        assert open_now is (count >= 3)
        assert (standing.state == "new") <= (before.state in (None, "new"))
        assert (standing.state == "reopened") <= (before.state in ("resolved", "reopened"))
