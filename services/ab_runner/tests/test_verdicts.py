"""Verdict rules, their laws, and a small A/A simulation."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.ab_runner.statistics import Interval
from services.ab_runner.verdicts import MetricComparison, PairedCase, compare, decide

LABELS = "abcde"


def _case(i: int, expected: str, a: str, b: str, cluster: str | None = None) -> PairedCase:
    return PairedCase(f"case-{i:04d}", expected, a, b, cluster)


def _cases(n: int = 100, gained: int = 0, lost: int = 0, wrong: int = 20, cluster_size: int = 0) -> list[PairedCase]:
    """n cases: the first `gained` right only in B, then `lost` only in A, then `wrong` in neither, the rest in both."""
    cases = []
    for i in range(n):
        expected, other = LABELS[i % 5], LABELS[(i + 1) % 5]
        in_a = gained <= i < gained + lost or i >= gained + lost + wrong
        in_b = i < gained or i >= gained + lost + wrong
        cluster = f"doc-{i // cluster_size}" if cluster_size else None
        cases.append(_case(i, expected, expected if in_a else other, expected if in_b else other, cluster))
    return cases


def _swapped(cases: list[PairedCase]) -> list[PairedCase]:
    return [replace(c, got_a=c.got_b, got_b=c.got_a) for c in cases]


@pytest.mark.parametrize(
    ("cases", "verdict"),
    [
        (_cases(200, gained=25, lost=4), "better"),
        (_cases(200, gained=4, lost=25), "worse"),
        (_cases(200, gained=8, lost=6), "undecided"),
        (_cases(4000, gained=6, lost=6), "not_worse"),
        (_cases(1000, wrong=100), "not_worse"),
        (_cases(30), "undecided"),
        (_cases(10, gained=10, wrong=0), "better"),
        (_cases(10, lost=10, wrong=0), "worse"),
        (_cases(300, gained=40, lost=5, cluster_size=3), "better"),
        ([], "undecided"),
        (_cases(1), "undecided"),
    ],
    ids=lambda x: x if isinstance(x, str) else f"n{len(x)}",
)
def test_verdicts(cases: list[PairedCase], verdict: str) -> None:
    result = compare(cases, "accuracy", ["accuracy", "macro_f1"])
    assert result.verdict == verdict, result.reason
    assert result.reason
    assert len(result.metrics) == 2


def _metric(name: str, low: float, high: float, primary: bool = False) -> MetricComparison:
    return MetricComparison(
        name, 0.5, 0.5, (low + high) / 2, (low, high), 0.5, "", 0.0, "", 100, primary, "", (low, high), 0.5, 0.05
    )


@pytest.mark.parametrize(
    ("primary", "guard", "verdict"),
    [
        ((0.01, 0.05), (0.01, 0.05), "better"),
        ((0.01, 0.05), (-0.05, 0.05), "better"),
        ((0.01, 0.05), (-0.05, -0.01), "worse"),
        ((-0.05, -0.01), (0.01, 0.05), "worse"),
        ((-0.005, 0.02), (-0.009, 0.02), "not_worse"),
        ((-0.005, 0.02), (0.01, 0.05), "not_worse"),
        ((-0.005, 0.02), (-0.05, 0.02), "undecided"),
        ((-0.05, 0.02), (-0.005, 0.02), "undecided"),
        ((0.0, 0.02), (0.0, 0.02), "not_worse"),
        ((-0.01, 0.02), (0.0, 0.02), "undecided"),
    ],
)
def test_verdict_table(primary: Interval, guard: Interval, verdict: str) -> None:
    assert decide([_metric("p", *primary, primary=True), _metric("g", *guard)], 0.01)[0] == verdict


def test_the_wider_margin_settles() -> None:
    cases = _cases(300, gained=5, lost=5)
    assert compare(cases, margin=0.01).verdict == "undecided"
    assert compare(cases, margin=0.1).verdict == "not_worse"


def test_flips_and_counts() -> None:
    result = compare(_cases(50, gained=2, lost=1))
    assert result.flips.gained == ("case-0000", "case-0001")
    assert result.flips.lost == ("case-0002",)
    assert (result.n, result.discordant) == (50, 3)
    accuracy = result.metrics[0]
    assert accuracy.is_primary
    assert accuracy.delta == pytest.approx(accuracy.b - accuracy.a) == pytest.approx(0.02)
    assert accuracy.odds_ratio == 2


def test_undecided_says_how_many_cases_more() -> None:
    result = compare(_cases(100, gained=10, lost=5))
    assert result.verdict == "undecided"
    assert result.cases_needed is not None
    assert 50 < result.cases_needed < 1000
    assert "below -1.0 points" in result.reason


def test_few_cases_say_why_macro_f1_has_no_interval() -> None:
    guard = compare(_cases(12, gained=2, wrong=2)).metrics[1]
    assert guard.method == "not_applicable"
    assert guard.ci95 == (-1.0, 1.0)
    assert "12 cases" in guard.note


def test_identical_variants_have_no_point_interval() -> None:
    for metric in compare(_cases(100)).metrics:
        assert metric.delta == 0
        assert metric.p_value == 1
        assert metric.ci95[0] < -0.01 < 0.01 < metric.ci95[1]


answers = st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS), st.sampled_from(LABELS), st.integers(0, 25))
METRICS = ["accuracy", "macro_f1", "weighted_f1"]


@settings(max_examples=60, deadline=None)
@given(st.lists(answers, min_size=1, max_size=90), st.booleans())
def test_laws_of_compare(rows: list[tuple[str, str, str, int]], clustered: bool) -> None:
    cases = [_case(i, e, a, b, f"doc-{c}" if clustered else None) for i, (e, a, b, c) in enumerate(rows)]
    result = compare(cases, "accuracy", METRICS)
    mirrored = compare(_swapped(cases), "accuracy", METRICS)
    for there, back in zip(result.metrics, mirrored.metrics, strict=True):
        assert back.delta == pytest.approx(-there.delta, abs=1e-9)
        assert back.ci95 == pytest.approx((-there.ci95[1], -there.ci95[0]), abs=1e-6)
        assert back.ci_verdict == pytest.approx((-there.ci_verdict[1], -there.ci_verdict[0]), abs=1e-6)
        assert there.ci_verdict[0] <= there.ci95[0] + 1e-9
        assert there.ci95[1] <= there.ci_verdict[1] + 1e-9
        assert there.ci95[0] <= there.delta + 1e-9
        assert there.delta - 1e-9 <= there.ci95[1]
        assert there.delta == pytest.approx(there.b - there.a, abs=1e-9)
        assert (there.ci_verdict[0] > 0 or there.ci_verdict[1] < 0) == (there.p_adjusted <= 0.05)
    assert (mirrored.flips.gained, mirrored.flips.lost) == (result.flips.lost, result.flips.gained)
    random.Random(1).shuffle(cases)
    assert compare(cases, "accuracy", METRICS) == result


def test_same_seed_same_result_and_seed_only_moves_the_swap_test() -> None:
    cases = _cases(200, gained=30, lost=15)
    assert compare(cases, seed=1) == compare(cases, seed=1)
    assert compare(cases, seed=1).metrics[0] == compare(cases, seed=2).metrics[0]


def test_copies_in_a_cluster_are_not_evidence() -> None:
    once = _cases(60, gained=8, lost=2)
    copies = [replace(c, case_id=f"{c.case_id}/{i}", cluster=c.case_id) for c in once for i in range(5)]
    assert compare([replace(c, cluster=None) for c in copies]).verdict == "better"
    clustered = compare(copies)
    assert clustered.verdict == "undecided"
    assert clustered.metrics[0].method == "cluster_robust_t_swap"
    assert clustered.metrics[0].note == "60 clusters"
    assert clustered.smallest_detectable_effect == pytest.approx(compare(once).smallest_detectable_effect, abs=0.03)


def test_scores() -> None:
    rng = np.random.default_rng(5)
    scores = [(float(a), float(min(1, a + 0.1 * rng.random()))) for a in rng.random(60)]
    cases = [PairedCase(f"c{i}", scores={"rouge": pair}) for i, pair in enumerate(scores)]
    result = compare(cases, "rouge", ["rouge"])
    assert result.verdict == "better"
    assert result.metrics[0].method == "paired_t_swap"
    assert result.metrics[0].alpha_verdict == 0.05
    assert result.metrics[0].effect_size_name == "cohens_d"


@pytest.mark.parametrize(
    ("cases", "metrics", "message"),
    [
        ([_case(1, "a", "a", "a"), _case(1, "a", "a", "b")], ["accuracy"], "'case-0001' occurs twice"),
        (_cases(5), ["accuracy", "macro_f2"], "unknown metric 'macro_f2'"),
        ([PairedCase("x", scores={"s": (0, 1)}), PairedCase("y")], ["s"], "case 'y' has no score 's'"),
        ([PairedCase("x", got_a="a")], ["accuracy"], "case 'x' has none"),
        ([PairedCase("x", scores={"s": (0, float("nan"))})], ["s"], "not a finite number in case 'x'"),
    ],
)
def test_bad_input_is_named(cases: list[PairedCase], metrics: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare(cases, metrics[0], metrics)


def test_bad_margin() -> None:
    with pytest.raises(ValueError, match="margin is 0 or more"):
        compare(_cases(5), margin=-0.1)


@pytest.mark.parametrize("cluster_size", [1, 3])
def test_equal_variants_are_seldom_called_different(cluster_size: int) -> None:
    rng = np.random.default_rng(42)
    false = 0
    for run in range(150):
        cases = []
        for i in range(60):
            if i % cluster_size == 0:
                differs, for_b = rng.random() < 0.3, rng.random() < 0.5
            expected, wrong = rng.choice(list(LABELS), 2, replace=False)
            right_a, right_b = (not for_b, for_b) if differs else (True, True)
            cases.append(_case(i, expected, expected if right_a else wrong, expected if right_b else wrong))
        if cluster_size > 1:
            cases = [replace(c, cluster=str(i // cluster_size)) for i, c in enumerate(cases)]
        false += compare(cases, seed=run).verdict in ("better", "worse")
    assert false <= 150 * 0.05 + 3 * (150 * 0.05 * 0.95) ** 0.5
