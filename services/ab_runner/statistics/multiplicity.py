"""How one error budget is split over a declared primary metric and its guards, and Holm's method as intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MetricLevel:
    """The two-sided error at which a metric's deciding interval is drawn, and its adjusted p-value.

    The interval at `alpha` excludes zero exactly when `p_adjusted <= ` the family's alpha.
    """

    alpha: float
    p_adjusted: float


def metric_levels(
    p_primary: float, p_guards: Sequence[float], alpha: float = 0.05
) -> tuple[MetricLevel, list[MetricLevel]]:
    """Levels of the primary metric and of its guards (same order), such that false verdicts stay within `alpha`.

    A verdict makes these claims: the primary is better, the primary is worse, a guard is worse. A guard that
    looks better claims nothing. So with guards the primary has 2/3 alpha (both sides), and the guards share
    2/3 alpha by Holm's step-down method, of which only the lower half can become a claim: 2/3 + 1/2 * 2/3 = 1
    alpha by Bonferroni's inequality, whatever the dependence. Without guards the primary has all of alpha.

    Holm as intervals: guards in order of p; the i-th of k (from 0) is drawn at 2/3 alpha / (k - i) while all
    before it excluded zero; from the first that does not, that one's level stays for the rest. An interval
    therefore excludes zero exactly when Holm rejects (Holm 1979, Scand J Stat 6:65; read as intervals by
    Serlin 1993, J Exp Educ 61:350). What holds jointly is the set of signs claimed; for simultaneous coverage
    of the values of rejected metrics as well, Bonferroni's level would be needed. "Not worse" needs every
    bound at once (an intersection-union test), so levels below alpha are only conservative there.
    """
    if not p_guards:
        return MetricLevel(alpha, p_primary), []
    share = 2 / 3
    primary = MetricLevel(share * alpha, min(1.0, p_primary / share))
    stepped = _step_down(p_guards, share * alpha)
    return primary, [MetricLevel(level, min(1.0, p / share)) for level, p in stepped]


def _step_down(p_values: Sequence[float], alpha: float) -> list[tuple[float, float]]:
    """Holm's level and adjusted p-value of each hypothesis, in the order given.

    The p-values equal statsmodels' `multipletests(method="holm")`, which has no levels to give and collects
    garbage on every call (some 100 ms in a running service).
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    stepped = [(0.0, 1.0)] * len(p_values)
    level, adjusted, rejecting = 0.0, 0.0, True
    for step, index in enumerate(order):
        remaining = len(p_values) - step
        adjusted = min(1.0, max(adjusted, p_values[index] * remaining))
        if rejecting:
            level = alpha / remaining
            rejecting = p_values[index] <= level
        stepped[index] = (level, adjusted)
    return stepped
