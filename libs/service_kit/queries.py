"""Request and reply with typed contracts over core NATS: ask, and answer in a queue group."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError, NoRespondersError
from pydantic import ValidationError

from libs.contracts.queries.base import AnyQuery, Query, Reply
from libs.service_kit import logging, tracing
from libs.service_kit.errors import Refused, Unavailable
from libs.service_kit.metrics import QUERIES

log = logging.get(__name__)

ReplyT = TypeVar("ReplyT", bound=Reply)
Answerer = Callable[..., Awaitable[Reply]]
TIMEOUT_S = 10.0
MAX_REPLY_BYTES = 3 * 1024 * 1024
IN_FLIGHT = 32


class Asker:
    """Asks other services. An answer that says no is raised as Refused, silence as Unavailable."""

    def __init__(self, client: Callable[[], Client]) -> None:
        self._client = client

    async def ask(self, query: Query[ReplyT], *, subject: str | None = None, timeout_s: float = TIMEOUT_S) -> ReplyT:
        """Ask and wait. Raises Refused (with the status the answerer gave) or Unavailable."""
        where = subject or query.subject
        headers = {"traceparent": parent} if (parent := tracing.traceparent()) else None
        try:
            message = await self._client().request(
                where, query.model_dump_json(exclude_none=True).encode(), timeout=timeout_s, headers=headers
            )
        except NoRespondersError as error:
            raise Unavailable(f"nobody answers {where}") from error
        except MaxPayloadError as error:
            # No outage: waiting for it to end would be for ever.
            raise Refused("too_large", f"the question to {where} is larger than the bus carries", status=413) from error
        except (NatsError, TimeoutError, OSError) as error:
            raise Unavailable(f"no answer from {where} within {timeout_s:g} s") from error
        return _read(query, message.data)


def _read(query: Query[ReplyT], body: bytes) -> ReplyT:
    document = json.loads(body)
    if (no := document.get("refused")) is not None:
        raise Refused(no["code"], no["detail"], status=no["status"], **no.get("extra", {}))
    reply: ReplyT = query.reply.model_validate(document["reply"])  # type: ignore[assignment]
    return reply


class Responder:
    """Answers one kind of query. Handlers are plain functions of a query and their dependencies."""

    def __init__(self, subject: str, query: type[AnyQuery], handler: Answerer, dependencies: Mapping[str, Any]) -> None:
        self.subject = subject
        self._query = query
        self._handler = handler
        self._dependencies = dependencies
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscription: Subscription | None = None

    async def start(self, client: Client) -> None:
        """Subscribe in a queue group, so that replicas share the questions."""
        self._subscription = await client.subscribe(self.subject, queue="answer", cb=self._received)

    async def drain(self) -> None:
        """Take no more questions, and wait for the answers in work."""
        if self._subscription is not None:
            with suppress(NatsError, OSError):
                await self._subscription.drain()  # type: ignore[no-untyped-call]
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def answer(self, body: bytes) -> bytes:
        """The reply to one question: `{"reply": …}` or `{"refused": {status, code, detail}}`."""
        try:
            query = self._query.model_validate_json(body)
            reply = await self._handler(query, **self._dependencies)
            encoded = b'{"reply":' + reply.model_dump_json().encode() + b"}"
            if len(encoded) > MAX_REPLY_BYTES:
                raise Refused("too_large", "the answer is too large; ask for fewer", status=413)
        except Refused as no:
            QUERIES.labels(self.subject, "refused").inc()
            return _refused(no.status, no.code, no.detail, no.extra)
        except ValidationError as error:
            QUERIES.labels(self.subject, "invalid").inc()
            return _refused(422, "invalid", logging.describe(error))
        except Exception as error:
            QUERIES.labels(self.subject, "failed").inc()
            log.error("query.failed", subject=self.subject, error=logging.describe(error))
            return _refused(503, "failed", f"{self.subject} could not be answered: {type(error).__name__}")
        QUERIES.labels(self.subject, "answered").inc()
        return encoded

    async def _received(self, message: Msg) -> None:
        # A slow question must not hold up the next one: nats-py calls back one at a time.
        task = asyncio.create_task(self._respond(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _respond(self, message: Msg) -> None:
        parent = (message.headers or {}).get("traceparent")
        async with self._slots:
            with tracing.span(self.subject, parent):
                body = await self.answer(message.data)
        try:
            await message.respond(body)
        except NatsError as error:
            log.warning("query.reply_lost", subject=self.subject, error=logging.describe(error))


def _refused(status: int, code: str, detail: str, extra: Mapping[str, object] | None = None) -> bytes:
    told = {"status": status, "code": code, "detail": detail, "extra": dict(extra or {})}
    return json.dumps({"refused": told}, default=str).encode()
