"""A model's reply: strict, bounded, and refused with a reason that names the field and never quotes it."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from services.proposal import reply
from services.proposal.reply import ReplyError
from services.proposal.tests.factories import HUNK, answer_of, hunk_of, parts_of

EVIDENCE = {UUID(int=1)}


def test_a_good_reply_is_read_and_applied() -> None:
    written = reply.read(json.dumps(answer_of(HUNK)))
    assert written.as_hunks == (HUNK,)
    assert HUNK.after in reply.check(written.as_hunks, parts_of(), EVIDENCE)[0].text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hunks": "none"}, "hunks"),
        ({"tool_calls": []}, "tool_calls: Extra inputs"),
        ({"rationale": ""}, "rationale"),
        ({"rationale": "x" * 20_001}, "rationale"),
        ({"hunks": [HUNK.model_dump(mode="json")] * 21}, "hunks"),
        ({"hunks": [{**HUNK.model_dump(mode="json"), "signal_ids": []}]}, "hunks.0.signal_ids"),
        ({"hunks": [{**HUNK.model_dump(mode="json"), "signal_ids": ["s1"]}]}, "hunks.0.signal_ids.0"),
        ({"hunks": [{**HUNK.model_dump(mode="json"), "after": None}]}, "hunks.0.after"),
        ({"expected_impact": [{"metric": "a", "direction": "up", "magnitude": "small", "confidence": 1}]}, "direction"),
        (
            {"expected_impact": [{"metric": "a", "direction": "increase", "magnitude": "small", "confidence": 2}]},
            "confidence",
        ),
    ],
)
def test_what_is_not_of_the_schema_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ReplyError, match=reason):
        reply.read(json.dumps(answer_of(HUNK, **changes)))


@pytest.mark.parametrize("text", ["", "not json", "[]", "null", '{"hunks": [], "rationale": NaN}', "{" * 5_000])
def test_what_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(ReplyError):
        reply.read(text)


@pytest.mark.parametrize(
    ("hunk", "reason"),
    [
        (hunk_of("### top_up\n", "### top_up\nhid\u200bden\n"), r"U\+200B"),
        (hunk_of("### top_up\n", "### top_up\n\u202eevil\n"), r"U\+202E"),
        (HUNK.model_copy(update={"signal_ids": (UUID(int=9),)}), "1 of its signal_ids"),
        (HUNK.model_copy(update={"path": "/etc/passwd"}), "not a part of the prompt"),
        (hunk_of("card", "x"), "occurs 3 times"),
        (hunk_of("### top_up\n", "### top_up\n" + "word\n" * 5_001), "more than 20000"),
    ],
)
def test_hunks_that_do_not_fit_are_refused(hunk: Any, reason: str) -> None:
    with pytest.raises(ReplyError, match=reason):
        reply.check([hunk], parts_of(), EVIDENCE)
