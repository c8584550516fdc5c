"""What a metric of classification is: one value from the figures per label, and how its interval is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.ab_runner.statistics.whole_set import Statistic

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LabelFigures:
    """One arm's figures of each expected label, in label order, by scikit-learn (0 where undefined).

    `right` is the share of all cases that were answered rightly.
    """

    precision: Floats
    recall: Floats
    f1: Floats
    support: Floats
    right: float


@dataclass(frozen=True, slots=True)
class Metric:
    """`value`: the metric of one arm. `whole`: the same from label counts, for leave-one-out and swap loops; equal to
    `value` on whole counts. None where it is a mean over cases, whose interval comes from the pairs themselves.
    """

    value: Callable[[LabelFigures], float]
    whole: Statistic | None = None
