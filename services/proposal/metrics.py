"""Prometheus metrics of the proposal service. Labels are words of the contracts, never data."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

PROPOSALS = Gauge("burnish_proposals", "Proposals by state", ["state"])
MODEL_CALLS = Counter("burnish_model_calls_total", "Calls of models by outcome", ["provider", "outcome"])
MODEL_TOKENS = Counter("burnish_model_tokens_total", "Tokens of model calls", ["provider", "direction"])
MODEL_USD = Counter("burnish_model_usd_total", "USD spent on model calls", ["provider"])
BUDGET_LEFT = Gauge("burnish_model_budget_left_usd", "USD left of today's model budget, over all touchpoints")
LEAKS_DROPPED = Counter("burnish_proposal_leaks_dropped_total", "Added lines left out since they held a gold case")
