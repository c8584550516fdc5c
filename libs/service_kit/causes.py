"""Whose fault an error is: of what was sent, of a server that is away, or of the code. One place for every edge."""

from __future__ import annotations

import errno
import socket
from typing import Literal

import asyncpg
from asyncpg.exceptions import _base as asyncpg_base
from nats.errors import Error as NatsError

from libs.service_kit.errors import NotOpen, Unavailable

Cause = Literal["sent", "away", "bug"]
"""`sent`: the same again will fail again, and another value would not. `away`: the same again may succeed later."""

# What Postgres or the driver says about a value, whatever else the statement was.
SENT: tuple[type[BaseException], ...] = (asyncpg.DataError, asyncpg_base.DataError)
AWAY: tuple[type[BaseException], ...] = (
    NotOpen,
    Unavailable,
    ConnectionError,
    TimeoutError,
    socket.gaierror,
    NatsError,
    asyncpg.InterfaceError,  # the connection or the pool was closed under the statement
    asyncpg.InternalClientError,  # the same, noticed in the middle of the protocol
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,  # a full disk, no memory, no connection left
    asyncpg.PostgresSystemError,
    asyncpg.TransactionRollbackError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.LockNotAvailableError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)
# Errors of the network and of the machine's resources; the others are about a file that the code should have checked.
AWAY_ERRNO = frozenset(
    {
        errno.EADDRNOTAVAIL,
        errno.EDQUOT,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EIO,
        errno.EMFILE,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EROFS,
        errno.ETIMEDOUT,
    }
)


def cause_of(error: BaseException) -> Cause:
    """The cause of an error that nobody foresaw."""
    if isinstance(error, SENT):
        return "sent"
    if isinstance(error, AWAY):
        return "away"
    if isinstance(error, OSError) and (error.errno is None or error.errno in AWAY_ERRNO):
        return "away"  # without a number: connecting failed in several ways at once, or a name has no address
    return "bug"
