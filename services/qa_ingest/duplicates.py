"""Suggests pairs that perhaps are one, in the background. Nothing is dropped: a person decides."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from libs.service_kit.connection import Connection
from libs.service_kit.db import Database
from services.qa_ingest.domain.tuning import Tuning
from services.qa_ingest.store import duplicates, operations, suggestions
from services.qa_ingest.store.duplicates import Waiting
from services.qa_ingest.store.suggestions import Suggestion

BATCH = 100
BY = "comparison"


async def suggest(db: Database, workspace_id: UUID, model: str, tuning: Tuning) -> int:
    """Compare every pair that is new, changed or newly embedded with all others; how many suggestions came of it."""
    made = 0
    while True:
        async with db.transaction() as tx:
            await operations.enter(tx.conn, workspace_id)
            waiting = await duplicates.waiting(tx.conn, workspace_id, model, BATCH)
            if waiting:
                made += await suggestions.add(tx.conn, await _found(tx.conn, workspace_id, waiting, model, tuning))
                await duplicates.compared(tx.conn, workspace_id, model, waiting)
        if len(waiting) < BATCH:
            return made


async def _found(
    conn: Connection, workspace_id: UUID, waiting: Sequence[Waiting], model: str, tuning: Tuning
) -> list[Suggestion]:
    ids = [pair.pair_id for pair in waiting]
    same = await duplicates.same_questions(conn, workspace_id, ids)
    near = await duplicates.near(conn, workspace_id, ids, model, tuning.near_duplicate)
    equal = {frozenset((each.pair_id, each.other_pair_id)) for each in same}
    return [
        *(
            _suggestion(workspace_id, "same_question", each.pair_id, each.other_pair_id, question=each.question)
            for each in same
        ),
        *(
            _suggestion(
                workspace_id,
                "near_duplicate",
                each.pair_id,
                each.other_pair_id,
                similarity=round(each.similarity, 4),
                model=model,
            )
            for each in near
            if frozenset((each.pair_id, each.other_pair_id)) not in equal
        ),
    ]


def _suggestion(workspace_id: UUID, kind: str, pair_id: UUID, other: UUID, **detail: str | float) -> Suggestion:
    key = "|".join(sorted((str(pair_id), str(other))))
    return Suggestion(workspace_id, kind, key, BY, pair_id=pair_id, other_pair_id=other, detail=detail)
