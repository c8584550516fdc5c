"""Hearing facts as they go by: every replica hears each, and nobody remembers what was said while it was away.

For what may be forgotten, such as a cache. What must not be missed is heard by a durable (`consumers.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from libs.contracts.envelope import Event, EventData
from libs.service_kit import logging
from libs.service_kit.wiring import bound

log = logging.get(__name__)

Listener = Callable[..., Awaitable[None]]
Gap = Callable[[], None]


class Overhearer:
    """One event type, heard without a durable. `gap` is called when a fact may have been missed."""

    def __init__(self, event: type[EventData], handler: Listener, dependencies: Mapping[str, Any], gap: Gap) -> None:
        self.subject = event.type
        self._model: type[Event[Any]] = Event[event]  # type: ignore[valid-type]
        # Checked now, like every handler: what does not fit is found when the service is built.
        self._handler = bound(handler, f"overhearing {event.__name__}", (self._model,), dependencies)
        self._gap = gap
        self._subscription: Subscription | None = None

    async def start(self, client: Client) -> None:
        """Subscribe, without a queue group: each replica hears every fact."""
        self._subscription = await client.subscribe(self.subject, cb=self._received)

    async def stop(self) -> None:
        if self._subscription is not None:
            with suppress(NatsError, OSError):
                await self._subscription.unsubscribe()

    async def _received(self, message: Msg) -> None:
        try:
            await self._handler(self._model.model_validate_json(message.data))
        except Exception as error:
            log.warning("overheard.failed", subject=self.subject, error=logging.describe(error))
            self._gap()
