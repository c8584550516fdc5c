"""Verdicts on results: kept once, changed by who gave them, and only on what is there to be seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from libs.contracts.queries.qa_ingest import FeedbackReply, GiveFeedback
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from services.qa_ingest import answers
from services.qa_ingest.tests.test_ingest import block
from services.qa_ingest.tests.test_search import Searched


@pytest.fixture
async def library(database: Callable[[str], Awaitable[Database]], tmp_path: Path) -> Searched:
    made = Searched(await database("qa_ingest"), tmp_path)
    await made.ingest.prepare()
    await made.fill(block("Where is my parcel?", "Here."))
    return made


async def give(library: Searched, result: UUID, **told: Any) -> FeedbackReply:
    asked = {"query": "my card", "verdict": "wrong", "given_by": "ada", "workspace_ids": (library.bound.workspace_id,)}
    return await answers.answer_feedback(GiveFeedback(**{**asked, "result_id": result, **told}), library.db)


async def verdicts(library: Searched) -> list[tuple[Any, ...]]:
    return await library.rows("SELECT given_by, query, verdict, comment FROM search_feedback ORDER BY given_at")


async def test_the_last_word_of_a_person_counts(library: Searched) -> None:
    (hit,) = await library.search("parcel")
    first = await give(library, hit.id)
    assert first.changed
    again = await give(library, hit.id, query=" my card ")
    assert again == FeedbackReply(feedback_id=first.feedback_id, changed=False)
    assert (await give(library, hit.id, verdict="right", comment="after all")).feedback_id == first.feedback_id
    await give(library, hit.id, given_by="bob")
    assert await verdicts(library) == [("ada", "my card", "right", "after all"), ("bob", "my card", "wrong", "")]


async def test_the_same_request_again_is_answered_as_the_first(library: Searched) -> None:
    (hit,) = await library.search("parcel")
    request = uuid4()
    first = await give(library, hit.id, request_id=request)
    assert await give(library, hit.id, request_id=request) == first
    assert len(await verdicts(library)) == 1


async def test_what_is_not_there_or_of_others_is_refused(library: Searched) -> None:
    (hit,) = await library.search("parcel")
    refused: list[dict[str, Any]] = [{"result": uuid4()}, {"kind": "chunk"}, {"workspace_ids": (uuid4(),)}]
    for told in refused:
        with pytest.raises(Refused, match="there is no"):
            await give(library, told.pop("result", hit.id), **told)
    assert await verdicts(library) == []
