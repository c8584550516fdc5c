"""The relay: publishes what waits in a service's outbox, in order, and deletes a row only after its PubAck.

It is woken by NOTIFY and publishes bounded batches. With several replicas one of them relays at a time (a
transaction-level advisory lock), so order is kept.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

import asyncpg

from libs.service_kit import faults, logging
from libs.service_kit.db import Database
from libs.service_kit.publishing import Outgoing, Publisher

log = logging.get(__name__)

BATCH_ROWS = 1_000  # what the server takes in one atomic batch; more would be published one by one
BATCH_BYTES = 2 * 1024 * 1024
POLL_S = 1.0

_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended('outbox.' || current_schema(), 0))"
_NEXT = """
SELECT id, msg_id, subject, body FROM (
    SELECT id, msg_id, subject, body, sum(octet_length(body)) OVER (ORDER BY id) AS running
    FROM (SELECT * FROM outbox ORDER BY id LIMIT $1) AS head
) AS sized WHERE running <= $2 OR running = octet_length(body) ORDER BY id
"""
_SENT = "DELETE FROM outbox WHERE id = ANY($1::bigint[])"


class NotAcknowledged(ConnectionError):
    """The bus did not take facts: it is away, a stream is full, or its disk is."""


class Relay:
    """Publishes a service's outbox until it is stopped."""

    def __init__(self, db: Database, publisher: Publisher) -> None:
        self._db = db
        self._publisher = publisher
        self._wake = asyncio.Event()
        self._stopping = False
        self.trouble = ""  # why facts wait, since the last time all went well

    def wake(self) -> None:
        """There may be something to publish."""
        self._wake.set()

    async def run(self) -> None:
        """Relay until `stop()`. Outages of either server are waited out; nothing is marked sent without a PubAck."""
        listener: asyncpg.Connection[asyncpg.Record] | None = None
        wait = POLL_S
        while not self._stopping:
            try:
                if listener is None or listener.is_closed():
                    listener = await self._listen()
                while await self.drain_once():
                    pass
                wait, self.trouble = POLL_S, ""
            except Exception as error:
                self.trouble = logging.describe(error)
                log.warning("outbox.relay.waiting", error=logging.describe(error))
                wait = min(wait * 2, 10.0)
            await self._sleep(wait)
        if listener is not None and not listener.is_closed():
            await listener.close(timeout=2)

    async def stop(self) -> None:
        """End `run()` after the batch in hand."""
        self._stopping = True
        self.wake()

    async def drain_once(self) -> bool:
        """Publish one batch. True when there may be more."""
        async with self._db.connection() as conn, conn.transaction():
            if not await conn.fetchval(_LOCK):
                return False
            rows = await conn.fetch(_NEXT, BATCH_ROWS, BATCH_BYTES)
            if not rows:
                return False
            sent = await self._publisher.publish([_outgoing(row) for row in rows])
            faults.point("puback_mark")
            await conn.execute(_SENT, [row["id"] for row in rows if row["msg_id"] in sent])
        if len(sent) < len(rows):
            kept = f"{len(rows) - len(sent)} of {len(rows)} facts"
            raise NotAcknowledged(f"{kept} were not acknowledged by the bus ({self._publisher.refusal})")
        return True

    async def _listen(self) -> asyncpg.Connection[asyncpg.Record]:
        conn = await self._db.connect_alone()
        schema = await conn.fetchval("SELECT current_schema()")
        await conn.add_listener(f"outbox_{schema}", lambda *_: self.wake())
        return conn

    async def _sleep(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), seconds)
        except TimeoutError:
            pass
        self._wake.clear()


def _outgoing(row: asyncpg.Record) -> Outgoing:
    message: UUID = row["msg_id"]
    return Outgoing(message, row["subject"], bytes(row["body"]))
