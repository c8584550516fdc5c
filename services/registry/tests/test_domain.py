"""The pure rules: the chain, the previous version, what a configuration change is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.versions import LedgerEntry
from services.registry.domain import (
    GENESIS_SHA256,
    Line,
    Step,
    Target,
    chained,
    field_changes,
    previous_version,
    verify,
)
from services.registry.tests.support import FIRST, SECOND, in_table

START = datetime(2025, 1, 1, tzinfo=UTC)


def chain(count: int) -> list[LedgerEntry]:
    made: list[LedgerEntry] = []
    previous = GENESIS_SHA256
    for seq in range(1, count + 1):
        line = Line("activated", Target("summary", uuid4()), "ada", "ü", version_ref=f"v{seq}", detail={"n": seq})
        made.append(chained(line, seq=seq, at=START + timedelta(microseconds=seq), previous_sha256=previous))
        previous = made[-1].entry_sha256
    return made


def lines(entries: list[LedgerEntry]) -> list[dict[str, Any]]:
    return [entry.model_dump() for entry in entries]


def test_a_chain_as_it_was_written_is_intact() -> None:
    entries = chain(5)
    outcome = verify(lines(entries))
    assert outcome.intact
    assert (outcome.entries, outcome.head_sha256) == (5, entries[-1].entry_sha256)


def test_a_chain_survives_json_and_another_time_zone() -> None:
    entries = [LedgerEntry.model_validate_json(entry.model_dump_json()) for entry in chain(3)]
    elsewhere = [entry.model_copy(update={"at": entry.at.astimezone()}) for entry in entries]
    assert verify(lines(elsewhere)).intact


@given(
    at=st.integers(0, 4),
    change=st.sampled_from(
        [
            {"reason": "another"},
            {"by": "eve"},
            {"version_ref": None},
            {"detail": {}},
            {"at": START},
            {"kind": "registered"},
            {"workspace_id": None},
            {"entry_sha256": "1" * 64},
        ]
    ),
)
def test_any_change_is_found_where_it_is(at: int, change: dict[str, object]) -> None:
    entries = chain(5)
    entries[at] = entries[at].model_copy(update=change)
    outcome = verify(lines(entries))
    assert not outcome.intact
    assert outcome.broken_at == at + 1


@given(gone=st.integers(0, 3))
def test_a_missing_entry_is_found(gone: int) -> None:
    entries = chain(5)
    del entries[gone]
    outcome = verify(lines(entries))
    assert outcome.problem == f"entry {gone + 1} is missing"


@pytest.mark.parametrize(
    ("history", "previous"),
    [
        ("", None),
        ("a", None),
        ("a b", "a"),
        ("a b a!", None),
        ("a b c b!", "a"),
        ("a b c b! a!", None),
        ("a b c a!", None),
        ("a b c b! d", "b"),
        ("a b c b! d b!", "a"),
        ("a b a", "b"),
        ("a b a! b", "a"),
    ],
)
def test_the_previous_version_skips_what_was_given_up(history: str, previous: str | None) -> None:
    steps = [Step(word.removesuffix("!"), word.endswith("!")) for word in history.split()]
    assert previous_version(steps) == previous


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans())))
def test_the_previous_version_is_never_the_live_one(history: list[tuple[str, bool]]) -> None:
    steps = [Step(*each) for each in history]
    if steps:
        assert previous_version(steps) != steps[-1].version_ref


def test_a_change_names_its_field_and_hides_the_text() -> None:
    before, after = in_table(text=FIRST), in_table(text=SECOND)
    (change,) = field_changes(before, after)
    assert change.field == "storage.initial_text"
    assert SECOND not in str(change)
    assert f"{len(SECOND)} characters" in change.after


def test_a_new_touchpoint_lists_what_it_sets() -> None:
    fields = {change.field: change.after for change in field_changes(None, in_table())}
    assert fields["id"] == "summary"
    assert "thresholds.min_evidence" not in fields
