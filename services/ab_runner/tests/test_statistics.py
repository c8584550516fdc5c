"""Published values, independent recomputations and laws of the paired methods."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom, norm, ttest_rel
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from services.ab_runner.statistics import (
    PairedCounts,
    bca_interval,
    cases_needed,
    cohens_d,
    cohens_h,
    conditional_mid_p_interval,
    estimate_paired_binary,
    estimate_paired_scores,
    matched_odds_ratio,
    mcnemar_exact,
    mcnemar_mid_p,
    metric_levels,
    newcombe_interval,
    power_paired,
    smallest_detectable_effect,
    tango_interval,
    wilson_interval,
)
from services.ab_runner.statistics.paired_binary import mcnemar_score
from services.ab_runner.statistics.resampled import MIN_CASES, MIN_CLUSTERS
from services.ab_runner.statistics.swaps import RESAMPLES, swap_half_width, swap_p_value, swap_patterns

ALPHA = 0.05
Floats = NDArray[np.float64]
pairs = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 300)).filter(lambda x: sum(x) > 0)


@pytest.mark.parametrize(
    ("gained", "lost", "n", "alpha", "lower", "upper"),
    [
        # Bentur et al. 2009 and Cavo et al. 2012, in Fagerland, Lydersen, Laake: Statistical Analysis of
        # Contingency Tables (2017), chapter 8, and the R package contingencytables.
        (1, 7, 21, 0.05, -0.517, -0.026),
        (6, 16, 161, 0.05, -0.1240, -0.0054),
        # R: PropCIs::scoreci.mp(25, 28, 618, 0.90)
        (28, 25, 618, 0.10, -0.0148, 0.0247),
    ],
)
def test_tango_matches_published_intervals(
    gained: int, lost: int, n: int, alpha: float, lower: float, upper: float
) -> None:
    found = tango_interval(gained, lost, n, alpha)
    assert found == pytest.approx((lower, upper), abs=5.1e-4 if n == 21 else 5.1e-5)


def test_newcombe_matches_published_intervals() -> None:
    # Cavo et al. 2012, as above; Altman et al., Statistics with Confidence (2000), table 6.2.
    assert newcombe_interval(PairedCounts(59, 6, 16, 80)) == pytest.approx((-0.1186, -0.0046), abs=5.1e-5)
    assert newcombe_interval(PairedCounts(14, 5, 0, 22)) == pytest.approx((0.011, 0.226), abs=5.1e-4)


def test_mid_p_matches_published_value() -> None:
    assert mcnemar_mid_p(6, 16) == pytest.approx(0.034690, abs=5e-7)


@given(pairs)
def test_tango_bounds_are_roots_of_the_closed_form_quartic(table: tuple[int, int, int]) -> None:
    """Yang, Sun and Hardin (2013, Stat Med 32:1336): the bounds are roots of a polynomial, without iteration."""
    b, c, rest = table
    n, g, d = b + c + rest, norm.isf(ALPHA / 2) ** 2, b - c
    quartic = [
        n**2 * (n / g + 1) ** 2,
        -n * d * (n / g + 1) * (4 * n / g + 1),
        2 * n * d**2 * (3 * n / g + 2) / g - n**2 * ((b + c) / g + 1),
        n * d * (2 * (b + c) / g + 1) - d**3 * (4 * n / g + 1) / g,
        d**2 * (d**2 / g - (b + c)) / g,
    ]
    roots = np.roots(quartic)
    for bound in tango_interval(b, c, n):
        if abs(bound) < 1:
            assert np.min(np.abs(roots - bound)) < 1e-4


@given(pairs)
def test_swapping_the_arms_negates_binary_intervals(table: tuple[int, int, int]) -> None:
    b, c, rest = table
    n = b + c + rest
    for interval in (tango_interval, conditional_mid_p_interval):
        low, high = interval(b, c, n)
        assert interval(c, b, n) == pytest.approx((-high, -low), abs=1e-9)
        assert -1 <= low <= (b - c) / n + 1e-9
        assert (b - c) / n - 1e-9 <= high <= 1
    low, high = newcombe_interval(PairedCounts(rest, b, c, 0))
    assert newcombe_interval(PairedCounts(rest, c, b, 0)) == pytest.approx((-high, -low), abs=1e-9)


@given(pairs, st.sampled_from([0.05, 1 / 30, 0.01, 0.2]))
def test_binary_verdict_interval_agrees_with_its_test(table: tuple[int, int, int], alpha: float) -> None:
    b, c, rest = table
    estimate = estimate_paired_binary(PairedCounts(rest, b, c, 0))
    low, high = estimate.decide(alpha)
    assert (low > 0 or high < 0) == (estimate.p_value <= alpha)
    shown = estimate.describe(alpha)
    assert low <= shown[0]
    assert shown[1] <= high


@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemar_agrees_with_statsmodels_and_orders(b: int, c: int) -> None:
    assert mcnemar_exact(b, c) == pytest.approx(mcnemar([[0, b], [c, 0]], exact=True).pvalue if b + c else 1.0)
    assert mcnemar_mid_p(b, c) <= mcnemar_exact(b, c) + 1e-12
    if b + c:
        assert mcnemar_score(b, c) == pytest.approx(mcnemar([[0, b], [c, 0]], exact=False, correction=False).pvalue)


def test_binary_verdict_never_exceeds_its_error_by_exact_enumeration() -> None:
    for n, rate in product((30, 100), (0.1, 0.2, 0.4)):
        rejected = 0.0
        for m in range(n + 1):
            weight = binom.pmf(m, n, rate)
            if weight < 1e-9:
                continue
            gained = np.arange(m + 1)
            p = [max(mcnemar_mid_p(int(k), int(m - k)), mcnemar_score(int(k), int(m - k))) for k in gained]
            rejected += weight * float(binom.pmf(gained, m, 0.5)[np.array(p) <= ALPHA].sum())
        assert rejected <= ALPHA


def test_no_discordant_pair_still_leaves_an_interval() -> None:
    z2 = norm.isf(0.025) ** 2
    assert tango_interval(0, 0, 100) == pytest.approx((-z2 / (100 + z2), z2 / (100 + z2)))
    assert tango_interval(10, 0, 10)[1] == 1.0
    assert tango_interval(0, 0, 0) == (-1.0, 1.0)


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="more than n = 5"):
        tango_interval(3, 3, 5)
    with pytest.raises(ValueError, match="0 or more"):
        PairedCounts(1, -1, 0, 0)


def test_wilson_and_effect_sizes() -> None:
    # Newcombe 1998, Stat Med 17:857, table I: 81 of 263 and 15 of 148.
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5.1e-5)
    assert wilson_interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=5.1e-5)
    assert wilson_interval(0, 0) == (0.0, 1.0)
    assert cohens_h(0.4, 0.5) == pytest.approx(2 * math.asin(math.sqrt(0.5)) - 2 * math.asin(math.sqrt(0.4)))
    assert matched_odds_ratio(6, 3) == 2
    assert matched_odds_ratio(6, 0) is None
    assert cohens_d(np.array([1.0, 2.0, 3.0])) == pytest.approx(2.0)
    assert cohens_d(np.array([2.0, 2.0])) == 0.0


def _scores(n: int = 80, shift: float = 0.0, seed: int = 3) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    a = rng.random(n)
    return a, np.clip(a + rng.normal(shift, 0.1, n), 0, 1)


def test_scores_are_described_by_the_paired_t_interval() -> None:
    a, b = _scores(shift=0.03)
    expected = ttest_rel(b, a).confidence_interval(0.95)
    found = estimate_paired_scores(a, b)
    assert found.describe(0.05) == pytest.approx((expected.low, expected.high))
    assert found.p_value >= ttest_rel(b, a).pvalue - 1e-12
    assert bca_interval(b - a) == pytest.approx((expected.low, expected.high), abs=0.005)


def test_scores_of_clusters_of_one_equal_scores_without_clusters() -> None:
    a, b = _scores()
    clustered = estimate_paired_scores(a, b, np.arange(len(a)))
    assert clustered.describe(0.05) == pytest.approx(estimate_paired_scores(a, b).describe(0.05))


def test_copies_within_a_cluster_add_no_evidence() -> None:
    a, b = _scores(40, shift=0.02)
    low, high = estimate_paired_scores(a, b).describe(0.05)
    copied = estimate_paired_scores(np.repeat(a, 5), np.repeat(b, 5), np.repeat(np.arange(40), 5))
    # Not to the last digit: the errors for clusters multiply by (n - 1) / (n - k), here 199 / 199.
    assert copied.describe(0.05) == pytest.approx((low, high), rel=1e-6)
    naive = estimate_paired_scores(np.repeat(a, 5), np.repeat(b, 5)).describe(0.05)
    assert naive[1] - naive[0] < (high - low) / 2


def test_too_few_cases_or_clusters_are_said() -> None:
    a, b = _scores(MIN_CASES - 1)
    few = estimate_paired_scores(a, b)
    assert few.method == "not_applicable"
    assert f"needs {MIN_CASES}" in few.note
    assert few.decide(0.05) == (-1.0, 1.0)
    a, b = _scores(40)
    few = estimate_paired_scores(a, b, np.arange(40) % (MIN_CLUSTERS - 1))
    assert f"need {MIN_CLUSTERS}" in few.note


def test_equal_scores_leave_a_floored_interval() -> None:
    a, _ = _scores(100)
    low, high = estimate_paired_scores(a, a).decide(0.05)
    assert low == pytest.approx(-(norm.isf(0.025) ** 2) / 100)
    assert high == -low


def test_differences_that_do_not_vary_leave_no_point_interval() -> None:
    clusters = np.arange(40) // 2
    estimate = estimate_paired_scores(np.zeros(40), np.ones(40), clusters, binary=True)
    low, high = estimate.describe(0.05)
    assert 0.5 < low < 0.9
    assert high == 1.0
    assert estimate.decide(0.05)[0] <= 0 or estimate.p_value <= 0.05


def test_swap_patterns_enumerate_or_sample_and_start_with_the_observed() -> None:
    small = np.concatenate(list(swap_patterns(5, seed=0)))
    assert len({tuple(row) for row in small}) == 32
    large = np.concatenate(list(swap_patterns(40, seed=0)))
    assert large.shape == (RESAMPLES, 40)
    assert not large[0].any()
    assert abs(large.mean() - 0.5) < 0.01
    assert (large == np.concatenate(list(swap_patterns(40, seed=0)))).all()
    assert np.concatenate(list(swap_patterns(0, seed=0))).shape == (1, 0)


def test_swap_test_of_signs_equals_exact_mcnemar() -> None:
    signs = np.array([1.0] * 8 + [-1.0] * 2)
    swapped = np.concatenate([signs.sum() - 2 * block @ signs for block in swap_patterns(10, 0)])
    assert swap_p_value(swapped, 6.0) == pytest.approx(mcnemar_exact(8, 2))


@given(st.lists(st.integers(-20, 20), min_size=20, max_size=400), st.sampled_from([0.05, 0.01, 0.2]))
def test_swap_interval_excludes_zero_exactly_when_the_test_rejects(values: list[int], alpha: float) -> None:
    swapped = np.array(values, dtype=float)
    for delta in {abs(v) for v in values}:
        assert (delta > swap_half_width(swapped, alpha) + 1e-9) == (swap_p_value(swapped, delta) <= alpha)


@settings(max_examples=25, deadline=None)  # statsmodels collects garbage on every call
@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.floats(0, 1))
def test_guard_levels_are_holms(p_guards: list[float], p_primary: float) -> None:
    primary, guards = metric_levels(p_primary, p_guards)
    reference = multipletests(p_guards, alpha=ALPHA * 2 / 3, method="holm")
    assert primary.alpha == pytest.approx(ALPHA * 2 / 3)
    for p, guard, rejected, adjusted in zip(p_guards, guards, *reference[:2], strict=True):
        assert guard.p_adjusted == pytest.approx(min(1.0, adjusted * 1.5))
        assert (p <= guard.alpha) == bool(rejected)


def test_a_lone_primary_has_all_of_alpha() -> None:
    assert metric_levels(0.04, [])[0].alpha == ALPHA


def test_detectable_effects_of_the_design_page() -> None:
    assert smallest_detectable_effect(50) == pytest.approx(0.20, abs=0.02)
    assert smallest_detectable_effect(200) == pytest.approx(0.10, abs=0.005)
    assert smallest_detectable_effect(4) == 1.0


@settings(max_examples=30)
@given(st.integers(10, 400), st.floats(0.05, 0.5))
def test_detectable_effect_has_its_power(n: int, discordance: float) -> None:
    effect = smallest_detectable_effect(n, discordance)
    assert power_paired(n, effect, discordance) >= 0.8
    assert power_paired(n, effect - 0.001, discordance) < 0.8


def test_exact_power_agrees_with_simulation() -> None:
    rng = np.random.default_rng(11)
    m = rng.binomial(100, 0.25, 4000)
    gained = rng.binomial(m, (1 + 0.12 / 0.25) / 2)
    seen = np.mean([mcnemar_mid_p(int(g), int(t - g)) <= ALPHA for g, t in zip(gained, m, strict=True)])
    assert power_paired(100, 0.12, 0.25) == pytest.approx(seen, abs=0.025)
    assert power_paired(100, 0.0, 0.25) == pytest.approx(0.0445, abs=5e-4)


def test_cases_needed() -> None:
    # With half the width of the effect plus power, (1.96 + 0.84)^2 / 1.96^2 = 2.04 times the cases are needed.
    assert cases_needed(100, 0.05, 0.05) == pytest.approx(105, abs=1)
    assert cases_needed(100, 0.05, 0.025) == 1
    assert cases_needed(100, 0.0, 0.05) is None
    assert cases_needed(100, -0.02, 0.05, margin=0.01) is None
    assert cases_needed(100, 0.0, 0.05, margin=0.01) == pytest.approx(5009, abs=60)
    assert cases_needed(0, 0.1, 0.05) is None
