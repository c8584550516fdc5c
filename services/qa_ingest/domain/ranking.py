"""How the lanes of a search become one list, and how good a match is. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

Lane = Literal["exact", "vector", "fulltext", "trigram"]
RankMethod = Literal["exact", "vector", "fulltext", "trigram", "hybrid"]
Strength = Literal["exact", "strong", "fair", "weak"]

K = 10
WEIGHTS: Mapping[Lane, float] = {"vector": 2.0, "fulltext": 1.0, "trigram": 1.0}
CURATED_BONUS = 1.02
SHORT_WORDS = 2


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Similarities from which a match of one embedding model is strong, and fair."""

    strong: float
    fair: float


THRESHOLDS: Mapping[str, Thresholds] = {"wordllama-l2-supercat-256": Thresholds(strong=0.72, fair=0.5)}
UNFITTED = Thresholds(strong=0.85, fair=0.7)
"""For a model that nobody has fitted yet: cautious."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One row that a lane found. `similarity` is the cosine where it has a vector."""

    kind: Literal["curated", "extracted"]
    id: UUID
    similarity: float | None = None


Key = tuple[str, UUID]


@dataclass(slots=True)
class Ranked:
    """A row with what put it where it is."""

    candidate: Candidate
    score: float = 0.0
    lanes: list[Lane] = field(default_factory=list)
    similarity: float | None = None

    @property
    def rank_method(self) -> RankMethod:
        """The lane that put it there, or `hybrid` for more than one."""
        if "exact" in self.lanes:
            return "exact"
        return self.lanes[0] if len(self.lanes) == 1 else "hybrid"


def fuse(lanes: Mapping[Lane, Sequence[Candidate]]) -> list[Ranked]:
    """Reciprocal rank fusion with weights, exact hits pinned on top (Cormack, Clarke and Büttcher 2009)."""
    ranked: dict[Key, Ranked] = {}
    for lane, candidates in lanes.items():
        for place, candidate in enumerate(candidates, start=1):
            row = ranked.setdefault((candidate.kind, candidate.id), Ranked(candidate))
            row.lanes.append(lane)
            row.similarity = candidate.similarity if row.similarity is None else row.similarity
            row.score += (1_000.0 if lane == "exact" else WEIGHTS[lane]) / (K + place)
    for row in ranked.values():
        row.score *= CURATED_BONUS if row.candidate.kind == "curated" else 1.0
    return sorted(ranked.values(), key=lambda row: (-row.score, str(row.candidate.id)))


def strength(row: Ranked, model: str) -> Strength:
    """How good the match is, by the similarity where there is one, else by the lanes alone."""
    if "exact" in row.lanes:
        return "exact"
    limits = THRESHOLDS.get(model, UNFITTED)
    if row.similarity is None:
        return "fair" if len(row.lanes) > 1 else "weak"
    if row.similarity >= limits.strong:
        return "strong"
    return "fair" if row.similarity >= limits.fair else "weak"


def is_short(query: str) -> bool:
    """So few words that letters say more than lexemes."""
    return len(query.split()) <= SHORT_WORDS


_PHRASE = re.compile(r"(-?)\"([^\"]{1,200})\"|(-?)(\S+)")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Words:
    """A query for the lexical lane: words of which one must be there, phrases that must, and words that must not."""

    any_of: tuple[str, ...]
    phrases: tuple[str, ...]
    none_of: tuple[str, ...]


def words_of(query: str) -> Words:
    """Quotes hold a phrase together; a leading `-` excludes."""
    any_of: list[str] = []
    phrases: list[str] = []
    none_of: list[str] = []
    for minus, phrase, other_minus, word in _PHRASE.findall(query)[:100]:
        said = " ".join(_WORD.findall(phrase or word))
        if not said:
            continue
        if minus or other_minus:
            none_of.append(said)
        elif phrase:
            phrases.append(said)
        else:
            any_of += said.split()
    return Words(tuple(dict.fromkeys(any_of)), tuple(phrases), tuple(none_of))
