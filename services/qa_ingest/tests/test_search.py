"""Search over real vectors: lanes, filters inside every lane, time, and empty answers that are answers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from libs.contracts.library import ScopeFilter, SearchHit
from libs.contracts.queries.qa_ingest import SearchPairs
from libs.embeddings import embedder_from
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from services.qa_ingest import answers
from services.qa_ingest.domain import ranking, scope
from services.qa_ingest.domain.ranking import Candidate
from services.qa_ingest.embedding import Embedding
from services.qa_ingest.store import operations
from services.qa_ingest.tests.test_ingest import Library, block

EMBEDDER = embedder_from("static")


class Searched(Library):
    """A library whose questions have their vectors."""

    async def fill(self, *blocks: str, key: str = "a.md") -> None:
        self.put(key, "".join(blocks))
        await self.ingest.look()
        await Embedding(self.db, EMBEDDER, lambda: [self.bound.workspace_id]).embed_missing()

    async def search(self, query: str, **options: Any) -> list[SearchHit]:
        options = {"workspace_ids": (self.bound.workspace_id,), "publication_status": ("draft",), **options}
        return list((await answers.answer_search(SearchPairs(query=query, **options), self.db, EMBEDDER)).results)

    async def found(self, query: str, **options: Any) -> list[str]:
        return [hit.question for hit in await self.search(query, **options)]


@pytest.fixture
async def library(database: Callable[[str], Awaitable[Database]], tmp_path: Path) -> Searched:
    made = Searched(await database("qa_ingest"), tmp_path)
    await made.ingest.prepare()
    return made


ORDERS = "[delivery]"
DESK = (
    block("How do I reset my password?", "Use the link on the sign-in page.", id="PW-1", scope_tags="[access]"),
    block("Where is my parcel?", "Follow the tracking link.", id="DEL-7", scope_tags=ORDERS, primary_domain="orders"),
    block("Can I change the delivery address?", "Until it is sent.", scope_tags=ORDERS, anti_scope_tags="[abroad]"),
    block("Is the service up?", "See the status page.", sensitive="true"),
    block("What does the export hold?", "Every record.", alternate_phrasings="[Which data can I download?]"),
)


async def test_natural_questions_find_their_pair(library: Searched) -> None:
    await library.fill(*DESK)
    for query, question in (
        ("i forgot my password, what now", "How do I reset my password?"),
        ("my package has not arrived", "Where is my parcel?"),
        ("which information can be downloaded", "What does the export hold?"),
    ):
        assert (await library.found(query))[0] == question


async def test_an_id_or_the_question_itself_is_on_top(library: Searched) -> None:
    await library.fill(*DESK)
    for query in ("DEL-7", "where is  my PARCEL", "Which data can I download"):
        (first, *_) = await library.search(query)
        assert (first.rank_method, first.match_strength) == ("exact", "exact")


async def test_a_word_that_english_drops_is_found(library: Searched) -> None:
    await library.fill(*DESK)
    assert (await library.found("up", include_sensitive=True))[0] == "Is the service up?"


async def test_letters_that_are_wrong(library: Searched) -> None:
    await library.fill(*DESK)
    assert (await library.found("pasword reset"))[0] == "How do I reset my password?"


async def test_sensitive_pairs_need_the_right(library: Searched) -> None:
    await library.fill(*DESK)
    assert "Is the service up?" not in await library.found("is the service up")
    assert "Is the service up?" in await library.found("is the service up", include_sensitive=True)


async def test_filters_hold_in_every_lane(library: Searched) -> None:
    await library.fill(*DESK)

    async def tagged(**told: Any) -> set[str]:
        return set(await library.found("delivery address of my parcel", scope=ScopeFilter(**told)))

    parcel, address = "Where is my parcel?", "Can I change the delivery address?"
    assert await tagged(include=("delivery",)) == {parcel, address}
    assert await tagged(include=("delivery", "abroad")) == {parcel}
    assert not {parcel, address} & await tagged(exclude=("delivery",))
    assert address not in await tagged(exclude=("abroad",))
    assert await tagged(expression="delivery AND NOT access") == {parcel, address}
    assert await tagged(expression="delivery OR abroad") == {parcel}
    assert await library.found("parcel", primary_domain="orders") == [parcel]
    assert await library.found("parcel", publication_status=("published",)) == []
    assert await library.found("parcel", provenance=("INFERRED",)) == []
    with pytest.raises(Refused, match="AND or OR"):
        await tagged(expression="a b")


async def test_words_that_must_and_must_not_be_there(library: Searched) -> None:
    await library.fill(*DESK)
    assert await library.found('"tracking link"') != []
    hits = await library.search('-parcel "my password"')
    lexical = [hit.question for hit in hits if hit.rank_method in ("fulltext", "hybrid")]
    assert lexical == ["How do I reset my password?"]


async def test_nothing_is_found_where_nothing_is(library: Searched) -> None:
    await library.fill(*DESK)
    assert await library.search("%", workspace_ids=(UUID(int=9),)) == []
    assert all(hit.match_strength == "weak" for hit in await library.search("quantum chromodynamics lattice"))


async def test_a_row_without_a_vector_is_found_by_its_words(library: Searched) -> None:
    library.put("a.md", "".join(DESK))
    await library.ingest.look()
    (first, *_) = await library.search("reset password")
    assert (first.question, first.similarity) == ("How do I reset my password?", None)


async def test_extractions_pass_every_filter_and_collapse_into_their_pair(library: Searched) -> None:
    other = Searched(library.db, library.folder, curate_as_pair=False)
    await other.fill(*DESK)
    assert await other.found("parcel") == []
    hits = await other.search("parcel", include_extractions=True)
    assert (hits[0].kind, hits[0].question) == ("extracted", "Where is my parcel?")
    outside = ScopeFilter(exclude=("delivery",))
    assert "Where is my parcel?" not in await other.found("parcel", include_extractions=True, scope=outside)
    await library.ingest.follow(library.bound, "a.md")
    library.put("b.md", DESK[1])
    await library.ingest.look()
    both = await library.search("where is my parcel", include_extractions=True)
    assert [hit.kind for hit in both if hit.question == "Where is my parcel?"].count("curated") == 1


async def test_as_of_gives_the_text_of_then(library: Searched) -> None:
    await library.fill(block("How long is data kept?", "30 days.", id="a", valid_from="2020-01-01"))
    between = datetime.now(UTC)
    await asyncio.sleep(0.01)
    async with library.db.transaction() as tx:
        await operations.enter(tx.conn, library.bound.workspace_id)
        await tx.conn.execute("UPDATE q_a_pairs SET answer_standard = '90 days.', valid_from = '2020-01-01'")
    for at, answer in ((None, "90 days."), (between, "30 days."), (datetime(2021, 1, 1, tzinfo=UTC), "30 days.")):
        (hit,) = await library.search("how long is data kept", as_of=at)
        assert (hit.answer_preview, hit.current) == (answer, True)
    assert await library.search("how long is data kept", as_of=datetime(2019, 1, 1, tzinfo=UTC)) == []


async def test_superseded_pairs_are_hidden(library: Searched) -> None:
    await library.fill(block("Why?", "Old.", id="a"), block("Why so?", "New.", id="b"))
    async with library.db.transaction() as tx:
        await operations.enter(tx.conn, library.bound.workspace_id)
        await tx.conn.execute(
            "UPDATE q_a_pairs SET superseded_by = (SELECT id FROM q_a_pairs WHERE source_id_token = 'b')"
            " WHERE source_id_token = 'a'"
        )
    assert await library.found("why") == ["Why so?"]


async def test_a_changed_question_is_embedded_again(library: Searched) -> None:
    await library.fill(block("How do I reset my password?", "So.", id="a"))
    async with library.db.transaction() as tx:
        await operations.enter(tx.conn, library.bound.workspace_id)
        await tx.conn.execute("UPDATE q_a_pairs SET question_text = 'Where is my parcel?'")
    assert await library.rows("SELECT count(*) FROM question_variants WHERE embedding IS NOT NULL") == [(0,)]
    await library.fill(block("How do I reset my password?", "So.", id="a"))
    assert await library.rows("SELECT count(*) FROM question_variants WHERE embedding IS NOT NULL") == [(1,)]


# --- ranking --------------------------------------------------------------------------------------------------


def candidates(*numbers: int) -> list[Candidate]:
    return [Candidate("curated", UUID(int=n), 0.5) for n in numbers]


def test_exact_hits_are_pinned_and_lanes_are_weighed() -> None:
    fused = ranking.fuse({"fulltext": candidates(1, 2), "vector": candidates(2, 3), "exact": candidates(4)})
    assert [row.candidate.id.int for row in fused] == [4, 2, 3, 1]
    assert [row.rank_method for row in fused] == ["exact", "hybrid", "vector", "fulltext"]


def test_the_order_of_lanes_does_not_matter() -> None:
    lanes: list[tuple[ranking.Lane, Any]] = [
        ("fulltext", candidates(1, 2, 5)),
        ("vector", candidates(2, 3)),
        ("trigram", candidates(5)),
    ]
    orders = [ranking.fuse(dict(order)) for order in itertools.permutations(lanes)]
    assert len({tuple(row.candidate.id for row in order) for order in orders}) == 1


def test_words_of_a_query() -> None:
    words = ranking.words_of('lost "my parcel" -abroad -"next day" ,;')
    assert (words.any_of, words.phrases, words.none_of) == (("lost",), ("my parcel",), ("abroad", "next day"))


def test_positive_tags_are_asked_for() -> None:
    assert scope.positive(scope.parse("a AND NOT b")) == {"a"}
