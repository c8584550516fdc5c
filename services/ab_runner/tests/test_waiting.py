"""Published pairs wait to be cases: whatever is said twice or out of order ends in the same rows."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from libs.contracts.events.qa_ingest import (
    QaPairArchivedV1,
    QaPairPublishedV1,
    QaPairSupersededV1,
    QaPairUnpublishedV1,
)
from libs.contracts.queries.ab_runner import ListWaitingCases
from libs.service_kit.db import Database
from libs.service_kit.delivery import delivering
from libs.service_kit.testing import event_of
from libs.service_kit.testing.plugin import OpenDatabase
from services.ab_runner import answers, handlers
from services.ab_runner.tests.support import TOUCHPOINT, now
from services.ab_runner.waiting import Said

A, B = uuid4(), uuid4()
KEPT, ARCHIVED, SUPERSEDED, BACK, NOBODYS = (uuid4() for _ in range(5))
HANDLERS: dict[type, Callable[[list[Any], Database], Awaitable[None]]] = {
    QaPairPublishedV1: handlers.on_pairs_published,
    QaPairArchivedV1: handlers.on_pairs_archived,
    QaPairSupersededV1: handlers.on_pairs_superseded,
    QaPairUnpublishedV1: handlers.on_pairs_unpublished,
}


def published(pair: UUID, version: int, touchpoint: str | None = TOUCHPOINT, workspace: UUID = A) -> QaPairPublishedV1:
    return QaPairPublishedV1(
        pair_id=pair,
        workspace_id=workspace,
        version=version,
        touchpoint_id=touchpoint,
        question=f"question {version}?",
        answer=f"answer {version}" + "." * 1_000,
        published_at=now() + timedelta(seconds=version),
    )


def gone(pair: UUID, version: int) -> dict[str, Any]:
    return {"pair_id": pair, "workspace_id": A, "version": version, "at": now() + timedelta(seconds=version)}


STORY: list[Said] = [
    published(KEPT, 1),
    published(KEPT, 3),
    published(ARCHIVED, 1),
    QaPairArchivedV1(**gone(ARCHIVED, 2), archived_by="ada"),
    published(SUPERSEDED, 1),
    QaPairSupersededV1(**gone(SUPERSEDED, 4), superseded_by=KEPT),
    published(BACK, 1, workspace=B),
    QaPairUnpublishedV1(**{**gone(BACK, 2), "workspace_id": B}),
    published(BACK, 5, workspace=B),
    published(NOBODYS, 1, touchpoint=None),
]
WAITING = {(KEPT, 3, "question 3?"), (BACK, 5, "question 5?")}


async def hear(db: Database, facts: Sequence[Said]) -> None:
    for fact in facts:
        events = [event_of(fact)]
        with delivering("ab_runner-test", events):
            await HANDLERS[type(fact)](events, db)


async def waiting(db: Database, **asked: Any) -> set[tuple[UUID, int, str]]:
    found = await answers.answer_waiting(ListWaitingCases(**asked), db)
    return {(one.pair_id, one.version, one.input) for one in found.cases}


async def rows(db: Database) -> list[Any]:
    async with db.connection() as conn:
        return await conn.fetch(
            "SELECT pair_id, touchpoint_id, version, waits, input, expected FROM waiting_cases ORDER BY pair_id"
        )


async def forget(db: Database) -> None:
    async with db.connection() as conn:
        await conn.execute("DELETE FROM waiting_cases")
        await conn.execute("DELETE FROM inbox")


async def test_what_is_said_twice_and_in_any_order_ends_in_the_same_rows(database: OpenDatabase) -> None:
    db = await database("ab_runner")
    await hear(db, STORY)
    undisturbed = await rows(db)
    assert await waiting(db) == WAITING
    assert [row["input"] for row in undisturbed if not row["waits"]] == [None] * 3

    for seed in range(12):
        await forget(db)
        disturbed = [*STORY, *STORY]
        random.Random(seed).shuffle(disturbed)
        await hear(db, disturbed)
        assert await rows(db) == undisturbed, seed


async def test_a_batch_is_taken_together(database: OpenDatabase) -> None:
    db = await database("ab_runner")
    events = [event_of(published(KEPT, version)) for version in (3, 1, 2)]
    with delivering("ab_runner-test", events):
        await handlers.on_pairs_published(events, db)
    assert await waiting(db) == {(KEPT, 3, "question 3?")}


async def test_a_touchpoint_that_is_named_later_gets_the_case(database: OpenDatabase) -> None:
    db = await database("ab_runner")
    late = published(NOBODYS, 1).model_copy(update={"published_at": now() + timedelta(minutes=1)})
    for facts in ([published(NOBODYS, 1, touchpoint=None), late], [late, published(NOBODYS, 1, touchpoint=None)]):
        await forget(db)
        await hear(db, facts)
        assert await waiting(db) == {(NOBODYS, 1, "question 1?")}


async def test_who_sees_what_waits(database: OpenDatabase) -> None:
    db = await database("ab_runner")
    await hear(db, STORY)
    assert await waiting(db, workspace_ids=(A,)) == {(KEPT, 3, "question 3?")}
    assert await waiting(db, workspace_ids=()) == set()
    assert await waiting(db, touchpoint_id="nobody") == set()
    found = await answers.answer_waiting(ListWaitingCases(limit=1), db)
    assert (len(found.cases), found.counts) == (1, {TOUCHPOINT: 2})
    assert {len(one.answer_preview) for one in found.cases} == {200}
