"""What the normaliser answers: signals, and how many there are."""

from __future__ import annotations

from libs.contracts.queries.normaliser import CountSignals, ListSignals, SignalCounts, SignalPage
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from services.normaliser import store

PAGE_BYTES = 2 * 1024 * 1024


async def answer_list(query: ListSignals, db: Database) -> SignalPage:
    """One page of signals, newest first; shorter than asked for where the payloads are large."""
    after = _cursor(query.cursor) if query.cursor else None
    async with db.connection(workspaces=query.workspace_ids) as conn:
        signals, more = await store.listed(conn, query, after, PAGE_BYTES)
    following = f"{signals[-1].created_at.isoformat()}~{signals[-1].signal_id}" if more else None
    return SignalPage(signals=tuple(signals), next=following)


async def answer_count(query: CountSignals, db: Database) -> SignalCounts:
    """Counts by touchpoint: `stored` and `unprocessed` are signals that count, `rejected` those that do not."""
    all_of_them = query.workspace_ids is None
    async with db.connection(workspaces=query.workspace_ids) as conn:
        return SignalCounts(counts=tuple(await store.counts(conn, query.touchpoint_id, every_workspace=all_of_them)))


def _cursor(text: str) -> store.Cursor:
    try:
        return store.Cursor.parse(text)
    except ValueError as error:
        raise Refused("bad_cursor", "cursor must be the `next` of an earlier page", status=422) from error
