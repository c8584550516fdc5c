"""Prometheus metrics of agents. Nothing that anybody wrote is in a label."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

PUSHES = Counter("burnish_agent_pushes_total", "Pushes to the agent engine by outcome", ["outcome"])
PUSH_SECONDS = Histogram("burnish_agent_push_seconds", "Time that the engine takes for a push")
REFINES = Counter("burnish_refine_turns_total", "Refine turns by outcome", ["outcome", "reason"])
REFINE_SECONDS = Histogram(
    "burnish_refine_seconds",
    "Time of a refine turn by part",
    ["part"],
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
REFINES_IN_FLIGHT = Gauge("burnish_refine_in_flight", "Refine turns in flight")
