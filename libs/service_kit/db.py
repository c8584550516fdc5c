"""The database of one service: a pool, transactions at the edge, inbox and outbox in the same transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, nullcontext
from random import Random
from typing import Any, Generic, Literal
from uuid import UUID

import asyncpg
from typing_extensions import TypeVar

from libs.contracts.envelope import Event, EventData
from libs.postgres import session_settings
from libs.service_kit import inbox as inbox_table
from libs.service_kit import outbox as outbox_table
from libs.service_kit.connection import EVERY_WORKSPACE, ROWS_SEEN, Connection, prepare, see_only, session_lock
from libs.service_kit.delivery import current_delivery
from libs.service_kit.errors import NotOpen
from libs.service_kit.retry import Retry
from libs.service_kit.tracing import traceparent

DataT = TypeVar("DataT", bound=EventData, default=EventData)
T = TypeVar("T")
__all__ = ["Connection", "Database", "Isolation", "Transaction"]

Isolation = Literal["read_committed", "repeatable_read", "serializable"]


class Transaction(Generic[DataT]):
    """One open transaction. What is emitted in it goes out if, and only if, it commits."""

    def __init__(self, service: str, conn: Connection, fresh: list[Event[DataT]]) -> None:
        self.conn = conn
        self.fresh = fresh
        self._source = f"burnish/{service}"
        self._traceparent = traceparent()
        self._emitted: list[tuple[str, bytes]] = []

    def emit(self, *facts: EventData, cause: Event[Any] | None = None) -> None:
        """Publish these facts if the transaction commits. The cause is the event in hand unless one is given."""
        because = cause or current_delivery().only_event
        for fact in facts:
            event = Event.of(fact, source=self._source, cause=because, traceparent=self._traceparent)
            self._emitted.append((fact.type, event.encode()))

    def emit_raw(self, subject: str, body: bytes) -> None:
        """Publish bytes that are no event of the contracts: a dead letter."""
        self._emitted.append((subject, body))

    async def flush(self) -> int:
        """Write what was emitted into the outbox, in one statement. Called before the commit."""
        emitted, self._emitted = self._emitted, []
        await outbox_table.append(self.conn, emitted)
        return len(emitted)


class Database:
    """A pool on the service's own role and schema. `open()` before use, `close()` at the end."""

    def __init__(self, service: str, dsn: str, *, pool_size: int = 8, inbox: bool = True) -> None:
        self.service = service
        self._dsn = dsn
        self._pool_size = pool_size
        self._inbox = inbox
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._random = Random()
        self.on_emitted: Callable[[], None] = lambda: None

    async def open(self) -> None:
        """Connect. Raises the driver's error when the database is not there."""
        self._pool = await asyncpg.create_pool(
            self._dsn,
            min_size=1,
            max_size=self._pool_size,
            init=prepare,
            command_timeout=60,
            server_settings={**session_settings(f"burnish/{self.service}"), ROWS_SEEN: EVERY_WORKSPACE},
        )

    async def close(self) -> None:
        """Close every connection; those still busy after five seconds are cut."""
        if self._pool is None:
            return
        pool, self._pool = self._pool, None
        try:
            await asyncio.wait_for(pool.close(), 5)
        except TimeoutError:
            pool.terminate()

    @property
    def pool(self) -> asyncpg.Pool[asyncpg.Record]:
        """The open pool. Raises NotOpen before `open()`."""
        if self._pool is None:
            raise NotOpen("the database is not open")
        return self._pool

    @asynccontextmanager
    async def connection(self, *, workspaces: Collection[UUID] | None = None) -> AsyncIterator[Connection]:
        """A connection for reading; each statement is its own transaction.

        Whoever reads for somebody names the `workspaces` that one may see: row-level security then shows the rows of
        those and the rows that have none, and the reading is one transaction. None is the service itself: all rows.
        """
        async with self._acquired() as conn:
            if workspaces is None:
                yield conn
                return
            async with conn.transaction(readonly=True):
                await see_only(conn, workspaces)
                yield conn

    @asynccontextmanager
    async def _acquired(self) -> AsyncIterator[Connection]:
        pool = self.pool
        try:
            conn = await pool.acquire()
        except FileNotFoundError as error:
            # The socket's file goes with the server; any other missing file is about a path.
            raise ConnectionError("the database's socket is not there") from error
        try:
            yield conn
        finally:
            await pool.release(conn)

    @asynccontextmanager
    async def transaction(
        self,
        *,
        inbox: Event[DataT] | Sequence[Event[DataT]] = (),
        isolation: Isolation = "read_committed",
        lock: str | None = None,
    ) -> AsyncIterator[Transaction[DataT]]:
        """Open a transaction; commit at the end of the block, roll back on any exception.

        `inbox` names the events whose effect this is: those seen before are left out of `tx.fresh`, the others
        are recorded in the same transaction. `lock` is a session lock taken before BEGIN, so that a
        serialisable transaction starts with a snapshot that already holds its predecessor's effects.
        """
        events = [inbox] if isinstance(inbox, Event) else list(inbox)
        async with (
            self.connection() as conn,
            session_lock(conn, lock) if lock else nullcontext(),
            conn.transaction(isolation=isolation),
        ):
            fresh = await self._fresh(conn, events)
            tx = Transaction(self.service, conn, fresh)
            yield tx
            emitted = await tx.flush()
        if emitted:
            self.on_emitted()

    async def serializable(
        self,
        work: Callable[[Transaction[EventData]], Awaitable[T]],
        *,
        inbox: Event[Any] | Sequence[Event[Any]] = (),
        lock: str | None = None,
        retry: Retry = Retry(),
    ) -> T:
        """Run `work` in a SERIALIZABLE transaction; try again, boundedly, when Postgres says it did not serialise.

        `work` may run several times: it must have no effect outside its transaction.
        """
        delays = retry.delays(self._random)
        while True:
            try:
                async with self.transaction(inbox=inbox, isolation="serializable", lock=lock) as tx:
                    result = await work(tx)
                return result
            except (asyncpg.SerializationError, asyncpg.DeadlockDetectedError):
                delay = next(delays, None)
                if delay is None:
                    raise
                await asyncio.sleep(delay)

    async def connect_alone(self) -> asyncpg.Connection[asyncpg.Record]:
        """A connection outside the pool, for LISTEN."""
        return await asyncpg.connect(self._dsn, server_settings=session_settings(f"burnish/{self.service}/listen"))

    async def ping(self) -> None:
        """One round trip. Raises when the database does not answer."""
        async with self.connection() as conn:
            await conn.fetchval("SELECT 1", timeout=5)

    async def _fresh(self, conn: Connection, events: list[Event[DataT]]) -> list[Event[DataT]]:
        if not events or not self._inbox:
            return events
        return await inbox_table.record(conn, current_delivery().consumer, events)
