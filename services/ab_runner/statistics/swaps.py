"""Swap test: what the difference would be had each case's two answers been handed to the arms by a coin."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 4096
"""Swap patterns per comparison; up to 12 differing units all of them are enumerated."""

_BLOCK_ELEMENTS = 1 << 21
_TOLERANCE = 1e-9


def swap_patterns(units: int, seed: int) -> Iterator[NDArray[np.float32]]:
    """Blocks of rows of 0/1 (1 = this unit's answers are swapped), shape (rows, units); the first row is all 0.

    Blocks bound memory to about 8 MB whatever the number of units.
    """
    if 1 << units <= RESAMPLES:
        rows = np.arange(1 << units)[:, None]
        yield ((rows >> np.arange(units)) & 1).astype(np.float32)
        return
    rng = np.random.default_rng(seed)
    yield np.zeros((1, units), dtype=np.float32)
    remaining, rows_each = RESAMPLES - 1, max(1, _BLOCK_ELEMENTS // units)
    while remaining:
        rows_now = min(rows_each, remaining)
        bits = np.unpackbits(
            np.frombuffer(rng.bytes(rows_now * -(-units // 8)), dtype=np.uint8).reshape(rows_now, -1), axis=1
        )
        yield bits[:, :units].astype(np.float32)
        remaining -= rows_now


def swap_p_value(swapped: NDArray[np.float64], delta: float) -> float:
    """Two-sided p-value: the share of swap patterns, the observed one included, at least as far from zero.

    Exact whenever the two answers to a case are exchangeable (Fisher 1935; Phipson and Smyth 2010 for
    counting the observed pattern). `swapped` holds the statistic of every pattern.
    """
    return float(np.mean(np.abs(swapped) >= abs(delta) - _TOLERANCE))


def swap_half_width(swapped: NDArray[np.float64], alpha: float) -> float:
    """The largest difference the swap test at `alpha` does not reject: half the width of its symmetric interval.

    The null distribution's variance is at least the sampling variance of the difference (it also holds the
    difference itself), so delta +- this is conservative away from zero.
    """
    sizes = np.sort(np.abs(swapped))
    return float(sizes[max(len(sizes) - int(np.floor(alpha * len(sizes) + 1e-9)) - 1, 0)])
