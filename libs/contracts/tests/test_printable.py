"""Whatever a text holds, what is shown of it neither steers a terminal nor hides anything."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.printable import in_json, is_visible, lines, one_line

ANY = st.text(st.characters(exclude_categories=()), max_size=80)
HIDING = (
    "\u00ad\u061c\u115f\u180e\u200b\u200d\u202a\u202e\u2066\u2069\u2800\u3164\ufe0f\ufeff\uffa0\U000e0041\U000e0101"
)


@given(ANY)
def test_nothing_that_cannot_be_seen_is_left(text: str) -> None:
    assert all(is_visible(character) for character in one_line(text))
    assert all(is_visible(character) or character in "\n\t" for character in lines(text))


@given(ANY.map(lambda text: {"a": [text, {text: 1.5}]}), st.sampled_from([None, 2]))
def test_a_json_document_says_the_same_and_shows_everything(document: object, indent: int | None) -> None:
    safe = in_json(json.dumps(document, ensure_ascii=False, indent=indent))
    assert json.loads(safe) == document
    assert all(is_visible(character) or character == "\n" for character in safe)


@pytest.mark.parametrize("character", HIDING)
def test_what_hides_is_shown_as_its_number(character: str) -> None:
    shown = one_line(f"a{character}b")
    assert shown == lines(f"a{character}b")
    assert shown.encode().decode("unicode_escape") == f"a{character}b"


def test_controls_are_spaces_in_a_line_and_numbers_in_a_text() -> None:
    assert one_line("a\x1b[31mb\x9bc\r\nd\u2028e\u00a0f") == "a [31mb c  d e f"
    assert lines("a\x1b[31mb\x9bc\r\nd\te\rf\u2028g\x7f") == "a\\x1b[31mb\\x9bc\nd\te\\x0df\\u2028g\\x7f"


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=40))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    ordinary = "".join(c for c in text if is_visible(c) and (unicodedata.category(c) != "Zs" or c == " "))
    assert one_line(ordinary) == lines(ordinary) == in_json(ordinary) == ordinary


def test_what_is_shown_once_is_shown_the_same_twice() -> None:
    assert lines(lines("\x1b\u202e")) == lines("\x1b\u202e")
