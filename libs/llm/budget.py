"""What calls of models may cost in one UTC day, and whether one more may start. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from libs.contracts.spending import BudgetStanding
from libs.llm.base import ModelError


@dataclass(frozen=True)
class Budget:
    """Limits in USD for one UTC day, over all touchpoints and for one.

    `at_once` bounds how many paid calls are in flight, over all processes of a service; None leaves it to the pools.
    `in_flight_s` is how long a call that has not ended may still be on; after that nobody waits for its price.
    """

    per_day: Decimal
    per_touchpoint_day: Decimal
    at_once: int | None = 1
    in_flight_s: float = 120.0


@dataclass(frozen=True)
class Spent:
    """What was spent today in USD, calls in flight at the most that they can cost; how many those are, and how much
    of the sums they make up."""

    today: Decimal
    touchpoint_today: Decimal
    in_flight: int
    reserved: Decimal = Decimal(0)
    touchpoint_reserved: Decimal = Decimal(0)

    def plus(self, most_usd: Decimal) -> Spent:
        """The same with one more call of the touchpoint in flight."""
        return Spent(
            self.today + most_usd,
            self.touchpoint_today + most_usd,
            self.in_flight + 1,
            self.reserved + most_usd,
            self.touchpoint_reserved + most_usd,
        )


class OverBudget(ModelError):
    """No further call may be made today. `reason` names the limit."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, retryable=False)


class PriceUnknownYet(ModelError):
    """Calls in flight may use up the budget; their price must be known before the next call starts."""

    def __init__(self) -> None:
        super().__init__("other model calls are in flight; their price must be known before the next", retryable=True)


NOTHING = Budget(Decimal(0), Decimal(0))


def check(budget: Budget, spent: Spent) -> None:
    """Whether one more paid call may start, so that the overshoot is at most that call.

    Raises `OverBudget` for the rest of the day, `PriceUnknownYet` for a moment.
    """
    limit = budget.per_touchpoint_day
    if spent.today - spent.reserved >= budget.per_day:
        raise OverBudget(f"the model budget of {budget.per_day} USD a day is used up; ask again tomorrow (UTC)")
    if spent.touchpoint_today - spent.touchpoint_reserved >= limit:
        raise OverBudget(f"the touchpoint's model budget of {limit} USD a day is used up; ask again tomorrow (UTC)")
    if spent.today >= budget.per_day or spent.touchpoint_today >= limit:
        raise PriceUnknownYet
    if budget.at_once is not None and spent.in_flight >= budget.at_once:
        raise PriceUnknownYet


def how_many_may_start(budget: Budget, spent: Spent, most_usd: Sequence[Decimal]) -> int:
    """How many of these calls of one touchpoint, from the front, may start now: at least one, or `check` raises."""
    started = 0
    for most in most_usd:
        try:
            check(budget, spent)
        except ModelError:
            if not started:
                raise
            break
        spent = spent.plus(most)
        started += 1
    return started


def standing(caller: str, budget: Budget, spent: Spent) -> BudgetStanding:
    """A caller's limits and what is used of them, as it is told."""
    return BudgetStanding(
        caller=caller,
        per_day=budget.per_day,
        per_touchpoint_day=budget.per_touchpoint_day,
        used=spent.today,
        left=left(budget, spent),
    )


def left(budget: Budget, spent: Spent) -> Decimal:
    """USD left of today's budget over all touchpoints."""
    return max(Decimal(0), budget.per_day - spent.today)
