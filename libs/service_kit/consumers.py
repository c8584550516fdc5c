"""Durable pull consumers. This is the one place that turns an exception into ack, redelivery or dead letter."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.client import JetStreamContext
from pydantic import ValidationError

from libs.contracts.envelope import Event, EventData
from libs.contracts.topology import Durable
from libs.service_kit import dead_letters, faults, logging, tracing
from libs.service_kit.db import Database
from libs.service_kit.delivery import delivering
from libs.service_kit.errors import Poison
from libs.service_kit.metrics import HANDLE_SECONDS, MESSAGES, REDELIVERED
from libs.service_kit.redelivery import TRANSIENT, Again, Dead, Redelivery, outage_wait

log = logging.get(__name__)

DataT = TypeVar("DataT", bound=EventData)
Handler = Callable[..., Awaitable[None]]
IDLE_WAIT_S = 5.0
FILL_WAIT_S = 0.02
TROUBLE_WAIT_S = 1.0
REMEMBERED = 10_000


class Message(Protocol):
    """A delivered message: what `nats.aio.msg.Msg` has, and what a test can build in memory."""

    subject: str
    data: bytes

    @property
    def headers(self) -> Mapping[str, str] | None:
        """Headers as they came."""

    @property
    def metadata(self) -> Msg.Metadata:
        """Deliveries and sequence."""

    async def ack(self) -> None:
        """Done."""

    async def nak(self, delay: float | None = None) -> None:
        """Again, after `delay` seconds."""

    async def in_progress(self) -> None:
        """Still in work."""


@dataclass(frozen=True)
class Parsed(Generic[DataT]):
    """A message that is an event of the contract."""

    message: Message
    event: Event[DataT]

    @property
    def deliveries(self) -> int:
        """How often it has been delivered, this time included."""
        return self.message.metadata.num_delivered

    @property
    def stream_seq(self) -> int:
        """Its place in the stream."""
        return self.message.metadata.sequence.stream


class Consumer(Generic[DataT]):
    """One durable, its handler and the handler's dependencies.

    The handler is a plain async function of a list of events (or of one event when the durable's batch is 1)
    and its dependencies as keyword arguments. It opens its own transaction with `inbox=` the events.
    """

    def __init__(
        self,
        durable: Durable,
        handler: Handler,
        *,
        db: Database,
        redelivery: Redelivery,
        dependencies: Mapping[str, Any],
    ) -> None:
        self.durable = durable
        self._handler = handler
        self._db = db
        self._redelivery = redelivery
        self._dependencies = dependencies
        self._model: type[Event[DataT]] = Event[durable.event]  # type: ignore[name-defined]
        self._stopping = asyncio.Event()
        self._busy: set[asyncio.Task[None]] = set()
        self._outages: Counter[int] = Counter()

    @property
    def name(self) -> str:
        """The durable's name; also the name under which the inbox records."""
        return self.durable.name

    # --- delivery: everything below is the same for a real message and one made in a test -----------------

    async def deliver(self, messages: Sequence[Message]) -> None:
        """Handle a batch: every message ends acknowledged, asked for again, or with the dead letters."""
        parsed = [item for message in messages if (item := await self._parse(message)) is not None]
        if not parsed:
            return
        started = perf_counter()
        async with _heartbeat([item.message for item in parsed], self.durable.ack_wait_s * 2 / 3):
            await self._handle(parsed)
        HANDLE_SECONDS.labels(self.name).observe(perf_counter() - started)

    async def handle_again(self, body: bytes) -> None:
        """Handle the body of a dead letter. Raises what the handler raises; the inbox keeps the effect single."""
        await self._call([self._model.model_validate_json(body)])

    async def _parse(self, message: Message) -> Parsed[DataT] | None:
        try:
            if message.metadata.num_delivered > 1:
                REDELIVERED.labels(self.name).inc()
            event = self._model.model_validate_json(message.data)
        except ValidationError as error:
            await self._bury(message, error)
            return None
        if self._redelivery.before(message.metadata.num_delivered):
            await self._bury(message, Poison(f"delivered {message.metadata.num_delivered} times without an outcome"))
            return None
        return Parsed(message, event)

    async def _handle(self, parsed: list[Parsed[DataT]]) -> None:
        try:
            await self._call([item.event for item in parsed])
        except Exception as error:
            await self._failed(parsed, error)
        else:
            faults.point("commit_ack")
            MESSAGES.labels(self.name, "acked").inc(len(parsed))
            for item in parsed:
                self._outages.pop(item.stream_seq, None)
                await item.message.ack()

    async def _failed(self, parsed: list[Parsed[DataT]], error: Exception) -> None:
        outage = isinstance(error, TRANSIENT)
        if len(parsed) > 1 and not outage:
            # One bad message must not take its neighbours along: each is tried alone, at once.
            for item in parsed:
                await self._handle([item])
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

    async def _call(self, events: list[Event[DataT]]) -> None:
        with delivering(self.name, events), tracing.span(self.name, events[0].traceparent):
            if self.durable.batch == 1:
                await self._handler(events[0], **self._dependencies)
            else:
                await self._handler(events, **self._dependencies)

    async def _bury(self, message: Message, error: Exception, event_id: UUID | None = None) -> None:
        metadata = message.metadata
        letter = dead_letters.Buried(
            consumer=self.name,
            subject=message.subject,
            event_id=event_id or _id_of(message.data),
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

    # --- the pull loop ------------------------------------------------------------------------------------

    async def run(self, js: JetStreamContext) -> None:
        """Pull and deliver until `stop()`."""
        try:
            await self._pull(js)
        except asyncio.CancelledError:
            # Out of patience: what is in hand ends unacknowledged and comes again.
            for task in self._busy:
                task.cancel()
            raise

    async def _pull(self, js: JetStreamContext) -> None:
        subscription = await js.pull_subscribe_bind(self.name, stream=self.durable.stream)
        filled = False
        while not self._stopping.is_set():
            try:
                messages = await self._fetch(subscription, filled)
            except (NatsError, OSError) as error:
                log.warning("consumer.waiting", consumer=self.name, error=logging.describe(error))
                await self._pause(TROUBLE_WAIT_S)
                continue
            filled = len(messages) >= self.durable.batch
            if messages:
                await self._dispatch(messages)
        with suppress(NatsError, OSError):
            # What the server would still send here would wait for `ack_wait` before another replica gets it.
            await subscription.unsubscribe()
        await self._drain()

    async def stop(self) -> None:
        """End `run()` once what is in hand is done."""
        self._stopping.set()

    async def _fetch(self, subscription: JetStreamContext.PullSubscription, filled: bool) -> list[Msg]:
        """As many as there are, up to the batch. A lone message does not wait for company."""
        with suppress(TimeoutError):
            if filled:
                return await subscription.fetch(self.durable.batch, timeout=FILL_WAIT_S * 5)
            first = await self._unless_stopped(subscription.fetch(1, timeout=IDLE_WAIT_S))
            if self.durable.batch == 1 or not first:
                return first
            with suppress(TimeoutError):
                return first + await subscription.fetch(self.durable.batch - 1, timeout=FILL_WAIT_S)
            return first
        return []

    async def _unless_stopped(self, fetching: Coroutine[Any, Any, list[Msg]]) -> list[Msg]:
        """What is fetched, or nothing as soon as `stop()` is asked: an idle consumer need not be waited for."""
        fetch = asyncio.create_task(fetching)
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({fetch, stop}, return_when=asyncio.FIRST_COMPLETED)
            return await fetch if fetch.done() else []
        finally:
            fetch.cancel()
            stop.cancel()

    async def _dispatch(self, messages: list[Msg]) -> None:
        if self.durable.workers == 1:
            await self._deliver_guarded(messages)
            return
        for message in messages:
            while len(self._busy) >= self.durable.workers:
                await asyncio.wait(self._busy, return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.create_task(self._deliver_guarded([message]))
            self._busy.add(task)
            task.add_done_callback(self._busy.discard)
        while len(self._busy) >= self.durable.workers and not self._stopping.is_set():
            await asyncio.wait(self._busy, return_when=asyncio.FIRST_COMPLETED)

    async def _deliver_guarded(self, messages: Sequence[Message]) -> None:
        try:
            await self.deliver(messages)
        except Exception as error:
            # The ack itself failed: the message comes again and the inbox absorbs it.
            log.warning("consumer.ack_failed", consumer=self.name, error=logging.describe(error))

    async def _drain(self) -> None:
        if self._busy:
            await asyncio.wait(self._busy)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)


class _heartbeat:
    """Tells the server, every `every_s` seconds, that these messages are still in work."""

    def __init__(self, messages: Sequence[Message], every_s: float) -> None:
        self._messages = messages
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._beat())

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            for message in self._messages:
                with suppress(NatsError, OSError):
                    await message.in_progress()


def _id_of(body: bytes) -> UUID | None:
    """The event id of a body that may be anything."""
    try:
        return UUID(json.loads(body)["id"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
