"""What the library answers to whoever takes its pairs out again."""

from __future__ import annotations

from typing import Any

from libs.contracts.library import ExportedPair
from libs.contracts.queries.base import MAX_REPLY_BYTES
from libs.contracts.queries.qa_ingest import ExportedPairs, ExportPairs
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from services.qa_ingest.store import exports
from services.qa_ingest.store.exports import After

FULL = MAX_REPLY_BYTES * 2 // 3
"""A page ends before it is larger; one pair alone always has room."""


async def answer_export(query: ExportPairs, db: Database) -> ExportedPairs:
    """The next page of a workspace's pairs."""
    after = _after(query.after)
    async with db.connection(workspaces=[query.workspace_id]) as conn:
        rows = await exports.page(conn, after, query.limit + 1, sensitive=query.include_sensitive)
        superseded, sensitive = await exports.besides(conn)
    pairs: list[ExportedPair] = []
    size = 0
    for row in rows[: query.limit]:
        pair = _exported(row)
        size += len(pair.model_dump_json().encode())
        if pairs and size > FULL:
            break
        pairs.append(pair)
    last = rows[len(pairs) - 1] if len(rows) > len(pairs) else None
    return ExportedPairs(
        pairs=tuple(pairs),
        next=str(After(last["created_at"], last["ordinal"], last["pair_id"])) if last is not None else None,
        superseded=superseded,
        sensitive=0 if query.include_sensitive else sensitive,
    )


def _after(text: str | None) -> After | None:
    try:
        return After.read(text) if text is not None else None
    except ValueError as error:
        raise Refused("bad_place", "after: it is not the `next` of a page", status=422) from error


def _exported(row: Any) -> ExportedPair:
    said = {name: row[name] for name in ExportedPair.model_fields}
    told = [
        {"question": question, **{key: value for key, value in detail.items() if value}}
        for question, detail in row["variant_details"].items()
    ]
    # What a phrasing adds to the answer has no key of its own in a bundle.
    more = {"context_variants": told} if told else {}
    return ExportedPair(**{**said, "metadata": {**row["metadata"], **more}})
