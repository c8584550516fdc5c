"""Request and reply with typed contracts over core NATS: ask, and answer in a queue group."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from faststream.message import StreamMessage
from faststream.nats import NatsBroker, NatsRouter
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError, NoRespondersError
from pydantic import ValidationError

from libs.contracts.queries.base import AnyQuery, Query, Reply
from libs.service_kit import logging, tracing
from libs.service_kit.answers import Answers
from libs.service_kit.bus import new_broker
from libs.service_kit.errors import Refused, Unavailable
from libs.service_kit.wiring import bound, check_filled

log = logging.get(__name__)

ReplyT = TypeVar("ReplyT", bound=Reply)
Answerer = Callable[..., Awaitable[Reply]]
TIMEOUT_S = 10.0
IN_FLIGHT = 32
QUEUE = "answer"


class BadAnswer(RuntimeError):
    """An answer that is not of its contract."""


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
    try:
        reply: ReplyT = query.reply.model_validate(document["reply"])  # type: ignore[assignment]
    except ValidationError as error:
        # Not what was asked is wrong but what was answered, whose values are nobody's to read.
        raise BadAnswer(logging.describe(error)) from None
    return reply


class Responder:
    """Answers one kind of query. Handlers are plain functions of a query and their dependencies.

    Subscription and reply are ours: FastStream's drop the questions that come while it stops. `broker` is the
    service's; without one it stands alone, for a test.
    """

    def __init__(
        self,
        subject: str,
        query: type[AnyQuery],
        handler: Answerer,
        dependencies: Mapping[str, Any],
        broker: NatsBroker | None = None,
    ) -> None:
        self.subject = subject
        self._broker = broker = broker or new_broker()
        self._what = f"the answer to {query.__name__}"
        router = NatsRouter(middlewares=[Answers(subject, query)])
        self._subscriber = router.subscriber(subject, queue=QUEUE, no_reply=True, decoder=_asked, title=subject)
        self._subscriber(bound(handler, self._what, (query, AnyQuery), dependencies))
        broker.include_router(router)
        self._subscriber.schema()  # builds what calls the handler; `start()` would too, and would subscribe
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscription: Subscription | None = None

    def check(self) -> None:
        """Raise WiringError, when the service starts, for what FastStream could not give the handler."""
        check_filled(self._subscriber, self._broker.context, self._what)

    async def start(self, client: Client) -> None:
        """Subscribe in a queue group, so that replicas share the questions."""
        self._subscription = await client.subscribe(self.subject, queue=QUEUE, cb=self._received)

    async def drain(self) -> None:
        """Take no more questions, and wait for the answers in work."""
        if self._subscription is not None:
            with suppress(NatsError, OSError):
                await self._subscription.drain()  # type: ignore[no-untyped-call]
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def answer(self, body: bytes) -> bytes:
        """The reply to one question: `{"reply": …}` or `{"refused": {status, code, detail}}`."""
        return await self._answer(Msg(_client=None, subject=self.subject, data=body))  # type: ignore[arg-type]

    async def _answer(self, message: Msg) -> bytes:
        reply: bytes = (await self._subscriber.process_message(message)).body
        return reply

    async def _received(self, message: Msg) -> None:
        # A slow question must not hold up the next one: nats-py calls back one at a time.
        task = asyncio.create_task(self._respond(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _respond(self, message: Msg) -> None:
        async with self._slots:
            body = await self._answer(message)
        try:
            await message.respond(body)
        except NatsError as error:
            log.warning("query.reply_lost", subject=self.subject, error=logging.describe(error))


async def _asked(message: StreamMessage[Any]) -> Any:
    return message.body  # `Answers` has put the query there
