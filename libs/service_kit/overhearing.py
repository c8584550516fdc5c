"""Hearing facts as they go by: every replica hears each, and nobody remembers what was said while it was away.

For what may be forgotten, such as a cache. What must not be missed is heard by a durable (`consumers.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from faststream.message import StreamMessage
from faststream.nats import NatsBroker
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from libs.contracts.envelope import Event, EventData
from libs.service_kit import logging
from libs.service_kit.bus import new_broker
from libs.service_kit.wiring import bound, check_filled

log = logging.get(__name__)

Listener = Callable[..., Awaitable[None]]
Gap = Callable[[], None]


class Overhearer:
    """One event type, heard without a durable. `gap` is called when a fact may have been missed.

    `broker` is the service's; without one it stands alone, for a test.
    """

    def __init__(
        self,
        event: type[EventData],
        handler: Listener,
        dependencies: Mapping[str, Any],
        gap: Gap,
        broker: NatsBroker | None = None,
    ) -> None:
        self.subject = event.type
        self._model: type[Event[Any]] = Event[event]  # type: ignore[valid-type]
        self._what = f"overhearing {event.__name__}"
        self._broker = broker = broker or new_broker()
        self._subscriber = broker.subscriber(event.type, no_reply=True, decoder=self._event, title=self._what)
        # Checked now, like every handler: what does not fit is found when the service is built.
        self._subscriber(bound(handler, self._what, (self._model,), dependencies))
        self._subscriber.schema()  # builds what calls the handler; `start()` would too, and would subscribe
        self._gap = gap
        self._subscription: Subscription | None = None

    def check(self) -> None:
        """Raise WiringError, when the service starts, for what FastStream could not give the handler."""
        check_filled(self._subscriber, self._broker.context, self._what)

    async def start(self, client: Client) -> None:
        """Subscribe, without a queue group: each replica hears every fact."""
        self._subscription = await client.subscribe(self.subject, cb=self._received)

    async def stop(self) -> None:
        if self._subscription is not None:
            with suppress(NatsError, OSError):
                await self._subscription.unsubscribe()

    async def _received(self, message: Msg) -> None:
        try:
            await self._subscriber.process_message(message)
        except Exception as error:
            log.warning("overheard.failed", subject=self.subject, error=logging.describe(error))
            self._gap()

    async def _event(self, message: StreamMessage[Any]) -> Event[Any]:
        return self._model.model_validate_json(message.body)
