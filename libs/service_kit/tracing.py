"""W3C trace context through the bus: an event carries `traceparent`, its handling is a child of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR = TraceContextTextMapPropagator()
_PROVIDER = TracerProvider()
_TRACER = _PROVIDER.get_tracer("burnish")


@contextmanager
def span(name: str, parent: str | None = None) -> Iterator[None]:
    """A span named `name`; a child of the `traceparent` given, else of the current span, else a new trace."""
    outer = _PROPAGATOR.extract({"traceparent": parent}) if parent else context.get_current()
    with _TRACER.start_as_current_span(name, context=outer, record_exception=False):
        yield


def traceparent() -> str | None:
    """The current span as a `traceparent` header, or None outside any span."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier.get("traceparent")


def trace_id() -> str | None:
    """The current trace id in hex, for logs."""
    current = trace.get_current_span().get_span_context()
    return f"{current.trace_id:032x}" if current.is_valid else None
