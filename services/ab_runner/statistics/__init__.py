"""Paired statistics for two variants that answered the same cases. Pure: no I/O, no clock, seeded randomness."""

from services.ab_runner.statistics.estimate import Interval, PairedEstimate, not_applicable
from services.ab_runner.statistics.multiplicity import MetricLevel, metric_levels
from services.ab_runner.statistics.paired_binary import (
    PairedCounts,
    cohens_h,
    conditional_mid_p_interval,
    estimate_paired_binary,
    matched_odds_ratio,
    mcnemar_exact,
    mcnemar_mid_p,
    newcombe_interval,
    tango_interval,
    wilson_interval,
)
from services.ab_runner.statistics.paired_scores import bca_interval, cohens_d, estimate_paired_scores
from services.ab_runner.statistics.planning import cases_needed, power_paired, smallest_detectable_effect
from services.ab_runner.statistics.whole_set import estimate_whole_set

__all__ = [
    "Interval",
    "MetricLevel",
    "PairedCounts",
    "PairedEstimate",
    "bca_interval",
    "cases_needed",
    "cohens_d",
    "cohens_h",
    "conditional_mid_p_interval",
    "estimate_paired_binary",
    "estimate_paired_scores",
    "estimate_whole_set",
    "matched_odds_ratio",
    "mcnemar_exact",
    "mcnemar_mid_p",
    "metric_levels",
    "newcombe_interval",
    "not_applicable",
    "power_paired",
    "smallest_detectable_effect",
    "tango_interval",
    "wilson_interval",
]
