"""From files in a folder to rows: new, changed, broken, gone and back; a file never changes what people vouch for."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from libs.service_kit.db import Database
from libs.service_kit.testing import outbox_events
from services.qa_ingest.buckets.folder import FolderBucket
from services.qa_ingest.domain.bindings import Binding
from services.qa_ingest.ingest import Bound, Ingest
from services.qa_ingest.store import documents, pairs


class Library:
    """A folder, the library that it feeds, and what is in it."""

    def __init__(self, db: Database, folder: Path, **binding: Any) -> None:
        self.db = db
        self.folder = folder
        told = Binding(bucket="b", folder=folder, **{"workspace": "default", "curate_as_pair": True, **binding})
        self.bound = Bound(FolderBucket("b", folder, settle_s=0.0), told)
        self.ingest = Ingest(db, [self.bound])

    def put(self, key: str, text: str | bytes) -> None:
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)

    async def rows(self, statement: str) -> list[tuple[Any, ...]]:
        async with self.db.connection(workspaces=[self.bound.workspace_id]) as conn:
            return [tuple(row) for row in await conn.fetch(statement)]

    async def documents(self) -> list[tuple[Any, ...]]:
        return await self.rows("SELECT object_key, state FROM documents ORDER BY received_at, object_key")

    async def live(self) -> list[str]:
        statement = (
            "SELECT question_text FROM q_a_extractions WHERE invalidated_at IS NULL ORDER BY object_key, ordinal"
        )
        return [row[0] for row in await self.rows(statement)]

    async def pairs(self) -> list[tuple[Any, ...]]:
        return await self.rows(
            "SELECT question_text, answer_standard, version, governance_review_status"
            " FROM q_a_pairs ORDER BY created_at, question_text"
        )

    async def facts(self) -> list[str]:
        said = [event.type for event in await outbox_events(self.db)]
        return [kind.removeprefix("qa.document.") for kind in said if kind.startswith("qa.document.")]


@pytest.fixture
async def library(database: Callable[[str], Awaitable[Database]], tmp_path: Path) -> Library:
    folder = tmp_path / "bucket"
    folder.mkdir()
    made = Library(await database("qa_ingest"), folder)
    await made.ingest.prepare()
    return made


def block(question: str, answer: str, **keys: str) -> str:
    more = "".join(f"{key}: {value}\n" for key, value in keys.items())
    return f"---\nquestion: {question}\n{more}---\n{answer}\n"


async def test_a_file_that_is_dropped_is_in_the_library(library: Library) -> None:
    text = block("Why?", "Because.", id="a") + block("How?", "Thus.")
    library.put("team/faq one+two%2F.md", text)
    assert await library.ingest.look() == 1
    assert await library.ingest.look() == 0
    assert await library.documents() == [("team/faq one+two%2F.md", "live")]
    assert await library.live() == ["Why?", "How?"]
    assert await library.pairs() == [("How?", "Thus.", 1, None), ("Why?", "Because.", 1, None)]
    assert await library.facts() == ["ingested.v1"]
    async with library.db.connection(workspaces=[library.bound.workspace_id]) as conn:
        (listed,) = await documents.listed(conn, None, 10)
        report = await documents.report(conn, listed.document_id)
    assert report is not None
    whole = {"total": len(text), "pairs": len(text), "rejects": 0, "rules": {}}
    assert (listed.pairs, report.outcome, report.losses) == (2, "ingested", whole)


async def test_another_file_is_left_alone(library: Library) -> None:
    library.put("a.md", block("Why?", "Because."))
    library.put("b.md", block("How?", "Thus."))
    await library.ingest.look()
    library.put("b.md", block("How?", "Otherwise."))
    assert await library.ingest.look() == 1
    assert await library.live() == ["Why?", "How?"]
    assert len(await library.documents()) == 3


async def test_a_changed_source_flags_its_pair_and_proposes_an_edit(library: Library) -> None:
    library.put("a.md", block("Why?", "Because.", id="a") + block("How?", "Thus.", id="b"))
    await library.ingest.look()
    library.put("a.md", block("Why?", "Because of that.", id="a") + block("How?", "Thus.", id="b"))
    await library.ingest.look()
    assert await library.pairs() == [("How?", "Thus.", 1, None), ("Why?", "Because.", 2, "pending")]
    assert await library.rows("SELECT kind, state FROM suggestions ORDER BY kind") == [
        ("proposed_edit", "open"),
        ("source_changed", "open"),
    ]
    changed = "SELECT change_type, changed_by FROM q_a_pair_history WHERE version_number = 2"
    assert await library.rows(changed) == [("source_changed", "ingest")]
    promoted = "SELECT count(*) FROM q_a_extractions WHERE invalidated_at IS NULL AND promoted_to_pair_id IS NOT NULL"
    assert await library.rows(promoted) == [(1,)]


async def test_a_file_that_breaks_leaves_what_it_gave_before_marked_as_stale(library: Library) -> None:
    library.put("a.md", block("Why?", "Because."))
    await library.ingest.look()
    library.put("a.md", "---\nquestion: Why?\nconfidence: 7\n---\nBecause.\n")
    assert await library.ingest.look() == 1
    assert await library.documents() == [("a.md", "stale"), ("a.md", "rejected")]
    assert await library.live() == ["Why?"]
    assert await library.ingest.look() == 0
    library.put("a.md", block("Why?", "Because."))
    await library.ingest.look()
    assert await library.rows("SELECT state FROM documents WHERE state IN ('live', 'stale')") == [("live",)]
    assert await library.live() == ["Why?"]
    assert await library.pairs() == [("Why?", "Because.", 1, None)]
    assert await library.facts() == ["ingested.v1", "rejected.v1", "ingested.v1"]


async def test_a_file_that_is_gone_keeps_its_pairs_and_flags_them(library: Library) -> None:
    library.put("a.md", block("Why?", "Because."))
    await library.ingest.look()
    (library.folder / "a.md").unlink()
    assert await library.ingest.look() == 1
    assert await library.ingest.look() == 0
    assert await library.documents() == [("a.md", "deleted")]
    assert await library.live() == []
    assert await library.pairs() == [("Why?", "Because.", 2, "pending")]
    assert await library.facts() == ["ingested.v1", "deleted.v1"]


async def test_deleted_and_uploaded_again_three_times(library: Library) -> None:
    for _ in range(3):
        library.put("a.md", block("Why?", "Because.", id="a"))
        await library.ingest.look()
        assert await library.live() == ["Why?"]
        (library.folder / "a.md").unlink()
        await library.ingest.look()
        assert await library.live() == []
    library.put("a.md", block("Why?", "Because.", id="a"))
    await library.ingest.look()
    assert await library.live() == ["Why?"]
    assert len(await library.pairs()) == 1


async def test_the_same_content_under_another_key_makes_no_second_pair(library: Library) -> None:
    for key in ("a.md", "b.md"):
        library.put(key, block("Why?", "Because.", id="a") + block("How?", "Thus."))
        await library.ingest.look()
    assert await library.live() == ["Why?", "How?", "Why?", "How?"]
    assert len(await library.pairs()) == 2


async def test_another_extractor_and_back(library: Library) -> None:
    text = "---\nid: A-1\nquestion: Why?\n---\n# Not a question\n\nBecause it is so.\n"
    library.put("a.md", text)
    await library.ingest.look()
    for extractor in ("pseudo_yaml_v1", "yaml_frontmatter_v1"):
        other = Library(library.db, library.folder, extractor=extractor)
        assert await other.ingest.look() == 1
        assert await other.live() == ["Why?"]
    assert len(await library.pairs()) == 1


async def test_claims_count_where_the_bucket_is_trusted(library: Library) -> None:
    text = block(
        "Why?", "Because.", id="a", publication_status="published", verified_by="Kim", verified_at="2026-01-01"
    )
    library.put("a.md", text)
    await library.ingest.look()
    claimed = "SELECT publication_status, verified_by, metadata -> 'claimed' ->> 'verified_by' FROM q_a_pairs"
    assert await library.rows(claimed) == [("draft", None, "Kim")]
    trusted = Library(library.db, library.folder, trusted=True)
    library.put("a.md", text.replace("id: a", "id: b").replace("Why", "Whether"))
    await trusted.ingest.look()
    assert await library.rows(f"{claimed} WHERE source_id_token = 'b'") == [("published", "Kim", None)]


async def test_without_curation_there_are_only_extractions(library: Library) -> None:
    other = Library(library.db, library.folder, curate_as_pair=False)
    library.put("a.md", block("Why?", "Because."))
    await other.ingest.look()
    assert (await other.live(), await other.pairs()) == (["Why?"], [])


async def test_what_is_no_regular_file_is_passed_by(library: Library) -> None:
    library.put("a.md", block("Why?", "Because."))
    library.put(".hidden.md", block("Hidden?", "Yes."))
    os.mkfifo(library.folder / "pipe.md")
    (library.folder / "link.md").symlink_to(library.folder / "a.md")
    (library.folder / "loop").symlink_to(library.folder)
    assert await library.ingest.look() == 1
    assert [row[0] for row in await library.documents()] == ["a.md"]


async def test_a_file_that_is_still_written_waits_and_is_not_gone(library: Library) -> None:
    waiting = Bound(FolderBucket("b", library.folder, settle_s=3_600.0), library.bound.binding)
    library.put("a.md", block("Why?", "Because."))
    assert await Ingest(library.db, [waiting]).look() == 0
    await library.ingest.look()
    library.put("a.md", block("Why?", "Because of"))
    assert await Ingest(library.db, [waiting]).look() == 0
    assert await library.documents() == [("a.md", "live")]
    long_ago = 1_000_000_000
    os.utime(library.folder / "a.md", (long_ago, long_ago))
    assert await Ingest(library.db, [waiting]).look() == 1


async def test_a_folder_that_is_away_deletes_nothing(library: Library) -> None:
    library.put("a.md", block("Why?", "Because."))
    await library.ingest.look()
    library.folder.rename(library.folder.with_name("away"))
    assert await library.ingest.look() == 0
    assert await library.live() == ["Why?"]


async def test_hints_in_any_order_and_number_end_in_the_same_rows(library: Library) -> None:
    texts = [block("Why?", f"Because {n}.", id="a") for n in range(5)]
    noise = random.Random(3)
    for text in texts:
        library.put("a.md", text)
        hints = [library.ingest.follow(library.bound, "a.md", f"v{noise.randrange(9)}") for _ in range(4)]
        await asyncio.gather(*hints)
    assert await library.live() == ["Why?"]
    answers = await library.rows("SELECT answer_text FROM q_a_extractions WHERE invalidated_at IS NULL")
    assert answers == [("Because 4.",)]
    assert len(await library.rows("SELECT id FROM documents WHERE state = 'live'")) == 1
    assert len(await library.facts()) == 5


async def test_a_pair_is_read_with_its_history(library: Library) -> None:
    library.put("a.md", block("Why?", "Because.", id="a", alternate_phrasings="[How come?]"))
    await library.ingest.look()
    ((pair_id,),) = await library.rows("SELECT id FROM q_a_pairs")
    async with library.db.connection(workspaces=[library.bound.workspace_id]) as conn:
        found = await pairs.get(conn, "curated", pair_id, history=True, sensitive=False)
    assert found is not None
    assert (found.question, found.alternate_phrasings, found.id_token) == ("Why?", ("How come?",), "a")
    assert [version.change_type for version in found.history] == ["initial_ingest"]


async def test_another_workspace_sees_none_of_it(library: Library) -> None:
    library.put("a.md", block("Why?", "Because."))
    await library.ingest.look()
    other = Binding(bucket="b", folder=library.folder, workspace="other")
    async with library.db.connection(workspaces=[other.workspace_key]) as conn:
        for table in ("documents", "q_a_extractions", "q_a_pairs", "ingest_runs"):
            assert await conn.fetchval(f"SELECT count(*) FROM {table}") == 0
