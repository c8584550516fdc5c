"""Prometheus metrics of the MCP server. Labels are names of tools and outcomes, never data."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

CALLS = Counter("burnish_mcp_calls_total", "Calls of tools", ["tool", "outcome"])
SECONDS = Histogram("burnish_mcp_call_seconds", "How long a call takes", ["tool"])
