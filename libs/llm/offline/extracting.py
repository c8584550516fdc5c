"""Questions with their answers in a text, found by rule: where a text itself asks and answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MAX_PAIRS = 100
MAX_QUESTION = 500
MARKED, BELOW, IN_PASSING = 0.9, 0.65, 0.4
"""Confidences: marked by `Q:` and `A:`; a line that asks, with a paragraph below; a paragraph that ends by asking."""

_BY_RULE = "found by rule, no language model has read it: "
_MARKED = re.compile(r"[ \t]*(?:\*\*)?Q(?:uestion)?[ \t]*[:.)](?:\*\*)?[ \t]*", re.IGNORECASE)
_ANSWERED = re.compile(r"[ \t]*(?:\*\*)?A(?:nswer)?[ \t]*[:.)](?:\*\*)?[ \t]*", re.IGNORECASE)
_ORNAMENT = re.compile(r"\A[ \t]*(?:#{1,6}[ \t]+|>[ \t]*|[-*+][ \t]+|\d{1,3}[.)][ \t]+)*")
_ASKS = re.compile(r"[?？؟]\W{0,4}\Z")
_SENTENCE = re.compile(r"(?<=[.!?])[ \t\n]+")


@dataclass(frozen=True, slots=True)
class _Paragraph:
    """Lines without a blank one between them; `start` and `end` are in the text."""

    start: int
    end: int
    text: str


def extracted_by_rule(text: str) -> dict[str, Any]:
    """`{"pairs": [{question, answer, passage, reasoning, confidence}]}`, in the order of the text; at most 100."""
    pairs: list[dict[str, Any]] = []
    paragraphs = list(_paragraphs(text))
    at = 0
    while at < len(paragraphs) and len(pairs) < MAX_PAIRS:
        found, used = _marked(text, paragraphs[at:])
        if found is None:
            found, used = _asked(text, paragraphs[at : at + 2])
        if found is not None:
            pairs.append(found)
        at += used
    return {"pairs": pairs}


def _marked(text: str, rest: list[_Paragraph]) -> tuple[dict[str, Any] | None, int]:
    """`Q: …` and below it `A: …`, in one paragraph or in two; and how many paragraphs that took."""
    first = rest[0]
    if not (asks := _MARKED.match(first.text)):
        return None, 1
    lines = first.text.split("\n")
    n = next((n for n, line in enumerate(lines) if n and _ANSWERED.match(line)), None)
    if n is not None:
        question = "\n".join(lines[:n])[asks.end() :]
        answer, end, used = "\n".join(lines[n:]), first.end, 1
    elif len(rest) > 1 and _ANSWERED.match(rest[1].text):
        question, answer, end, used = first.text[asks.end() :], rest[1].text, rest[1].end, 2
    else:
        return None, 1
    mark = _ANSWERED.match(answer)
    answer = answer[mark.end() :] if mark else answer
    told = "its question is marked Q and its answer A"
    return _pair(question, answer, text[first.start : end], told, MARKED), used


def _asked(text: str, here: list[_Paragraph]) -> tuple[dict[str, Any] | None, int]:
    """A paragraph that asks, and the one below it that does not."""
    if len(here) < 2:
        return None, 1
    asking, answering = here
    if not _ASKS.search(asking.text) or _ASKS.search(answering.text) or _MARKED.match(answering.text):
        return None, 1
    *before, question = _SENTENCE.split(_ORNAMENT.sub("", asking.text))
    told, sure = "a line ends with a question mark and a paragraph follows", BELOW
    if before:
        told, sure = "a paragraph ends by asking and another follows; it may ask in passing", IN_PASSING
    return _pair(question, answering.text, text[asking.start : answering.end], told, sure), 2


def _pair(question: str, answer: str, passage: str, told: str, sure: float) -> dict[str, Any] | None:
    question, answer = " ".join(question.split()).strip("*_ "), answer.strip()
    if not question or not answer or len(question) > MAX_QUESTION:
        return None
    return {
        "question": question,
        "answer": answer,
        "passage": passage,
        "reasoning": _BY_RULE + told,
        "confidence": sure,
    }


def _paragraphs(text: str) -> Iterator[_Paragraph]:
    at, start = 0, 0
    held: list[str] = []
    for line in text.split("\n"):
        if line.strip():
            start = start if held else at
            held.append(line)
        elif held:
            yield _paragraph(start, held)
            held = []
        at += len(line) + 1
    if held:
        yield _paragraph(start, held)


def _paragraph(start: int, lines: list[str]) -> _Paragraph:
    text = "\n".join(lines)
    return _Paragraph(start, start + len(text), text)
