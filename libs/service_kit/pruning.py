"""What makes the inbox table end: events that no stream can deliver any more are forgotten."""

from __future__ import annotations

from datetime import timedelta

from libs.service_kit.db import Database
from libs.service_kit.metrics import INBOX_OLDEST, INBOX_PRUNED, INBOX_ROWS

BLOCKS = 512  # of 8 kB: one step reads 4 MB and removes some 40,000 rows at most

_ONE_AT_A_TIME = "SELECT pg_try_advisory_xact_lock(hashtextextended('inbox.prune.' || current_schema(), 0))"
_SIZE = "SELECT pg_relation_size('inbox') / current_setting('block_size')::int"
# By place and not by time: an index on `seen_at` would cost every event something, and this reads each block once.
_PRUNE = """
DELETE FROM inbox WHERE ctid >= $1 AND ctid < $2 AND seen_at < now() - $3::interval
    AND NOT EXISTS (SELECT FROM dead_letters WHERE dead_letters.event_id = inbox.event_id)
"""
_LEFT = """
SELECT count(*) AS rows, coalesce(extract(epoch FROM now() - min(seen_at)), 0) AS age FROM inbox
WHERE ctid >= $1 AND ctid < $2
"""


async def prune(db: Database, keep: timedelta, blocks: int = BLOCKS) -> int:
    """Remove the rows of events seen longer ago than `keep`, in steps of so many blocks; return how many went.

    `keep` is longer than any stream keeps a message, so that what can still be delivered is still known. The events
    of dead letters stay for ever: those can be replayed for ever. Of several replicas one prunes at a time.
    """
    removed, rows, oldest = 0, 0, 0.0
    async with db.connection() as conn:
        end = int(await conn.fetchval(_SIZE))
        for first in range(0, end, blocks):
            part = (first, 0), (first + blocks, 0)
            async with conn.transaction():
                if not await conn.fetchval(_ONE_AT_A_TIME):
                    return removed
                gone = int((await conn.execute(_PRUNE, *part, keep)).split()[-1])
                left = await conn.fetchrow(_LEFT, *part)
            INBOX_PRUNED.inc(gone)
            removed += gone
            if left is not None:
                rows, oldest = rows + int(left["rows"]), max(oldest, float(left["age"]))
    INBOX_ROWS.set(rows)
    INBOX_OLDEST.set(oldest)
    return removed
