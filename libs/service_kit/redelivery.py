"""What happens to a message whose handling failed: a small pure policy."""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg
from nats.errors import Error as NatsError
from pydantic import ValidationError

from libs.service_kit.errors import Poison, Unavailable

TRANSIENT: tuple[type[BaseException], ...] = (
    OSError,
    TimeoutError,
    Unavailable,
    NatsError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what a connection that dies in the middle of a statement may raise
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.DiskFullError,
    asyncpg.ReadOnlySQLTransactionError,
)
"""A dependency that is away. The message waits for it, however long; it is not the message's fault."""

NEVER: tuple[type[BaseException], ...] = (Poison, ValidationError)
"""The message itself is at fault: trying again cannot help."""

WAIT_FOR_DEPENDENCY_S = 2.0
LONG_OUTAGE_DELIVERIES = 60
WAIT_IN_OUTAGE_S = 30.0
LONGEST_WAIT_S = 120.0


@dataclass(frozen=True)
class Again:
    """Deliver again after `delay_s` seconds."""

    delay_s: float


@dataclass(frozen=True)
class Dead:
    """Put it with the dead letters."""


@dataclass(frozen=True)
class Redelivery:
    """`delays_s[i]` is the wait after the i-th failure; after the last one the message is dead.

    `crash_limit` deliveries without any outcome mean that handling it kills the process: dead, unhandled. It stays
    below the durables' `max_deliver`, and with the waits of an outage it is reached after more than a day.
    """

    delays_s: tuple[float, ...] = (1.0, 5.0, 15.0, 60.0)
    crash_limit: int = 900

    def after(self, error: BaseException, deliveries: int) -> Again | Dead:
        """What follows `error` on the `deliveries`-th delivery (counted from 1)."""
        if isinstance(error, NEVER):
            return Dead()
        if isinstance(error, TRANSIENT):
            return Again(outage_wait(deliveries))
        if deliveries > len(self.delays_s):
            return Dead()
        return Again(self.delays_s[deliveries - 1])

    def before(self, deliveries: int) -> Dead | None:
        """Whether a message is dead before it is handled."""
        return Dead() if deliveries > self.crash_limit else None


def outage_wait(deliveries: int) -> float:
    """Seconds to wait for a dependency that is away, long enough that `max_deliver` outlasts a day."""
    if deliveries > LONG_OUTAGE_DELIVERIES:
        return LONGEST_WAIT_S
    return min(WAIT_IN_OUTAGE_S, WAIT_FOR_DEPENDENCY_S * deliveries)
