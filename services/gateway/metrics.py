"""Prometheus metrics of the gateway. Labels are words of the contracts, never data."""

from __future__ import annotations

from prometheus_client import Counter

LIVE = Counter("burnish_live_served_total", "Live prompts served, from where", ["source"])
REPLAYED = Counter("burnish_idempotent_replays_total", "Requests answered as the first with their key was")
LIVE_FORGOTTEN = Counter("burnish_live_forgotten_total", "Times the known live prompts were all given up")
LIMITED = Counter("burnish_limited_total", "Requests refused since there were too many of their kind", ["kind"])
