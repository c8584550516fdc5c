"""Metrics of the scanner. A touchpoint and its sources are configuration, so they may be labels."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from libs.contracts.queries.scanner import ScanRun

RUNS = Counter("burnish_scanner_runs_total", "Scanner runs", ["touchpoint", "scanner", "ok"])
SIGNALS = Counter("burnish_scanner_signals_total", "Signals that scanners found", ["touchpoint", "scanner"])
LAST_GOOD_RUN = Gauge(
    "burnish_scanner_last_good_run_timestamp_seconds",
    "When a scanner last ran without an error",
    ["touchpoint", "scanner"],
)


def observe(run: ScanRun) -> None:
    """Count a run."""
    RUNS.labels(run.touchpoint_id, run.scanner, str(run.ok).lower()).inc()
    SIGNALS.labels(run.touchpoint_id, run.scanner).inc(run.signals_emitted)
    if run.ok:
        LAST_GOOD_RUN.labels(run.touchpoint_id, run.scanner).set(run.started_at.timestamp())
