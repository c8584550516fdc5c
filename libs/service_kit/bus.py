"""The connection of one service to its NATS account."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.client import JetStreamContext

from libs.service_kit import logging
from libs.service_kit.settings import KitSettings

log = logging.get(__name__)


class Bus:
    """Connect once; the client reconnects for ever, since giving up would leave a service deaf."""

    def __init__(self, service: str, settings: KitSettings) -> None:
        self._service = service
        self._settings = settings
        self._client: Client | None = None
        self._closing = False
        self.on_lost: Callable[[], None] = lambda: None

    async def open(self) -> None:
        """Connect. Raises when the server cannot be reached or refuses the account."""
        settings = self._settings
        self._client = await nats.connect(
            settings.nats_url,
            user=settings.nats_user or None,
            password=settings.nats_password.get_secret_value() or None,
            name=f"burnish/{self._service}",
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.5,
            ping_interval=20,
            max_outstanding_pings=3,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            closed_cb=self._on_closed,
        )

    async def close(self) -> None:
        """Flush and close."""
        self._closing = True
        if self._client is not None and not self._client.is_closed:
            # What waits for a server that is away cannot be flushed; it is in the outbox still.
            with suppress(NatsError, OSError):
                await self._client.close()

    @property
    def client(self) -> Client:
        """The open connection. Raises RuntimeError before `open()`."""
        if self._client is None:
            raise RuntimeError("the bus is not open")
        return self._client

    @property
    def js(self) -> JetStreamContext:
        """JetStream through the account's imports."""
        return self.client.jetstream(prefix=f"{self._settings.js_prefix}", timeout=5)

    async def ping(self) -> None:
        """One round trip to the server; raises when it does not answer in five seconds."""
        if not self.client.is_connected:
            # While it reconnects, the client's flush returns at once without having asked anybody.
            raise ConnectionError("not connected")
        await self.client.flush(timeout=5)

    async def _on_error(self, error: Exception) -> None:
        log.warning("bus.error", error=logging.describe(error))

    async def _on_disconnected(self) -> None:
        log.warning("bus.disconnected")

    async def _on_reconnected(self) -> None:
        log.info("bus.reconnected")

    async def _on_closed(self) -> None:
        # The client gives up on an error it does not know, for good: only a new process helps.
        if not self._closing:
            log.error("bus.closed")
            self.on_lost()
