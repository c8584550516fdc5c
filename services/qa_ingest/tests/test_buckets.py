"""One specification for every kind of bucket: what is put, changed and deleted there ends in the same rows."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from libs.contracts.vocabulary import registered
from libs.service_kit.db import Database
from libs.service_kit.testing import outbox_events
from services.qa_ingest.buckets import base
from services.qa_ingest.domain.bindings import Binding
from services.qa_ingest.ingest import Bound, Ingest
from services.qa_ingest.reports import Reports
from services.qa_ingest.tests.stores import KINDS, Store

OpenDatabase = Callable[[str], Awaitable[Database]]
KEYS = ("a b.md", "a+b.md", "a%2Fb.md", "a%20b.md", "dir/Überblick ✓.md", "dir/sub/plain.md", "a&b=c;d.md")
"""Each names another object, also where it is encoded in an event or a listing."""


class Library:
    """A store, the library that it feeds, and what is in it."""

    def __init__(self, db: Database, store: Store, **binding: Any) -> None:
        self.db = db
        self.store = store
        told = {"curate_as_pair": True, **binding}
        self.bound = Bound(store.bucket(), Binding(bucket="b", kind=store.kind, workspace="default", **told))
        self.ingest = Ingest(db, [self.bound])

    async def rows(self, statement: str) -> list[tuple[Any, ...]]:
        async with self.db.connection(workspaces=[self.bound.workspace_id]) as conn:
            return [tuple(row) for row in await conn.fetch(statement)]

    async def live(self) -> list[tuple[str, str]]:
        found = await self.rows(
            "SELECT object_key, answer_text FROM q_a_extractions WHERE invalidated_at IS NULL ORDER BY 1, ordinal"
        )
        return [(key, answer) for key, answer in found]

    async def pairs(self) -> list[tuple[Any, ...]]:
        return await self.rows(
            "SELECT question_text, answer_standard, governance_review_status FROM q_a_pairs ORDER BY 1"
        )

    async def documents(self) -> Counter[tuple[str, str]]:
        return Counter((key, state) for key, state in await self.rows("SELECT object_key, state FROM documents"))


@pytest.fixture
async def library(database: OpenDatabase, store: Store) -> AsyncIterator[Library]:
    made = Library(await database("qa_ingest"), store)
    await made.ingest.prepare()
    yield made
    await made.bound.bucket.close()


def bundle(question: str, answer: str, token: str) -> bytes:
    return f"---\nquestion: {question}\nid: {token}\n---\n{answer}\n".encode()


def test_every_kind_that_is_registered_is_specified_here() -> None:
    assert set(registered("buckets")) == set(KINDS)


async def test_what_is_put_is_in_the_library(library: Library) -> None:
    await library.store.put("faq.md", bundle("Why?", "Because.", "a"))
    assert await library.ingest.look() == 1
    assert await library.ingest.look() == 0
    assert await library.live() == [("faq.md", "Because.")]
    assert await library.pairs() == [("Why?", "Because.", None)]


async def test_an_empty_bucket_is_there(library: Library) -> None:
    assert [listed async for listed in library.bound.bucket.list()] == []
    assert await library.bound.bucket.read("none.md") is None


# Case 42: keys with `+`, space, `%2F`; duplicate and late events; the right object, and the newest wins.


async def test_each_key_names_its_own_object(library: Library) -> None:
    for n, key in enumerate(KEYS):
        await library.store.put(key, bundle(f"Which {n}?", f"The one of {key}.", f"k{n}"))
    assert await library.ingest.look() == len(KEYS)
    assert await library.live() == sorted((key, f"The one of {key}.") for key in KEYS)
    await library.store.delete("a+b.md")
    assert await library.ingest.look() == 1
    assert {key for key, _ in await library.live()} == {*KEYS} - {"a+b.md"}


async def test_hints_late_doubled_and_out_of_order_end_in_the_newest(library: Library) -> None:
    noise = random.Random(7)
    for n in range(4):
        await library.store.put("a.md", bundle("Why?", f"Because {n}.", "a"))
        await library.store.put("b.md", bundle("How?", f"Thus {n}.", "b"))
        hints = ["a.md", "b.md", "a.md", "never.md", "b.md"]
        noise.shuffle(hints)
        await asyncio.gather(*(library.ingest.follow(library.bound, key) for key in hints))
    await library.store.delete("b.md")
    await asyncio.gather(*(library.ingest.follow(library.bound, key) for key in ["b.md", "a.md", "b.md"]))
    assert await library.live() == [("a.md", "Because 3.")]
    documents = await library.documents()
    assert documents["a.md", "live"] == documents["b.md", "deleted"] == 1
    assert [pair[0] for pair in await library.pairs()] == ["How?", "Why?"]
    facts = Counter(event.type for event in await outbox_events(library.db))
    assert facts["qa.document.deleted.v1"] == 1
    assert await library.ingest.look() in (0, 1), "a.md may stand under another version in the listing"
    assert await library.ingest.look() == 0


# Case 35: an object is deleted; its extractions are invalidated, the pair is kept and flagged.


async def test_what_is_deleted_is_served_no_longer_and_its_pair_is_flagged(library: Library) -> None:
    await library.store.put("a.md", bundle("Why?", "Because.", "a"))
    await library.ingest.look()
    await library.store.delete("a.md")
    assert await library.ingest.look() == 1
    assert await library.ingest.look() == 0
    assert await library.live() == []
    assert await library.pairs() == [("Why?", "Because.", "pending")]
    reasons = "SELECT invalidation_reason FROM q_a_extractions"
    assert await library.rows(reasons) == [("source_deleted",)]


# Case 36: deleted and put again three times; one live set.


async def test_deleted_and_put_again_three_times_is_one_live_set(library: Library) -> None:
    for _ in range(3):
        await library.store.put("a.md", bundle("Why?", "Because.", "a"))
        await library.ingest.look()
        await library.store.delete("a.md")
        await library.ingest.look()
        assert await library.live() == []
    await library.store.put("a.md", bundle("Why?", "Because.", "a"))
    await library.ingest.look()
    assert await library.live() == [("a.md", "Because.")]
    assert len(await library.pairs()) == 1


# Case 37: another extractor and back; as many live rows as the report says.


async def test_another_extractor_and_back_leaves_as_many_rows_as_are_counted(library: Library) -> None:
    await library.store.put("a.md", b"---\nid: A-1\nquestion: Why?\n---\n# Not a question\n\nBecause it is so.\n")
    for extractor in ("yaml_frontmatter_v1", "pseudo_yaml_v1", "yaml_frontmatter_v1"):
        other = Library(library.db, library.store, extractor=extractor)
        assert await other.ingest.look() == 1
        counted = (
            "SELECT pairs FROM ingest_runs JOIN documents ON documents.id = document_id WHERE state = 'live'"
            " ORDER BY finished_at DESC LIMIT 1"
        )
        assert await library.rows(counted) == [(1,)]
        kinds = await library.rows("SELECT extractor_kind FROM q_a_extractions WHERE invalidated_at IS NULL")
        assert kinds == [(extractor,)]
        await other.bound.bucket.close()


# Case 39: one file of two is put; the other is untouched.


async def test_the_other_file_is_untouched(library: Library) -> None:
    await library.store.put("a.md", bundle("Why?", "Because.", "a"))
    await library.store.put("b.md", bundle("How?", "Thus.", "b"))
    await library.ingest.look()
    of_b = "SELECT id, received_at, state FROM documents WHERE object_key = 'b.md'"
    before = await library.rows(of_b)
    await library.store.put("a.md", bundle("Why?", "Because of that.", "a"))
    assert await library.ingest.look() == 1
    assert await library.rows(of_b) == before
    assert await library.live() == [("a.md", "Because of that."), ("b.md", "Thus.")]


# Case 40: the same key with new content replaces; the same content under a new key is another source of one pair.


async def test_new_content_replaces_and_a_new_key_is_another_source_of_the_same_pair(library: Library) -> None:
    await library.store.put("a.md", bundle("Why?", "Because.", "a"))
    await library.ingest.look()
    await library.store.put("a.md", bundle("Why?", "Because of that.", "a"))
    await library.ingest.look()
    assert await library.live() == [("a.md", "Because of that.")]
    assert await library.pairs() == [("Why?", "Because.", "pending")]
    await library.store.put("b.md", bundle("Why?", "Because of that.", "a"))
    await library.ingest.look()
    assert await library.live() == [("a.md", "Because of that."), ("b.md", "Because of that.")]
    assert len(await library.pairs()) == 1


async def test_the_same_content_put_again_changes_nothing(library: Library) -> None:
    said = []
    for _ in range(2):
        await library.store.put("a.md", bundle("Why?", "Because.", "a"))
        await library.ingest.look()
        said.append(len(await outbox_events(library.db)))
    assert await library.documents() == {("a.md", "live"): 1}
    assert said[0] == said[1] > 0


async def test_what_is_too_large_is_refused_before_it_is_read(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (base, *_modules()):
        monkeypatch.setattr(module, "MAX_OBJECT_BYTES", 1_000)
    await library.store.put("a.md", bundle("Why?", "x" * 2_000, "a"))
    await library.store.put("b.md", bundle("How?", "Thus.", "b"))
    assert await library.ingest.look() == 2
    assert await library.ingest.look() == 0
    assert await library.live() == [("b.md", "Thus.")]
    assert await library.rows("SELECT object_key, rejected, bytes FROM documents WHERE state = 'rejected'") == [
        ("a.md", "too_large", 0)
    ]


async def test_what_is_written_is_there_and_what_is_deleted_is_gone(library: Library) -> None:
    bucket = library.bound.bucket
    for content in (b"one", b"two"):
        await bucket.write("dir/a b+c.txt", content)
        assert await bucket.read("dir/a b+c.txt") == content
        assert await library.store.get("dir/a b+c.txt") == content
    for _ in range(2):
        await bucket.delete("dir/a b+c.txt")
        assert await bucket.read("dir/a b+c.txt") is None


async def test_a_report_is_never_a_source(library: Library) -> None:
    await library.store.put("a.md.report.json", b"{}")
    assert await library.ingest.look() == 0
    assert await library.ingest.follow(library.bound, "a.md.report.json") == "passed_by"
    assert await library.documents() == {}


async def test_the_report_stands_beside_its_source_and_goes_with_it(library: Library) -> None:
    reports, store = Reports(library.db), library.store
    await store.put("dir/a b.md", bundle("Why?", "Because.", "a"))
    await store.put("bad.md", b"---\nquestion: Why?\nconfidence: 7\n---\nBecause.\n")
    await store.put("mine.md", bundle("How?", "Thus.", "b"))
    await store.put("mine.md.report.json", b'{"of": "somebody else"}')
    assert await library.ingest.look() == 3
    await reports.write_missing(library.bound)
    good, bad = [json.loads(await store.get(f"{key}.report.json")) for key in ("dir/a b.md", "bad.md")]
    assert (good["format"], good["outcome"], good["document"]["pairs"]) == ("burnish.qa.report.v1", "ingested", 1)
    assert good["losses"]["total"] == good["losses"]["pairs"]
    assert (bad["outcome"], bad["problems"][0]["line"]) == ("rejected", 3)
    assert await store.get("mine.md.report.json") == b'{"of": "somebody else"}'
    assert await library.ingest.look() == 0, "a report is no source"

    await store.put("bad.md", bundle("Whither?", "There.", "c"))
    await store.delete("dir/a b.md")
    await library.ingest.look()
    await reports.write_missing(library.bound)
    keys = [listed.key async for listed in library.bound.bucket.list()]
    assert sorted(keys) == ["bad.md", "mine.md"]
    assert await library.bound.bucket.read("dir/a b.md.report.json") is None
    assert json.loads(await store.get("bad.md.report.json"))["outcome"] == "ingested"


def _modules() -> list[Any]:
    from services.qa_ingest.buckets import folder, nats, s3

    return [folder, nats, s3]


async def test_what_was_refused_is_refused_once(library: Library) -> None:
    await library.store.put("a.md", b"---\nquestion: Why?\nconfidence: 7\n---\nBecause.\n")
    outcomes = [await library.ingest.follow(library.bound, "a.md") for _ in range(3)]
    assert outcomes == ["rejected", "unchanged", "unchanged"]
    assert [event.type for event in await outbox_events(library.db)] == ["qa.document.rejected.v1"]
    assert await library.rows("SELECT count(*) FROM ingest_runs") == [(1,)]
