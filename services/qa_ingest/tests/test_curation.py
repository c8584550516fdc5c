"""Pairs under the hands of their curators: every operation, its history, its undoing, and two who do it at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from libs.contracts.library import PairDetail
from libs.contracts.queries import qa_curation as asked
from libs.contracts.queries.qa_curation import NewPair, PairChanges, PairRef, Part
from libs.contracts.queries.qa_ingest import SearchPairs
from libs.embeddings import StaticEmbedder
from libs.service_kit.db import Connection, Database
from libs.service_kit.errors import Refused
from libs.service_kit.testing import outbox_events
from services.qa_ingest import answers, curating
from services.qa_ingest.curating import Governance
from services.qa_ingest.embedding import Embedding

A, B = UUID(int=1), UUID(int=2)
COMPARED = (
    *("question_text", "alternate_question_phrasings", "variant_details", "answer_standard", "answer_advanced"),
    *("source_id_token", "scope_tag", "anti_scope_tag", "sources", "primary_domain", "publication_status"),
    *("superseded_by", "sensitive", "archived_at", "archive_reason", "verified_at", "metadata", "valid_from"),
    *("governance_review_status", "next_review_date", "origin_kind"),
)
"""What an undo brings back as it was."""


class Desk:
    """A curator's desk at a real database."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.by: dict[str, Any] = {"workspace_ids": (A,), "by": "ada", "reason": "for a test"}

    async def create(self, question: str = "Why?", answer: str = "Because.", **more: Any) -> PairDetail:
        who: dict[str, Any] = {
            **self.by,
            **{name: more.pop(name) for name in ("workspace_ids", "by", "by_kind") if name in more},
        }
        said = {name: more.pop(name) for name in ("publication_status", "from_answer") if name in more}
        pair = NewPair(question=question, answer_standard=answer, **more)
        return (await curating.answer_create(asked.CreatePair(**who, pair=pair, **said), self.db)).pair

    async def edit(self, pair: PairDetail, clear: tuple[Any, ...] = (), **changes: Any) -> asked.CuratedPair:
        query = asked.EditPair(**self.by, pair=ref(pair), changes=PairChanges(**changes), clear=clear)
        return await curating.answer_edit(query, self.db)

    async def propose(self, pair: PairDetail, **changes: Any) -> asked.SuggestionView:
        query = asked.ProposeEdit(**self.by, pair=ref(pair), changes=PairChanges(**changes))
        return (await curating.answer_propose(query, self.db)).suggestion

    async def merge(self, into: PairDetail, *absorbed: PairDetail) -> asked.CuratedPairs:
        query = asked.MergePairs(**self.by, into=ref(into), absorbed=tuple(map(ref, absorbed)))
        return await curating.answer_merge(query, self.db)

    async def undo(self, operation_id: UUID) -> asked.CuratedPairs:
        return await curating.answer_undo(asked.UndoOperation(**self.by, undone_id=operation_id), self.db)

    async def do(self, kind: Any, pair: PairDetail, **more: Any) -> Any:
        do: Any = {
            asked.ArchivePair: curating.answer_archive,
            asked.RestorePair: curating.answer_restore,
            asked.VerifyPair: curating.answer_verify,
            asked.PublishPair: curating.answer_publish,
            asked.SupersedePair: curating.answer_supersede,
            asked.ReviewPair: curating.answer_review,
            asked.SplitPair: curating.answer_split,
            asked.DeletePair: curating.answer_delete,
        }[kind]
        return await do(kind(**self.by, pair=ref(pair), **more), self.db)

    async def accept(self, suggestion_id: UUID, **more: Any) -> asked.SuggestionDecided:
        query = asked.AcceptSuggestion(**self.by, suggestion_id=suggestion_id, **more)
        return await curating.answer_accept(query, self.db)

    async def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        async with self.db.connection(workspaces=[A]) as conn:
            return [tuple(row) for row in await conn.fetch(statement, *values)]

    async def state(self, pair_id: UUID) -> dict[str, Any]:
        async with self.db.connection(workspaces=[A]) as conn:
            row = await conn.fetchrow("SELECT * FROM q_a_pairs WHERE id = $1", pair_id)
            variants = await conn.fetch("SELECT question FROM question_variants WHERE pair_id = $1 ORDER BY 1", pair_id)
            cited = await conn.fetch("SELECT citing_id FROM citations WHERE pair_id = $1 ORDER BY 1", pair_id)
        assert row is not None
        return {
            **{name: row[name] for name in COMPARED},
            "variants": [each[0] for each in variants],
            "cited": [each[0] for each in cited],
        }

    async def history(self, pair_id: UUID) -> list[tuple[Any, ...]]:
        statement = "SELECT version_number, change_type FROM q_a_pair_history WHERE pair_id = $1 ORDER BY 1"
        return await self.rows(statement, pair_id)

    async def facts(self) -> list[str]:
        return [event.type for event in await outbox_events(self.db)]

    async def search(self, query: str, **more: Any) -> list[str]:
        found = SearchPairs(workspace_ids=(A,), query=query, **more)
        reply = await answers.answer_search(found, self.db, StaticEmbedder())
        return [hit.question for hit in reply.results]

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Connection]:
        async with self.db.transaction() as tx:
            await tx.conn.execute("SELECT set_config('burnish.workspaces', $1, true)", str(A))
            yield tx.conn


def ref(pair: PairDetail) -> PairRef:
    return PairRef(id=pair.id, version=pair.version)


@pytest.fixture
async def desk(database: Callable[[str], Awaitable[Database]]) -> Desk:
    made = Desk(await database("qa_ingest"))
    for workspace in (A, B):
        async with made.db.transaction() as tx:
            await tx.conn.execute("SELECT set_config('burnish.workspaces', $1, true)", str(workspace))
            await tx.conn.execute("INSERT INTO workspaces (id, name) VALUES ($1, $2)", workspace, f"w{workspace.int}")
    return made


@asynccontextmanager
async def refused(code: str, status: int) -> AsyncIterator[pytest.ExceptionInfo[Refused]]:
    with pytest.raises(Refused) as told:
        yield told
    assert (told.value.code, told.value.status) == (code, status), told.value.detail


# --- new pairs --------------------------------------------------------------------------------------------------


async def test_a_pair_is_made_with_its_history_operation_and_fact(desk: Desk) -> None:
    made = await desk.create("  Why so?  ", scope_tags=("a", "b", "a"), alternate_phrasings=("why so?", "How come?"))
    assert (made.question, made.version, made.publication_status) == ("Why so?", 1, "draft")
    assert (made.scope_tags, made.alternate_phrasings) == (("a", "b"), ("How come?",))
    assert made.origin_kind == "curated_explicit"
    assert await desk.rows("SELECT change_type, changed_by, change_reason FROM q_a_pair_history") == [
        ("initial_ingest", "ada", "for a test")
    ]
    same = "SELECT kind, done_by, operation_id = (SELECT operation_id FROM q_a_pair_history) FROM operations"
    assert await desk.rows(same) == [("create", "ada", True)]
    assert await desk.facts() == ["qa.pair.created.v1"]


async def test_a_published_pair_is_told_of_and_found(desk: Desk) -> None:
    await desk.create("Where is the data kept?", publication_status="published")
    assert await desk.facts() == ["qa.pair.created.v1", "qa.pair.published.v1"]
    assert await desk.search("where is the data kept") == ["Where is the data kept?"]


async def test_an_external_answer_is_kept_and_cited(desk: Desk) -> None:
    given = asked.ExternalAnswer(text="We keep it in two places.", reference="bid-7/12")
    made = await desk.create("Where is it?", "In two places.", from_answer=given)
    assert made.origin_kind == "derived_from_bid_response"
    assert await desk.rows("SELECT promoted_from_answer FROM q_a_pairs") == [("We keep it in two places.",)]
    assert await desk.rows("SELECT citing_entity, citing_id, citation_kind FROM citations") == [
        ("bid_response", "bid-7/12", "source")
    ]
    assert await desk.history(made.id) == [(1, "promote_from_bid")]


async def test_who_asks_the_same_is_suggested_and_nothing_is_dropped(desk: Desk) -> None:
    first = await desk.create("Why?")
    second = await desk.create("why ?", "Otherwise.")
    found = await curating.answer_suggestions(asked.ListSuggestions(workspace_ids=(A,)), desk.db)
    assert [(one.kind, one.pair_id, one.other_pair_id) for one in found.suggestions] == [
        ("same_question", first.id, second.id)
    ]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"question": "   "}, "blank"),
        ({"answer": " \n "}, "blank"),
        (
            {"valid_from": datetime(2026, 1, 2, tzinfo=UTC), "valid_to": datetime(2026, 1, 2, tzinfo=UTC)},
            "ends_before_it_begins",
        ),
    ],
)
async def test_what_means_nothing_names_its_field(desk: Desk, fields: dict[str, Any], code: str) -> None:
    async with refused(code, 422) as told:
        await desk.create(**fields)
    assert told.value.detail.split(":")[0] in ("question", "answer_standard", "valid_to")
    assert await desk.rows("SELECT id FROM q_a_pairs") == []


async def test_an_id_token_is_one_pairs(desk: Desk) -> None:
    await desk.create("Why?", id_token="A-1")
    async with refused("id_token_taken", 409):
        await desk.create("How?", id_token="A-1")


async def test_a_pair_is_for_one_workspace_that_is_there(desk: Desk) -> None:
    async with refused("which_workspace", 422):
        await desk.create(workspace_ids=(A, B))
    async with refused("not_found", 404):
        await desk.create(workspace_ids=(uuid4(),))


async def test_the_same_request_makes_one_pair(desk: Desk) -> None:
    query = asked.CreatePair(**desk.by, pair=NewPair(question="Why?", answer_standard="So."), request_id=uuid4())
    first, again = [await curating.answer_create(query, desk.db) for _ in range(2)]
    assert first == again
    assert await desk.rows("SELECT count(*) FROM q_a_pairs") == [(1,)]


async def extraction(desk: Desk, **columns: Any) -> UUID:
    values: dict[str, Any] = {
        "workspace_id": A,
        "object_key": "team/faq.docx",
        "object_version": "v1",
        "extractor_kind": "docx_pattern_a",
        "extractor_version": "1.0",
        "ordinal": 0,
        "content_sha256": "h",
        "question_text": "How long are backups kept?",
        "answer_text": "Thirty days. In two regions.",
        "answer_standard": "Thirty days.",
        "answer_advanced": "In two regions.",
        "variants": [{"question": "Backup retention?", "source": "Bid 3", "detail": "In days."}],
        "source_file_basename": "faq.docx",
        "source_section_path": ["Operations"],
        "source_table_index": 2,
        "source_row_index": 5,
        "source_id_token": "BK-1",
        "scope_tag": ["cloud"],
        "anti_scope_tag": ["pricing"],
        "primary_domain": "operations",
        "primary_subtopic": "backups",
        "secondary_domain": "security",
        "secondary_subtopic": "recovery",
        "provenance": "INFERRED",
        "confidence": 0.75,
        "publication_status": "published",
        "valid_from": datetime(2025, 1, 1, tzinfo=UTC),
        "valid_to": datetime(2027, 1, 1, tzinfo=UTC),
        "sources": [{"file": "policy.docx", "table_index": 1}],
        "verified_at": datetime(2025, 2, 1, tzinfo=UTC),
        "verified_by": "Kim",
        "layer": "L2",
        "next_review_date": date(2026, 5, 1),
        "review_cadence_days": 90,
        "sensitive": False,
        "revised": True,
        "citations": ["ISO 27001, A.12.3"],
        "metadata": {"topic": "x"},
        **columns,
    }
    async with desk.writing() as conn:
        values["document_id"] = await conn.fetchval(
            "INSERT INTO documents (workspace_id, bucket, object_key, object_version, content_sha256, bytes, state)"
            " VALUES ($1, 'b', 'team/faq.docx', $2, $3, 1, 'live') RETURNING id",
            A,
            str(uuid4()),
            "0" * 64,
        )
        places = ", ".join(f"${n}" for n in range(1, len(values) + 1))
        made = await conn.fetchval(
            f"INSERT INTO q_a_extractions ({', '.join(values)}) VALUES ({places}) RETURNING id", *values.values()
        )
    assert isinstance(made, UUID)
    return made


async def promote(desk: Desk, extraction_id: UUID, **more: Any) -> asked.CuratedPair:
    query = asked.PromoteExtraction(**{**desk.by, **more}, extraction_id=extraction_id)
    return await curating.answer_promote(query, desk.db)


async def test_promotion_loses_no_typed_column(desk: Desk) -> None:
    found = await extraction(desk)
    pair = (await promote(desk, found)).pair
    async with desk.db.connection(workspaces=[A]) as conn:
        row = await conn.fetchrow("SELECT * FROM q_a_pairs WHERE id = $1", pair.id)
        kept = await conn.fetchrow("SELECT * FROM q_a_extractions WHERE id = $1", found)
    assert row is not None and kept is not None
    same = (
        *("question_text", "answer_standard", "answer_advanced", "source_id_token", "scope_tag", "anti_scope_tag"),
        *("primary_domain", "primary_subtopic", "secondary_domain", "secondary_subtopic", "provenance", "confidence"),
        *("valid_from", "valid_to", "sources", "layer", "next_review_date", "review_cadence_days", "sensitive"),
    )
    assert {name: row[name] for name in same} == {name: kept[name] for name in same}
    assert row["alternate_question_phrasings"] == ["Backup retention?"]
    assert row["variant_details"] == {"Backup retention?": {"source": "Bid 3", "detail": "In days."}}
    assert (row["source_document_id"], row["promoted_from_extraction_id"]) == (kept["document_id"], found)
    assert (row["origin_kind"], row["ingest_source"]) == ("extracted_from_corpus", "qa_promote_from_extraction")
    assert row["metadata"] == {
        "topic": "x",
        "claimed": {
            "publication_status": "published",
            "verified_at": "2025-02-01 00:00:00+00:00",
            "verified_by": "Kim",
        },
        "found": {
            "extractor": "docx_pattern_a",
            "place": {"file": "faq.docx", "section_path": ["Operations"], "table_index": 2, "row_index": 5},
            "revised": True,
        },
    }
    assert (row["publication_status"], row["verified_at"]) == ("draft", None)
    assert (kept["promoted_to_pair_id"], kept["promoted_by"]) == (pair.id, "ada")
    assert await desk.rows("SELECT citing_entity, citing_id FROM citations") == [("document", "ISO 27001, A.12.3")]
    assert await desk.history(pair.id) == [(1, "promote_from_extraction")]


async def test_an_extraction_is_promoted_once_and_only_while_it_is_served(desk: Desk) -> None:
    found = await extraction(desk)
    made = await promote(desk, found)
    async with refused("already_promoted", 409):
        await promote(desk, found)
    await desk.undo(made.operation_id)
    assert await desk.rows("SELECT promoted_to_pair_id FROM q_a_extractions") == [(None,)]
    async with desk.writing() as conn:
        await conn.execute("UPDATE q_a_extractions SET invalidated_at = now(), invalidation_reason = 'source_changed'")
    async with refused("invalidated", 409):
        await promote(desk, found)
    async with refused("not_found", 404):
        await promote(desk, found, workspace_ids=(B,))


# --- one pair ---------------------------------------------------------------------------------------------------


async def test_an_edit_is_a_version_and_the_old_words_are_found_as_of_then(desk: Desk) -> None:
    pair = await desk.create("How long are backups kept?", "Thirty days.", publication_status="published")
    before = datetime.now(UTC)
    done = await desk.edit(pair, question="How long are archives kept?", answer_standard="Ninety days.")
    assert (done.pair.version, done.pair.answer_standard) == (2, "Ninety days.")
    assert await desk.history(pair.id) == [(1, "initial_ingest"), (2, "edit")]
    found = SearchPairs(workspace_ids=(A,), query="how long are backups kept", as_of=before)
    then = (await answers.answer_search(found, desk.db, StaticEmbedder())).results
    assert [(hit.question, hit.answer_preview) for hit in then] == [("How long are backups kept?", "Thirty days.")]
    now = (await answers.answer_search(found.model_copy(update={"as_of": None}), desk.db, StaticEmbedder())).results
    assert [hit.answer_preview for hit in now] == ["Ninety days."]
    said = [event for event in await outbox_events(desk.db) if event.type == "qa.pair.updated.v1"]
    assert [(event.data.version, event.data.change_type, event.data.changed) for event in said] == [
        (2, "edit", ("answer_standard", "question_text"))
    ]
    assert (await desk.facts()).count("qa.pair.published.v1") == 2


async def test_fields_are_cleared_and_classes_alone_are_a_reclassification(desk: Desk) -> None:
    pair = await desk.create(answer_advanced="More.", primary_domain="a", confidence=0.7)
    done = await desk.edit(pair, clear=("answer_advanced",))
    assert done.pair.answer_advanced is None
    done = await desk.edit(done.pair, primary_domain="b", scope_tags=("x",))
    assert await desk.history(pair.id) == [(1, "initial_ingest"), (2, "edit"), (3, "reclassify")]
    async with refused("nothing_to_change", 409):
        await desk.edit(done.pair, primary_domain="b", confidence=0.7)
    async with refused("set_and_cleared", 422):
        await desk.edit(done.pair, primary_domain="c", clear=("primary_domain",))


async def test_of_two_editors_at_once_one_is_told_of_the_other(desk: Desk) -> None:
    pair = await desk.create()
    outcomes = await asyncio.gather(
        *(desk.edit(pair, answer_standard=f"Because of {n}.") for n in range(4)), return_exceptions=True
    )
    lost = [one for one in outcomes if isinstance(one, Refused)]
    assert (len(lost), {one.code for one in lost}) == (3, {"stale_version"})
    assert {one.extra["version"] for one in lost} == {2}
    assert "has version 2 by now, not 1" in lost[0].detail


async def test_the_way_of_a_pair(desk: Desk) -> None:
    pair = await desk.create("Where is it kept?")
    pair = (await desk.do(asked.VerifyPair, pair)).pair
    assert pair.verified_by == "ada"
    pair = (await desk.do(asked.PublishPair, pair, status="in_review")).pair
    pair = (await desk.do(asked.PublishPair, pair)).pair
    assert await desk.search("where is it kept") == ["Where is it kept?"]
    async with refused("nothing_to_change", 409):
        await desk.do(asked.PublishPair, pair)
    pair = (await desk.do(asked.ArchivePair, pair)).pair
    assert await desk.search("where is it kept") == []
    async with refused("archived", 409):
        await desk.edit(pair, answer_standard="x")
    async with refused("archived", 409):
        await desk.do(asked.ArchivePair, pair)
    pair = (await desk.do(asked.RestorePair, pair)).pair
    assert pair.publication_status == "draft"
    async with refused("nothing_to_restore", 409):
        await desk.do(asked.RestorePair, pair)
    kinds = [kind for _, kind in await desk.history(pair.id)]
    assert kinds == ["initial_ingest", "verify", "edit", "edit", "archive", "restore"]
    assert await desk.rows("SELECT archived_by FROM q_a_pairs") == [(None,)]
    said = [kind for kind in await desk.facts() if kind != "qa.pair.updated.v1"]
    assert said == ["qa.pair.created.v1", "qa.pair.published.v1", "qa.pair.archived.v1"]


async def test_what_is_superseded_is_hidden_until_it_is_restored(desk: Desk) -> None:
    old = await desk.create("Where is it kept?", publication_status="published")
    new = await desk.create("Where is the data kept now?", publication_status="published")
    done = (await desk.do(asked.SupersedePair, old, superseded_by=new.id)).pair
    assert done.superseded_by == new.id
    assert await desk.search("where is it kept") == ["Where is the data kept now?"]
    assert "qa.pair.superseded.v1" in await desk.facts()
    async with refused("superseded", 409) as told:
        await desk.edit(done, answer_standard="x")
    assert told.value.extra["superseded_by"] == str(new.id)
    async with refused("superseded", 409):
        await desk.do(asked.SupersedePair, new, superseded_by=old.id)
    async with refused("itself", 422):
        await desk.do(asked.SupersedePair, new, superseded_by=new.id)
    restored = (await desk.do(asked.RestorePair, done)).pair
    assert (restored.superseded_by, restored.publication_status) == (None, "published")


async def test_a_pair_of_another_workspace_is_not_there(desk: Desk) -> None:
    mine, theirs = await desk.create(), await desk.create(workspace_ids=(B,))
    async with refused("not_found", 404):
        await desk.edit(theirs, answer_standard="x")
    async with refused("not_found", 404):
        await desk.merge(mine, theirs)
    async with refused("not_found", 404):
        await desk.do(asked.SupersedePair, mine, superseded_by=theirs.id)
    desk.by["workspace_ids"] = (A, B)
    async with refused("other_workspace", 422):
        await desk.merge(mine, theirs)


async def test_a_sensitive_pair_is_not_there_without_that_right(desk: Desk) -> None:
    pair = await desk.create("What is the salary?", sensitive=True, publication_status="published")
    assert await desk.facts() == ["qa.pair.created.v1"]
    async with refused("not_found", 404):
        await desk.edit(pair, answer_standard="x")
    desk.by["sees_sensitive"] = True
    await desk.edit(pair, answer_standard="x")


async def test_agents_make_drafts_and_propose_and_decide_nothing(desk: Desk) -> None:
    pair = await desk.create()
    other = await desk.create("How?")
    done = await desk.edit(pair, answer_standard="So.")
    desk.by |= {"by": "agent-7", "by_kind": "machine"}
    assert (await desk.create("Who?")).publication_status == "draft"
    assert (await desk.propose(done.pair, answer_standard="Thus.")).state == "open"
    for status in ("published", "in_review"):
        async with refused("people_decide", 403):
            await desk.create("Whose?", publication_status=status)
    forbidden: list[Callable[[], Awaitable[Any]]] = [
        lambda: desk.edit(other, answer_standard="x"),
        lambda: desk.do(asked.PublishPair, other),
        lambda: desk.do(asked.ArchivePair, other),
        lambda: desk.do(asked.RestorePair, other),
        lambda: desk.do(asked.VerifyPair, other),
        lambda: desk.do(asked.DeletePair, other),
        lambda: desk.do(asked.ReviewPair, other, outcome="approved"),
        lambda: desk.do(asked.SupersedePair, other, superseded_by=pair.id),
        lambda: desk.do(asked.SplitPair, other, parts=PARTS),
        lambda: desk.merge(other, done.pair),
        lambda: desk.undo(done.operation_id),
    ]
    for attempt in forbidden:
        async with refused("people_decide", 403):
            await attempt()


async def test_a_pair_that_stands_in_is_not_deleted_and_a_deletion_leaves_a_trace(desk: Desk) -> None:
    old, new = await desk.create(), await desk.create("How?")
    await desk.do(asked.SupersedePair, old, superseded_by=new.id)
    async with refused("stands_in", 409):
        await desk.do(asked.DeletePair, new)
    old = old.model_copy(update={"version": 2})
    await desk.do(asked.DeletePair, old)
    await desk.do(asked.DeletePair, new)
    assert await desk.rows("SELECT id FROM q_a_pairs") == []
    traces = await desk.rows(
        "SELECT done_by, detail ->> 'deleted' FROM operations WHERE kind = 'delete' ORDER BY done_at"
    )
    assert traces == [("ada", str(old.id)), ("ada", str(new.id))]
    assert (await desk.facts()).count("qa.pair.archived.v1") == 2


# --- merge, split, undo -----------------------------------------------------------------------------------------

PARTS = (
    Part(question="Where is it kept?", answer_standard="In Bonn.", scope_tags=("place",)),
    Part(question="How long is it kept?", answer_standard="A year."),
)


async def twins(desk: Desk) -> tuple[PairDetail, PairDetail]:
    one = await desk.create(
        "Where is it kept?",
        "In Bonn.",
        alternate_phrasings=("Location?",),
        scope_tags=("cloud",),
        anti_scope_tags=("pricing",),
        publication_status="published",
        from_answer=asked.ExternalAnswer(text="x", reference="bid-1"),
    )
    two = await desk.create(
        "Where do you keep it?",
        "In the city of Bonn.",
        alternate_phrasings=("location?", "Which site?"),
        scope_tags=("cloud", "bonn"),
        publication_status="published",
        id_token="L-2",
        from_answer=asked.ExternalAnswer(text="y", reference="bid-2"),
    )
    return one, two


async def test_a_merge_unites_and_is_one_operation(desk: Desk) -> None:
    one, two = await twins(desk)
    done = await desk.merge(one, two)
    into = await desk.state(one.id)
    assert into["variants"] == sorted(["Where is it kept?", "Location?", "Where do you keep it?", "Which site?"])
    assert (into["scope_tag"], into["anti_scope_tag"]) == (["cloud", "bonn"], ["pricing"])
    assert (into["cited"], into["answer_standard"]) == (["bid-1", "bid-2"], "In Bonn.")
    assert (await desk.state(two.id))["superseded_by"] == one.id
    written = "SELECT pair_id, version_number, change_type FROM q_a_pair_history WHERE operation_id = $1"
    assert set(await desk.rows(written, done.operation_id)) == {(one.id, 2, "merge"), (two.id, 2, "merge")}
    assert await desk.search("which site") == ["Where is it kept?"]
    assert await desk.search("where do you keep it") == ["Where is it kept?"]


async def test_a_merge_is_undone_exactly_also_when_it_was_embedded_since(desk: Desk) -> None:
    one, two = await twins(desk)
    before = {pair.id: await desk.state(pair.id) for pair in (one, two)}
    done = await desk.merge(one, two)
    assert await Embedding(desk.db, StaticEmbedder(), lambda: [A]).embed_missing() > 0
    back = await desk.undo(done.operation_id)
    assert {pair.id: await desk.state(pair.id) for pair in (one, two)} == before
    assert {pair.version for pair in back.pairs} == {3}
    assert [kind for _, kind in await desk.history(two.id)] == ["promote_from_bid", "merge", "restore"]
    assert await desk.search("where do you keep it", limit=1) == ["Where do you keep it?"]
    async with refused("already_undone", 409):
        await desk.undo(done.operation_id)
    async with refused("not_undoable", 409):
        await desk.undo(back.operation_id)
    async with refused("not_found", 404):
        await desk.undo(uuid4())
    desk.by["workspace_ids"] = (B,)
    async with refused("not_found", 404):
        await desk.undo(done.operation_id)


async def test_a_later_change_stands_in_the_way_of_undoing(desk: Desk) -> None:
    one, two = await twins(desk)
    done = await desk.merge(one, two)
    later = await desk.edit(done.pairs[0], answer_standard="In Cologne.")
    async with refused("changed_since", 409) as told:
        await desk.undo(done.operation_id)
    assert told.value.extra == {"pair_id": str(one.id), "version": 3}
    assert (await desk.state(two.id))["superseded_by"] == one.id
    await desk.undo(later.operation_id)
    await desk.undo(done.operation_id)
    assert (await desk.state(two.id))["superseded_by"] is None
    assert (await desk.state(one.id))["answer_standard"] == "In Bonn."


async def test_of_merges_into_each_other_one_happens(desk: Desk) -> None:
    for n in range(4):
        one, two = await desk.create(f"Where is it, {n}?"), await desk.create(f"Where was it, {n}?")
        outcomes = await asyncio.gather(desk.merge(one, two), desk.merge(two, one), return_exceptions=True)
        lost = [each for each in outcomes if isinstance(each, BaseException)]
        assert [type(each) for each in lost] == [Refused]
        hidden = [(await desk.state(pair.id))["superseded_by"] for pair in (one, two)]
        assert sorted(map(bool, hidden)) == [False, True]


async def test_what_is_merged_with_a_sensitive_pair_is_sensitive(desk: Desk) -> None:
    desk.by["sees_sensitive"] = True
    one, two = await desk.create("Open?", publication_status="published"), await desk.create("Secret?", sensitive=True)
    await desk.merge(one, two)
    assert (await desk.state(one.id))["sensitive"] is True
    assert "qa.pair.unpublished.v1" in await desk.facts()
    async with refused("named_twice", 422):
        await desk.merge(one, one)


async def test_a_split_and_its_undoing(desk: Desk) -> None:
    one, _ = await twins(desk)
    before = await desk.state(one.id)
    done = await desk.do(asked.SplitPair, one, parts=PARTS)
    *parts, whole = done.pairs
    assert [(part.question, part.answer_standard, part.scope_tags) for part in parts] == [
        ("Where is it kept?", "In Bonn.", ("place",)),
        ("How long is it kept?", "A year.", ("cloud",)),
    ]
    assert {part.publication_status for part in parts} == {"published"}
    assert {part.anti_scope_tags for part in parts} == {("pricing",)}
    assert (await desk.state(parts[1].id))["cited"] == ["bid-1"]
    assert whole.publication_status == "archived"
    assert await desk.history(one.id) == [(1, "promote_from_bid"), (2, "split")]
    assert await desk.history(parts[0].id) == [(1, "split")]
    await desk.undo(done.operation_id)
    assert await desk.state(one.id) == before
    assert {(await desk.state(part.id))["publication_status"] for part in parts} == {"archived"}
    assert "How long is it kept?" not in await desk.search("how long is it kept")


async def test_a_changed_part_stands_in_the_way_of_undoing_a_split(desk: Desk) -> None:
    pair = await desk.create()
    done = await desk.do(asked.SplitPair, pair, parts=PARTS)
    await desk.edit(done.pairs[0], answer_standard="In Cologne.")
    async with refused("changed_since", 409):
        await desk.undo(done.operation_id)
    assert (await desk.state(pair.id))["publication_status"] == "archived"


# --- suggestions ------------------------------------------------------------------------------------------------


async def test_a_proposed_edit_is_accepted_once_and_undone(desk: Desk) -> None:
    pair = await desk.create()
    proposed = await desk.propose(pair, answer_standard="So.")
    assert (proposed.kind, proposed.detail["changes"]) == ("proposed_edit", {"answer_standard": "So."})
    assert (await desk.propose(pair, answer_standard="So.")).suggestion_id == proposed.suggestion_id
    assert (await desk.state(pair.id))["answer_standard"] == "Because."
    done = await desk.accept(proposed.suggestion_id)
    assert (done.suggestion.state, done.pairs[0].answer_standard) == ("accepted", "So.")
    async with refused("decided", 409):
        await desk.accept(proposed.suggestion_id)
    assert done.operation_id is not None
    await desk.undo(done.operation_id)
    assert (await desk.state(pair.id))["answer_standard"] == "Because."
    assert await desk.rows("SELECT state FROM suggestions") == [("open",)]


async def test_a_proposal_of_another_version_is_not_applied_unread(desk: Desk) -> None:
    pair = await desk.create()
    proposed = await desk.propose(pair, answer_standard="So.")
    await desk.edit(pair, question="Why not?")
    async with refused("stale_version", 409):
        await desk.accept(proposed.suggestion_id)
    done = await desk.accept(proposed.suggestion_id, version=2)
    assert (done.pairs[0].question, done.pairs[0].answer_standard) == ("Why not?", "So.")


async def test_an_edit_that_comes_to_nothing_is_not_proposed(desk: Desk) -> None:
    pair = await desk.create()
    async with refused("nothing_to_change", 409):
        await desk.propose(pair, answer_standard="Because.")
    async with refused("stale_version", 409):
        await desk.propose(pair.model_copy(update={"version": 2}), answer_standard="So.")
    assert await desk.rows("SELECT id FROM suggestions") == []


async def test_duplicates_are_merged_or_superseded_and_drafts_give_way(desk: Desk) -> None:
    first, second = await desk.create("Why?"), await desk.create("why", "Otherwise.")
    (found,) = (await curating.answer_suggestions(asked.ListSuggestions(workspace_ids=(A,)), desk.db)).suggestions
    for wrong in ({"resolution": "edit"}, {"keep": uuid4()}):
        with pytest.raises(Refused) as told:
            await desk.accept(found.suggestion_id, **wrong)
        assert told.value.status == 422
    done = await desk.accept(found.suggestion_id)
    assert (await desk.state(second.id))["superseded_by"] == first.id
    assert done.operation_id is not None
    await desk.undo(done.operation_id)
    await desk.accept(found.suggestion_id, resolution="supersede", keep=second.id)
    assert (await desk.state(first.id))["superseded_by"] == second.id


async def test_a_dismissed_suggestion_changes_nothing(desk: Desk) -> None:
    pair = await desk.create()
    proposed = await desk.propose(pair, answer_standard="So.")
    query = asked.DismissSuggestion(**desk.by, suggestion_id=proposed.suggestion_id)
    assert (await curating.answer_dismiss(query, desk.db)).suggestion.state == "dismissed"
    assert (await desk.state(pair.id))["answer_standard"] == "Because."
    assert (await desk.propose(pair, answer_standard="So.")).state == "dismissed"


# --- governance -------------------------------------------------------------------------------------------------


async def test_an_approval_moves_the_next_review_on(desk: Desk) -> None:
    pair = await desk.create(review_cadence_days=90, next_review_date=date(2026, 1, 1))
    done = (await desk.do(asked.ReviewPair, pair, outcome="approved")).pair
    assert done.review_status == "approved"
    due = (datetime.now(UTC) + timedelta(days=90)).date()
    assert await desk.rows("SELECT next_review_date, governance_reviewer FROM q_a_pairs") == [(due, "ada")]
    assert await desk.history(pair.id) == [(1, "initial_ingest"), (2, "governance_review_action")]


async def test_requested_changes_wait_for_an_edit_and_then_for_a_review(desk: Desk) -> None:
    pair = await desk.create()
    done = (await desk.do(asked.ReviewPair, pair, outcome="changes_requested")).pair
    assert await reviews(desk) == []
    done = (await desk.edit(done, answer_standard="So.")).pair
    assert done.review_status == "pending"
    assert [one.pair_id for one in await reviews(desk)] == [pair.id]


async def test_a_review_reverts_to_the_words_of_before(desk: Desk) -> None:
    pair = await desk.create("Why?", "One.")
    for answer in ("Two.", "Three."):
        pair = (await desk.edit(pair, answer_standard=answer)).pair
    pair = (await desk.do(asked.VerifyPair, pair)).pair
    pair = (await desk.do(asked.ReviewPair, pair, outcome="reverted")).pair
    assert (pair.answer_standard, pair.review_status) == ("Two.", "reverted")
    pair = (await desk.do(asked.ReviewPair, pair, outcome="reverted", to_version=1)).pair
    assert pair.answer_standard == "One."
    async with refused("no_such_version", 422):
        await desk.do(asked.ReviewPair, pair, outcome="reverted", to_version=99)
    async with refused("not_reverted", 422):
        await desk.do(asked.ReviewPair, pair, outcome="approved", to_version=1)
    fresh = await desk.create("How?")
    async with refused("nothing_to_revert", 409):
        await desk.do(asked.ReviewPair, fresh, outcome="reverted")


async def reviews(desk: Desk, **more: Any) -> list[asked.DueReview]:
    query = asked.ListReviews(workspace_ids=(A,), **more)
    return list((await curating.answer_reviews(query, desk.db, grace_days=14)).reviews)


async def test_reviews_are_due_and_then_overdue(desk: Desk) -> None:
    today = datetime.now(UTC).date()
    days = {"late": -30, "due": -1, "soon": 5, "never": None}
    pairs = {
        name: await desk.create(f"{name}?", next_review_date=None if ahead is None else today + timedelta(days=ahead))
        for name, ahead in days.items()
    }
    assert [(one.question, one.overdue) for one in await reviews(desk)] == [("late?", True), ("due?", False)]
    assert [one.question for one in await reviews(desk, within_days=7)] == ["late?", "due?", "soon?"]
    assert [one.question for one in await reviews(desk, state="overdue")] == ["late?"]
    governance = Governance(desk.db, 14, lambda: [A, B])
    assert await governance.mark_overdue() == 1
    assert await governance.mark_overdue() == 0
    assert await desk.history(pairs["late"].id) == [(1, "initial_ingest"), (2, "governance_review_action")]
    (late,) = await reviews(desk, state="overdue")
    assert (late.review_status, late.version) == ("review_overdue", 2)
    late_pair = pairs["late"].model_copy(update={"version": 2})
    await desk.do(asked.ReviewPair, late_pair, outcome="approved")
    assert await reviews(desk, state="overdue") == []
