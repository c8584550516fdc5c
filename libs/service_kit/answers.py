"""The answer to a question as it stands on the bus: a FastStream middleware around the handler."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

from faststream import BaseMiddleware, Response
from pydantic import ValidationError

from libs.contracts.queries.base import MAX_REPLY_BYTES, AnyQuery
from libs.service_kit import logging, tracing
from libs.service_kit.causes import cause_of
from libs.service_kit.errors import Refused
from libs.service_kit.metrics import QUERIES

if TYPE_CHECKING:
    from faststream import ContextRepo, StreamMessage

log = logging.get(__name__)


class Answers:
    """`{"reply": …}` or `{"refused": {status, code, detail}}` around the handler of one kind of question."""

    def __init__(self, subject: str, query: type[AnyQuery]) -> None:
        self.subject = subject
        self._query = query

    def __call__(self, msg: Any, /, *, context: ContextRepo) -> BaseMiddleware:
        return _Scope(msg, context=context, answers=self)

    async def answer(self, body: bytes, handle: Callable[[AnyQuery], Awaitable[Any]]) -> bytes:
        """The reply to one question."""
        try:
            reply = await handle(self._query.model_validate_json(body))
            encoded: bytes = b'{"reply":' + reply.model_dump_json().encode() + b"}"
            if len(encoded) > MAX_REPLY_BYTES:
                raise Refused("too_large", "the answer is too large; ask for fewer", status=413)
        except Refused as no:
            QUERIES.labels(self.subject, "refused").inc()
            return _refused(no.status, no.code, no.detail, no.extra)
        except ValidationError as error:
            QUERIES.labels(self.subject, "invalid").inc()
            return _refused(422, "invalid", logging.describe(error))
        except Exception as error:
            return self._failed(error)
        QUERIES.labels(self.subject, "answered").inc()
        return encoded

    def _failed(self, error: Exception) -> bytes:
        """An error that nobody foresaw, by its cause."""
        cause = cause_of(error)
        QUERIES.labels(self.subject, "invalid" if cause == "sent" else "failed").inc()
        if cause == "bug":
            # Its message may hold what was asked.
            log.error("query.failed", subject=self.subject, error=type(error).__name__, at=logging.place(error))
        else:
            log.warning("query.failed", subject=self.subject, error=logging.describe(error), cause=cause)
        service = self.subject.split(".")[1]
        if cause == "sent":
            return _refused(422, "not_storable", f"the question holds a value that {service} cannot store")
        if cause == "away":
            return _refused(503, "unavailable", f"what {service} needs does not answer", {"service": service})
        return _refused(500, "failed", f"{service} failed for a reason that was logged")


class _Scope(BaseMiddleware):
    """FastStream's side of it: from the bytes of a question to the query, and from the reply back to bytes."""

    def __init__(self, msg: Any, /, *, context: ContextRepo, answers: Answers) -> None:
        super().__init__(msg, context=context)
        self._answers = answers

    async def consume_scope(self, call_next: Callable[..., Awaitable[Any]], msg: StreamMessage[Any]) -> Response:
        """Around one call of the handler."""

        async def handle(query: AnyQuery) -> Any:
            part = copy(msg)
            part.body = query
            return await call_next(part)

        with tracing.span(self._answers.subject, msg.headers.get("traceparent")):
            return Response(await self._answers.answer(msg.body, handle))


def _refused(status: int, code: str, detail: str, extra: Mapping[str, object] | None = None) -> bytes:
    told = {"status": status, "code": code, "detail": detail, "extra": dict(extra or {})}
    return json.dumps({"refused": told}, default=str).encode()
