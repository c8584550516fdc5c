"""Reading labels from a prompt: the form, its tolerance, its errors with their lines, and its laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.llm import PromptError, join_parts, parse_labels
from libs.llm.offline.labelled_prompt import split_lines

PROMPT = """\
---
name: support-intents
labels: not these
---
# Support intents
Choose one label. For example:
```
## Labels
### not_a_label
```

## Labels

### card_fee
A fee on a card.
Not about top-ups.

Examples:
- why was I charged for my card
- "what is this fee"
  on my statement

### card
**Examples:**
* lost it

### `top_up`
```text
### still_not_a_label
```

## Output
### json
"""


def test_labels_are_read_with_what_is_said_about_them() -> None:
    fee, card, top_up = parse_labels(PROMPT)
    assert (fee.name, fee.title) == ("card_fee", "card fee")
    assert fee.description == "A fee on a card. Not about top-ups."
    assert fee.examples == ("why was I charged for my card", "what is this fee on my statement")
    assert (fee.line, fee.examples_line, fee.last_line) == (14, 18, 21)
    assert (card.name, card.description, card.examples) == ("card", "", ("lost it",))
    assert (top_up.name, top_up.description, top_up.examples) == ("top_up", "### still_not_a_label", ())


def test_line_ends_and_blank_lines_do_not_matter() -> None:
    def said(text: str) -> list[tuple[str, str, tuple[str, ...]]]:
        return [(label.name, label.description, label.examples) for label in parse_labels(text)]

    assert said(PROMPT.replace("\n", "\r\n")) == said(PROMPT)
    head, labels = PROMPT.split("## Labels\n\n### card_fee")
    assert said(f"{head}## labels: ##\n\n\n### card_fee{labels.replace(chr(10), chr(10) * 2)}")[0][0] == "card_fee"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", None, "the prompt is empty"),
        (" \n\t\n", None, "the prompt is empty"),
        ("Say hello.", None, "no labels: expected a '## Labels' section with '### name' headings"),
        ("```\n## Labels\n### a\n", None, "no labels"),
        ("x\n## Labels\nnone yet\n", 2, "line 2: the '## Labels' section has no '### name' headings"),
        ("## Labels\n### a\n###\n", 3, "line 3: a label heading without a name"),
        ("## Labels\n### a\n\n### b\n### a ###\n", 5, "line 5: a label of this name is already at line 2"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, line: int | None, reason: str) -> None:
    with pytest.raises(PromptError) as failed:
        parse_labels(text)
    assert failed.value.line == line
    assert failed.value.reason.startswith(reason)
    assert not failed.value.retryable


def test_an_error_never_quotes_the_prompt() -> None:
    with pytest.raises(PromptError) as failed:
        parse_labels("## Labels\n### canary\n### canary\n")
    assert "canary" not in str(failed.value)


def test_parts_are_read_as_one_text() -> None:
    whole = join_parts(["Choose.", "## Labels\n### a\nfirst", "", "### b\n"])
    assert whole == "Choose.\n## Labels\n### a\nfirst\n### b\n"
    assert [label.name for label in parse_labels(whole)] == ["a", "b"]


words = st.text(st.characters(codec="utf-8", categories=["L", "N"]), min_size=1, max_size=12)
phrases = (
    st.lists(words, min_size=1, max_size=5)
    .map(" ".join)
    .filter(lambda text: text.rstrip(":").casefold() not in ("example", "examples"))
)
labels = st.lists(
    st.tuples(words, st.lists(phrases, max_size=2), st.lists(phrases, max_size=3)),
    min_size=1,
    max_size=6,
    unique_by=lambda label: label[0],
)


@given(labels, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_what_is_written_is_read_back(written: list[tuple[str, list[str], list[str]]], end: str, spaced: bool) -> None:
    lines = ["Intro", "## Labels"]
    for name, prose, examples in written:
        lines += [f"### {name}", *prose, *(["Examples:"] if examples else []), *(f"- {e}" for e in examples)]
    read = parse_labels((end * 2 if spaced else end).join(lines))
    assert [(r.name, r.description, list(r.examples)) for r in read] == [
        (name, " ".join(prose), examples) for name, prose, examples in written
    ]
    assert [r.line for r in read] == sorted(r.line for r in read)
    assert all(r.line <= r.last_line for r in read)


@given(st.text(st.sampled_from("#-`~ \n\rab:*Labels"), max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    total = len(split_lines(f"## Labels\n{text}"))
    try:
        lines = [at for label in parse_labels(f"## Labels\n{text}") for at in (label.line, label.last_line)]
    except PromptError as error:
        lines = [error.line or 1]
    assert all(1 <= line <= total for line in lines)


@given(st.text())
def test_splitting_lines_loses_nothing(text: str) -> None:
    assert "".join(split_lines(text)) == text
