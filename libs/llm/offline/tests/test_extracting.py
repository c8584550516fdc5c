"""The offline model as a reader of prose: it finds what a text itself asks and answers, and says that it is a rule."""

from __future__ import annotations

from typing import Any

from libs.llm import ModelRequest, OfflineModel
from libs.llm.offline.extracting import MAX_PAIRS, extracted_by_rule


def found(text: str) -> list[tuple[Any, ...]]:
    return [(pair["question"], pair["answer"], pair["confidence"]) for pair in extracted_by_rule(text)["pairs"]]


def test_marked_questions_and_answers_are_found() -> None:
    text = "Intro.\n\nQ: How long are backups kept?\nA: Thirty days.\nThen they go.\n\n"
    text += "**Q:** Who reads them?\n\n**A:** Nobody.\n"
    assert found(text) == [
        ("How long are backups kept?", "Thirty days.\nThen they go.", 0.9),
        ("Who reads them?", "Nobody.", 0.9),
    ]


def test_a_line_that_asks_with_a_paragraph_below_is_found() -> None:
    text = "## Where is the data?\n\nIn Dublin, in two rooms.\n\nPlain words.\n\n1. Is it safe?\n\nYes.\n"
    assert found(text) == [("Where is the data?", "In Dublin, in two rooms.", 0.65), ("Is it safe?", "Yes.", 0.65)]


def test_a_question_in_passing_is_less_sure() -> None:
    text = "We moved last year. Why did we move?\n\nThe old house was full.\n"
    assert found(text) == [("Why did we move?", "The old house was full.", 0.4)]


def test_questions_without_an_answer_give_nothing() -> None:
    assert found("Who?\n\nWhat?\n") == []
    assert found("Q: Who?\n\nQ: What?\n") == []
    assert found("Plain words.\n") == found("") == found("?\n\n?") == []


def test_the_passage_is_of_the_text_and_the_reasoning_says_that_it_is_a_rule() -> None:
    text = "x\n\nWhere?\n\nHere, by the door.\n\ny"
    (pair,) = extracted_by_rule(text)["pairs"]
    assert pair["passage"] in text
    assert pair["passage"] == "Where?\n\nHere, by the door."
    assert "by rule" in pair["reasoning"]


def test_no_text_gives_more_than_a_bounded_number() -> None:
    assert len(found("Q: Why?\nA: So.\n\n" * 500)) == MAX_PAIRS


async def test_the_model_answers_it_for_nothing() -> None:
    reply = await OfflineModel().complete(ModelRequest(task="extract", system="", input="Q: Why?\nA: So."))
    assert reply.data is not None
    assert reply.usage.usd == 0
    assert [pair["answer"] for pair in reply.data["pairs"]] == ["So."]
