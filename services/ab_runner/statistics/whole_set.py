"""Metrics that exist only over the whole set (macro-F1): jackknife and swap test over label counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from services.ab_runner.statistics.estimate import PairedEstimate, not_applicable
from services.ab_runner.statistics.resampled import MIN_CASES, MIN_CLUSTERS, Resampled, estimate_resampled
from services.ab_runner.statistics.swaps import swap_patterns

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Statistic = Callable[[Floats, Floats, Floats], Floats]
"""(right, support, predicted), each (..., labels) -> the metric, shape (...)."""

_BLOCK_ELEMENTS = 1 << 20


@dataclass(frozen=True, slots=True)
class LabelCounts:
    """Label counts of every unit (a case, or a cluster of cases) as sparse (units, labels) matrices."""

    support: csr_array
    right_a: csr_array
    right_b: csr_array
    predicted_a: csr_array
    predicted_b: csr_array
    cases: int
    clustered: bool

    @property
    def units(self) -> int:
        """Number of cases, or of clusters where cases share them."""
        return int(self.support.shape[0])

    @property
    def matrices(self) -> tuple[csr_array, ...]:
        """All five, in the order of the fields."""
        return self.support, self.right_a, self.right_b, self.predicted_a, self.predicted_b


@dataclass(frozen=True, slots=True)
class _Counts:
    """Dense label counts of both arms, each (..., labels)."""

    support: Floats
    right_a: Floats
    right_b: Floats
    predicted_a: Floats
    predicted_b: Floats

    def difference(self, statistic: Statistic) -> Floats:
        b = statistic(self.right_b, self.support, self.predicted_b)
        return b - statistic(self.right_a, self.support, self.predicted_a)


def count_labels(
    expected: Codes, got_a: Codes, got_b: Codes, labels: int, clusters: Codes | None = None
) -> LabelCounts:
    """Counts per unit from label codes 0..labels-1; a code of `labels` in got_a or got_b is no label at all."""
    n = len(expected)
    units = np.arange(n) if clusters is None else clusters
    shape = (int(units.max()) + 1 if n else 0, labels)

    def count(codes: Codes, kept: NDArray[np.bool_]) -> csr_array:
        ones = np.ones(int(kept.sum()), dtype=np.float32)
        return csr_array((ones, (units[kept], codes[kept])), shape=shape)

    return LabelCounts(
        support=count(expected, np.ones(n, dtype=bool)),
        right_a=count(expected, got_a == expected),
        right_b=count(expected, got_b == expected),
        predicted_a=count(got_a, got_a < labels),
        predicted_b=count(got_b, got_b < labels),
        cases=n,
        clustered=clusters is not None,
    )


def estimate_whole_set(
    counts: LabelCounts, statistics: dict[str, Statistic], seed: int = 0
) -> dict[str, PairedEstimate]:
    """The difference B - A of each whole-set metric, all on the same swap patterns.

    Jackknife over units with t(units - 1) (Efron and Stein 1981: its variance errs upwards) and the swap
    test. Described by the narrower of both intervals, decided by the wider. The percentile and BCa bootstrap
    were measured instead: they cover 80-94 % at n = 30-100 where this covers 94-97 %.
    """
    total = _Counts(*(_column_sums(matrix) for matrix in counts.matrices))
    deltas = {name: float(total.difference(statistic)) for name, statistic in statistics.items()}
    if reason := _too_few(counts):
        return {name: not_applicable(delta, 1.0, reason) for name, delta in deltas.items()}
    differing = _differing(counts)
    swapped = _swapped(counts, total, differing, statistics, seed)
    left_out = _leave_one_out(counts, total, statistics)
    flip = _flip_size(counts, total.support)
    return {
        name: _estimate(counts, delta, left_out[name], swapped[name], len(differing), flip)
        for name, delta in deltas.items()
    }


def _estimate(
    counts: LabelCounts, delta: float, left_out: Floats, swapped: Floats, differing: int, flip: float
) -> PairedEstimate:
    units = counts.units
    error = math.sqrt(units - 1) * float(np.std(left_out))
    measured = Resampled(delta, error, units - 1, swapped, differing, flip, 1.0)
    effect = delta / (error * math.sqrt(units)) if error > 0 else 0.0
    method = "cluster_jackknife_swap" if counts.clustered else "jackknife_swap"
    note = f"{units} clusters" if counts.clustered else ""
    return estimate_resampled(measured, method, True, effect, "cohens_d_jackknife", note)


def _too_few(counts: LabelCounts) -> str:
    if counts.cases < MIN_CASES:
        return f"not applicable: {counts.cases} cases, jackknife and swap test need {MIN_CASES}"
    if counts.clustered and counts.units < MIN_CLUSTERS:
        return f"not applicable: {counts.units} clusters, the cluster jackknife needs {MIN_CLUSTERS}"
    return ""


def _column_sums(matrix: csr_array) -> Floats:
    return np.asarray(matrix.sum(axis=0), dtype=np.float64).ravel()


def _leave_one_out(counts: LabelCounts, total: _Counts, statistics: dict[str, Statistic]) -> dict[str, Floats]:
    """The differences with each unit left out in turn; in blocks, so memory stays at some tens of MB."""
    totals = (total.support, total.right_a, total.right_b, total.predicted_a, total.predicted_b)
    parts: dict[str, list[Floats]] = {name: [] for name in statistics}
    for rows in _blocks(counts):
        rest = _Counts(*(t - matrix[rows].toarray() for t, matrix in zip(totals, counts.matrices, strict=True)))
        for name, statistic in statistics.items():
            parts[name].append(rest.difference(statistic))
    return {name: np.concatenate(values) for name, values in parts.items()}


def _blocks(counts: LabelCounts) -> Iterator[slice]:
    units, labels = counts.support.shape
    step = max(1, _BLOCK_ELEMENTS // max(labels, 1))
    return (slice(start, min(start + step, units)) for start in range(0, units, step))


def _differing(counts: LabelCounts) -> NDArray[np.int64]:
    """Units whose counts differ between the arms; swapping any other changes nothing."""
    moved = abs(counts.predicted_b - counts.predicted_a) + abs(counts.right_b - counts.right_a)
    return np.flatnonzero(np.asarray(moved.sum(axis=1)).ravel() > 0)


def _swapped(
    counts: LabelCounts,
    total: _Counts,
    differing: NDArray[np.int64],
    statistics: dict[str, Statistic],
    seed: int,
) -> dict[str, Floats]:
    right_move = (counts.right_b - counts.right_a)[differing]
    predicted_move = (counts.predicted_b - counts.predicted_a)[differing]
    parts: dict[str, list[Floats]] = {name: [] for name in statistics}
    for pattern in swap_patterns(len(differing), seed):
        right, predicted = pattern @ right_move, pattern @ predicted_move
        arms = _Counts(
            total.support,
            total.right_a + right,
            total.right_b - right,
            total.predicted_a + predicted,
            total.predicted_b - predicted,
        )
        for name, statistic in statistics.items():
            parts[name].append(arms.difference(statistic))
    return {name: np.concatenate(values) for name, values in parts.items()}


def _flip_size(counts: LabelCounts, support: Floats) -> float:
    """Root mean square change that one unit's answers make to a macro average: 1 / (labels * support) per case."""
    weight = np.divide(1.0, support * len(support), out=np.zeros_like(support), where=support > 0)
    return float(np.sqrt(np.mean((counts.support @ weight) ** 2)))
