"""The connection of one service to its NATS account: a FastStream broker that declares and starts nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fast_depends.pydantic import PydanticSerializer
from faststream.nats import NatsBroker
from faststream.security import SASLPlaintext
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import SlowConsumerError
from nats.js.client import JetStreamContext

from libs.service_kit import logging
from libs.service_kit.errors import NotOpen
from libs.service_kit.settings import KitSettings

log = logging.get(__name__)


def new_broker(url: str = "nats://localhost:4222", **options: Any) -> NatsBroker:
    """A broker that prints nothing and calls an error of wiring by its name.

    FastStream's logger prints exceptions with the values that caused them; without the serializer's own errors a value
    that is missing from its context looks like a bad message.
    """
    broker = NatsBroker(url, logger=None, serializer=PydanticSerializer(use_fastdepends_errors=True), **options)
    broker._setup_logger()  # none; without this a message is handled only after `connect()`
    return broker


class Bus:
    """Connect once; the client reconnects for ever, since giving up would leave a service deaf."""

    def __init__(self, service: str, settings: KitSettings) -> None:
        self.prefix = settings.js_prefix
        self._client: Client | None = None
        self._closing = False
        self.on_lost: Callable[[], None] = lambda: None
        self.on_gap: Callable[[], None] = lambda: None  # facts may have gone by unheard
        password = settings.nats_password.get_secret_value()
        self.broker = new_broker(
            settings.nats_url,
            security=SASLPlaintext(settings.nats_user, password) if settings.nats_user else None,
            name=f"burnish/{service}",
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.5,
            ping_interval=20,
            max_outstanding_pings=3,
            js_options={"prefix": settings.js_prefix, "timeout": 5},
            graceful_timeout=settings.graceful_timeout_s,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            closed_cb=self._on_closed,
        )

    async def open(self) -> None:
        """Connect. Raises when the server cannot be reached or refuses the account."""
        self._client = await self.broker.connect()
        # FastStream's callback around ours raises at what it takes for final, as a refusal: right for the first
        # connection; later it would end the client's task of reconnecting and leave the service deaf.
        self._client._error_cb = self._on_error

    async def close(self) -> None:
        self._closing = True
        if self._client is not None and not self._client.is_closed:
            # What waits for a server that is away cannot be flushed; it is in the outbox still.
            with suppress(NatsError, OSError):
                await self._client.close()

    @property
    def client(self) -> Client:
        """The open connection. Raises NotOpen before `open()`."""
        if self._client is None:
            raise NotOpen("the bus is not open")
        return self._client

    @property
    def js(self) -> JetStreamContext:
        """JetStream through the account's imports."""
        return self.client.jetstream(prefix=self.prefix, timeout=5)

    async def ping(self) -> None:
        """One round trip to the server; raises when it does not answer in five seconds."""
        if not self.client.is_connected:
            # While it reconnects, the client's flush returns at once without having asked anybody.
            raise ConnectionError("not connected")
        await self.client.flush(timeout=5)

    async def _on_error(self, error: Exception) -> None:
        log.warning("bus.error", error=logging.describe(error))
        if isinstance(error, SlowConsumerError):
            self.on_gap()

    async def _on_disconnected(self) -> None:
        log.warning("bus.disconnected")

    async def _on_reconnected(self) -> None:
        log.info("bus.reconnected")
        self.on_gap()

    async def _on_closed(self) -> None:
        # The client gives up on an error it does not know, for good: only a new process helps.
        if not self._closing:
            log.error("bus.closed")
            self.on_lost()
