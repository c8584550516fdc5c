"""The metrics of classification suites. Each is registered by its name in `pyproject.toml`, `burnish.metrics`."""

from __future__ import annotations

import numpy as np

from services.ab_runner.suite_metrics.base import Floats, Metric


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole > 0)


def _macro_f1(right: Floats, support: Floats, predicted: Floats) -> Floats:
    return np.asarray(_ratio(2 * right, support + predicted).mean(axis=-1))


def _macro_precision(right: Floats, support: Floats, predicted: Floats) -> Floats:
    return np.asarray(_ratio(right, predicted).mean(axis=-1))


def _macro_recall(right: Floats, support: Floats, predicted: Floats) -> Floats:
    return np.asarray(_ratio(right, support + np.zeros_like(right)).mean(axis=-1))


def _weighted_f1(right: Floats, support: Floats, predicted: Floats) -> Floats:
    f1 = _ratio(2 * right, support + predicted)
    return np.asarray((f1 * support).sum(axis=-1) / np.maximum(support.sum(axis=-1), 1))


ACCURACY = Metric(lambda figures: figures.right)
MACRO_F1 = Metric(lambda figures: float(figures.f1.mean()), _macro_f1)
MACRO_PRECISION = Metric(lambda figures: float(figures.precision.mean()), _macro_precision)
MACRO_RECALL = Metric(lambda figures: float(figures.recall.mean()), _macro_recall)
WEIGHTED_F1 = Metric(lambda figures: float(np.average(figures.f1, weights=figures.support)), _weighted_f1)
