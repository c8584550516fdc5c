"""Metrics against scikit-learn and by hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score

from libs.contracts import vocabulary
from services.ab_runner.suite_metrics import (
    CLASSIFICATION,
    METRICS,
    WHOLE_SET,
    arm_values,
    classification,
    code_answers,
    count_pairs,
    label_report,
)
from services.ab_runner.suite_metrics.base import Metric

answers = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from("abcdx"), st.sampled_from("abcdx")), min_size=1, max_size=60
)


def test_a_touchpoint_may_name_each_metric_that_there_is() -> None:
    assert vocabulary.registered("metrics") == CLASSIFICATION
    there = [one for one in vars(classification).values() if isinstance(one, Metric)]
    assert {id(one) for one in there} == {id(one) for one in METRICS.values()}


@settings(max_examples=40, deadline=None)
@given(answers)
def test_values_equal_scikit_learn_on_the_plain_labels(cases: list[tuple[str, str, str]]) -> None:
    expected, got_a, got_b = (list(column) for column in zip(*cases, strict=True))
    labels = sorted(set(expected))
    values = arm_values(code_answers(expected, got_a, got_b))
    assert set(values) == set(CLASSIFICATION)
    for arm, got in enumerate((got_a, got_b)):
        macro: dict[str, Any] = {"labels": labels, "average": "macro", "zero_division": 0}
        assert values["accuracy"][arm] == pytest.approx(accuracy_score(expected, got))
        assert values["macro_f1"][arm] == pytest.approx(f1_score(expected, got, **macro))
        assert values["macro_precision"][arm] == pytest.approx(precision_score(expected, got, **macro))
        assert values["macro_recall"][arm] == pytest.approx(recall_score(expected, got, **macro))
        assert values["weighted_f1"][arm] == pytest.approx(f1_score(expected, got, **macro | {"average": "weighted"}))


@settings(max_examples=40, deadline=None)
@given(answers)
def test_loop_metrics_equal_the_library_ones(cases: list[tuple[str, str, str]]) -> None:
    coded = code_answers(*(list(column) for column in zip(*cases, strict=True)))
    k = len(coded.labels)

    def counts(codes: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.bincount(codes, minlength=k + 1)[:k].astype(float)

    values = arm_values(coded)
    for name, statistic in WHOLE_SET.items():
        for arm, got in enumerate((coded.got_a, coded.got_b)):
            right = counts(coded.expected[got == coded.expected])
            assert float(statistic(right, counts(coded.expected), counts(got))) == pytest.approx(values[name][arm])


def test_missing_answers_are_wrong_and_counted_nowhere_else() -> None:
    coded = code_answers(["a", "b"], ["a", None], [None, "b"])
    pairs = count_pairs(coded)
    assert (pairs.both, pairs.gained, pairs.lost, pairs.neither) == (0, 1, 1, 0)
    assert arm_values(coded)["macro_precision"] == (0.5, 0.5)


def test_label_report() -> None:
    rows = label_report(code_answers(["a", "a", "b", "b"], ["a", "b", "b", "b"], ["a", "a", "a", "b"]))
    first = rows[0]
    assert [row.label for row in rows] == ["a", "b"]
    assert (first.support, first.recall_a, first.recall_b) == (2, 0.5, 1.0)
    assert first.precision_a == 1.0
    assert first.precision_b == pytest.approx(2 / 3)
    assert first.recall_a_ci95[0] < 0.5 < first.recall_a_ci95[1]


def test_no_cases() -> None:
    coded = code_answers([], [], [])
    assert arm_values(coded)["macro_f1"] == (0.0, 0.0)
    assert label_report(coded) == []


def test_answers_of_different_cases_are_refused() -> None:
    with pytest.raises(ValueError, match="2 expected, 1 of A"):
        code_answers(["a", "b"], ["a"], ["a", "b"])
