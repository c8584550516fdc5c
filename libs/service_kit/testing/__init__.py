"""Helpers for tests on real servers: events, in-memory messages, what was said."""

from libs.service_kit.testing.events import MemoryMessage, event_of, outbox_events
from libs.service_kit.testing.installation import Installation

__all__ = ["Installation", "MemoryMessage", "event_of", "outbox_events"]
