"""What a question with an immediate answer is: core NATS request/reply, never stored, with typed replies."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar
from uuid import UUID

from pydantic import Field

from libs.contracts.envelope import Frozen

MAX_REPLY_BYTES = 3 * 1024 * 1024
"""Largest answer, as JSON: below what the bus carries."""


class Reply(Frozen):
    """What a query is answered with."""


ReplyT = TypeVar("ReplyT", bound=Reply)


class AnyQuery(Frozen):
    """One question. `subject` is `ask.<service>.<thing>.<verb>.v<major>`; `reply` is the model of the answer."""

    subject: ClassVar[str]
    reply: ClassVar[type[Reply]]


class Query(AnyQuery, Generic[ReplyT]):
    """A question that is answered with a `ReplyT`."""


class Repeatable(Frozen):
    """A question that changes something. Asked again under the same id, it has no second effect."""

    request_id: UUID | None = Field(default=None, description="the same id again is answered as the first time")
