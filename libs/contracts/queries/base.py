"""What a question with an immediate answer is: core NATS request/reply, never stored, with typed replies."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from libs.contracts.envelope import Frozen


class Reply(Frozen):
    """What a query is answered with."""


ReplyT = TypeVar("ReplyT", bound=Reply)


class AnyQuery(Frozen):
    """One question. `subject` is `ask.<service>.<thing>.<verb>.v<major>`; `reply` is the model of the answer."""

    subject: ClassVar[str]
    reply: ClassVar[type[Reply]]


class Query(AnyQuery, Generic[ReplyT]):
    """A question that is answered with a `ReplyT`."""
