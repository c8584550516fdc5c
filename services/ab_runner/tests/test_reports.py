"""What a finished run comes to."""

from __future__ import annotations

from uuid import uuid4

import pytest

from libs.contracts.evaluations import AbReport
from services.ab_runner import reports
from services.ab_runner.domain import Run
from services.ab_runner.tests.support import GOOD, POOR, TOUCHPOINT, now, variant
from services.ab_runner.verdicts import PairedCase


def run(**fields: object) -> Run:
    asked = {
        "run_id": uuid4(),
        "kind": "ab",
        "touchpoint_id": TOUCHPOINT,
        "workspace_id": None,
        "variant_a": variant(POOR),
        "variant_b": variant(GOOD),
        "split": "test",
        "requested_by": "admin",
        "requested_at": now(),
        **fields,
    }
    return Run(**asked)  # type: ignore[arg-type]


def pairs(n: int, a_right: int, b_right: int) -> list[PairedCase]:
    """Of `n` cases, the first so many are right in each variant."""
    return [PairedCase(f"c{i:03}", "x" if i % 2 else "y", _answer(i, a_right), _answer(i, b_right)) for i in range(n)]


def _answer(i: int, right: int) -> str | None:
    return ("x" if i % 2 else "y") if i < right else None


def test_an_outcome_has_the_fields_of_the_report() -> None:
    outcome = reports.conclude(run(), pairs(60, 20, 50))
    assert set(reports.Outcome.model_fields) <= set(AbReport.model_fields)
    assert (outcome.verdict, outcome.n, outcome.gained, outcome.lost) == ("better", 60, 30, 0)
    assert [metric.name for metric in outcome.metrics] == ["accuracy", "macro_f1"]
    assert outcome.metrics[0].is_primary
    assert outcome.metrics[0].ci95[0] > 0
    for metric in outcome.metrics:
        assert metric.ci_verdict is not None
        assert metric.ci_verdict[0] <= metric.ci95[0] <= metric.delta <= metric.ci95[1] <= metric.ci_verdict[1]
    assert [(label.label, label.support) for label in outcome.labels] == [("x", 30), ("y", 30)]
    assert outcome.values("a")["accuracy"] == pytest.approx(20 / 60)
    assert outcome.values("b")["accuracy"] == pytest.approx(50 / 60)


def test_events_carry_counts_and_no_case_ids() -> None:
    asked = run()
    outcome = reports.conclude(asked, pairs(60, 20, 50))
    event = reports.executed(asked, outcome, now())
    assert (event.status, event.verdict, event.gained, event.n) == ("completed", "better", 30, 60)
    assert "c020" not in event.model_dump_json()
    assert reports.failed(asked, "x" * 5_000, now()).reason == "x" * 2_000


def test_a_drop_beyond_chance_is_a_regression_with_a_severity() -> None:
    asked = run(kind="eval", baseline_id=uuid4())
    outcome = reports.conclude(asked, pairs(200, 190, 150))
    found = reports.regressions(outcome)
    assert [regression.metric for regression in found] == ["accuracy", "macro_f1"]
    assert found[0].severity == "critical"
    assert found[0].delta == pytest.approx(-0.2)
    assert 0 < found[0].band < 0.2
    event = reports.regressed(asked, outcome, found[0])
    assert event.baseline == pytest.approx(0.95)
    assert event.value == pytest.approx(0.75)
    assert len(event.failing_case_ids) == 40


@pytest.mark.parametrize(("a_right", "b_right"), [(100, 99), (100, 100), (100, 140)])
def test_a_drop_within_chance_is_none(a_right: int, b_right: int) -> None:
    outcome = reports.conclude(run(kind="eval", baseline_id=uuid4()), pairs(200, a_right, b_right))
    assert reports.regressions(outcome) == []


@pytest.mark.parametrize(
    ("delta", "grave"), [(-0.3, "critical"), (-0.1, "critical"), (-0.05, "high"), (-0.02, "medium"), (-0.01, "low")]
)
def test_severity_grows_with_the_drop(delta: float, grave: str) -> None:
    assert reports.severity(delta) == grave


def test_an_evaluation_without_a_baseline_has_figures_and_no_verdict() -> None:
    outcome = reports.conclude(run(kind="eval"), pairs(40, 30, 30))
    assert outcome.verdict is None
    assert outcome.reason == reports.NO_BASELINE
    assert outcome.values("b")["accuracy"] == pytest.approx(0.75)


def test_the_primary_has_all_of_alpha_only_when_alone() -> None:
    assert reports.primary_alpha(("accuracy",), "accuracy") == 0.05
    assert reports.primary_alpha(("accuracy", "macro_f1"), "accuracy") == pytest.approx(0.05 * 2 / 3)
