"""Pairs that are perhaps one: suggested once, grouped where they ask the same, and never dropped."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from libs.service_kit.db import Database
from services.qa_ingest.embedding import Embedding
from services.qa_ingest.settings import fitted
from services.qa_ingest.store import operations
from services.qa_ingest.tests.test_ingest import block
from services.qa_ingest.tests.test_search import EMBEDDER, Searched


class Compared(Searched):
    """A library whose pairs are compared."""

    async def compare(self) -> None:
        await self.ingest.look()
        workspaces = [self.bound.workspace_id]
        await Embedding(self.db, EMBEDDER, lambda: workspaces, fitted().of(EMBEDDER.model)).embed_missing()

    async def suggested(self) -> list[tuple[str, ...]]:
        return await self.rows(
            "SELECT kind, pair.source_id_token, other.source_id_token FROM suggestions"
            " JOIN q_a_pairs AS pair ON pair.id = pair_id JOIN q_a_pairs AS other ON other.id = other_pair_id"
            " ORDER BY 1, 2, 3"
        )


@pytest.fixture
async def library(database: Callable[[str], Awaitable[Database]], tmp_path: Path) -> Compared:
    made = Compared(await database("qa_ingest"), tmp_path)
    await made.ingest.prepare()
    return made


async def test_equal_questions_are_grouped_round_the_oldest(library: Compared) -> None:
    library.put("a.md", block("Where is my parcel?", "Here.", id="a"))
    await library.compare()
    library.put("b.md", block("where is my PARCEL", "There.", id="b"))
    library.put("c.md", block("Has it been sent?", "Yes.", id="c", alternate_phrasings="[Where is my parcel]"))
    await library.compare()
    await library.compare()
    assert await library.suggested() == [("same_question", "a", "b"), ("same_question", "a", "c")]
    assert len(await library.pairs()) == 3


async def test_near_questions_are_suggested_once_and_others_not(library: Compared) -> None:
    library.put("a.md", block("How do I reset my password?", "So.", id="a") + block("Where are you?", "Here.", id="w"))
    library.put("b.md", block("How do I reset my password now?", "Thus.", id="b"))
    await library.compare()
    await library.compare()
    ((kind, *pair),) = await library.suggested()
    assert (kind, sorted(pair)) == ("near_duplicate", ["a", "b"])


async def test_a_changed_question_is_compared_again(library: Compared) -> None:
    library.put("a.md", block("Where is my parcel?", "Here.", id="a") + block("Who are you?", "Us.", id="b"))
    await library.compare()
    assert await library.suggested() == []
    async with library.db.transaction() as tx:
        await operations.enter(tx.conn, library.bound.workspace_id)
        await tx.conn.execute("UPDATE q_a_pairs SET question_text = 'Where is my parcel' WHERE source_id_token = 'b'")
    await library.compare()
    assert [row[0] for row in await library.suggested()] == ["same_question"]
