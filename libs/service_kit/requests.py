"""The requests table: what makes a question that changes something take effect once, however often it is asked.

The asker puts the same `request_id` into every attempt. The answer is kept in the transaction of the effect, so
whoever died in between, the next attempt is answered as the first was, or has the effect now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar, cast
from uuid import UUID

from libs.contracts.queries.base import MAX_REPLY_BYTES, AnyQuery, Reply
from libs.service_kit.errors import Refused

if TYPE_CHECKING:
    from libs.service_kit.db import Connection, Database

T = TypeVar("T")
P = ParamSpec("P")
ReplyT = TypeVar("ReplyT", bound=Reply)
KEPT_DAYS = 30
"""Longer than an asker may ask again."""

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('request.' || $1::text, 0))"
_EARLIER = "SELECT query_sha256, reply FROM requests WHERE request_id = $1"
_KEEP = "INSERT INTO requests (request_id, query_sha256, reply) VALUES ($1, $2, $3)"
_FORGET = "DELETE FROM requests WHERE answered_at < now() - make_interval(days => $1)"


class Answered(Exception):
    """The request had its effect before; `reply` is what it was answered with."""

    def __init__(self, reply: Reply) -> None:
        super().__init__()
        self.reply = reply


class Once(Generic[T]):
    """One question whose effect happens once. `reply` makes its answer from the effect's outcome."""

    def __init__(self, query: AnyQuery, reply: Callable[[T], Reply]) -> None:
        self._query = query
        self._reply = reply
        self._request_id: UUID | None = getattr(query, "request_id", None)

    async def look(self, conn: Connection) -> None:
        """Raise Answered when the effect happened before; Refused 422 when the id came with another question."""
        if self._request_id is None:
            return
        row = await conn.fetchrow(_EARLIER, self._request_id)
        if row is None:
            return
        if row["query_sha256"] != self._sha256():
            raise reused()
        raise Answered(self._query.reply.model_validate(row["reply"]))

    async def begin(self, conn: Connection) -> None:
        """The same, in the effect's transaction: the same request elsewhere is waited for."""
        if self._request_id is not None:
            await conn.execute(_LOCK, str(self._request_id))
            await self.look(conn)

    async def end(self, conn: Connection, outcome: T) -> None:
        """Keep the answer, in the same transaction. Raises Refused 413 for one that could not be carried back."""
        reply = self._reply(outcome)
        if len(reply.model_dump_json().encode()) > MAX_REPLY_BYTES:
            raise Refused(
                "too_large", "the answer would be too large, so nothing was changed; ask for less", status=413
            )
        if self._request_id is not None:
            await conn.execute(_KEEP, self._request_id, self._sha256(), reply.model_dump(mode="json"))

    def _sha256(self) -> str:
        text = self._query.subject + self._query.model_dump_json(exclude={"request_id"})
        return hashlib.sha256(text.encode()).hexdigest()


def reused() -> Refused:
    """The same key with another request."""
    return Refused("idempotency_key_reused", "this Idempotency-Key came with another request before", status=422)


def repeatable(answer: Callable[P, Awaitable[ReplyT]]) -> Callable[P, Awaitable[ReplyT]]:
    """Let an answering function say Answered."""

    @wraps(answer)
    async def answered(*args: P.args, **dependencies: P.kwargs) -> ReplyT:
        try:
            return await answer(*args, **dependencies)
        except Answered as before:
            return cast(ReplyT, before.reply)

    return answered


async def forget_old(db: Database) -> None:
    """Remove answers that nobody asks for again."""
    async with db.connection() as conn:
        await conn.execute(_FORGET, KEPT_DAYS)
