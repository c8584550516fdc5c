"""Markdown libraries: which lines are questions, what belongs to them, and what is named when it is left out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.qa_ingest.domain.bundle import parse
from services.qa_ingest.domain.bundle_writer import render
from services.qa_ingest.domain.conversion import entry_of
from services.qa_ingest.domain.envelope import Extracted, Variant
from services.qa_ingest.extractors import named
from services.qa_ingest.extractors.base import File, FileRejected
from services.qa_ingest.extractors.text import decode

SHARED = Path(os.environ.get("BURNISH_SHARED_DATA", "../shared/data")) / "faq"
needs_data = pytest.mark.skipif(not SHARED.is_dir(), reason=f"needs the public FAQ files in {SHARED}")


def extract(text: str | bytes, kind: str = "markdown_heading_v1") -> Extracted:
    content = text.encode() if isinstance(text, str) else text
    return named(kind).extract(File("library.md", content))


def asked(text: str) -> list[str]:
    return [pair.question for pair in extract(text).pairs]


LIBRARY = """# Library
**Last updated**: 2026
**Entries**: 3

Intro text.

## TOPIC INDEX
### Security
- FAQ-001

## 1. FAQs
### Overview
#### FAQ-001: What are the best practices?
**ID**: FAQ-001
**Source**: Handbook
**Topics**: Rolling out & training, Security

We do.

##### More
Detail.

> **When asked**: How do you train?
> **Source**: Form 7
> **Detail**: Also by phone.

#### ⚠️ DEDUP FLAG — CLOUD-001 duplicates FAQ-001 context variant
merge them

## Company details
**From**: Q23, Q24
**Topics**: Insurance
> ⚠️ **SENSITIVE DATA**: personal

**Which parts are sub-contracted?** None of it.

Truly.

**Who owns it?**
The staff do.
---
## Orphan
Some prose.
#### SEC-001: Do you encrypt?
"""


def test_a_library_of_every_shape() -> None:
    found = extract(LIBRARY)
    assert [pair.question for pair in found.pairs] == [
        "What are the best practices?",
        "Which parts are sub-contracted?",
        "Who owns it?",
    ]
    first, second, third = found.pairs
    assert (first.id_token, first.scope_tags, first.citations) == (
        "FAQ-001",
        ("Rolling out & training", "Security"),
        ("Handbook",),
    )
    assert first.answer_text == "We do.\n\n##### More\nDetail."
    assert first.variants == (Variant(question="How do you train?", source="Form 7", detail="Also by phone."),)
    assert first.duplicates == ("CLOUD-001",)
    assert first.place.section_path == ("Library", "1. FAQs", "Overview")
    assert (second.answer_text, second.sensitive, second.scope_tags) == ("None of it.\n\nTruly.", True, ("Insurance",))
    assert (third.answer_text, third.metadata) == ("The staff do.", {"from": "Q23, Q24"})
    assert {pair.confidence for pair in found.pairs} == {0.9}
    assert [(reject.reason, reject.place.line) for reject in found.rejects] == [("no_question", 42), ("no_answer", 44)]
    assert set(found.losses.rules) == {
        "introduction",
        "topic_index",
        "section_heading",
        "dedup_flag",
        "metadata_line",
    }


@pytest.mark.parametrize(
    ("heading", "question"),
    [
        ("### Where is it hosted?", "Where is it hosted?"),
        ("### 3.2. Where is it *hosted*?", "Where is it hosted?"),
        ("### Q7: Where is it hosted?", "Where is it hosted?"),
        ("## [SEC-12] Describe the hosting", "Describe the hosting"),
        ("## Provide a list of your suppliers", "Provide a list of your suppliers"),
        ("# It is free. What should I say", "It is free. What should I say"),
        ("# Is [this](x.md) `fine`?", "Is this fine?"),
        ("Where is it hosted?\n===", "Where is it hosted?"),
        ("Where is it hosted?\n---", "Where is it hosted?"),
        ("## どこにありますか？", "どこにありますか？"),
    ],
)
def test_headings_that_are_questions(heading: str, question: str) -> None:
    assert asked(f"{heading}\n\nAn answer.\n") == [question]


@pytest.mark.parametrize("heading", ["# Hosting", "## How to install", "## What we do", "# When in doubt", "## List"])
def test_headings_that_are_none(heading: str) -> None:
    with pytest.raises(FileRejected, match="no_questions"):
        extract(f"{heading}\n\nProse. Is it a question? No.\n")


def test_bold_in_an_answer_starts_no_pair() -> None:
    found = extract("## Why?\n\n**Yes.** Because.\n\n**Really?** Really.\n\n---\n")
    assert [pair.answer_text for pair in found.pairs] == ["**Yes.** Because.\n\n**Really?** Really."]


def test_questions_in_code_and_quotes_are_none() -> None:
    assert asked("# Why?\n\n```\n# Not me?\n```\n\n> # Nor me?\n\nDone.\n") == ["Why?"]


def test_front_matter_is_kept_with_every_pair() -> None:
    found = extract("---\nStatus: Draft\nissues: [1, 2]\n---\n\n# Why?\n\nBecause it is so.\n")
    assert found.pairs[0].metadata == {"Status": "Draft", "issues": ["1", "2"]}
    assert found.losses.rules["front_matter"] == len("---\nStatus: Draft\nissues: [1, 2]\n---\n")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"])
def test_encodings(encoding: str) -> None:
    text = "# Wie groß ist die Fläche?\n\nDie Fläche ist größer als üblich, und das Gebäude überragt die Straße.\n"
    assert asked_bytes(text.encode(encoding)) == ["Wie groß ist die Fläche?"]


def asked_bytes(content: bytes) -> list[str]:
    return [pair.question for pair in extract(content).pairs]


@pytest.mark.parametrize("content", [b"\0\1\2", b"\x89PNG\r\n\x1a\n\0\0", b"\xff\xfe\x00", b"# Why?\0\n\nx"])
def test_what_is_no_text_is_refused(content: bytes) -> None:
    with pytest.raises(FileRejected) as refused:
        decode(content)
    assert refused.value.code == "not_text"


# --- near-YAML ------------------------------------------------------------------------------------------------

NEAR_YAML = """# Library
---
id: AUD-014
question: What is it?
products: [audit]
modules: [standard, advanced]
topics: [overview, functionality]
---
[ALL] One system.
With more lines.

[ADVANCED] And the trail.
---
id: AUD-015
question: "And this?"

Mind: an answer.
---
id: AUD-016
question: Empty?
---
"""


def test_near_yaml() -> None:
    found = extract(NEAR_YAML, "pseudo_yaml_v1")
    first, second = found.pairs
    assert (first.id_token, first.scope_tags, first.metadata) == (
        "AUD-014",
        ("overview", "functionality"),
        {"products": ["audit"], "modules": ["standard", "advanced"]},
    )
    assert first.answer_standard == "One system.\nWith more lines."
    assert first.answer_advanced == "One system.\nWith more lines.\n\nAnd the trail."
    assert (second.question, second.answer_standard, second.answer_advanced) == ("And this?", "Mind: an answer.", None)
    assert [(reject.reason, reject.place.line) for reject in found.rejects] == [("no_answer", 18)]
    assert found.losses.unaccounted == 0


# --- laws -----------------------------------------------------------------------------------------------------

LINES = st.sampled_from(
    [
        *LIBRARY.splitlines(),
        *NEAR_YAML.splitlines(),
        "",
        "## Why?",
        "**Why?**",
        "Answer.",
        "```",
        "===",
        "> quote",
        "- item",
        "| a | b |",
        "|---|---|",
    ]
)


@pytest.mark.parametrize("kind", ["markdown_heading_v1", "pseudo_yaml_v1"])
@given(lines=st.lists(LINES | st.text(max_size=20), max_size=40))
def test_nothing_is_lost_and_what_is_found_makes_a_bundle(kind: str, lines: list[str]) -> None:
    try:
        found = extract("\n".join(lines).encode("utf-8", "replace"), kind)
    except FileRejected as refused:
        assert refused.problems  # noqa: PT017
        return
    assert found.losses.unaccounted == 0  # the model would not have been made otherwise
    if found.pairs:
        entries = [entry_of(pair) for pair in found.pairs if pair.id_token is None]
        again = parse(render(entries, title="x")).entries if entries else ()
        assert [placed.entry.question for placed in again] == [entry.question for entry in entries]


# --- real files -----------------------------------------------------------------------------------------------

PAIRS_AND_REJECTS = {
    "02-plainanswer/answers/01-company-and-scope.md": (8, 0),
    "02-plainanswer/answers/02-data-handling-and-privacy.md": (14, 0),
    "02-plainanswer/answers/03-hosting-and-infrastructure.md": (10, 0),
    "02-plainanswer/answers/04-access-control.md": (10, 0),
    "02-plainanswer/answers/05-secure-development.md": (10, 0),
    "02-plainanswer/answers/06-backup-and-continuity.md": (9, 0),
    "02-plainanswer/answers/07-incident-response.md": (9, 0),
    "02-plainanswer/answers/08-subprocessors-and-vendors.md": (7, 0),
    "02-plainanswer/answers/09-devices-and-endpoints.md": (9, 0),
    "02-plainanswer/answers/10-certifications-and-compliance.md": (8, 0),
    "02-plainanswer/answers/11-ai-and-automation.md": (7, 0),
}
NO_ANSWER = {
    "due-diligence/relation-to-attestations.md",
    "legislation/nlf.md",
    "stewards/demonstrate.md",
    "stewards/penalties.md",
    "stewards/translation-costs.md",
}
NO_QUESTION = {"AUTHORS.md", "README.md"}


@needs_data
@pytest.mark.parametrize(("path", "expected"), PAIRS_AND_REJECTS.items())
def test_questionnaires_with_answers(path: str, expected: tuple[int, int]) -> None:
    found = extract((SHARED / path).read_bytes())
    assert (len(found.pairs), len(found.rejects)) == expected


@needs_data
def test_one_question_a_file() -> None:
    folder = SHARED / "01-cra-hub-faq" / "faq"
    outcomes: dict[str, set[str]] = {"pair": set(), "no_answer": set(), "no_questions": set()}
    for path in sorted(folder.rglob("*.md")):
        name = str(path.relative_to(folder))
        try:
            found = extract(path.read_bytes())
        except FileRejected as refused:
            outcomes[refused.code].add(name)
            continue
        assert len(found.pairs) + len(found.rejects) == 1, name
        outcomes["pair" if found.pairs else found.rejects[0].reason].add(name)
    guidance = {name for name in outcomes["no_questions"] if name.startswith("pending-guidance/")}
    assert outcomes["no_answer"] == NO_ANSWER
    assert outcomes["no_questions"] - guidance == NO_QUESTION
    assert (len(guidance), len(outcomes["pair"])) == (5, 67)
