"""Dead letters: a message that cannot be handled is kept whole, with what went wrong, and can be replayed."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from libs.contracts.queries.dead_letters import BuryStranded, DeadLetter
from libs.contracts.topology import dead_letter_subject
from libs.service_kit import logging
from libs.service_kit.db import Connection, Database
from libs.service_kit.metrics import DEAD_LETTERS

log = logging.get(__name__)

MOST_BODY_BYTES = 2 * 1024 * 1024
"""Of a body that goes on the DLQ stream, where it grows by a third: the bus carries 4 MiB at most."""

_BURY = """
INSERT INTO dead_letters (consumer, subject, event_id, body, headers, error, error_class, deliveries, stream_seq)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT DO NOTHING
RETURNING id
"""
_LIST = """
SELECT id AS dead_letter_id, consumer, subject, event_id, error, error_class, deliveries, failed_at,
       replayed_at, replay_count,
       octet_length(body) AS bytes
FROM dead_letters WHERE $1 OR replayed_at IS NULL ORDER BY failed_at DESC LIMIT $2
"""
_TAKE = "SELECT consumer, subject, body, replayed_at FROM dead_letters WHERE id = $1"
_REPLAYED = "UPDATE dead_letters SET replayed_at = now(), replay_count = replay_count + 1 WHERE id = $1"
_TRIED = """
UPDATE dead_letters SET replay_count = replay_count + 1, error = $2, error_class = $3 WHERE id = $1
"""
_WAITING = """
SELECT event_id, body, error FROM dead_letters WHERE consumer = $1 AND replayed_at IS NULL
ORDER BY failed_at DESC LIMIT $2
"""
_OPEN = "SELECT count(*) FROM dead_letters WHERE replayed_at IS NULL"


@dataclass(frozen=True)
class Buried:
    """A failed message as it came."""

    consumer: str
    subject: str
    event_id: UUID | None
    body: bytes
    headers: Mapping[str, str]
    deliveries: int
    stream_seq: int


@dataclass(frozen=True)
class Waiting:
    """A dead letter that was not replayed."""

    event_id: UUID | None
    body: bytes
    error: str


@dataclass(frozen=True)
class Taken:
    """A dead letter taken out for a replay."""

    consumer: str
    subject: str
    body: bytes
    replayed: bool


class Stranded(Exception):
    """The server will not deliver a message again, and nobody has handled it."""


async def bury(db: Database, letter: Buried, error: BaseException) -> bool:
    """Keep the message in the service's table and say it on the DLQ stream, in one transaction.

    Once: False when this delivery is there already.
    """
    told = logging.describe(error)
    async with db.transaction() as tx:
        row = await tx.conn.fetchval(
            _BURY,
            letter.consumer,
            letter.subject,
            letter.event_id,
            letter.body,
            _storable(letter.headers),
            told,
            type(error).__name__,
            letter.deliveries,
            letter.stream_seq,
        )
        if row is not None:
            tx.emit_raw(dead_letter_subject(db.service), _body(row, db.service, letter, told))
    if row is None:
        return False
    DEAD_LETTERS.labels(letter.consumer).inc()
    log.error("dead_letter.buried", consumer=letter.consumer, deliveries=letter.deliveries, error=told)
    return True


async def bury_stranded(db: Database, query: BuryStranded) -> bool:
    """Keep a message that the server gave up like one that the service gave up itself. False when it is there."""
    letter = Buried(
        consumer=query.consumer,
        subject=query.said_on,
        event_id=id_of(query.body),
        body=query.body,
        headers=query.headers,
        deliveries=query.deliveries,
        stream_seq=query.stream_seq,
    )
    return await bury(db, letter, Stranded(query.reason))


def id_of(body: bytes) -> UUID | None:
    """The event id of a body that may be anything."""
    try:
        return UUID(json.loads(body)["id"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


async def listed(conn: Connection, service: str, include_replayed: bool, limit: int) -> list[DeadLetter]:
    """Dead letters, newest first."""
    rows = await conn.fetch(_LIST, include_replayed, limit)
    return [DeadLetter.model_validate({**row, "service": service}) for row in rows]


async def open_count(conn: Connection) -> int:
    """How many were not replayed."""
    return int(await conn.fetchval(_OPEN))


async def waiting(conn: Connection, consumer: str, limit: int = 1_000) -> list[Waiting]:
    """What one durable could not handle and nobody has replayed, newest first."""
    rows = await conn.fetch(_WAITING, consumer, limit)
    return [Waiting(row["event_id"], bytes(row["body"]), row["error"]) for row in rows]


async def take(conn: Connection, identity: UUID) -> Taken | None:
    """The dead letter with this id."""
    row = await conn.fetchrow(_TAKE, identity)
    if row is None:
        return None
    return Taken(row["consumer"], row["subject"], bytes(row["body"]), row["replayed_at"] is not None)


async def mark_replayed(conn: Connection, identity: UUID) -> None:
    """It was handled now."""
    await conn.execute(_REPLAYED, identity)


async def mark_tried(conn: Connection, identity: UUID, error: BaseException) -> None:
    """It failed again; the newest error is kept."""
    await conn.execute(_TRIED, identity, logging.describe(error), type(error).__name__)


def _body(identity: UUID, service: str, letter: Buried, error: str) -> bytes:
    # The original is base64, since what could not be parsed need not be text. One that would not fit is in the table.
    fits = len(letter.body) <= MOST_BODY_BYTES
    return json.dumps(
        {
            "dead_letter_id": str(identity),
            "service": service,
            "consumer": letter.consumer,
            "subject": letter.subject,
            "event_id": str(letter.event_id) if letter.event_id else None,
            "deliveries": letter.deliveries,
            "stream_seq": letter.stream_seq,
            "error": error,
            "headers": dict(letter.headers),
            "body_bytes": len(letter.body),
            "body_base64": base64.b64encode(letter.body).decode() if fits else None,
        }
    ).encode()


def _storable(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers as jsonb can hold them: a byte that is no UTF-8 came as a lone surrogate."""
    return {logging.plain(name): logging.plain(value) for name, value in headers.items()}
