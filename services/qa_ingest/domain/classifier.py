"""Fills empty domains by keywords, so that a library can be browsed and filtered before anybody has sorted it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from services.qa_ingest.domain.envelope import Envelope

Key = TypeVar("Key")
IN_QUESTION, IN_ANSWER, LEAST = 3, 1, 3
MAX_READ = 5_000
"""Characters of an answer that are looked at."""


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """A domain, its words, and its subtopics with theirs."""

    name: str
    words: re.Pattern[str]
    subtopics: Mapping[str, re.Pattern[str]]


def domains_of(toml: str) -> tuple[Domain, ...]:
    """The domains that a file of them names. Raises `ValueError`."""
    return tuple(
        Domain(
            name,
            _pattern([*told["words"], *(word for words in told.get("subtopics", {}).values() for word in words)]),
            {topic: _pattern(words) for topic, words in told.get("subtopics", {}).items()},
        )
        for name, told in tomllib.loads(toml).items()
    )


def classified(envelope: Envelope, domains: Sequence[Domain]) -> Envelope:
    """The same with a domain, and a subtopic if one stands out, where it has none and the words leave no doubt."""
    if envelope.primary_domain is not None or envelope.primary_subtopic is not None:
        return envelope
    question, answer = envelope.question.casefold(), envelope.answer_text[:MAX_READ].casefold()
    best = _clear({domain: _score(domain.words, question, answer) for domain in domains})
    if best is None:
        return envelope
    topic = _clear({name: _score(words, question, answer) for name, words in best.subtopics.items()})
    return envelope.model_copy(update={"primary_domain": best.name, "primary_subtopic": topic})


def _score(words: re.Pattern[str], question: str, answer: str) -> int:
    asked, said = set(words.findall(question)), set(words.findall(answer))
    return IN_QUESTION * len(asked) + IN_ANSWER * len(said)


def _clear(scores: Mapping[Key, int]) -> Key | None:
    """The one with the most, where it has enough and no other has as many."""
    ordered = sorted(scores.items(), key=lambda item: -item[1])
    if not ordered or ordered[0][1] < LEAST or (len(ordered) > 1 and ordered[1][1] == ordered[0][1]):
        return None
    return ordered[0][0]


def _pattern(words: Iterable[str]) -> re.Pattern[str]:
    told = (re.escape(word.removesuffix("*")) + (r"\w*" if word.endswith("*") else "") for word in words)
    return re.compile(rf"(?<!\w)(?:{'|'.join(told)})(?!\w)")
