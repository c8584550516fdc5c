"""Per-case scores of two variants, or right/wrong answers whose cases share a source: means of paired differences."""

from __future__ import annotations

import math
import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap, sem
from statsmodels.regression.linear_model import OLS

from services.ab_runner.statistics.estimate import Interval, PairedEstimate, not_applicable
from services.ab_runner.statistics.resampled import MIN_CASES, MIN_CLUSTERS, Resampled, estimate_resampled
from services.ab_runner.statistics.swaps import swap_patterns

Floats = NDArray[np.float64]
_BCA_RESAMPLES = 2000


def cohens_d(differences: Floats) -> float:
    """Cohen's d of paired differences (d_z): mean / standard deviation; 0 when the differences do not vary."""
    spread = float(np.std(differences, ddof=1)) if len(differences) > 1 else 0.0
    return float(np.mean(differences)) / spread if spread > 0 else 0.0


def bca_interval(differences: Floats, alpha: float = 0.05, seed: int = 0) -> Interval | None:
    """BCa bootstrap interval of the mean difference (Efron 1987); None below 20 cases or without variation."""
    if len(differences) < MIN_CASES or np.ptp(differences) == 0:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = bootstrap(
            (differences,),
            np.mean,
            n_resamples=_BCA_RESAMPLES,
            batch=max(1, 2_000_000 // len(differences)),
            confidence_level=1 - alpha,
            method="BCa",
            rng=np.random.default_rng(seed),
        ).confidence_interval
    return (float(found.low), float(found.high)) if math.isfinite(found.low + found.high) else None


def estimate_paired_scores(
    a: Floats, b: Floats, clusters: NDArray[np.int64] | None = None, binary: bool = False, seed: int = 0
) -> PairedEstimate:
    """The difference of two means over the same cases.

    Described by the paired t interval, or, with `clusters` (a code 0..G-1 per case), by cluster-robust errors
    and t with G - 1 degrees of freedom (Miller 2024, arXiv 2411.00640). Decided with the swap test as well,
    whole clusters swapped together. The BCa interval is a check: the note says where it disagrees about zero.
    """
    differences = b - a
    delta = float(np.mean(differences)) if len(differences) else 0.0
    limit = 1.0 if binary else _range_of(a, b)
    reason = _too_few(len(differences), clusters)
    if reason:
        return not_applicable(delta, limit, reason)
    sums, sizes = _unit_sums(differences, clusters)
    error = _cluster_error(differences, clusters) if clusters is not None else float(sem(differences))
    differing = np.abs(sums) > 1e-12
    measured = Resampled(
        delta=delta,
        standard_error=error,
        degrees=len(sums) - 1,
        swapped=_swapped_means(sums[differing], delta, len(differences), seed),
        differing=int(differing.sum()),
        flip=limit * float(np.sqrt(np.mean(sizes**2))) / len(differences),
        limit=limit,
    )
    note = "" if clusters is None else f"{len(sums)} clusters"
    if clusters is None and not binary:
        note = _bca_check(differences, delta, error, seed)
    method = "paired_t_swap" if clusters is None else "cluster_robust_t_swap"
    return estimate_resampled(measured, method, False, cohens_d(differences), "cohens_d", note)


def _range_of(a: Floats, b: Floats) -> float:
    if not len(a):
        return 1.0
    both = np.concatenate((a, b))
    if both.min() >= 0 and both.max() <= 1:
        return 1.0
    return float(np.ptp(both)) or float(np.abs(both).max())


def _too_few(n: int, clusters: NDArray[np.int64] | None) -> str:
    if n < MIN_CASES:
        return f"not applicable: {n} cases, the method needs {MIN_CASES}"
    if clusters is not None and (found := int(clusters.max()) + 1) < MIN_CLUSTERS:
        return f"not applicable: {found} clusters, cluster-robust errors need {MIN_CLUSTERS}"
    return ""


def _unit_sums(differences: Floats, clusters: NDArray[np.int64] | None) -> tuple[Floats, Floats]:
    if clusters is None:
        return differences, np.ones(len(differences))
    sums = np.bincount(clusters, weights=differences).astype(np.float64)
    return sums, np.bincount(clusters).astype(np.float64)


def _cluster_error(differences: Floats, clusters: NDArray[np.int64]) -> float:
    if np.ptp(differences) == 0:
        return 0.0
    fitted = OLS(differences, np.ones(len(differences))).fit(cov_type="cluster", cov_kwds={"groups": clusters})
    return float(fitted.bse[0])


def _swapped_means(sums: Floats, delta: float, n: int, seed: int) -> Floats:
    parts = [delta - 2 * (block @ sums) / n for block in swap_patterns(len(sums), seed)]
    return np.concatenate(parts)


def _bca_check(differences: Floats, delta: float, error: float, seed: int) -> str:
    interval = bca_interval(differences, 0.05, seed)
    if interval is None:
        return ""
    outside = interval[0] > 0 or interval[1] < 0
    rejected = error > 0 and abs(delta) / error > 1.96
    return "" if outside == rejected else f"BCa check disagrees: {interval[0]:+.4f} to {interval[1]:+.4f}"
