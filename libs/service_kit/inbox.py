"""The inbox table: what makes the effect of an event happen once, over any restart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from libs.contracts.envelope import Event, EventData
from libs.service_kit.connection import Connection
from libs.service_kit.metrics import INBOX_DUPLICATES

DataT = TypeVar("DataT", bound=EventData)

_RECORD = """
INSERT INTO inbox (consumer, event_id)
SELECT $1, id FROM unnest($2::uuid[]) AS id ORDER BY id
ON CONFLICT DO NOTHING
RETURNING event_id
"""


async def record(conn: Connection, consumer: str, events: Sequence[Event[DataT]]) -> list[Event[DataT]]:
    """Record the events; return those that were not there, each once, in the order given."""
    unique = {event.id: event for event in events}
    rows = await conn.fetch(_RECORD, consumer, list(unique))
    new = {row["event_id"] for row in rows}
    duplicates = len(events) - len(new)
    if duplicates:
        INBOX_DUPLICATES.labels(consumer).inc(duplicates)
    return [event for identity, event in unique.items() if identity in new]
