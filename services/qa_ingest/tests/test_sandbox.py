"""The child process that reads hostile files: what it finds comes back, what is too much ends with its reason."""

from __future__ import annotations

import random
import time

import pytest

from services.qa_ingest.extractors import named
from services.qa_ingest.extractors.base import File, FileRejected
from services.qa_ingest.sandbox import Limits, extract, extract_now
from services.qa_ingest.tests.office import package, par, table, word

GOOD = File("a.docx", word(table(["Question", "Answer"], ["Why?", "So."])))


async def test_the_answer_is_the_extractors() -> None:
    assert await extract("docx_pattern_a", GOOD) == named("docx_pattern_a").extract(GOOD)


def test_a_refusal_keeps_its_code_and_lines() -> None:
    file = File("a.md", b"---\nquestion:\nconfidence: 2\n---\nx")
    with pytest.raises(FileRejected) as here:
        named("yaml_frontmatter_v1").extract(file)
    with pytest.raises(FileRejected) as there:
        extract_now("yaml_frontmatter_v1", file)
    assert (there.value.code, there.value.problems) == (here.value.code, here.value.problems)


def test_memory_is_bounded() -> None:
    noise = random.Random(7)
    many = word(*(par(str(noise.random())) for _ in range(60_000)))
    assert len(many) > 500_000
    with pytest.raises(FileRejected) as refused:
        extract_now("docx_pattern_a", File("a.docx", many), Limits(memory_bytes=30 * 1024**2))
    assert refused.value.code == "too_large"
    with pytest.raises(FileRejected, match="no_tables"):  # the control: with memory enough it is read
        extract_now("docx_pattern_a", File("a.docx", many))


def test_time_is_bounded() -> None:
    started = time.monotonic()
    with pytest.raises(FileRejected) as refused:
        extract_now("docx_pattern_a", GOOD, Limits(seconds=0.0))
    assert refused.value.code == "too_slow"
    assert time.monotonic() - started < 20


def test_a_bomb_costs_next_to_nothing() -> None:
    bomb = package({"word/document.xml": b"<a>" + b" " * 60_000_000})
    assert len(bomb) < 100_000
    with pytest.raises(FileRejected, match="zip_bomb"):
        extract_now("docx_pattern_a", File("a.docx", bomb), Limits(memory_bytes=80 * 1024**2))
