"""What a suite can see before a run, and how many more cases would settle an undecided one."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc
from scipy.stats import binom, norm

DEFAULT_DISCORDANCE = 0.25
"""Share of cases on which the variants differ in being right, when no earlier run of the suite tells."""

_FEWEST_TO_REJECT = 5
_MOST_CASES = 1_000_000


def power_paired(n: int, effect: float, discordance: float = DEFAULT_DISCORDANCE, alpha: float = 0.05) -> float:
    """Exact power of the two-sided McNemar mid-p test for a true difference of `effect` (0..1) over n cases.

    Sums the binomial power given m discordant pairs over the distribution of m. A discordance below the
    effect is impossible and is raised to it.
    """
    rate = min(max(discordance, abs(effect)), 1.0)
    if rate == 0 or n == 0:
        return 0.0
    m, weights = _discordant_counts(n, rate)
    most_lost = _most_lost_to_reject(int(m[-1]), alpha)[m]
    share_gained = (1 + abs(effect) / rate) / 2
    rejects = _binomial_cdf(most_lost, m, 1 - share_gained) + _binomial_cdf(most_lost, m, share_gained)
    return float(np.sum(weights * rejects))


def _discordant_counts(n: int, rate: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    reach = 7 * math.sqrt(n * rate * (1 - rate)) + 7
    m = np.arange(max(int(n * rate - reach), 0), min(int(n * rate + reach), n) + 1)
    return m, np.asarray(binom.pmf(m, n, rate), dtype=np.float64)


@lru_cache(maxsize=64)
def _most_lost_to_reject(largest: int, alpha: float) -> NDArray[np.int64]:
    """For each m = 0..largest, the most pairs the minority side may have with mid-p <= alpha; -1 when none."""
    m = np.arange(largest + 1)
    most = np.asarray(binom.ppf(alpha / 2, m, 0.5), dtype=np.int64) + 1
    for _ in range(3):
        mid_p = 2 * binom.cdf(most, m, 0.5) - binom.pmf(most, m, 0.5)
        most = np.where((most >= 0) & ((mid_p > alpha) | (2 * most >= m)), most - 1, most)
    return most


def _binomial_cdf(k: NDArray[np.int64], m: NDArray[np.int64], p: float) -> NDArray[np.float64]:
    inside = (k >= 0) & (k < m)
    values = betainc(np.where(inside, m - k, 1), np.where(inside, k + 1, 1), 1 - p)
    return np.where(inside, values, np.where(k < 0, 0.0, 1.0))


def smallest_detectable_effect(
    n: int, discordance: float = DEFAULT_DISCORDANCE, power: float = 0.8, alpha: float = 0.05
) -> float:
    """The smallest true difference of rates (0..1) that n paired cases show with the given power; 1.0 when none.

    Exact computation, by bisection on `power_paired`.
    """
    if n < _FEWEST_TO_REJECT or power_paired(n, 1.0, discordance, alpha) < power:
        return 1.0
    low, high = 0.0, 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        if power_paired(n, middle, discordance, alpha) < power:
            low = middle
        else:
            high = middle
    return high


def cases_needed(
    n: int,
    delta: float,
    half_width: float,
    alpha: float = 0.05,
    margin: float | None = None,
    power: float = 0.8,
) -> int | None:
    """How many cases more would settle it with the given power, if the observed difference were the true one.

    `half_width` is the distance from `delta` to the bound that decides, at two-sided error `alpha`, over n
    cases; it shrinks with the square root of n. Without a margin "settled" is an interval without zero, with
    one it is a lower bound above -margin. None when no number of cases (below a million) would do.
    """
    room = abs(delta) if margin is None else delta + margin
    if n == 0 or room <= 0 or half_width <= 0:
        return None
    z = float(norm.isf(alpha / 2))
    total = n * ((z + float(norm.isf(1 - power))) / z * half_width / room) ** 2
    if total > _MOST_CASES:
        return None
    return max(math.ceil(total) - n, 1)
