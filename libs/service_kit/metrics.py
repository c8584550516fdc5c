"""Prometheus metrics of the kit. Labels are names from the topology, never data."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

MESSAGES = Counter("burnish_messages_total", "Messages handled, by consumer and outcome", ["consumer", "outcome"])
REDELIVERED = Counter("burnish_messages_redelivered_total", "Messages that came more than once", ["consumer"])
HANDLE_SECONDS = Histogram(
    "burnish_handle_seconds",
    "Time to handle one batch",
    ["consumer"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
INBOX_DUPLICATES = Counter("burnish_inbox_duplicates_total", "Events left out since they were seen", ["consumer"])
INBOX_PRUNED = Counter("burnish_inbox_pruned_total", "Events forgotten, since no stream can hold them any more")
INBOX_ROWS = Gauge("burnish_inbox_rows", "Events remembered, when the inbox was last pruned")
INBOX_OLDEST = Gauge("burnish_inbox_oldest_age_seconds", "Age of the oldest of them")
DEAD_LETTERS = Counter("burnish_dead_letters_total", "Messages put with the dead letters", ["consumer"])
DEAD_LETTERS_OPEN = Gauge("burnish_dead_letters_open", "Dead letters that were not replayed")
OUTBOX_DEPTH = Gauge("burnish_outbox_depth", "Facts that wait to be published")
OUTBOX_AGE = Gauge("burnish_outbox_age_seconds", "Age of the oldest fact that waits")
PUBLISHED = Counter("burnish_published_total", "Facts published, by how", ["how"])
CONSUMER_LAG = Gauge("burnish_consumer_lag", "Messages a durable has not delivered yet", ["consumer"])
QUERIES = Counter("burnish_queries_total", "Queries answered, by subject and outcome", ["subject", "outcome"])
READY = Gauge("burnish_ready", "1 when the service is ready")
