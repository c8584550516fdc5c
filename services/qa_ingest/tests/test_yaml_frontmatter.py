"""Bundles become envelopes: every key has its field, and every character is accounted for."""

from __future__ import annotations

from uuid import UUID

import pytest

from services.qa_ingest.domain.bundle_keys import FIELDS
from services.qa_ingest.domain.envelope import Envelope
from services.qa_ingest.extractors import run
from services.qa_ingest.extractors.base import File, FileRejected
from services.qa_ingest.extractors.yaml_frontmatter import YamlFrontmatter
from services.qa_ingest.tests.test_bundle import WHOLE, WORKSPACE, block

NAMED_OTHERWISE = {"id": "id_token", "alternate_phrasings": "variants"}


def extract(text: str, workspace_id: UUID | None = WORKSPACE) -> tuple[Envelope, ...]:
    return YamlFrontmatter().extract(File("a.md", text.encode(), workspace_id)).pairs


def test_every_key_of_the_format_has_its_field() -> None:
    assert {NAMED_OTHERWISE.get(key, key) for key in FIELDS} <= set(Envelope.model_fields)
    (pair,) = extract(WHOLE)
    untouched = {name for name in Envelope.model_fields if getattr(pair, name) == Envelope.model_fields[name].default}
    assert untouched <= {"revised", "fragment", "citations", "duplicates", "ordinal", "extractor"}
    assert [variant.question for variant in pair.variants] == ["What is in an export?"]


def test_ordinals_and_lines() -> None:
    pairs = extract("Head\n" + block("question: One?") + block("question: Two?\nid: b"))
    assert [(pair.ordinal, pair.place.line, pair.id_token) for pair in pairs] == [(0, 2, None), (1, 6, "b")]


@pytest.mark.parametrize("text", [WHOLE, "\ufeff" + WHOLE.replace("\n", "\r\n"), block("question: One?", "x").rstrip()])
def test_every_character_is_accounted_for(text: str) -> None:
    losses = YamlFrontmatter().extract(File("a.md", text.encode(), WORKSPACE)).losses
    assert losses.total == len(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    assert losses.pairs + sum(losses.rules.values()) == losses.total
    assert set(losses.rules) <= {"file_head"}


def test_a_file_that_is_no_bundle_or_no_text_is_refused_with_a_code() -> None:
    for content, code in ((b"prose", "bad_bundle"), (b"---\nquestion: \xff\n---\nx", "not_utf8")):
        with pytest.raises(FileRejected) as refused:
            YamlFrontmatter().extract(File("a.md", content))
        assert refused.value.code == code


@pytest.mark.parametrize(("answer", "fragment"), [("x" * 19, True), ("x" * 20, False)])
def test_short_answers_are_flagged_by_every_extractor(answer: str, fragment: bool) -> None:
    bundle = block("question: Why?", answer)
    for kind, name, text in (
        ("yaml_frontmatter_v1", "a.md", bundle),
        ("pseudo_yaml_v1", "a.md", bundle),
        ("markdown_heading_v1", "a.md", f"# Why?\n\n{answer}\n"),
        ("xlsx_table_v1", "a.csv", f"Question,Answer\nWhy?,{answer}\n"),
    ):
        (pair,) = run(kind, File(name, text.encode())).pairs
        assert pair.fragment is fragment, kind
