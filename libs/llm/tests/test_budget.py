"""When one more paid call may start."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.llm import Budget, OverBudget, PriceUnknownYet, Spent
from libs.llm.budget import check, how_many_may_start, left

BUDGET = Budget(Decimal(5), Decimal(1))
MANY = Budget(Decimal(5), Decimal(1), at_once=None)


def verdict(budget: Budget, spent: Spent) -> str:
    try:
        check(budget, spent)
    except PriceUnknownYet:
        return "wait"
    except OverBudget as no:
        return no.reason
    return "yes"


@pytest.mark.parametrize(
    ("today", "here", "in_flight", "expected"),
    [
        ("0", "0", False, "yes"),
        ("4.99", "0.99", False, "yes"),
        ("0", "0", True, "wait"),
        ("5", "0", False, "a day is used up"),
        ("1", "1", True, "touchpoint's model budget"),
    ],
)
def test_budget(today: str, here: str, in_flight: bool, expected: str) -> None:
    assert expected in verdict(BUDGET, Spent(Decimal(today), Decimal(here), in_flight))


@pytest.mark.parametrize(("in_flight", "most", "expected"), [(3, "0.5", "yes"), (3, "1", "wait"), (9, "2", "wait")])
def test_calls_in_flight_count_at_their_most_and_are_waited_for(in_flight: int, most: str, expected: str) -> None:
    reserved = Decimal(most)
    assert verdict(MANY, Spent(reserved, reserved, in_flight, reserved, reserved)) == expected


def test_what_is_settled_is_not_waited_for() -> None:
    spent = Spent(Decimal(2), Decimal(2), 4, Decimal("0.5"), Decimal("0.5"))
    assert "the touchpoint's model budget of 1 USD" in verdict(MANY, spent)


@given(
    st.lists(st.decimals(0, 1, places=3), min_size=1, max_size=40),
    st.decimals(0, "0.999", places=3),
)
def test_the_overshoot_is_at_most_one_call(most: list[Decimal], before: Decimal) -> None:
    """Whatever calls are begun together: were each to cost its most, the last alone would cross the limit."""
    count = how_many_may_start(MANY, Spent(before, before, 0), most)
    assert 1 <= count <= len(most)
    assert before + sum(most[: count - 1], Decimal()) < MANY.per_touchpoint_day
    if count < len(most):
        assert before + sum(most[:count], Decimal()) >= MANY.per_touchpoint_day


def test_as_many_start_as_fit_at_their_most_and_as_may_be_in_flight() -> None:
    quarter = Decimal("0.25")
    assert how_many_may_start(MANY, Spent(Decimal(0), Decimal(0), 0), [quarter] * 9) == 4
    assert how_many_may_start(BUDGET, Spent(Decimal(0), Decimal(0), 0), [quarter] * 9) == 1


def test_what_is_left_is_never_negative() -> None:
    assert left(BUDGET, Spent(Decimal(2), Decimal(0), 0)) == 3
    assert left(BUDGET, Spent(Decimal(6), Decimal(0), 0)) == 0
