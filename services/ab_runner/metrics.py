"""Prometheus metrics of the A/B runner. Labels are words of the contracts, never data."""

from __future__ import annotations

from prometheus_client import Counter

RUNS = Counter("burnish_ab_runs_total", "Runs that ended, by kind and outcome", ["kind", "outcome"])
ANSWERS = Counter("burnish_ab_answers_total", "Answers to cases, by where they came from", ["source"])
USD = Counter("burnish_ab_usd_total", "What the model calls of runs cost, in USD")
