"""Prometheus metrics of the ledger. Labels are words of the contracts, never data."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

ACTIVATIONS = Counter("burnish_ledger_activations_total", "Versions that became live, by how", ["kind"])
CONFLICTS = Counter("burnish_ledger_conflicts_total", "Activations refused since another version was live")
ROLLBACKS_PROPOSED = Counter("burnish_rollbacks_proposed_total", "Rollbacks that a person was asked for")
INTENTS = Gauge("burnish_intents", "Changes that wait for a person to merge, by state", ["state"])
DRIFT_DETECTED = Counter("burnish_drift_detected_total", "Edits behind the ledger's back that were found")
DRIFTED = Gauge("burnish_drifted", "Live versions whose stored text is not the one that was activated")
DRIFT_UNKNOWN = Gauge("burnish_drift_unknown", "Live versions whose store could not be looked at")
