"""What a finished run comes to: the comparison as contracts show it, regressions, a baseline's metrics. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid5

from libs.contracts.envelope import EVENT_NAMESPACE, Frozen
from libs.contracts.evaluations import Flips, LabelComparison, MetricComparison, Variant
from libs.contracts.events.ab_runner import AbExecutedV1, BaselinePromotedV1, EvalRegressedV1
from libs.contracts.events.registry import VersionRolledBackV1
from libs.contracts.vocabulary import Severity, Verdict
from services.ab_runner import suite_metrics as m
from services.ab_runner import verdicts
from services.ab_runner.domain import Arm, Run
from services.ab_runner.statistics import metric_levels

REASON_CHARS = 2_000
FAILING_CASES = 200
NO_BASELINE = "there is no baseline to compare with; the figures are those of the variant alone"

SEVERITIES: tuple[tuple[float, Severity], ...] = ((0.10, "critical"), (0.05, "high"), (0.02, "medium"))
"""A regression of at least so much (0.10: ten points) has this severity; a smaller one is low."""


class Outcome(Frozen):
    """A comparison as it is stored with its run; `AbReport` has the same fields."""

    verdict: Verdict | None
    reason: str
    metrics: tuple[MetricComparison, ...]
    flips: Flips
    gained: int
    lost: int
    labels: tuple[LabelComparison, ...]
    n: int
    cases_needed: int | None
    smallest_detectable_effect: float | None

    def values(self, arm: Arm) -> dict[str, float]:
        """Every metric's value of one variant."""
        return {metric.name: metric.a if arm == "a" else metric.b for metric in self.metrics}


@dataclass(frozen=True, slots=True)
class Baseline:
    """A run's result that later runs are compared with. Without a run it says that no baseline holds."""

    baseline_id: UUID
    touchpoint_id: str
    workspace_id: UUID | None
    run_id: UUID | None
    variant: Variant | None
    content_sha256: str
    suite_sha256: str | None
    metrics: dict[str, float]
    promoted_by: str
    holds_since: datetime


def conclude(run: Run, cases: Sequence[verdicts.PairedCase]) -> Outcome:
    """Compare both variants by the settings declared with the run. Raises ValueError naming a metric or case."""
    compared = verdicts.compare(cases, run.suite.primary_metric, run.suite.metrics, run.suite.margin)
    alone = run.kind == "eval" and run.baseline_id is None
    gained, lost = compared.flips.gained, compared.flips.lost
    return Outcome(
        verdict=None if alone else compared.verdict,
        reason=NO_BASELINE if alone else compared.reason[:REASON_CHARS],
        metrics=tuple(_metric(metric) for metric in compared.metrics),
        flips=Flips(gained=gained, lost=lost),
        gained=len(gained),
        lost=len(lost),
        labels=_labels(cases),
        n=compared.n,
        cases_needed=compared.cases_needed,
        smallest_detectable_effect=compared.smallest_detectable_effect,
    )


def _metric(metric: verdicts.MetricComparison) -> MetricComparison:
    return MetricComparison(
        name=metric.name,
        a=metric.a,
        b=metric.b,
        delta=metric.delta,
        ci95=metric.ci95,
        effect_size=metric.effect_size,
        effect_size_name=metric.effect_size_name,
        p_value=metric.p_value,
        ci_verdict=metric.ci_verdict,
        p_adjusted=metric.p_adjusted,
        method=metric.method,
        is_primary=metric.is_primary,
        note=metric.note,
    )


def _labels(cases: Sequence[verdicts.PairedCase]) -> tuple[LabelComparison, ...]:
    ordered = [case for case in cases if case.expected is not None]
    answers = m.code_answers(
        [case.expected or "" for case in ordered], [c.got_a for c in ordered], [c.got_b for c in ordered]
    )
    return tuple(
        LabelComparison(
            label=label.label,
            support=label.support,
            precision_a=label.precision_a,
            precision_b=label.precision_b,
            recall_a=label.recall_a,
            recall_b=label.recall_b,
        )
        for label in m.label_report(answers)
    )


def executed(run: Run, outcome: Outcome, at: datetime) -> AbExecutedV1:
    """The event of a completed run."""
    return AbExecutedV1(
        run_id=run.run_id,
        touchpoint_id=run.touchpoint_id,
        workspace_id=run.workspace_id,
        proposal_id=run.variant_b.proposal_id,
        status="completed",
        a_sha256=run.variant_a.content_sha256,
        b_sha256=run.variant_b.content_sha256,
        suite_sha256=run.suite_sha256,
        verdict=outcome.verdict,
        metrics=outcome.metrics,
        gained=outcome.gained,
        lost=outcome.lost,
        n=outcome.n,
        reason=outcome.reason,
        executed_at=at,
    )


def failed(run: Run, reason: str, at: datetime) -> AbExecutedV1:
    """The event of a run that could not be carried out."""
    return AbExecutedV1(
        run_id=run.run_id,
        touchpoint_id=run.touchpoint_id,
        workspace_id=run.workspace_id,
        proposal_id=run.variant_b.proposal_id,
        status="failed",
        a_sha256=run.variant_a.content_sha256,
        b_sha256=run.variant_b.content_sha256,
        suite_sha256=run.suite_sha256,
        reason=reason[:REASON_CHARS],
        executed_at=at,
    )


@dataclass(frozen=True, slots=True)
class Regression:
    """One metric that fell below its baseline by more than `band`, the distance chance alone explains."""

    metric: str
    baseline: float
    value: float
    delta: float
    band: float
    severity: Severity


def regressions(outcome: Outcome) -> list[Regression]:
    """The metrics whose whole interval (adjusted for their number) lies below zero.

    The variance band is the interval's reach above the difference: a drop counts when it is larger than that.
    """
    fallen: list[Regression] = []
    for metric in outcome.metrics:
        upper = (metric.ci_verdict or metric.ci95)[1]
        if upper < 0:
            band = upper - metric.delta
            fallen.append(Regression(metric.name, metric.a, metric.b, metric.delta, band, severity(metric.delta)))
    return fallen


def severity(delta: float) -> Severity:
    """How grave a drop is; see `SEVERITIES`."""
    return next((name for least, name in SEVERITIES if -delta >= least), "low")


def regressed(run: Run, outcome: Outcome, regression: Regression) -> EvalRegressedV1:
    """The event of one regression, with the cases that turned wrong."""
    return EvalRegressedV1(
        run_id=run.run_id,
        touchpoint_id=run.touchpoint_id,
        workspace_id=run.workspace_id,
        metric=regression.metric,
        baseline=regression.baseline,
        value=regression.value,
        delta=regression.delta,
        severity=regression.severity,
        version_ref=run.variant_b.version_ref,
        failing_case_ids=outcome.flips.lost[:FAILING_CASES],
    )


def baseline_id(activation_id: UUID) -> UUID:
    """The id of the baseline that an activation sets; hearing of it twice sets one."""
    return uuid5(EVENT_NAMESPACE, f"baseline|{activation_id}")


def promoted(baseline: Baseline) -> BaselinePromotedV1:
    """The event of a baseline that holds now. Raises ValueError for one that says that none holds."""
    if baseline.run_id is None or baseline.suite_sha256 is None:
        raise ValueError("a baseline without a run was never promoted")
    return BaselinePromotedV1(
        baseline_id=baseline.baseline_id,
        run_id=baseline.run_id,
        touchpoint_id=baseline.touchpoint_id,
        workspace_id=baseline.workspace_id,
        content_sha256=baseline.content_sha256,
        suite_sha256=baseline.suite_sha256,
        metrics=baseline.metrics,
        promoted_by=baseline.promoted_by,
    )


def no_baseline(live: VersionRolledBackV1) -> Baseline:
    """What is recorded when a text is live again that no run tells about."""
    return Baseline(
        baseline_id=baseline_id(live.activation_id),
        touchpoint_id=live.touchpoint_id,
        workspace_id=live.workspace_id,
        run_id=None,
        variant=None,
        content_sha256=live.content_sha256,
        suite_sha256=None,
        metrics={},
        promoted_by=live.rolled_back_by,
        holds_since=live.rolled_back_at,
    )


def primary_alpha(metrics: Sequence[str], primary: str, alpha: float = 0.05) -> float:
    """The error at which the primary metric's interval is drawn beside these guards."""
    guards = len({*metrics} - {primary})
    return metric_levels(1.0, [1.0] * guards, alpha)[0].alpha
