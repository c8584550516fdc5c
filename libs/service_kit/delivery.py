"""What is being delivered right now: which consumer, which event. Set by the kit, read by the transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from libs.contracts.envelope import Event


@dataclass(frozen=True)
class Delivery:
    """The consumer in whose name events are recorded, and the event in hand when there is exactly one."""

    consumer: str = "direct"
    only_event: Event[Any] | None = None


_NONE = Delivery()
_CURRENT: ContextVar[Delivery] = ContextVar("delivery", default=_NONE)


def current_delivery() -> Delivery:
    """The delivery in progress; outside any, the consumer is called `direct`."""
    return _CURRENT.get()


@contextmanager
def delivering(consumer: str, events: list[Event[Any]]) -> Iterator[None]:
    """Mark these events as being delivered to `consumer`."""
    only = events[0] if len(events) == 1 else None
    token = _CURRENT.set(Delivery(consumer, only))
    try:
        yield
    finally:
        _CURRENT.reset(token)
