"""Hunks: exactly once or not at all, exact text, a diff that git applies, a rebase that never guesses."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.contracts.prompts import PromptPart
from libs.contracts.proposals import Hunk
from services.proposal import hunks
from services.proposal.hunks import HunkError
from services.proposal.tests.factories import HUNK, PATH, PROMPT, hunk_of, parts_of

TEXTS = st.text(alphabet=st.sampled_from("ab\n -é\u2028\r\f"), max_size=60)
WORDS = st.text(alphabet=st.sampled_from("xyz\n"), max_size=8)


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, tuple[Hunk, ...], str]:
    """A text, hunks on numbered marks of it, and the text that they must give."""
    count = draw(st.integers(1, 5))
    between = [draw(TEXTS) for _ in range(count + 1)]
    befores = [f"<{number}{draw(WORDS)}>" for number in range(count)]
    afters = [draw(WORDS) for _ in range(count)]
    base = between[0] + "".join(b + gap for b, gap in zip(befores, between[1:], strict=True))
    result = between[0] + "".join(a + gap for a, gap in zip(afters, between[1:], strict=True))
    made = [hunk_of(before, after) for before, after in zip(befores, afters, strict=True)]
    return base, tuple(draw(st.permutations(made))), result


@given(changes())
def test_applying_gives_exactly_the_text_meant_in_any_order(change: tuple[str, tuple[Hunk, ...], str]) -> None:
    base, made, result = change
    assert hunks.apply(parts_of(base), made) == parts_of(result)


@given(changes())
def test_applying_is_undone_by_the_spans(change: tuple[str, tuple[Hunk, ...], str]) -> None:
    base, made, result = change
    text, moved = result, 0
    for span in sorted(hunks.spans(parts_of(base), made), key=lambda one: one.start):
        before, after = made[span.hunk].before, made[span.hunk].after
        at = span.start + moved
        assert text[at : at + len(after)] == after
        moved += len(after) - len(before)
    for span in sorted(hunks.spans(parts_of(base), made), key=lambda one: one.start):
        before, after = made[span.hunk].before, made[span.hunk].after
        text = text[: span.start] + before + text[span.start + len(after) :]
    assert text == base


@given(st.text(alphabet="ab\n", min_size=1, max_size=40), st.text(alphabet="ab\n", min_size=1, max_size=4))
def test_a_passage_is_taken_exactly_when_it_occurs_once(text: str, before: str) -> None:
    count = sum(text.startswith(before, at) for at in range(len(text)))
    if count == 1:
        assert hunks.apply(parts_of(text), [hunk_of(before, "c")])[0].text == text.replace(before, "c")
    else:
        with pytest.raises(HunkError, match="occurs"):
            hunks.apply(parts_of(text), [hunk_of(before, "c")])


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ((), "at least one"),
        ((Hunk(path="other.md", before="a", after="b"),), "not a part of the prompt, which has 'prompts/intent.md'"),
        ((hunk_of("", "x"),), "`before` is empty"),
        ((hunk_of("### card\n", "### card\n"),), "changes nothing"),
        ((hunk_of("card", "x"),), "occurs 3 times"),
        ((hunk_of("nowhere", "x"),), "occurs 0 times"),
        ((hunk_of("### card\nAnything", "x"), hunk_of("Anything about", "y")), "hunks 1 and 2 overlap"),
        ((hunk_of("### top_up\n", "x" * 262_100),), "the limit is 262144"),
    ],
)
def test_what_does_not_fit_is_named(made: tuple[Hunk, ...], reason: str) -> None:
    with pytest.raises(HunkError, match=reason) as error:
        hunks.apply(parts_of(), made)
    assert "Anything" not in error.value.reason


@settings(max_examples=25, deadline=None)
@given(changes())
def test_git_applies_the_diff(
    tmp_path_factory: pytest.TempPathFactory, change: tuple[str, tuple[Hunk, ...], str]
) -> None:
    base, made, result = change
    if base == result or not result:
        return
    folder = tmp_path_factory.mktemp("diff")
    assert _git_applied(folder, base, hunks.unified_diff(parts_of(base), hunks.apply(parts_of(base), made))) == result


def _git_applied(folder: Path, text: str, diff: str) -> str:
    file = folder / PATH
    file.parent.mkdir(parents=True)
    file.write_bytes(text.encode())
    command = ["git", "apply", "--whitespace=nowarn", "--unidiff-zero", "-"]
    subprocess.run(command, cwd=folder, input=diff.encode(), check=True, capture_output=True)
    return file.read_bytes().decode()


def test_only_changed_parts_are_in_the_diff() -> None:
    base = (PromptPart(path="a.md", text="one\n"), PromptPart(path="b.md", text="two"))
    diff = hunks.unified_diff(base, (base[0], PromptPart(path="b.md", text="two\nthree")))
    assert "a.md" not in diff
    assert diff.splitlines()[:2] == ["--- a/b.md", "+++ b/b.md"]
    assert diff.count("No newline at end of file") == 2


# --- a newer base -----------------------------------------------------------------------------------------


@given(changes())
def test_a_rebase_onto_the_same_text_is_applying(change: tuple[str, tuple[Hunk, ...], str]) -> None:
    base, made, result = change
    assert hunks.rebase(parts_of(base), made, parts_of(base)) == parts_of(result)


def test_a_change_far_away_is_carried_along() -> None:
    newer = PROMPT.replace("Choose the label", "Choose the one label")
    assert hunks.rebase(parts_of(), [HUNK], parts_of(newer)) == hunks.apply(parts_of(newer), [HUNK])


@pytest.mark.parametrize(
    "newer",
    [
        pytest.param(hunks.apply(parts_of(), [HUNK])[0].text, id="it is in already"),
        pytest.param(PROMPT.replace(HUNK.before, HUNK.before + "\nExamples:\n- a\n"), id="others added there"),
        pytest.param(PROMPT.replace("no other label fits.", "nothing fits."), id="the line before changed"),
        pytest.param(PROMPT.replace("### card_fee\n", ""), id="the passage is gone"),
        pytest.param(PROMPT + "### card_fee\n", id="the passage is there twice"),
    ],
)
def test_a_change_near_by_is_not_guessed_at(newer: str) -> None:
    assert hunks.rebase(parts_of(), [HUNK], parts_of(newer)) is None


# --- what a hunk adds -------------------------------------------------------------------------------------


def test_added_lines_and_their_items() -> None:
    made = hunk_of("### a\n", "### a\nA sentence.\n\nExamples:\n- one\n* two\n")
    assert [(line.text, line.item) for line in hunks.added(made)] == [
        ("A sentence.", None),
        ("Examples:", None),
        ("- one", "one"),
        ("* two", "two"),
    ]


def test_an_item_goes_alone_and_the_last_one_takes_all_along() -> None:
    made = hunk_of("### a\n", "### a\n\nExamples:\n- one\n- two\n")
    first, second = (line.index for line in hunks.added(made) if line.item)
    left = hunks.without(made, {first})
    assert left is not None
    assert left.after == "### a\n\nExamples:\n- two\n"
    assert hunks.without(made, {first, second}) is None


def test_a_line_end_is_no_new_line() -> None:
    assert [line.text for line in hunks.added(hunk_of("- one", "- one\n- two"))] == ["- two"]
