"""Classification metrics of two variants over the same cases: one value per arm, per-label figures for the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_fscore_support

from libs.registrations import all_of
from services.ab_runner.statistics import Interval, PairedCounts, wilson_interval
from services.ab_runner.statistics.whole_set import Statistic
from services.ab_runner.suite_metrics.base import Floats, LabelFigures, Metric

Codes = NDArray[np.int64]

METRICS = all_of("metrics", Metric)
"""Every metric that is registered, by name."""
WHOLE_SET: dict[str, Statistic] = {name: metric.whole for name, metric in METRICS.items() if metric.whole is not None}
"""Those that exist only over the whole set, from label counts."""
CLASSIFICATION = tuple(METRICS)
"""Names that `compare` accepts besides the names of per-case scores."""
ACCURACY = "accuracy"
DEFAULT_PRIMARY = ACCURACY
DEFAULT_GUARDS = ("macro_f1",)
"""What guards a classification suite that declares nothing: rare labels must not pay for frequent ones."""


@dataclass(frozen=True, slots=True)
class CodedAnswers:
    """Answers as codes of the expected labels, sorted; an answer that is none of them has code len(labels)."""

    labels: tuple[str, ...]
    expected: Codes
    got_a: Codes
    got_b: Codes


@dataclass(frozen=True, slots=True)
class LabelReport:
    """One label's figures in both arms, with Wilson intervals of recall. For reading, never a guard."""

    label: str
    support: int
    precision_a: float
    precision_b: float
    recall_a: float
    recall_b: float
    recall_a_ci95: Interval
    recall_b_ci95: Interval


def code_answers(expected: Sequence[str], got_a: Sequence[str | None], got_b: Sequence[str | None]) -> CodedAnswers:
    """Answers of the same cases in the same order, coded. A missing answer (None) is a wrong one."""
    if not len(expected) == len(got_a) == len(got_b):
        raise ValueError(f"answers of the same cases: {len(expected)} expected, {len(got_a)} of A, {len(got_b)} of B")
    labels = tuple(sorted(set(expected)))
    code = {label: i for i, label in enumerate(labels)}

    def codes(answers: Sequence[str | None]) -> Codes:
        return np.fromiter(
            (len(labels) if g is None else code.get(g, len(labels)) for g in answers), np.int64, len(answers)
        )

    return CodedAnswers(labels, codes(expected), codes(got_a), codes(got_b))


def count_pairs(answers: CodedAnswers) -> PairedCounts:
    """The 2x2 table of right and wrong."""
    right_a, right_b = answers.got_a == answers.expected, answers.got_b == answers.expected
    return PairedCounts(
        both=int(np.sum(right_a & right_b)),
        gained=int(np.sum(~right_a & right_b)),
        lost=int(np.sum(right_a & ~right_b)),
        neither=int(np.sum(~right_a & ~right_b)),
    )


def arm_values(answers: CodedAnswers) -> dict[str, tuple[float, float]]:
    """Every metric as (A, B), by scikit-learn over the expected labels (0 where undefined)."""
    a, b = _values(answers, answers.got_a), _values(answers, answers.got_b)
    return {name: (a[name], b[name]) for name in a}


def label_report(answers: CodedAnswers) -> list[LabelReport]:
    """Precision and recall of each expected label in both arms, in label order."""
    precision_a, recall_a, _, support = _per_label(answers, answers.got_a)
    precision_b, recall_b, _, _ = _per_label(answers, answers.got_b)
    return [
        LabelReport(
            label,
            int(support[i]),
            float(precision_a[i]),
            float(precision_b[i]),
            float(recall_a[i]),
            float(recall_b[i]),
            wilson_interval(round(recall_a[i] * support[i]), int(support[i])),
            wilson_interval(round(recall_b[i] * support[i]), int(support[i])),
        )
        for i, label in enumerate(answers.labels)
    ]


def _per_label(answers: CodedAnswers, got: Codes) -> tuple[Floats, Floats, Floats, Floats]:
    if not len(answers.expected):
        empty = np.zeros(0)
        return empty, empty, empty, empty
    labels = np.arange(len(answers.labels))
    found = precision_recall_fscore_support(answers.expected, got, labels=labels, average=None, zero_division=0)
    precision, recall, f1, support = (np.asarray(part, dtype=np.float64) for part in found)
    return precision, recall, f1, support


def _values(answers: CodedAnswers, got: Codes) -> dict[str, float]:
    if not len(answers.expected):
        return dict.fromkeys(METRICS, 0.0)
    figures = LabelFigures(*_per_label(answers, got), right=float(np.mean(got == answers.expected)))
    return {name: metric.value(figures) for name, metric in METRICS.items()}
