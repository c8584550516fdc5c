"""Events for tests: wrapped payloads, messages in memory that remember their outcome, and the outbox read back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from nats.aio.msg import Msg

from libs.contracts.envelope import Event, EventData
from libs.contracts.topology import EVENTS
from libs.service_kit.db import Database

DataT = TypeVar("DataT", bound=EventData)
_MODELS: dict[str, type[Event[Any]]] = {event.type: Event[event] for event in EVENTS}  # type: ignore[valid-type]


def event_of(data: DataT, *, time: datetime | None = None) -> Event[DataT]:
    """`data` in an envelope, as another service would have said it."""
    return Event.of(data, source="burnish/test", time=time)


async def outbox_events(db: Database, kind: type[DataT] | None = None) -> list[Event[Any]]:
    """The events that wait in the outbox, in order; of one type when `kind` is given."""
    async with db.connection() as conn:
        rows = await conn.fetch("SELECT subject, body FROM outbox ORDER BY id")
    events = [
        _MODELS[row["subject"]].model_validate_json(bytes(row["body"])) for row in rows if row["subject"] in _MODELS
    ]
    return [event for event in events if kind is None or event.type == kind.type]


class MemoryMessage:
    """A delivered message without a server. `outcome` is None, "ack", or ("nak", delay)."""

    def __init__(self, body: Event[Any] | bytes, *, subject: str = "", deliveries: int = 1, seq: int = 1) -> None:
        self.data = body if isinstance(body, bytes) else body.encode()
        self.subject = subject or (body.type if isinstance(body, Event) else "test")
        self.outcome: str | tuple[str, float | None] | None = None
        self.beats = 0
        self._metadata = Msg.Metadata(
            sequence=Msg.Metadata.SequencePair(consumer=seq, stream=seq),
            num_pending=0,
            num_delivered=deliveries,
            timestamp=datetime.now(UTC),
            stream="TEST",
            consumer="test",
        )

    @property
    def headers(self) -> Mapping[str, str] | None:
        return None

    @property
    def metadata(self) -> Msg.Metadata:
        """Deliveries and sequence as given."""
        return self._metadata

    async def ack(self) -> None:
        self.outcome = "ack"

    async def nak(self, delay: float | None = None) -> None:
        self.outcome = ("nak", delay)

    async def in_progress(self) -> None:
        self.beats += 1
