"""Prometheus metrics of the proposal service; those of its model calls are in `libs/llm`. Labels are words of the
contracts, never data."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

PROPOSALS = Gauge("burnish_proposals", "Proposals by state", ["state"])
LEAKS_DROPPED = Counter("burnish_proposal_leaks_dropped_total", "Added lines left out since they held a gold case")
