"""Prometheus metrics of the normaliser."""

from __future__ import annotations

from prometheus_client import Counter

SIGNALS = Counter("burnish_signals_total", "Signals by what was said about them", ["fact", "kind"])
