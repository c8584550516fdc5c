"""The event envelope: one JSON document with CloudEvents 1.0 attribute names around a frozen payload."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar
from uuid import UUID, uuid4, uuid5

from pydantic import BaseModel, ConfigDict, StringConstraints, model_validator

from libs.contracts.text import STORABLE, Label

EVENT_NAMESPACE = UUID("6f1d3a52-6a0e-5c39-9a55-6d5c2a4c0b17")
SCHEMA_BASE = "burnish:schema/"
MAX_EVENT_BYTES = 1024 * 1024


SpecVersion = Annotated[str, StringConstraints(pattern=r"^1\.0$"), STORABLE]


class Frozen(BaseModel):
    """A value that never changes. Unknown fields are ignored, so that a newer sender stays readable."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class EventData(Frozen):
    """What one event says. A subclass names its `type`, and where the fact has one, its natural key."""

    type: ClassVar[str]

    def natural_key(self) -> str | None:
        """A text that is equal exactly when two events say the same fact; None where there is no such text."""
        return None

    def about(self) -> str | None:
        """The thing the event is about (CloudEvents `subject`): the touchpoint, where there is one."""
        value = getattr(self, "touchpoint_id", None)
        return value if isinstance(value, str) else None


class ForeignData(EventData):
    """What somebody says who knows no envelope: the message is the data itself, and gets an envelope on arrival.

    It has no id that two deliveries would share, so what it comes to must be harmless when it is done again.
    """

    @classmethod
    def arrived(cls, body: bytes | str, source: str) -> Event[Self]:
        """The message in an envelope. Raises pydantic's `ValidationError`."""
        return Event[cls].of(cls.model_validate_json(body), source=source)  # type: ignore[valid-type]


DataT = TypeVar("DataT", bound=EventData)


def event_id(data: EventData) -> UUID:
    """UUIDv5 over type and natural key, so that saying a fact twice is saying it once; random without a key."""
    key = data.natural_key()
    return uuid4() if key is None else uuid5(EVENT_NAMESPACE, f"{data.type}|{key}")


class Event(Frozen, Generic[DataT]):
    """One event as it stands on the bus. `type` equals the NATS subject."""

    specversion: SpecVersion = "1.0"
    id: UUID
    source: Label
    type: Label
    subject: Label | None = None
    time: datetime
    datacontenttype: Label = "application/json"
    dataschema: Label
    correlationid: UUID
    causationid: UUID | None = None
    traceparent: Label | None = None
    data: DataT

    @model_validator(mode="after")
    def _type_is_that_of_the_data(self) -> Event[DataT]:
        if self.type != self.data.type:
            raise ValueError(f"type is {self.type!r}, but this contract is {self.data.type!r}")
        return self

    @classmethod
    def of(
        cls,
        data: DataT,
        *,
        source: str,
        cause: Event[Any] | None = None,
        traceparent: str | None = None,
        time: datetime | None = None,
    ) -> Event[DataT]:
        """Wrap `data`. The correlation id is that of the cause, or the event's own id at the start of a chain."""
        identity = event_id(data)
        return cls(
            id=identity,
            source=source,
            type=data.type,
            subject=data.about(),
            time=time or datetime.now(UTC),
            dataschema=f"{SCHEMA_BASE}{data.type}.json",
            correlationid=cause.correlationid if cause else identity,
            causationid=cause.id if cause else None,
            traceparent=traceparent or (cause.traceparent if cause else None),
            data=data,
        )

    def encode(self) -> bytes:
        """The bytes that go on the bus. Raises ValueError over `MAX_EVENT_BYTES`."""
        body = self.model_dump_json(exclude_none=True).encode()
        if len(body) > MAX_EVENT_BYTES:
            raise ValueError(f"event {self.type} is {len(body)} bytes, the limit is {MAX_EVENT_BYTES}")
        return body
