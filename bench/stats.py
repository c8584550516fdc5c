"""A/A runs of the comparison: false verdicts, interval coverage, power against the unpaired test, and speed.

`python -m bench.stats --json` prints one JSON object; `--quick` runs a tenth of it.
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
from scipy.stats import norm

from services.ab_runner.suite_metrics import WHOLE_SET, CodedAnswers, code_answers
from services.ab_runner.verdicts import Comparison, PairedCase, compare

RUNS, QUICK_RUNS = 2000, 200
METRICS = ("accuracy", "macro_f1", "macro_recall", "macro_precision", "weighted_f1")
ALPHA = 0.05
LOW, HIGH, FEWEST_DISCORDANT = 0.935, 0.965, 5.0
MONTE_CARLO_Z = 3.0  # some sixty figures are checked at once
BUDGET_S = 1.0


@dataclass(frozen=True)
class Scenario:
    """n cases of `labels` labels whose answers differ on `differing` of the cases; `gain` is B's true advantage."""

    n: int
    differing: float
    metrics: int = 2
    labels: int = 4
    cluster_size: int = 1
    skewed: bool = False
    gain: float = 0.0

    @property
    def name(self) -> str:
        parts = [f"n={self.n}", f"differ={self.differing:.0%}", f"metrics={self.metrics}", f"labels={self.labels}"]
        parts += [f"clusters of {self.cluster_size}"] if self.cluster_size > 1 else []
        parts += ["skewed labels"] if self.skewed else []
        parts += [f"gain={self.gain:.0%}"] if self.gain else []
        return " ".join(parts)


SCENARIOS = (
    Scenario(30, 0.05, metrics=1),
    Scenario(30, 0.20, metrics=2),
    Scenario(30, 0.40, metrics=5),
    Scenario(50, 0.25, metrics=3, labels=8),
    Scenario(100, 0.05, metrics=2),
    Scenario(100, 0.25, metrics=1),
    Scenario(100, 0.25, metrics=5, labels=10, skewed=True),
    Scenario(100, 0.40, metrics=4, labels=10),
    Scenario(200, 0.10, metrics=1),
    Scenario(300, 0.05, metrics=3, labels=10),
    Scenario(300, 0.20, metrics=5, labels=20),
    Scenario(300, 0.40, metrics=2, labels=20, skewed=True),
    Scenario(60, 0.40, metrics=2, cluster_size=3),
    Scenario(120, 0.20, metrics=3, cluster_size=4),
    Scenario(300, 0.10, metrics=5, labels=8, cluster_size=5),
    Scenario(300, 0.40, metrics=1, cluster_size=10),
)

WRONG_BOTH = 0.15
BASE_ACCURACY = 0.7


def simulate(scenario: Scenario, rng: np.random.Generator) -> list[PairedCase]:
    """One run. Within a cluster the cases share a label and, mostly, whether and which way the answers differ."""
    n, k = scenario.n, scenario.labels
    cluster = np.arange(n) // scenario.cluster_size
    weights = 1 / np.arange(1, k + 1) if scenario.skewed else np.ones(k)
    expected = rng.choice(k, n, p=weights / weights.sum())
    wrong, other = ((expected + rng.integers(1, k, n)) % k for _ in range(2))
    same = np.where(rng.random(n) < BASE_ACCURACY, expected, wrong)
    differs = _shared(rng.random(n), cluster, rng) < scenario.differing
    for_b = _shared(rng.random(n), cluster, rng) < (1 + _tilt(scenario)) / 2
    both_wrong = rng.random(n) < WRONG_BOTH
    winner, loser = np.where(both_wrong, other, expected), wrong
    a = np.where(differs, np.where(for_b, loser, winner), same)
    b = np.where(differs, np.where(for_b, winner, loser), same)
    clustered = scenario.cluster_size > 1
    return [
        PairedCase(f"{i:05d}", str(expected[i]), str(a[i]), str(b[i]), str(cluster[i]) if clustered else None)
        for i in range(n)
    ]


def _shared(own: np.ndarray, cluster: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws of which 60 % are replaced by the cluster's one draw, where there are clusters."""
    if len(np.unique(cluster)) == len(own):
        return own
    of_cluster = rng.random(int(cluster.max()) + 1)[cluster]
    return np.where(rng.random(len(own)) < 0.6, of_cluster, own)


def _tilt(scenario: Scenario) -> float:
    return scenario.gain / (scenario.differing * (1 - WRONG_BOTH))


def measure(scenario: Scenario, runs: int, seed: int) -> dict[str, Any]:
    """False verdicts and, per metric, coverage of the 95 % interval over A/A runs."""
    names = METRICS[: scenario.metrics]
    verdicts: dict[str, int] = dict.fromkeys(("better", "worse", "not_worse", "undecided"), 0)
    covered, discordant, disagree = dict.fromkeys(names, 0), 0, 0
    for result in _comparisons(scenario, names, runs, seed):
        verdicts[result.verdict] += 1
        discordant += result.discordant
        for c in result.metrics:
            covered[c.name] += c.ci95[0] <= 0 <= c.ci95[1]
            disagree += (c.ci_verdict[0] > 0 or c.ci_verdict[1] < 0) != (c.p_adjusted <= ALPHA)
    false_share = (verdicts["better"] + verdicts["worse"]) / runs
    return {
        "scenario": scenario.name,
        "runs": runs,
        "mean_discordant": round(discordant / runs, 1),
        "false_verdicts": round(false_share, 4),
        "coverage": {name: round(count / runs, 4) for name, count in covered.items()},
        "test_and_interval_disagree": disagree,
        "met": _met(scenario, runs, false_share, covered, discordant / runs) and disagree == 0,
    }


def _comparisons(scenario: Scenario, names: tuple[str, ...], runs: int, seed: int) -> Iterator[Comparison]:
    rng = np.random.default_rng(seed)
    for run in range(runs):
        yield compare(simulate(scenario, rng), "accuracy", names, seed=run)


def _met(scenario: Scenario, runs: int, false_share: float, covered: dict[str, int], discordant: float) -> bool:
    """False verdicts at most 5 %, coverage from 93.5 % to 96.5 % (no upper limit below 5 discordant cases).

    Each with three Monte Carlo standard errors of room; the false share over all scenarios gets none.
    """
    error = MONTE_CARLO_Z * math.sqrt(ALPHA * (1 - ALPHA) / runs)
    high = HIGH if discordant >= FEWEST_DISCORDANT else 1.0
    return false_share <= ALPHA + error and all(
        LOW - error <= count / runs <= high + error for count in covered.values()
    )


def measure_power(runs: int, seed: int) -> dict[str, Any]:
    """Share of runs that see a true gain of 6 points at n = 200: this comparison against the unpaired z test."""
    scenario = Scenario(200, 0.15, metrics=1, gain=0.06)
    paired = unpaired = covered = 0
    for result in _comparisons(scenario, ("accuracy",), runs, seed):
        a, b, (low, high) = result.metrics[0].a, result.metrics[0].b, result.metrics[0].ci95
        covered += low <= scenario.gain <= high
        paired += result.verdict == "better"
        unpaired += _unpaired_rejects(a, b, scenario.n)
    return {
        "scenario": scenario.name,
        "runs": runs,
        "paired": paired / runs,
        "unpaired_z": unpaired / runs,
        "coverage_of_the_gain": covered / runs,
    }


def _unpaired_rejects(a: float, b: float, n: int) -> bool:
    pooled = (a + b) / 2
    error = math.sqrt(2 * pooled * (1 - pooled) / n)
    return error > 0 and (b - a) / error > float(norm.isf(ALPHA / 2))


def measure_percentile_bootstrap(runs: int, seed: int) -> dict[str, Any]:
    """What the percentile bootstrap of macro-F1 would have covered in one A/A scenario, as the named alternative."""
    scenario, rng, covered = Scenario(50, 0.25, labels=8), np.random.default_rng(seed), 0
    for _ in range(runs):
        cases = simulate(scenario, rng)
        answers = code_answers([c.expected or "" for c in cases], [c.got_a for c in cases], [c.got_b for c in cases])
        low, high = np.quantile(_bootstrap_macro_f1(answers, rng), (0.025, 0.975))
        covered += low <= 0 <= high
    return {"scenario": scenario.name, "runs": runs, "coverage": round(covered / runs, 3)}


def _bootstrap_macro_f1(answers: CodedAnswers, rng: np.random.Generator) -> np.ndarray:
    n, labels = len(answers.expected), np.arange(len(answers.labels))
    weights = rng.multinomial(n, np.full(n, 1 / n), size=2000).astype(float)
    support, a, b = (codes[:, None] == labels for codes in (answers.expected, answers.got_a, answers.got_b))
    macro_f1 = WHOLE_SET["macro_f1"]
    value_a, value_b = (macro_f1(weights @ (support & got), weights @ support, weights @ got) for got in (a, b))
    return value_b - value_a


def measure_speed(seed: int) -> dict[str, Any]:
    """Seconds for 3,080 cases of 77 labels, accuracy and macro-F1 on 4,096 resamples; the median of five."""
    cases = simulate(Scenario(3080, 0.25, labels=77), np.random.default_rng(seed))
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        compare(cases, "accuracy", ("accuracy", "macro_f1"))
        seconds.append(time.perf_counter() - start)
    return {"cases": 3080, "labels": 77, "seconds": round(float(np.median(seconds)), 3), "budget_s": BUDGET_S}


def run(quick: bool) -> dict[str, Any]:
    runs = QUICK_RUNS if quick else RUNS
    started = time.perf_counter()
    speed = measure_speed(seed=1)
    scenarios = []
    for i, scenario in enumerate(SCENARIOS):
        scenarios.append(measure(scenario, runs, seed=1000 + i))
        click.echo(f"[{i + 1}/{len(SCENARIOS)}] {json.dumps(scenarios[-1])}", err=True)
    power = measure_power(runs, seed=7)
    total = len(SCENARIOS) * runs
    false_overall = sum(s["false_verdicts"] * runs for s in scenarios) / total
    return {
        "name": "stats",
        "figures": {
            "false_verdicts_overall": round(false_overall, 4),
            "false_verdicts_worst": max(s["false_verdicts"] for s in scenarios),
            "coverage_least": min(min(s["coverage"].values()) for s in scenarios),
            "coverage_most_from_5_discordant": max(
                max(s["coverage"].values()) for s in scenarios if s["mean_discordant"] >= FEWEST_DISCORDANT
            ),
            "speed": speed,
            "power": power,
            "percentile_bootstrap": measure_percentile_bootstrap(runs, seed=9),
        },
        "ratios": {"power_paired_to_unpaired": round(power["paired"] / max(power["unpaired_z"], 1 / runs), 2)},
        "goal": {
            "false_verdicts": "at most 5 % family-wise over all, and in each scenario within 3 Monte Carlo errors",
            "coverage": "93.5 % to 96.5 % of every metric where 5 or more cases are discordant, at least 93.5 % below",
            "power": "paired above unpaired",
            "speed": f"under {BUDGET_S} s",
        },
        "met": all(s["met"] for s in scenarios)
        and false_overall <= ALPHA
        and power["paired"] > power["unpaired_z"]
        and speed["seconds"] < BUDGET_S,
        "scenarios": scenarios,
        "machine": {"python": platform.python_version(), "cpu": platform.machine(), "cores": os.cpu_count()},
        "elapsed_s": round(time.perf_counter() - started, 1),
    }


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of a short summary.")
@click.option("--quick", is_flag=True, help=f"{QUICK_RUNS} runs a scenario instead of {RUNS}.")
def main(as_json: bool, quick: bool) -> None:
    """Measures the honesty of verdicts and intervals; exits 1 when a goal is missed."""
    result = run(quick)
    click.echo(json.dumps(result) if as_json else json.dumps(result["figures"], indent=2))
    sys.exit(0 if result["met"] else 1)


if __name__ == "__main__":
    main()
