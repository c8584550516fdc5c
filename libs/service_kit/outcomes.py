"""What becomes of each message of a batch: a FastStream middleware around the handler.

This is the one place that turns an exception into ack, redelivery or dead letter. FastStream itself acknowledges
nothing (`AckPolicy.MANUAL`), knows one outcome a batch, and never sees a body that is no event.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from uuid import UUID

from faststream import BaseMiddleware
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import ValidationError

from libs.contracts.envelope import Event, EventData, ForeignData
from libs.contracts.topology import Durable
from libs.service_kit import dead_letters, faults, logging, tracing
from libs.service_kit.db import Database
from libs.service_kit.delivery import delivering
from libs.service_kit.errors import Poison
from libs.service_kit.metrics import HANDLE_SECONDS, MESSAGES, REDELIVERED
from libs.service_kit.redelivery import TRANSIENT, Again, Dead, Redelivery, outage_wait

if TYPE_CHECKING:
    from faststream import ContextRepo, StreamMessage

log = logging.get(__name__)

DataT = TypeVar("DataT", bound=EventData)
REMEMBERED = 10_000
TOKENS_OF_AN_ACK = 9
"""Of the subject on which the accounts' servers take an ack: `$JS.ACK.<stream>.<durable>.<deliveries>.…`."""


class Message(Protocol):
    """A delivered message: what `nats.aio.msg.Msg` has, and what a test can build in memory."""

    subject: str
    data: bytes

    @property
    def headers(self) -> Mapping[str, str] | None:
        """Headers as they came."""

    @property
    def metadata(self) -> Msg.Metadata: ...

    async def ack(self) -> None: ...

    async def nak(self, delay: float | None = None) -> None:
        """Again, after `delay` seconds."""

    async def in_progress(self) -> None: ...


@dataclass(frozen=True)
class Replay:
    """A dead letter's body in the place of a message: handled like one, but what the handler raises is raised."""

    data: bytes


@dataclass(frozen=True)
class Parsed(Generic[DataT]):
    """A message that is an event of the contract."""

    message: Message
    event: Event[DataT]
    deliveries: int

    @property
    def stream_seq(self) -> int:
        """Its place in the stream."""
        return self.message.metadata.sequence.stream


Handle = Callable[[list[Event[DataT]]], Awaitable[None]]


class Outcomes(Generic[DataT]):
    """The middleware of one durable: FastStream calls it once a batch for a `_Scope`."""

    def __init__(self, durable: Durable, *, db: Database, redelivery: Redelivery) -> None:
        self.durable = durable
        self.name = durable.name
        self._db = db
        self._redelivery = redelivery
        self._model: type[Event[DataT]] = Event[durable.event]  # type: ignore[name-defined]
        self._outages: Counter[int] = Counter()
        # As many batches at a time as there are workers; the next one is parsed while they wait for the database.
        self._turn = asyncio.Semaphore(durable.workers)
        self.gives_back = False
        self._handle_seconds = HANDLE_SECONDS.labels(self.name)
        self._acked = MESSAGES.labels(self.name, "acked")

    def __call__(self, msg: Any, /, *, context: ContextRepo) -> BaseMiddleware:
        return _Scope(msg, context=context, outcomes=self)

    async def deliver(self, messages: Sequence[Message], handle: Handle[DataT]) -> None:
        """Handle a batch: every message ends acknowledged, asked for again, or with the dead letters.

        What has not been begun when `gives_back` is set goes back to the server.
        """
        parsed = [item for message in messages if (item := await self._parse(message)) is not None]
        if not parsed:
            return
        with _heartbeat([item.message for item in parsed], self.durable.ack_wait_s * 2 / 3):
            async with self._turn:
                if self.gives_back:
                    await hand_back([item.message for item in parsed])
                    return
                started = perf_counter()
                await self._handle(parsed, handle)
                self._handle_seconds.observe(perf_counter() - started)

    async def replay(self, letter: Replay, handle: Handle[DataT]) -> None:
        """Handle the body of a dead letter. Raises what the handler raises; the inbox keeps the effect single."""
        await self._call([self._event(letter.data)], handle)

    async def _parse(self, message: Message) -> Parsed[DataT] | None:
        deliveries = _deliveries(message)
        if deliveries > 1:
            REDELIVERED.labels(self.name).inc()
        try:
            event = self._event(message.data)
        except ValidationError as error:
            await self._bury(message, error)
            return None
        if self._redelivery.before(deliveries):
            await self._bury(message, Poison(f"delivered {deliveries} times without an outcome"))
            return None
        return Parsed(message, event, deliveries)

    def _event(self, body: bytes) -> Event[DataT]:
        if issubclass(self.durable.event, ForeignData):
            foreign: Event[Any] = self.durable.event.arrived(body, source=self.durable.stream)
            return foreign
        return self._model.model_validate_json(body)

    async def _handle(self, parsed: list[Parsed[DataT]], handle: Handle[DataT]) -> None:
        try:
            await self._call([item.event for item in parsed], handle)
        except Exception as error:
            await self._failed(parsed, error, handle)
        else:
            faults.point("commit_ack")
            self._acked.inc(len(parsed))
            for item in parsed:
                if self._outages:
                    self._outages.pop(item.stream_seq, None)
                await item.message.ack()

    async def _failed(self, parsed: list[Parsed[DataT]], error: Exception, handle: Handle[DataT]) -> None:
        outage = isinstance(error, TRANSIENT)
        if len(parsed) > 1 and not outage:
            # One bad message must not take its neighbours along: each is tried alone, at once.
            for item in parsed:
                await self._handle([item], handle)
            return
        for item in parsed:
            await self._settle(item, error, self._redelivery.after(error, self._tries(item, outage)))

    def _tries(self, item: Parsed[DataT], outage: bool) -> int:
        """Deliveries of the message; those that an outage took are no failures of its own."""
        if not outage:
            return max(1, item.deliveries - self._outages[item.stream_seq])
        if len(self._outages) >= REMEMBERED:
            self._outages.clear()  # forgotten, a message has fewer tries, as after a restart
        self._outages[item.stream_seq] += 1
        return item.deliveries

    async def _settle(self, item: Parsed[DataT], error: Exception, verdict: Again | Dead) -> None:
        if isinstance(verdict, Dead):
            await self._bury(item.message, error, item.event.id)
            return
        MESSAGES.labels(self.name, "again").inc()
        log.warning(
            "message.again",
            consumer=self.name,
            event_id=str(item.event.id),
            deliveries=item.deliveries,
            delay_s=verdict.delay_s,
            error=logging.describe(error),
        )
        await item.message.nak(delay=verdict.delay_s)

    async def _call(self, events: list[Event[DataT]], handle: Handle[DataT]) -> None:
        with delivering(self.name, events), tracing.span(self.name, events[0].traceparent):
            await handle(events)

    async def _bury(self, message: Message, error: Exception, event_id: UUID | None = None) -> None:
        metadata = message.metadata
        letter = dead_letters.Buried(
            consumer=self.name,
            subject=message.subject,
            event_id=event_id or dead_letters.id_of(message.data),
            body=message.data,
            headers=message.headers or {},
            deliveries=metadata.num_delivered,
            stream_seq=metadata.sequence.stream,
        )
        try:
            await dead_letters.bury(self._db, letter, error)
        except Exception as trouble:
            # Nothing is dropped: without a place for the dead letter the message stays on the stream.
            log.warning("dead_letter.waiting", consumer=self.name, error=logging.describe(trouble))
            MESSAGES.labels(self.name, "again").inc()
            await message.nak(delay=outage_wait(metadata.num_delivered))
            return
        MESSAGES.labels(self.name, "dead").inc()
        self._outages.pop(metadata.sequence.stream, None)
        await message.ack()


async def hand_back(messages: Sequence[Message]) -> None:
    """Let the server deliver these to somebody else, now: nobody has begun with them."""
    for message in messages:
        with suppress(NatsError, OSError):
            await message.nak()


class _Scope(BaseMiddleware):
    """FastStream's side of it: from a batch message to lists of events and back into the handler, once or often."""

    def __init__(self, msg: Any, /, *, context: ContextRepo, outcomes: Outcomes[Any]) -> None:
        super().__init__(msg, context=context)
        self._outcomes = outcomes

    async def consume_scope(self, call_next: Callable[..., Awaitable[Any]], msg: StreamMessage[Any]) -> Any:
        """Instead of one call of the handler with the whole batch."""

        async def handle(events: list[Event[Any]]) -> None:
            part = copy(msg)  # FastStream's copy: it does not share the cache of decoded bodies
            part.body = events
            await call_next(part)

        if isinstance(msg.raw_message, Replay):
            await self._outcomes.replay(msg.raw_message, handle)
        else:
            await self._outcomes.deliver(msg.raw_message, handle)


@contextmanager
def _heartbeat(messages: Sequence[Message], every_s: float) -> Iterator[None]:
    """Tell the server, every `every_s` seconds, that these messages are still in work."""
    beating: list[asyncio.Task[None]] = []
    # A task only for what takes that long: most handlers are done before.
    timer = asyncio.get_running_loop().call_later(
        every_s, lambda: beating.append(asyncio.create_task(_beat(messages, every_s)))
    )
    try:
        yield
    finally:
        timer.cancel()
        for task in beating:
            task.cancel()


async def _beat(messages: Sequence[Message], every_s: float) -> None:
    while True:
        for message in messages:
            with suppress(NatsError, OSError):
                await message.in_progress()
        await asyncio.sleep(every_s)


def _deliveries(message: Message) -> int:
    """How often it has been delivered, this time included: `metadata.num_delivered`, without reading all the rest."""
    place = str(getattr(message, "reply", "")).split(".")
    return int(place[4]) if len(place) == TOKENS_OF_AN_ACK else message.metadata.num_delivered
