"""What every service answers about its dead letters."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from pydantic import Base64Bytes, Field

from libs.contracts.envelope import Frozen
from libs.contracts.queries.base import Query, Reply
from libs.contracts.vocabulary import (
    Instant,
    LongText,
    Name,
    ShortText,
)


class DeadLetter(Frozen):
    """A message that could not be handled, and why. Its body stays with the service."""

    dead_letter_id: UUID
    service: Name
    consumer: Name
    subject: Name
    event_id: UUID | None = None
    error: ShortText
    error_class: Name
    deliveries: int
    failed_at: Instant
    replayed_at: Instant | None = None
    replay_count: int = 0
    bytes: int


class DeadLetters(Reply):
    """Dead letters, newest first."""

    dead_letters: tuple[DeadLetter, ...]


class ListDeadLetters(Query[DeadLetters]):
    """A service's dead letters. Asked as `ask.<service>.dead_letters.list.v1`."""

    reply: ClassVar[type[Reply]] = DeadLetters

    include_replayed: bool = False
    limit: int = Field(default=100, ge=1, le=1_000)


class Replayed(Reply):
    """What a replay came to."""

    outcome: Name
    detail: ShortText = ""


class ReplayDeadLetter(Query[Replayed]):
    """Hand a dead letter to its consumer again. Asked as `ask.<service>.dead_letters.replay.v1`."""

    reply: ClassVar[type[Reply]] = Replayed

    dead_letter_id: UUID


class Buried(Reply):
    """Whether it is new among the dead letters; False when it was there already."""

    new: bool


class BuryStranded(Query[Buried]):
    """Put a message that the server will not deliver again with the dead letters of the service whose durable it was.

    Asked as `ask.<service>.dead_letters.bury.v1`, by whoever keeps the bus. `body` is the message, whole; `said_on` is
    its subject.
    """

    reply: ClassVar[type[Reply]] = Buried

    consumer: Name
    said_on: Name
    stream_seq: int = Field(ge=1)
    deliveries: int = Field(ge=0)
    reason: ShortText
    headers: dict[Name, LongText] = Field(default={})
    body: Base64Bytes
