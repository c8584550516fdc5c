"""Prometheus metrics of the Q&A library."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

DOCUMENTS = Counter("burnish_qa_documents_total", "Objects that were followed, by what came of it", ["outcome"])
EMBEDDED = Counter("burnish_qa_embedded_total", "Questions that got their vector")
SEARCHES = Counter("burnish_qa_searches_total", "Searches, by whether anything was found", ["result"])
SEARCH_SECONDS = Histogram("burnish_qa_search_seconds", "How long the lanes of a search take", buckets=(
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
))  # fmt: skip
