"""The one shape in which every method hands back a paired difference, and helpers to build it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Interval = tuple[float, float]
"""Lower and upper bound of a difference B - A, in the metric's own unit."""


@dataclass(frozen=True, slots=True)
class PairedEstimate:
    """A difference B - A and how sure one may be of it.

    `describe(alpha)` is the two-sided interval for the table; its coverage is close to 1 - alpha.
    `decide(alpha)` is the interval that verdicts read. It contains `describe(alpha)`, and it excludes zero
    exactly when `p_value <= alpha`, so test and interval cannot disagree.
    """

    delta: float
    p_value: float
    method: str
    describe: Callable[[float], Interval]
    decide: Callable[[float], Interval]
    effect_size: float
    effect_size_name: str
    note: str = ""


def hull(*intervals: Interval) -> Interval:
    """The smallest interval that contains all the given ones."""
    return min(lower for lower, _ in intervals), max(upper for _, upper in intervals)


def clip(interval: Interval, limit: float) -> Interval:
    """An interval cut to [-limit, limit]: no difference of two values in [0, limit] can be outside."""
    return max(interval[0], -limit), min(interval[1], limit)


def agree_with_test(interval: Interval, p_value: float, alpha: float) -> Interval:
    """Removes the rounding error at zero: an interval whose test did not reject touches zero, bit for bit."""
    if p_value > alpha:
        return min(interval[0], 0.0), max(interval[1], 0.0)
    return interval


def not_applicable(delta: float, limit: float, reason: str) -> PairedEstimate:
    """What is said when too few cases exist for the method: the whole possible range, p = 1, and why."""

    def everything(_alpha: float) -> Interval:
        return -limit, limit

    return PairedEstimate(delta, 1.0, "not_applicable", everything, everything, 0.0, "none", reason)
