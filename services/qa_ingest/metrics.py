"""Prometheus metrics of the Q&A library."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

DOCUMENTS = Counter("burnish_qa_documents_total", "Objects that were followed, by what came of it", ["outcome"])
EMBEDDED = Counter("burnish_qa_embedded_total", "Questions that got their vector")
FORMS = Counter("burnish_qa_forms_total", "Forms and lists of questions that were matched, by format", ["format"])
OPERATIONS = Counter("burnish_qa_operations_total", "What was done with pairs, by kind", ["kind"])
SEARCHES = Counter("burnish_qa_searches_total", "Searches, by whether anything was found", ["result"])
SEARCH_SECONDS = Histogram("burnish_qa_search_seconds", "How long the lanes of a search take", buckets=(
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
))  # fmt: skip
BUCKET_UP = Gauge("burnish_qa_bucket_up", "Whether a bucket answered when it was last listed", ["bucket"])
BUCKET_OBJECTS = Gauge("burnish_qa_bucket_objects", "Objects in a bucket's last whole listing", ["bucket"])
BUCKET_LISTED = Gauge("burnish_qa_bucket_listed_timestamp", "When a bucket was last listed to the end", ["bucket"])
HINTS = Counter(
    "burnish_qa_hints_total", "Events about objects, by how they came and what came of it", ["by", "outcome"]
)
REPORTS = Counter("burnish_qa_reports_total", "Reports beside sources, by what came of it", ["outcome"])
