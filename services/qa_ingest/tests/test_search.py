"""Search over real vectors: lanes, filters inside every lane, time, and empty answers that are answers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from pgvector import Vector

from libs.contracts.library import ScopeFilter, SearchHit
from libs.contracts.queries.qa_ingest import SearchPairs
from libs.embeddings import embedder_from
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from services.qa_ingest import answers
from services.qa_ingest.domain import asking, ranking, scope
from services.qa_ingest.domain.ranking import Candidate, Closeness
from services.qa_ingest.domain.tuning import Tuning
from services.qa_ingest.embedding import Embedding
from services.qa_ingest.store import operations, search
from services.qa_ingest.store.search import Filters, Source
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


async def test_a_question_without_a_word_that_names_something_finds_nothing(library: Searched) -> None:
    await library.fill(*DESK, block("What is it?", "A help desk."))
    assert await library.found("what is it that you do") == []
    assert await library.found("how do I do it") == []
    assert await library.found("what is it") == ["What is it?"]


async def test_a_natural_question_is_answered(library: Searched) -> None:
    await library.fill(*DESK)
    for query in ("is there any way to get a new password please", "when will the thing I ordered be delivered"):
        assert await library.found(query) != []


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
    assert [hit.question for hit in hits] == ["How do I reset my password?"]
    assert "Where is my parcel?" not in await library.found("delivery -parcel")
    assert "Where is my parcel?" in await library.found("delivery parcel")


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


async def test_as_of_finds_by_the_question_of_then(library: Searched) -> None:
    await library.fill(block("How long is data kept?", "30 days.", id="a", valid_from="2020-01-01"))
    between = datetime.now(UTC)
    async with library.db.transaction() as tx:
        await operations.enter(tx.conn, library.bound.workspace_id)
        await tx.conn.execute(
            "UPDATE q_a_pairs SET question_text = 'Where are the offices?', valid_from = '2020-01-01'"
        )
    await library.fill()
    (then,) = await library.search("how long do you keep data", as_of=between)
    assert (then.question, then.rank_method) == ("How long is data kept?", "hybrid")
    assert then.similarity is not None and then.similarity > 0.5
    assert await library.found("how long do you keep data") == []
    assert await library.found("offices", as_of=between) == []
    assert await library.found("offices") == ["Where are the offices?"]


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


# --- the index ------------------------------------------------------------------------------------------------


async def fill_workspace(db: Database, workspace: UUID, count: int) -> None:
    """Pairs with random vectors, which no filter can tell by."""
    random = np.random.default_rng(workspace.int)
    made = random.normal(size=(count, 1024)).astype(np.float32)
    async with db.transaction() as tx:
        await operations.enter(tx.conn, workspace)
        await tx.conn.execute("INSERT INTO workspaces (id, name) VALUES ($1, $2)", workspace, str(workspace))
        await tx.conn.execute(
            "INSERT INTO q_a_pairs (workspace_id, question_text, answer_standard, origin_kind, created_by, updated_by,"
            " publication_status, scope_tag) SELECT $1, 'q' || n, 'a', 'curated_explicit', 'x', 'x', 'published',"
            " CASE WHEN n % 10 = 0 THEN ARRAY['tenth'] ELSE '{}' END FROM generate_series(1, $2) AS n",
            workspace,
            count,
        )
        rows = await tx.conn.fetch("SELECT pair_id FROM question_variants")
        await tx.conn.execute(
            "UPDATE question_variants SET embedding = given.embedding, embedding_model = 'm'"
            " FROM unnest($1::uuid[], $2::vector[]) AS given (id, embedding) WHERE pair_id = given.id",
            [row["pair_id"] for row in rows],
            [Vector(row) for row in made],
        )


async def nearest(db: Database, filters: Filters, vector: Vector) -> list[UUID]:
    async with db.connection(workspaces=filters.workspace_ids) as conn:
        source = await search.narrowed(conn, Source("curated", True, filters))
        return [found.id for found in await search.vector(conn, source, vector, "m")]


async def test_a_small_part_of_the_index_gives_as_many_rows_as_are_asked_for(
    database: Callable[[str], Awaitable[Database]], monkeypatch: pytest.MonkeyPatch
) -> None:
    db = await database("qa_ingest")
    small, large = UUID(int=1), UUID(int=2)
    await fill_workspace(db, small, 48)
    await fill_workspace(db, large, 752)
    vector = Vector(np.random.default_rng(9).normal(size=1024).astype(np.float32))
    for filters in (
        Filters((small,), publication_status=("published",)),
        Filters((large,), publication_status=("published",), include=("tenth",)),
    ):
        exact = await nearest(db, filters, vector)
        assert len(exact) >= 48
        with monkeypatch.context() as patched:
            patched.setattr(search, "SMALL", 0)
            patched.setattr(search, "SEARCH_DEPTH", 20)
            assert (await nearest(db, filters, vector))[:10] == exact[:10]
            # The control: a scan that does not go on finds a few of its twenty nearest, or none.
            plain = search._SETTINGS.replace("relaxed_order", "off")
            patched.setattr(search, "_SETTINGS", plain)
            with pytest.raises(RuntimeError, match="would hide rows"):
                await nearest(db, filters, vector)


# --- ranking --------------------------------------------------------------------------------------------------


TUNING = Tuning(
    lexical=0.1, share=0.0, trigram=0.1, pooling=0.5, curated=0.0, floor=0.2, fair=0.5, strong=0.8, near_duplicate=0.9
)


def candidates(*numbers: int, score: float = 1.0) -> list[Candidate]:
    return [Candidate("curated", UUID(int=n), score) for n in numbers]


def close(**cosines: float) -> dict[ranking.Key, Closeness]:
    return {("curated", UUID(int=int(name[1:]))): Closeness(value, value) for name, value in cosines.items()}


def fused(lanes: dict[ranking.Lane, Any], **cosines: float) -> list[ranking.Ranked]:
    return ranking.fuse(lanes, close(**cosines), TUNING)


def test_exact_hits_are_pinned_and_scores_are_weighed() -> None:
    lanes: dict[ranking.Lane, Any] = {
        "fulltext": candidates(1, score=1.0) + candidates(2, score=2.0),
        "vector": candidates(2, 3),
        "exact": candidates(4),
    }
    ranked = fused(lanes, _1=0.5, _2=0.45, _3=0.62, _4=0.1)
    # 4 is exact; 2 has 0.45 + 0.1 × 2; 3 has 0.62 alone; 1 has 0.5 + 0.1 × 1.
    assert [row.key[1].int for row in ranked] == [4, 2, 3, 1]
    assert [row.rank_method for row in ranked] == ["exact", "hybrid", "vector", "fulltext"]
    assert [ranking.strength(row, TUNING) for row in ranked] == ["exact", "fair", "fair", "fair"]


def test_a_lane_that_knows_little_says_little() -> None:
    lanes: dict[ranking.Lane, Any] = {"fulltext": candidates(1, score=0.1), "vector": candidates(2, 1)}
    assert [row.key[1].int for row in fused(lanes, _1=0.5, _2=0.6)] == [2, 1]


def test_what_is_far_needs_more_than_its_vector() -> None:
    lanes: dict[ranking.Lane, Any] = {"vector": candidates(1, 2, 3), "fulltext": candidates(2)}
    assert [row.key[1].int for row in fused(lanes, _1=0.19, _2=0.19, _3=0.2)] == [2, 3]


def test_a_row_without_a_vector_is_as_close_as_the_floor() -> None:
    (row,) = fused({"fulltext": candidates(1)})
    assert (row.similarity, round(row.score, 6)) == (None, 0.3)


def test_neighbours_vote() -> None:
    found = ranking.pooled([0.2, 0.9, 0.6, 0.3, float("nan")])
    assert found is not None
    assert (found.similarity, round(found.neighbours, 6)) == (0.9, 0.6)
    assert ranking.pooled([float("nan")]) is None


def test_the_order_of_lanes_does_not_matter() -> None:
    lanes: list[tuple[ranking.Lane, Any]] = [
        ("fulltext", candidates(1, 2, 5)),
        ("vector", candidates(2, 3)),
        ("trigram", candidates(5)),
    ]
    orders = [fused(dict(order), _1=0.5, _2=0.5, _3=0.5) for order in itertools.permutations(lanes)]
    assert len({tuple(row.key for row in order) for order in orders}) == 1


def test_words_of_a_query() -> None:
    asked = asking.read('lost "my parcel" -abroad -"next day" ,;')
    assert (asked.text, asked.words) == ("lost my parcel", ("lost", "parcel"))
    assert (asked.phrases, asked.banned) == (("my parcel",), ("abroad", "next day"))


@pytest.mark.parametrize("query", ["what is it", "How do I do it?", "where is that of mine", "-parcel", "?!"])
def test_what_names_nothing_says_nothing(query: str) -> None:
    assert not asking.read(query).says_something


@pytest.mark.parametrize("query", ["up", "Why?", "is it up", "what", "was ist das", "再起動"])
def test_a_single_word_is_looked_for_whatever_it_is(query: str) -> None:
    assert asking.read(query).says_something


def test_positive_tags_are_asked_for() -> None:
    assert scope.positive(scope.parse("a AND NOT b")) == {"a"}
