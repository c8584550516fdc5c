"""Prometheus metrics of model calls, the same in every service. Labels are words of configuration, never data."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from libs.llm.base import Usage

CALLS = Counter("burnish_model_calls_total", "Calls of models by outcome", ["provider", "touchpoint", "outcome"])
TOKENS = Counter("burnish_model_tokens_total", "Tokens of model calls", ["provider", "touchpoint", "direction"])
USD = Counter("burnish_model_usd_total", "USD spent on model calls", ["provider", "touchpoint"])
BUDGET_LEFT = Gauge("burnish_model_budget_left_usd", "USD left of the service's model budget of today")


def count(provider: str, touchpoint: str, outcome: str, usage: Usage, calls: int = 1) -> None:
    """Count calls that ended in one way, and what they used together."""
    CALLS.labels(provider, touchpoint, outcome).inc(calls)
    TOKENS.labels(provider, touchpoint, "input").inc(usage.input_tokens)
    TOKENS.labels(provider, touchpoint, "output").inc(usage.output_tokens)
    USD.labels(provider, touchpoint).inc(float(usage.usd))
