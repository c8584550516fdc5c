"""Pull requests of one durable on a standing subscription: asked for in time, answered in one go, handed back on stop.

nats-py's own `fetch` makes a task and a timer for every message, which is a quarter of what intake costs.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from libs.contracts.topology import Durable
from libs.service_kit.outcomes import hand_back

IDLE_WAIT_S = 5.0
SILENCE_S = 1.0
"""After the end of a request the server says so; this much later it counts as lost with a connection."""
CLOSING_S = 2.0
BEATS_AN_ACK_WAIT = 4

_HEARTBEAT = "100"
_NOTHING_MORE = ("404", "408")


class Trouble(Exception):
    """The server does not give messages: the durable is gone, or nobody is there who has it."""


class Pull:
    """At most one request is out at a time; what came waits in `take()` and is kept alive with heartbeats.

    A request is answered as soon as there is anything, with all there is, up to what was asked: a lone message does
    not wait for company, and behind a backlog every batch is full.
    """

    def __init__(self, client: Client, prefix: str, durable: Durable) -> None:
        self._client = client
        self._subject = f"{prefix}.CONSUMER.MSG.NEXT.{durable.stream}.{durable.name}"
        self._beat_every_s = durable.ack_wait_s / BEATS_AN_ACK_WAIT
        self._inbox = client.new_inbox()
        self._subscription: Subscription | None = None
        self._here: list[Msg] = []
        self._missing = 0
        self._requests = 0
        self._shared = False
        self._trouble: Trouble | None = None
        self._answered: asyncio.Future[None] | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Subscribe, once. Raises what the client raises."""
        if self._subscription is None:
            self._subscription = await self._client.subscribe(
                f"{self._inbox}.*", cb=self._received, pending_msgs_limit=0, pending_bytes_limit=0
            )
            self._beating = asyncio.create_task(self._beat())

    async def ask(self, most: int) -> None:
        """Request up to `most` messages, unless a request is out."""
        if self._answered is not None:
            return
        self._requests += 1
        # With `no_wait` beside `expires` the server waits for the first message and then sends what it has.
        request: dict[str, object] = {"batch": most, "expires": int(IDLE_WAIT_S * 1e9), "no_wait": True}
        if self._shared:
            request = {"batch": 1, "expires": int(IDLE_WAIT_S * 1e9)}
        loop = asyncio.get_running_loop()
        self._missing = int(str(request["batch"]))
        self._answered = loop.create_future()
        self._patience = loop.call_later(IDLE_WAIT_S + SILENCE_S, self._end)
        try:
            await self._client.publish(
                self._subject, json.dumps(request).encode(), reply=f"{self._inbox}.{self._requests}"
            )
        except (NatsError, OSError):
            self._end()
            self._answered = None
            raise

    async def answered(self) -> None:
        """Wait until the request that is out is answered, or `wake()`. Raises Trouble."""
        if self._answered is not None:
            await self._answered
            self._answered = None
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise trouble

    def wake(self) -> None:
        self._end()

    def take(self, most: int) -> list[Msg]:
        """What has come, oldest first, up to `most`."""
        taken, self._here = self._here[:most], self._here[most:]
        return taken

    async def close(self) -> None:
        """Take no more, and hand back what nobody has begun, so that another replica gets it at once."""
        if self._beating is not None:
            self._beating.cancel()
        if self._subscription is not None:
            subscription, self._subscription = self._subscription, None
            with suppress(TimeoutError, NatsError, OSError):
                # A drain waits for what the server had sent when it heard of it.
                await asyncio.wait_for(subscription.drain(), CLOSING_S)  # type: ignore[no-untyped-call]
        self._end()
        await hand_back(self.take(len(self._here)))

    async def _received(self, message: Msg) -> None:
        status = message.headers.get("Status") if message.headers and not message.reply else None
        if status is None:
            self._here.append(message)
            self._shared = False
            self._missing -= 1
            if self._missing == 0:
                self._end()
        elif status != _HEARTBEAT and message.subject.endswith(f".{self._requests}"):
            self._ended(status, (message.headers or {}).get("Description", ""))

    def _ended(self, status: str, description: str) -> None:
        if status not in _NOTHING_MORE:
            self._trouble = Trouble(f"{status} {description}".strip())
        # The few messages there are have been promised to other replicas: the next request waits in their line.
        self._shared = "Requests Pending" in description
        self._end()

    def _end(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._beat_every_s)
            for message in self._here:
                with suppress(NatsError, OSError):
                    await message.in_progress()
