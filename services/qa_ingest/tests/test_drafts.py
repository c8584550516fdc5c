"""Drafts and finals: names that match, answers that supersede or are suggested, in any order of arrival; domains."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from libs.service_kit.db import Database
from services.qa_ingest.domain.classifier import classified, domains_of
from services.qa_ingest.domain.drafts import name_of
from services.qa_ingest.domain.envelope import Envelope
from services.qa_ingest.ingest import _domains
from services.qa_ingest.tests.test_ingest import Library, block


@pytest.mark.parametrize(
    ("key", "stem", "rank"),
    [
        ("DRAFT 2026 Tender Library - FAQs - Copy (1).docx", "2026 tender library faqs", 0),
        ("2026 Tender Library - FAQs .docx", "2026 tender library faqs", 2),
        ("old/2026_tender_library_FAQs_FINAL.md", "2026 tender library faqs", 3),
        ("2026 Tender Library - FAQs (2).docx", "2026 tender library faqs", 1),
        ("faqs draft v2.md", "faqs", 0),
        ("Draughts and finalists.md", "draughts and finalists", 2),
        ("copywriting.md", "copywriting", 2),
    ],
)
def test_names(key: str, stem: str, rank: int) -> None:
    name = name_of(key)
    assert name is not None
    assert (name.stem, name.rank) == (stem, rank)


@pytest.mark.parametrize("key", ["DRAFT.md", "final.docx", "Copy (1).md"])
def test_names_that_say_nothing_else_match_nothing(key: str) -> None:
    assert name_of(key) is None


DRAFT = "# Is it safe?\n\nYes, it is.\n\n# How long is it kept?\n\nFor 30 days.\n\n# Only in the draft?\n\nIndeed so.\n"
FINAL = (
    "# Is it safe?\n\nYes,  it is.\n\n# How long is it kept?\n\nFor 90 days.\n\n# Only in the final?\n\nIndeed so.\n"
)
KEYS = {"drafts/DRAFT Security FAQ - Copy (1).md": DRAFT, "Security FAQ.md": FINAL}

Served = list[tuple[Any, ...]]


async def library_in(database: Callable[[str], Awaitable[Database]], folder: Path, **binding: Any) -> Library:
    folder.mkdir()
    made = Library(await database("qa_ingest"), folder, **binding)
    await made.ingest.prepare()
    return made


async def rows(library: Library) -> tuple[Served, Served]:
    said = await library.rows(
        "SELECT source_file_basename, question_text, coalesce(invalidation_reason, 'live') FROM q_a_extractions"
        " ORDER BY source_file_basename, ordinal, invalidated_at NULLS LAST"
    )
    return said, await library.rows("SELECT kind, state, detail ->> 'question' FROM suggestions ORDER BY natural_key")


@pytest.fixture
def expected() -> tuple[Served, Served]:
    return [
        ("DRAFT Security FAQ - Copy (1).md", "Is it safe?", "superseded_by_final"),
        ("DRAFT Security FAQ - Copy (1).md", "How long is it kept?", "live"),
        ("DRAFT Security FAQ - Copy (1).md", "Only in the draft?", "live"),
        ("Security FAQ.md", "Is it safe?", "live"),
        ("Security FAQ.md", "How long is it kept?", "live"),
        ("Security FAQ.md", "Only in the final?", "live"),
    ], [("draft_final", "open", "How long is it kept?")]


@pytest.mark.parametrize("order", list(itertools.permutations(KEYS)))
async def test_either_order_gives_the_same_rows(
    order: tuple[str, ...],
    database: Callable[[str], Awaitable[Database]],
    tmp_path: Path,
    expected: tuple[Served, Served],
) -> None:
    library = await library_in(database, tmp_path / "b", extractor="markdown_heading_v1", curate_as_pair=False)
    for key in order:
        library.put(key, KEYS[key])
        await library.ingest.look()
    assert await rows(library) == expected


async def test_at_once_gives_the_same_rows(
    database: Callable[[str], Awaitable[Database]], tmp_path: Path, expected: tuple[Served, Served]
) -> None:
    import asyncio

    library = await library_in(database, tmp_path / "b", extractor="markdown_heading_v1", curate_as_pair=False)
    for key, text in KEYS.items():
        library.put(key, text)
    await asyncio.gather(*(library.ingest.follow(library.bound, key) for key in KEYS))
    assert await rows(library) == expected


async def test_a_final_that_goes_gives_the_draft_back_and_one_that_changes_too(
    database: Callable[[str], Awaitable[Database]], tmp_path: Path
) -> None:
    library = await library_in(database, tmp_path / "b", extractor="markdown_heading_v1", curate_as_pair=False)
    for key, text in KEYS.items():
        library.put(key, text)
    await library.ingest.look()
    library.put("Security FAQ.md", FINAL.replace("Yes,  it is.", "No, not quite."))
    await library.ingest.look()
    served = [
        name for name, question, state in (await rows(library))[0] if (question, state) == ("Is it safe?", "live")
    ]
    assert served == ["DRAFT Security FAQ - Copy (1).md", "Security FAQ.md"]
    suggested = "SELECT detail ->> 'question' FROM suggestions WHERE state = 'open' ORDER BY 1"
    assert await library.rows(suggested) == [("How long is it kept?",), ("Is it safe?",)]
    (library.folder / "Security FAQ.md").unlink()
    await library.ingest.look()
    assert await library.live() == ["Is it safe?", "How long is it kept?", "Only in the draft?"]
    assert await library.rows(suggested) == []
    library.put("Security FAQ.md", FINAL)
    await library.ingest.look()
    assert len(await library.live()) == 5
    assert await library.rows(suggested) == [("How long is it kept?",)]


async def test_other_documents_are_left_alone(database: Callable[[str], Awaitable[Database]], tmp_path: Path) -> None:
    library = await library_in(database, tmp_path / "b", extractor="markdown_heading_v1", curate_as_pair=False)
    for key in ("DRAFT a.md", "b.md", "x/c.md", "y/c.md"):
        library.put(key, DRAFT)
    await library.ingest.look()
    assert len(await library.live()) == 12
    assert await library.rows("SELECT kind FROM suggestions") == []


async def test_pairs_that_files_made_follow_unless_somebody_touched_them(
    database: Callable[[str], Awaitable[Database]], tmp_path: Path
) -> None:
    library = await library_in(database, tmp_path / "b")
    library.put("DRAFT a.md", block("Is it safe?", "Yes, it is.", id="old-1") + block("Is it?", "It is.", id="old-2"))
    await library.ingest.look()
    async with library.db.transaction() as tx:
        from services.qa_ingest.store import operations

        await operations.enter(tx.conn, library.bound.workspace_id)
        await tx.conn.execute("UPDATE q_a_pairs SET layer = 'x' WHERE source_id_token = 'old-2'")
    library.put("a FINAL.md", block("Is it safe?", "Yes, it is.", id="new-1") + block("Is it?", "It is.", id="new-2"))
    await library.ingest.look()
    told = (
        "SELECT old.source_id_token, new.source_id_token FROM q_a_pairs AS old"
        " LEFT JOIN q_a_pairs AS new ON new.id = old.superseded_by ORDER BY 1"
    )
    superseded = dict(await library.rows(told))
    assert superseded == {"new-1": None, "new-2": None, "old-1": "new-1", "old-2": None}
    change = (
        "SELECT change_type FROM q_a_pair_history WHERE snapshot ->> 'source_id_token' = 'old-1'"
        " ORDER BY version_number"
    )
    assert await library.rows(change) == [("initial_ingest",), ("supersede",)]


# --- domains ----------------------------------------------------------------------------------------------------


def pair(question: str, answer: str = "See below.", **more: Any) -> Envelope:
    return Envelope(ordinal=0, question=question, answer_text=answer, answer_standard=answer, **more)


@pytest.mark.parametrize(
    ("question", "domain", "topic"),
    [
        ("Is customer data encrypted at rest?", "security", "encryption"),
        ("How do you support GDPR requests for erasure of personal data?", "data-protection", "retention"),
        ("Where is the service hosted, and how are backups made?", "hosting", "continuity"),
        ("What is the price of a licence?", "pricing", None),
        ("What colour is it?", None, None),
        ("Is support included in the price?", None, None),  # two domains have as much to say
    ],
)
def test_domains_by_keywords(question: str, domain: str | None, topic: str | None) -> None:
    found = classified(pair(question), _domains())
    assert (found.primary_domain, found.primary_subtopic) == (domain, topic)


def test_what_an_author_named_stays() -> None:
    own = pair("Is customer data encrypted?", primary_domain="mine")
    assert classified(own, _domains()) is own


def test_a_file_of_domains_is_checked() -> None:
    with pytest.raises(KeyError):
        domains_of("[a]\nword = []\n")
