"""Tables `ledger_entries` and `ledger_head`: the hash-chained ledger."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from libs.contracts.versions import LedgerEntry
from libs.service_kit.db import Connection
from services.registry.domain import Line, chained

# Time in the ledger never stands still or runs backwards, whatever the server's clock does.
_HEAD = """
SELECT seq, entry_sha256, greatest(clock_timestamp(), at + interval '1 microsecond') AS now
FROM ledger_head FOR UPDATE
"""
_MOVE = "UPDATE ledger_head SET seq = $1, entry_sha256 = $2, at = $3"
_FIELDS = tuple(LedgerEntry.model_fields)
_COLUMNS = ", ".join(_FIELDS)
_APPEND = f"""
INSERT INTO ledger_entries ({_COLUMNS}) VALUES ({", ".join(f"${n}" for n in range(1, len(_FIELDS) + 1))})
"""  # noqa: S608
_LIST = f"""
SELECT {_COLUMNS} FROM ledger_entries
WHERE ($1::text IS NULL OR touchpoint_id = $1)
  AND ($2::bigint IS NULL OR seq < $2)
ORDER BY seq DESC LIMIT $3
"""  # noqa: S608
_AFTER = f"SELECT {_COLUMNS} FROM ledger_entries WHERE seq > $1 ORDER BY seq LIMIT $2"  # noqa: S608


class Head(NamedTuple):
    """The end of the chain, locked, and the time it is now for what is appended."""

    seq: int
    entry_sha256: str
    now: datetime


async def lock_head(conn: Connection) -> Head:
    """Lock the end of the chain until the transaction ends."""
    row = await conn.fetchrow(_HEAD)
    assert row is not None
    return Head(row["seq"], row["entry_sha256"], row["now"])


async def end(conn: Connection) -> tuple[int, str]:
    """Number and hash of the last entry, as the chain's end has it."""
    row = await conn.fetchrow("SELECT seq, entry_sha256 FROM ledger_head")
    assert row is not None
    return int(row["seq"]), str(row["entry_sha256"])


async def append(conn: Connection, head: Head, *lines: Line) -> list[LedgerEntry]:
    """Append the lines after `head`, at its time, and move the end of the chain. Each call needs a head of its own."""
    entries: list[LedgerEntry] = []
    seq, previous = head.seq, head.entry_sha256
    for line in lines:
        entry = chained(line, seq=seq + 1, at=head.now, previous_sha256=previous)
        entries.append(entry)
        seq, previous = entry.seq, entry.entry_sha256
    for entry in entries:
        await conn.execute(_APPEND, *(getattr(entry, field) for field in _FIELDS))
    await conn.execute(_MOVE, seq, previous, head.now)
    return entries


async def listed(
    conn: Connection,
    *,
    touchpoint_id: str | None,
    before: int | None,
    limit: int,
) -> list[LedgerEntry]:
    """Entries, newest first."""
    rows = await conn.fetch(_LIST, touchpoint_id, before, limit)
    return [LedgerEntry.model_validate(dict(row)) for row in rows]


async def after(conn: Connection, seq: int, limit: int) -> list[LedgerEntry]:
    """Entries after `seq`, oldest first."""
    return [LedgerEntry.model_validate(dict(row)) for row in await conn.fetch(_AFTER, seq, limit)]
