"""Compares two variants over the same cases and says better, worse, not worse, or undecided, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from services.ab_runner import suite_metrics as m
from services.ab_runner.statistics import (
    Interval,
    MetricLevel,
    PairedEstimate,
    cases_needed,
    estimate_paired_binary,
    estimate_paired_scores,
    estimate_whole_set,
    matched_odds_ratio,
    metric_levels,
    not_applicable,
    smallest_detectable_effect,
)
from services.ab_runner.statistics.planning import DEFAULT_DISCORDANCE
from services.ab_runner.statistics.whole_set import count_labels

Verdict = Literal["better", "worse", "not_worse", "undecided"]
Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PairedCase:
    """One case answered by both variants. Repeats of a case are averaged into `scores` before.

    `expected` and the answers are labels; a missing answer is None and counts as wrong. `cluster` names the
    source that cases share (a ticket, a document). `scores` maps a metric's name to this case's (A, B),
    higher is better.
    """

    case_id: str
    expected: str | None = None
    got_a: str | None = None
    got_b: str | None = None
    cluster: str | None = None
    scores: Mapping[str, tuple[float, float]] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Flips:
    """Ids of the cases that only B gets right (`gained`) and that only A gets right (`lost`), sorted."""

    gained: tuple[str, ...]
    lost: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """One metric in both arms; `delta` is B - A in the metric's own unit.

    `ci95` is the metric's own two-sided interval at 1 - alpha (95 % by default). `ci_verdict` is the wider
    interval that the verdict reads, at the error `alpha_verdict` left after adjusting for several metrics; it
    excludes zero exactly when `p_adjusted <= alpha`.
    """

    name: str
    a: float
    b: float
    delta: float
    ci95: Interval
    p_value: float
    method: str
    effect_size: float
    effect_size_name: str
    n: int
    is_primary: bool
    note: str
    ci_verdict: Interval
    p_adjusted: float
    alpha_verdict: float
    odds_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of a run. `cases_needed` is how many cases more would settle an undecided one, None if none would."""

    verdict: Verdict
    metrics: tuple[MetricComparison, ...]
    flips: Flips
    n: int
    discordant: int
    reason: str
    cases_needed: int | None
    smallest_detectable_effect: float


def compare(
    cases: Sequence[PairedCase],
    primary: str = m.DEFAULT_PRIMARY,
    metrics: Sequence[str] = (m.DEFAULT_PRIMARY, *m.DEFAULT_GUARDS),
    margin: float = 0.01,
    alpha: float = 0.05,
    seed: int = 0,
) -> Comparison:
    """Compares variant B with variant A.

    Every name in `metrics` besides `primary` is a guard. The primary has all of `alpha` when alone, else 2/3,
    and the guards share 2/3 by Holm, of which only "worse" is a claim (see `metric_levels`): under equal
    quality a false "better" or "worse" comes up at most `alpha` of the time, for any number of metrics.
    Per-label figures are for the report and cannot be guards. The result does not depend on the order of the
    cases, and swapping the arms negates every difference and interval.

    Raises ValueError naming the case or metric: a case id twice, an unknown metric, a score that some case
    lacks.
    """
    ordered = _checked(cases, primary, metrics, margin, alpha)
    names = (primary, *(name for name in dict.fromkeys(metrics) if name != primary))
    clusters = _clusters(ordered)
    arms, estimates = _estimates(ordered, names, clusters, seed)
    level, guard_levels = metric_levels(estimates[primary].p_value, [estimates[g].p_value for g in names[1:]], alpha)
    levels = dict(zip(names, (level, *guard_levels), strict=True))
    flips = _flips(ordered, primary)
    compared = tuple(
        _metric(name, arms[name], estimates[name], levels[name], len(ordered), name == primary, alpha, flips)
        for name in names
    )
    verdict, reason = decide(compared, margin)
    discordant = len(flips.gained) + len(flips.lost)
    return Comparison(
        verdict,
        compared,
        flips,
        len(ordered),
        discordant,
        reason,
        _more_cases(compared, margin, len(ordered)) if verdict == "undecided" else None,
        _detectable(len(ordered), discordant, level.alpha, _design_effect(ordered, clusters, primary)),
    )


def decide(compared: Sequence[MetricComparison], margin: float) -> tuple[Verdict, str]:
    """The verdict rules, read off `ci_verdict` alone, in this order.

    worse: some metric's upper bound is below 0. better: the primary's lower bound is above 0. not_worse:
    every lower bound is above -margin. undecided: anything else.
    """
    if not any(c.n for c in compared):
        return "undecided", "no cases were compared"
    if worse := [c for c in compared if c.ci_verdict[1] < 0]:
        return "worse", "; ".join(f"{_said(c)} is below 0" for c in worse)
    primary = next(c for c in compared if c.is_primary)
    if primary.ci_verdict[0] > 0:
        return "better", f"{_said(primary)} is above 0 and no guard is worse"
    open_bounds = [c for c in compared if c.ci_verdict[0] <= -margin]
    if not open_bounds:
        return "not_worse", f"every lower bound is above the margin of {-100 * margin:+.1f} points"
    return "undecided", "; ".join(f"{_said(c)} reaches below {-100 * margin:+.1f} points" for c in open_bounds)


def _said(c: MetricComparison) -> str:
    low, high = c.ci_verdict
    level = 100 * (1 - c.alpha_verdict)
    return f"{c.name} {100 * c.delta:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f}, {level:.1f} % interval)"


def _checked(
    cases: Sequence[PairedCase], primary: str, metrics: Sequence[str], margin: float, alpha: float
) -> list[PairedCase]:
    if margin < 0 or not 0 < alpha < 1:
        raise ValueError(f"margin is 0 or more and alpha between 0 and 1, got margin={margin}, alpha={alpha}")
    ordered = sorted(cases, key=lambda c: c.case_id)
    for before, after in pairwise(ordered):
        if before.case_id == after.case_id:
            raise ValueError(f"case {after.case_id!r} occurs twice; average its repeats first")
    for name in (primary, *metrics):
        _check_metric(name, ordered)
    return ordered


def _check_metric(name: str, cases: Sequence[PairedCase]) -> None:
    if name in m.CLASSIFICATION and not any(name in c.scores for c in cases):
        if missing := next((c for c in cases if c.expected is None), None):
            raise ValueError(f"metric {name!r} needs an expected label, case {missing.case_id!r} has none")
        return
    if not any(name in c.scores for c in cases) and cases:
        raise ValueError(f"unknown metric {name!r}: one of {', '.join(m.CLASSIFICATION)} or a score of every case")
    if missing := next((c for c in cases if name not in c.scores), None):
        raise ValueError(f"case {missing.case_id!r} has no score {name!r}")


def _clusters(cases: Sequence[PairedCase]) -> Codes | None:
    """A code per case, or None when no two cases share a cluster. A case without one is its own cluster."""
    keys = [(0, c.cluster) if c.cluster is not None else (1, c.case_id) for c in cases]
    code = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return None if len(code) == len(cases) else np.array([code[key] for key in keys], dtype=np.int64)


def _estimates(
    cases: Sequence[PairedCase], names: Sequence[str], clusters: Codes | None, seed: int
) -> tuple[dict[str, tuple[float, float]], dict[str, PairedEstimate]]:
    if not cases:
        nothing = not_applicable(0.0, 1.0, "no cases")
        return dict.fromkeys(names, (0.0, 0.0)), dict.fromkeys(names, nothing)
    scored = [name for name in names if name in cases[0].scores]
    arms, estimates = _score_estimates(cases, scored, clusters, seed)
    labelled = [name for name in names if name not in scored]
    if labelled:
        more_arms, more_estimates = _label_estimates(cases, labelled, clusters, seed)
        arms, estimates = arms | more_arms, estimates | more_estimates
    return arms, estimates


def _score_estimates(
    cases: Sequence[PairedCase], names: Sequence[str], clusters: Codes | None, seed: int
) -> tuple[dict[str, tuple[float, float]], dict[str, PairedEstimate]]:
    arms: dict[str, tuple[float, float]] = {}
    estimates: dict[str, PairedEstimate] = {}
    for name in names:
        both = np.array([c.scores[name] for c in cases], dtype=np.float64)
        if not np.isfinite(both).all():
            raise ValueError(f"score {name!r} is not a finite number in case {_first_infinite(cases, both)!r}")
        arms[name] = (float(both[:, 0].mean()), float(both[:, 1].mean()))
        estimates[name] = estimate_paired_scores(both[:, 0], both[:, 1], clusters, seed=seed)
    return arms, estimates


def _first_infinite(cases: Sequence[PairedCase], both: Floats) -> str:
    return cases[int(np.flatnonzero(~np.isfinite(both).all(axis=1))[0])].case_id


def _label_estimates(
    cases: Sequence[PairedCase], names: Sequence[str], clusters: Codes | None, seed: int
) -> tuple[dict[str, tuple[float, float]], dict[str, PairedEstimate]]:
    answers = m.code_answers([c.expected or "" for c in cases], [c.got_a for c in cases], [c.got_b for c in cases])
    arms = m.arm_values(answers)
    whole = {name: m.WHOLE_SET[name] for name in names if name in m.WHOLE_SET}
    estimates: dict[str, PairedEstimate] = {}
    if whole:
        counts = count_labels(answers.expected, answers.got_a, answers.got_b, len(answers.labels), clusters)
        estimates = estimate_whole_set(counts, whole, seed)
    if m.ACCURACY in names:
        estimates[m.ACCURACY] = _accuracy(answers, clusters, seed)
    return {name: arms[name] for name in names}, estimates


def _accuracy(answers: m.CodedAnswers, clusters: Codes | None, seed: int) -> PairedEstimate:
    if clusters is None:
        return estimate_paired_binary(m.count_pairs(answers))
    right_a, right_b = answers.got_a == answers.expected, answers.got_b == answers.expected
    return estimate_paired_scores(
        right_a.astype(np.float64), right_b.astype(np.float64), clusters, binary=True, seed=seed
    )


def _metric(
    name: str,
    arms: tuple[float, float],
    estimate: PairedEstimate,
    level: MetricLevel,
    n: int,
    is_primary: bool,
    alpha: float,
    flips: Flips,
) -> MetricComparison:
    return MetricComparison(
        name=name,
        a=arms[0],
        b=arms[1],
        delta=estimate.delta,
        ci95=estimate.describe(alpha),
        p_value=estimate.p_value,
        method=estimate.method,
        effect_size=estimate.effect_size,
        effect_size_name=estimate.effect_size_name,
        n=n,
        is_primary=is_primary,
        note=estimate.note,
        ci_verdict=estimate.decide(level.alpha),
        p_adjusted=level.p_adjusted,
        alpha_verdict=level.alpha,
        odds_ratio=matched_odds_ratio(len(flips.gained), len(flips.lost)) if name == m.ACCURACY else None,
    )


def _flips(cases: Sequence[PairedCase], primary: str) -> Flips:
    """By right and wrong where cases have labels, else by the sign of the primary score's difference."""
    gains = [(c.case_id, _gain(c, primary)) for c in cases]
    return Flips(tuple(i for i, gain in gains if gain > 0), tuple(i for i, gain in gains if gain < 0))


def _gain(case: PairedCase, primary: str) -> float:
    if case.expected is not None and primary not in case.scores:
        return (case.got_b == case.expected) - (case.got_a == case.expected)
    a, b = case.scores[primary]
    return b - a


def _more_cases(compared: Sequence[MetricComparison], margin: float, n: int) -> int | None:
    """The fewer of: cases until the primary's interval leaves zero, and until every lower bound clears the margin."""
    primary = next(c for c in compared if c.is_primary)
    options = [cases_needed(n, primary.delta, _reach(primary), primary.alpha_verdict)]
    bounds = [cases_needed(n, c.delta, c.delta - c.ci_verdict[0], c.alpha_verdict, margin) for c in compared]
    known = [more for more in bounds if more is not None]
    if len(known) == len(bounds):
        options.append(max(known))
    return min((more for more in options if more is not None), default=None)


def _reach(c: MetricComparison) -> float:
    return c.delta - c.ci_verdict[0] if c.delta >= 0 else c.ci_verdict[1] - c.delta


def _design_effect(cases: Sequence[PairedCase], clusters: Codes | None, primary: str) -> float:
    """Variance of the clustered mean difference over that of independent cases, at least 1 (Kish 1965)."""
    if clusters is None or not cases:
        return 1.0
    gains = np.sign([_gain(c, primary) for c in cases])
    centred = gains - gains.mean()
    alone = float(np.sum(centred**2))
    together = float(np.sum(np.bincount(clusters, weights=centred) ** 2))
    return max(together / alone, 1.0) if alone > 0 else float(np.sum(np.bincount(clusters) ** 2)) / len(cases)


def _detectable(n: int, discordant: int, alpha: float, design_effect: float) -> float:
    discordance = discordant / n if discordant else DEFAULT_DISCORDANCE
    return smallest_detectable_effect(int(n / design_effect), discordance, alpha=alpha)
