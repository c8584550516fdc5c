"""Passages of documents: how they are cut, that they come and go with their file, and how they are found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.library import ChunkHit, SearchHit
from libs.contracts.queries.qa_ingest import SearchChunks
from libs.service_kit.db import Database
from services.qa_ingest import answers
from services.qa_ingest.domain.chunks import MAX_CHARACTERS, Chunk, split
from services.qa_ingest.tests.test_ingest import block
from services.qa_ingest.tests.test_search import EMBEDDER, Searched

HANDBOOK = """# Handbook

Welcome to the desk.

## Backups

Backups are made every night and kept for thirty days.

They are encrypted.

```sh
# not a heading
restore --latest
```

### Restoring

Ask the desk to restore a file.

## Holidays

The office is closed in the last week of December.
"""


def test_passages_stay_below_their_headings() -> None:
    assert split(HANDBOOK) == [
        Chunk(("Handbook",), "Welcome to the desk."),
        Chunk(
            ("Handbook", "Backups"),
            "Backups are made every night and kept for thirty days.\n\nThey are encrypted.\n\n"
            "```sh\n# not a heading\nrestore --latest\n```",
        ),
        Chunk(("Handbook", "Backups", "Restoring"), "Ask the desk to restore a file."),
        Chunk(("Handbook", "Holidays"), "The office is closed in the last week of December."),
    ]


def test_of_a_block_of_a_bundle_its_question_and_answer_are_kept() -> None:
    text = block("How long are logs kept?", "A year.\n\n---\n\nThen they go.", id="L-1", scope_tags="[logs]")
    assert split(text) == [Chunk(("How long are logs kept?",), "A year.\n\n---\n\nThen they go.")]


def test_what_is_too_long_is_cut_at_a_sentence() -> None:
    text = "A sentence of some words. " * 200
    chunks = split(text)
    assert all(len(chunk.content) <= MAX_CHARACTERS and chunk.content.endswith("words.") for chunk in chunks)
    assert " ".join(chunk.content for chunk in chunks) == text.strip()


@given(st.text(alphabet="ab .#`-\n", max_size=5_000))
def test_every_passage_is_bounded_and_no_word_is_lost(text: str) -> None:
    chunks = split(text)
    assert all(0 < len(chunk.content) <= MAX_CHARACTERS for chunk in chunks)
    kept = "".join("".join([*chunk.section_path, chunk.content]) for chunk in chunks)
    for word in text.replace("#", " ").replace("`", " ").replace("-", " ").split():
        # A heading without a text below it has no passage.
        assert word in kept or any(line.lstrip().startswith("#") and word in line for line in text.split("\n"))


class Passages(Searched):
    """A library of documents."""

    async def put_handbook(self, text: str = HANDBOOK) -> None:
        await self.fill(text + "\n" + block("Who may ask?", "Everybody."), key="handbook.md")

    async def passages(self, query: str, **options: Any) -> list[ChunkHit | SearchHit]:
        asked = SearchChunks(workspace_ids=(self.bound.workspace_id,), query=query, **options)
        return list((await answers.answer_chunks(asked, self.db, EMBEDDER)).results)

    async def sections(self, query: str, **options: Any) -> list[str]:
        found = await self.passages(query, **options)
        return [hit.section_path[-1] for hit in found if isinstance(hit, ChunkHit)]


@pytest.fixture
async def library(database: Callable[[str], Awaitable[Database]], tmp_path: Path) -> Passages:
    made = Passages(await database("qa_ingest"), tmp_path, trusted=True)
    await made.ingest.prepare()
    return made


async def test_passages_are_found(library: Passages) -> None:
    await library.put_handbook()
    (first, *_) = await library.passages("how long do you keep backups")
    assert isinstance(first, ChunkHit)
    assert (first.section_path, first.object_key) == (("Handbook", "Backups"), "handbook.md")
    assert first.similarity is not None
    assert (await library.sections("restoring"))[0] == "Restoring"
    assert await library.sections("what is it") == []
    assert await library.sections("restore -latest") == ["Restoring"]
    assert await library.sections("backups", bucket="other") == []


async def test_passages_come_and_go_with_their_file(library: Passages) -> None:
    await library.put_handbook()
    await library.put_handbook(HANDBOOK.replace("thirty days", "ninety days"))
    found = [hit.text for hit in await library.passages("backups kept") if isinstance(hit, ChunkHit)]
    assert "ninety days" in found[0]
    assert not any("thirty days" in text for text in found)
    (library.folder / "handbook.md").unlink()
    await library.ingest.look()
    assert await library.passages("backups") == []
    await library.put_handbook()
    assert (await library.sections("backups"))[0] == "Backups"
    assert await library.rows("SELECT count(*) FROM postings WHERE term = 'thirti' AND kind = 'chunk'") == [(1,)]


async def test_pairs_and_passages_in_one_list(library: Passages) -> None:
    await library.put_handbook()
    await library.fill(block("How long are logs kept?", "A year.", publication_status="published"), key="b.md")
    kinds = [hit.kind for hit in await library.passages("how long are logs kept", include_qa=True)]
    assert kinds[0] == "curated"
    assert "chunk" in kinds
    assert "curated" not in [hit.kind for hit in await library.passages("how long are logs kept")]


async def test_a_document_with_a_sensitive_pair_is_found_by_those_who_may_read_it(library: Passages) -> None:
    await library.fill(block("Where is the vault?", "Below the stairs.", sensitive="true"))
    assert await library.passages("vault stairs", include_qa=True) == []
    assert await library.sections("vault stairs", include_sensitive=True) == ["Where is the vault?"]
