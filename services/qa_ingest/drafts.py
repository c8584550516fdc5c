"""Which of several versions of a document is served, where their names tell a draft from a final.

It is worked out anew from all that is there whenever one of them comes or goes, so that the order of arrival makes no
difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from libs.service_kit.connection import Connection
from services.qa_ingest.domain.drafts import Said, decide, name_of
from services.qa_ingest.store import drafts, extractions, operations
from services.qa_ingest.store.operations import Operation

BY = "ingest"


async def begin(conn: Connection, workspace_id: UUID, object_key: str) -> None:
    """Wait for other versions of this document that are just coming or going. Before anything of it is written."""
    if (name := name_of(object_key)) is not None:
        await drafts.lock(conn, workspace_id, name.stem)


async def settle(conn: Connection, workspace_id: UUID, object_key: str, document_id: UUID | None) -> None:
    """Compare all versions of a document; `document_id` is the one that came, None where one is gone."""
    name = name_of(object_key)
    if name is None:
        return
    if document_id is not None:
        await drafts.name(conn, document_id, name.stem)
    ranks: dict[int, list[UUID]] = {}
    for identity, key in await drafts.versions(conn, workspace_id, name.stem):
        told = name_of(key)
        ranks.setdefault(told.rank if told else 0, []).append(identity)
    if not ranks:
        return
    best = ranks.pop(max(ranks))
    lesser = [identity for some in ranks.values() for identity in some]
    await _restore(conn, best, lesser)
    decided = decide(await drafts.said(conn, lesser), await drafts.said(conn, best))
    await _supersede(conn, object_key, decided.superseded)
    keys = {_key(one, other): (one, other) for one, other in decided.suggested}
    await drafts.outdate(conn, workspace_id, [*best, *lesser], list(keys))
    await drafts.suggest(
        conn,
        [
            {
                "workspace_id": workspace_id,
                "pair_id": one.pair_id,
                "extraction_id": one.extraction_id,
                "natural_key": key,
                "detail": {"question": one.question, "draft_answer": one.answers[0], "final_answer": other.answers[0]},
            }
            for key, (one, other) in keys.items()
        ],
    )


async def _restore(conn: Connection, best: Sequence[UUID], lesser: Sequence[UUID]) -> None:
    """Serve again what a final took the place of that is gone, or says something else now."""
    better = await drafts.said(conn, best)
    back = [each for each in better if not each.live]
    back += decide(await drafts.said(conn, lesser), better).restored
    await drafts.restore(conn, [each.extraction_id for each in back])


async def _supersede(conn: Connection, object_key: str, superseded: Sequence[tuple[Said, Said]]) -> None:
    """The better version takes over what the lesser one was promoted to, or its pair supersedes the other's."""
    await drafts.supersede(conn, [one.extraction_id for one, _ in superseded if one.live])
    taken = {other.extraction_id: one.pair_id for one, other in superseded if one.pair_id and not other.pair_id}
    await extractions.promote(conn, {key: pair for key, pair in taken.items() if pair is not None}, BY)
    pairs = [(one.pair_id, other.pair_id) for one, other in superseded if one.pair_id and other.pair_id]
    both = [(old, new) for old, new in pairs if old and new and old != new]
    if both:
        await operations.say(conn, Operation(BY, "supersede", f"{object_key}: the final says the same as the draft"))
        await drafts.supersede_pairs(conn, both)


def _key(one: Said, other: Said) -> str:
    return f"{one.sha256}|{other.sha256}"
