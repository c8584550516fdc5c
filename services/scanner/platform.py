"""Read-only connections to the platform's databases, whose DSNs stand in environment variables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import asyncpg

from libs.service_kit.db import Connection

CONNECT_TIMEOUT_S = 5.0


class PlatformError(Exception):
    """The platform's database cannot be read; the message names the variable, never the DSN."""


class Platform:
    """One small pool a DSN. Sessions are read-only and every statement has a time limit."""

    def __init__(self, dsn_of: Callable[[str], str | None], *, pool_size: int, statement_timeout_s: float) -> None:
        self._dsn_of = dsn_of
        self._pool_size = pool_size
        self._timeout_ms = round(statement_timeout_s * 1000)
        self._pools: dict[str, asyncpg.Pool[asyncpg.Record]] = {}
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def connection(self, variable: str) -> AsyncIterator[Connection]:
        """A connection to the database whose DSN is in `variable`. Raises PlatformError, also for a failed query."""
        pool = await self._pool(variable)
        try:
            conn = await pool.acquire(timeout=CONNECT_TIMEOUT_S)
        except ValueError as error:
            # The driver's own words repeat parts of the DSN.
            raise PlatformError(f"{variable} is not a DSN of Postgres ({type(error).__name__})") from error
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise PlatformError(
                f"the platform database of {variable} cannot be reached ({type(error).__name__})"
            ) from error
        try:
            yield conn
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise PlatformError(f"the platform database of {variable}: {_told(error)}") from error
        finally:
            await pool.release(conn, timeout=CONNECT_TIMEOUT_S)

    async def close(self) -> None:
        """Close every pool; what is still busy is cut."""
        pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.terminate()

    async def _pool(self, variable: str) -> asyncpg.Pool[asyncpg.Record]:
        async with self._opening:
            if variable not in self._pools:
                self._pools[variable] = await self._open(variable)
            return self._pools[variable]

    async def _open(self, variable: str) -> asyncpg.Pool[asyncpg.Record]:
        dsn = self._dsn_of(variable)
        if not dsn:
            raise PlatformError(f"{variable} is not set: set it to the DSN of the platform's database")
        # Without connections at first: the DSN is tried when one is asked for.
        return await asyncpg.create_pool(
            dsn,
            min_size=0,
            max_size=self._pool_size,
            timeout=CONNECT_TIMEOUT_S,
            server_settings={
                "application_name": "burnish/scanner",
                "default_transaction_read_only": "on",
                "statement_timeout": str(self._timeout_ms),
            },
        )


def _told(error: Exception) -> str:
    """The words of errors about tables, columns and rights; of others, which may repeat values, the class only."""
    if isinstance(error, asyncpg.SyntaxOrAccessError):
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return type(error).__name__
