"""Durable pull consumers: FastStream declares and calls the handler, the kit's loop brings the messages.

FastStream's own loop waits for a batch to fill, spins without a server or a durable, and asks for what its stopping
would lose. So it is never started: `broker.start()` is not called, only `connect()`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from faststream import AckPolicy
from faststream.message import StreamMessage
from faststream.nats import JStream, NatsBroker, NatsRouter, PullSub
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from libs.contracts.envelope import Event, EventData
from libs.contracts.topology import Durable
from libs.service_kit import logging
from libs.service_kit.bus import new_broker
from libs.service_kit.db import Database
from libs.service_kit.outcomes import Message, Outcomes, Replay, hand_back
from libs.service_kit.pulling import Pull, Trouble
from libs.service_kit.redelivery import Redelivery
from libs.service_kit.wiring import Handler, bound, check_filled

log = logging.get(__name__)

DataT = TypeVar("DataT", bound=EventData)
TROUBLE_WAIT_S = 1.0
BATCHES_IN_HAND = 2
"""At least: with one worker the second is parsed and waits for its turn. Only where there are enough to fill both."""


class Consumer(Generic[DataT]):
    """One durable, its handler and the handler's dependencies.

    The handler is a plain async function of a list of events (of one event when the durable's batch is 1) and of its
    dependencies as keyword arguments. It opens its own transaction with `inbox=` the events. `broker` is the service's;
    without one it stands alone, for a test.
    """

    def __init__(
        self,
        durable: Durable,
        handler: Handler,
        *,
        db: Database,
        redelivery: Redelivery,
        dependencies: Mapping[str, Any],
        broker: NatsBroker | None = None,
    ) -> None:
        self.durable = durable
        self.name = durable.name
        self._broker = broker = broker or new_broker()
        self._outcomes = Outcomes[DataT](durable, db=db, redelivery=redelivery)
        router = NatsRouter(middlewares=[self._outcomes])
        self._subscriber = router.subscriber(
            durable.event.type,
            durable=durable.name,
            stream=JStream(durable.stream, declare=False),
            pull_sub=PullSub(batch_size=durable.batch, batch=True),
            ack_policy=AckPolicy.MANUAL,
            no_reply=True,  # else an event's own header would choose where something is published
            parser=_batch,
            decoder=self._events,
            title=durable.name,
        )
        self._subscriber(bound(handler, _what(durable), _takes(durable), dependencies))
        broker.include_router(router)
        self._subscriber.get_log_context = _nothing  # type: ignore[method-assign]  # a tenth of the call, for no logger
        self._subscriber.schema()  # builds what calls the handler; `start()` would too, and would pull
        self._stopping = asyncio.Event()
        self._busy: set[asyncio.Task[None]] = set()
        self._pull: Pull | None = None

    def check(self) -> None:
        """Raise WiringError, when the service starts, for what FastStream could not give the handler."""
        check_filled(self._subscriber, self._broker.context, _what(self.durable))

    async def deliver(self, messages: Sequence[Message]) -> None:
        """Handle a batch: every message ends acknowledged, asked for again, or with the dead letters."""
        await self._subscriber.process_message(messages)

    async def handle_again(self, body: bytes) -> None:
        """Handle the body of a dead letter. Raises what the handler raises; the inbox keeps the effect single."""
        await self._subscriber.process_message(Replay(body))

    async def _events(self, message: StreamMessage[Any]) -> Any:
        return message.body[0] if self.durable.batch == 1 else message.body  # `Outcomes` has put the events there

    # --- the pull loop ------------------------------------------------------------------------------------

    async def run(self, client: Client, prefix: str) -> None:
        """Pull and deliver until `stop()`. `prefix` is that of the account's JetStream imports."""
        pull = self._pull = Pull(client, prefix, self.durable)
        try:
            await self._serve(pull)
        except asyncio.CancelledError:
            # Out of patience: what is in hand ends unacknowledged and comes again.
            for task in self._busy:
                task.cancel()
            raise
        finally:
            await pull.close()

    async def stop(self) -> None:
        """End `run()` once what is in hand is done; what was fetched ahead goes back to the server now."""
        self._stopping.set()
        self._outcomes.gives_back = True
        if self._pull is not None:
            await self._pull.close()

    async def _serve(self, pull: Pull) -> None:
        while not self._stopping.is_set():
            try:
                messages = await self._next(pull)
            except (Trouble, NatsError, OSError) as error:
                log.warning("consumer.waiting", consumer=self.name, error=logging.describe(error))
                await self._pause(TROUBLE_WAIT_S)
                continue
            if self._stopping.is_set():
                await hand_back(messages)
            elif messages:
                await self._dispatch(messages)
        if self._busy:
            await asyncio.wait(self._busy)

    async def _next(self, pull: Pull) -> list[Msg]:
        """As many as there are, up to the batch, or to the workers that are free."""
        most = self.durable.batch if self.durable.batch > 1 else self.durable.workers - len(self._busy)
        await pull.open()
        await pull.ask(most)
        await pull.answered()
        messages = pull.take(most)
        if len(messages) == self.durable.batch > 1 and not self._stopping.is_set():
            # Behind a full batch there is more: it comes while this one is handled. What is slow is not kept waiting.
            await pull.ask(self.durable.batch)
        return messages

    async def _dispatch(self, messages: list[Msg]) -> None:
        if self.durable.workers > 1 and self.durable.batch == 1:
            await self._spawn([[message] for message in messages], self.durable.workers)
        elif len(messages) == self.durable.batch > 1:
            await self._spawn([messages], max(self.durable.workers, BATCHES_IN_HAND))
        else:
            await self._deliver_guarded(messages)

    async def _spawn(self, deliveries: Sequence[Sequence[Msg]], most: int) -> None:
        """Begin with these, and return when there is room for more."""
        for messages in deliveries:
            task = asyncio.create_task(self._deliver_guarded(messages))
            self._busy.add(task)
            task.add_done_callback(self._busy.discard)
        while len(self._busy) >= most:
            await asyncio.wait(self._busy, return_when=asyncio.FIRST_COMPLETED)

    async def _deliver_guarded(self, messages: Sequence[Message]) -> None:
        try:
            await self.deliver(messages)
        except Exception as error:
            # The ack itself failed: the message comes again and the inbox absorbs it.
            log.warning("consumer.ack_failed", consumer=self.name, error=logging.describe(error))

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)


def _what(durable: Durable) -> str:
    return f"{'consume_each' if durable.batch == 1 else 'consume_batch'} of {durable.event.__name__}"


def _takes(durable: Durable) -> tuple[object, ...]:
    event: Any = Event[durable.event]  # type: ignore[name-defined]
    if durable.batch == 1:
        return event, Event[Any]
    return list[event], Sequence[event], list[Event[Any]], Sequence[Event[Any]]


def _nothing(message: object) -> dict[str, str]:
    return {}


async def _batch(messages: Any) -> StreamMessage[Any]:
    """The batch as FastStream passes it on: its own parser would read the headers of each message."""
    return StreamMessage(raw_message=messages, body=messages)
