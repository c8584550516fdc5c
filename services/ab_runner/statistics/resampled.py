"""Joins a t interval and a swap test into one estimate, with a floor where too few units differ."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from services.ab_runner.statistics.estimate import Interval, PairedEstimate, agree_with_test, clip
from services.ab_runner.statistics.swaps import swap_half_width, swap_p_value

MIN_CASES = 20
"""Fewest independent cases for a t or resampling method; below it no variance estimate is worth showing."""

MIN_CLUSTERS = 10
"""Fewest clusters for cluster-robust errors; with fewer the variance of the variance is too large."""

MIN_DIFFERING = 4
"""Fewest units (cases or clusters) that differ between the arms; below it the variance is floored."""

_NO_SPREAD = 1e-12


@dataclass(frozen=True, slots=True)
class Resampled:
    """What was measured about one difference B - A over `units` cases or clusters.

    `swapped` holds the difference under every swap pattern, `flip` the size of the change one unit makes,
    `limit` the largest possible difference.
    """

    delta: float
    standard_error: float
    degrees: int
    swapped: NDArray[np.float64]
    differing: int
    flip: float
    limit: float


def estimate_resampled(
    measured: Resampled,
    method: str,
    narrower: bool,
    effect_size: float,
    effect_size_name: str,
    note: str = "",
) -> PairedEstimate:
    """The estimate whose deciding interval is the wider of t and swap interval; p is the larger of both p-values.

    `narrower` describes by the narrower of the two, for metrics whose jackknife error is known to be too
    large (each of the two is conservative by itself); otherwise the t interval describes.
    """
    p_swap = swap_p_value(measured.swapped, measured.delta)
    p_value = max(_p_of_t(measured), p_swap)

    def describe(alpha: float) -> Interval:
        half = _half_width_of_t(measured, alpha)
        if narrower:
            half = min(half, swap_half_width(measured.swapped, alpha))
        return _around(measured, max(half, _floor(measured, alpha)))

    def decide(alpha: float) -> Interval:
        half = max(
            _half_width_of_t(measured, alpha),
            swap_half_width(measured.swapped, alpha),
            _floor(measured, alpha),
        )
        return agree_with_test(_around(measured, half), p_value, alpha)

    if measured.differing < MIN_DIFFERING:
        few = f"only {measured.differing} differ between the variants, fewer than {MIN_DIFFERING}: interval floored"
        note = f"{note}; {few}" if note else few
    return PairedEstimate(measured.delta, p_value, method, describe, decide, effect_size, effect_size_name, note)


def _around(measured: Resampled, half: float) -> Interval:
    return clip((measured.delta - half, measured.delta + half), measured.limit)


def _p_of_t(measured: Resampled) -> float:
    if measured.standard_error <= _NO_SPREAD:
        return float(2 * norm.sf(math.sqrt(abs(measured.delta) / measured.flip)))
    return float(2 * t.sf(abs(measured.delta) / measured.standard_error, measured.degrees))


def _half_width_of_t(measured: Resampled, alpha: float) -> float:
    return float(t.isf(alpha / 2, measured.degrees)) * measured.standard_error


def _floor(measured: Resampled, alpha: float) -> float:
    """Half width that is justified at least where u < MIN_DIFFERING units differ, or all differ alike.

    For b = c = u / 2 rare discordant pairs Tango's bounds solve x^4 = z^4 (u^2 + x^2), x in flips; that is
    x = z sqrt((z^2 + sqrt(z^4 + 4 u^2)) / 2), and z^2 flips when nothing varies. Carried over to other metrics
    by the size of one flip.
    """
    if measured.differing >= MIN_DIFFERING and measured.standard_error > _NO_SPREAD:
        return 0.0
    varying = measured.differing if measured.differing < MIN_DIFFERING else 0
    z_squared = float(norm.isf(alpha / 2)) ** 2
    flips_squared = z_squared * (z_squared + math.sqrt(z_squared**2 + 4 * varying**2)) / 2
    return math.sqrt(flips_squared) * measured.flip
