"""The loss ledger against a count of its own, over files that were mutated; and that the check can fail."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from services.qa_ingest.domain.envelope import Extracted, Tally
from services.qa_ingest.extractors.base import FileRejected
from services.qa_ingest.tests import independent, office
from services.qa_ingest.tests.mutations import BASES
from services.qa_ingest.tests.public_files import SHARED, needs_files
from services.qa_ingest.tests.test_public_files import OUTCOMES

IN_THE_SUITE, IN_THE_DRILL = 150, 1_000


def mutated(seeds: range) -> Counter[str]:
    """Check each; how many were read, and how many refused by code."""
    bases = [(kind, name, make(), change) for kind, name, make, change in BASES]
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        kind, name, content, change = bases[seed % len(bases)]
        broken = change(random.Random(seed), content)
        try:
            found = independent.check(kind, name, broken)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {kind} of {name}: {error}") from error
        outcomes[found.code if isinstance(found, FileRejected) else "read"] += 1
    return outcomes


@pytest.mark.parametrize(("kind", "name", "make"), [(kind, name, make) for kind, name, make, _ in BASES])
def test_unharmed_files_add_up(kind: str, name: str, make: Any) -> None:
    assert isinstance(independent.check(kind, name, make()), Extracted)


def test_mutated_files_lose_nothing_silently() -> None:
    outcomes = mutated(range(IN_THE_SUITE))
    assert sum(outcomes.values()) == IN_THE_SUITE
    assert outcomes["read"] > IN_THE_SUITE / 2  # a check that refuses most would say little


@pytest.mark.drill
def test_a_thousand_mutated_files_lose_nothing_silently() -> None:
    outcomes = mutated(range(IN_THE_DRILL))
    print(dict(outcomes))
    assert sum(outcomes.values()) == IN_THE_DRILL
    assert outcomes["read"] > IN_THE_DRILL / 2


@needs_files
@pytest.mark.drill
def test_mutated_public_files_lose_nothing_silently() -> None:
    from services.qa_ingest.tests.mutations import of_text, of_word, of_workbook

    ways = {".docx": of_word, ".xlsx": of_workbook, ".md": of_text}
    for path, outcome in OUTCOMES.items():
        suffix = "." + path.rsplit(".", 1)[-1]
        if suffix not in ways or outcome[1] == "encrypted_or_legacy" or "redline" in path:
            continue
        for seed in range(3):
            broken = ways[suffix](random.Random(seed), (SHARED / path).read_bytes())
            independent.check(outcome[0], f"a{suffix}", broken)


# --- the check can fail -----------------------------------------------------------------------------------------


def test_a_ledger_that_leaves_a_paragraph_out_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An extractor that counts text as a pair's and drops it is told by the words that are nowhere."""
    from services.qa_ingest.documents import word

    whole = word.text_of
    content = office.word(
        office.table(["Question", "Answer"], office.row("Why?", office.cell("So.", "And much more.")))
    )
    assert isinstance(independent.check("docx_pattern_a", "a.docx", content), Extracted)
    monkeypatch.setattr("services.qa_ingest.documents.word.text_of", lambda blocks: whole(list(blocks)[:1]))
    with pytest.raises(AssertionError, match="are in no pair"):
        independent.check("docx_pattern_a", "a.docx", content)


def test_a_ledger_of_a_smaller_whole_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An extractor that never looked at a part of the file is told by the count of another reader."""
    from services.qa_ingest.documents import word

    monkeypatch.setattr("services.qa_ingest.documents.word._OTHER_PARTS", word._HEADING)
    kind, name, make, _ = BASES[0]
    with pytest.raises(AssertionError):
        independent.check(kind, name, make())


def test_a_ledger_that_does_not_add_up_cannot_be_made() -> None:
    tally = Tally(10)
    tally.pair(9)
    with pytest.raises(ValueError, match="1 characters off"):
        tally.losses()
    tally.rule("more", 3)
    tally.rule("less", -2)
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        tally.losses()
