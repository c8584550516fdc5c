"""How the lanes of a search become one list, and how good a match is. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from services.qa_ingest.domain.tuning import Tuning

Lane = Literal["exact", "vector", "fulltext", "trigram"]
RankMethod = Literal["exact", "vector", "fulltext", "trigram", "hybrid"]
Strength = Literal["exact", "strong", "fair", "weak"]
Kind = Literal["curated", "extracted", "chunk"]
Key = tuple[Kind, UUID]

NEIGHBOURS = 3
"""How many of a pair's phrasings have a say in how close it is."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One row that a lane found, with the score of that lane: more is better, and lanes have scales of their own.

    `share`: of all that the words of the query are worth, what this row has; in the lane of words only.
    """

    kind: Kind
    id: UUID
    score: float = 1.0
    share: float = 0.0

    @property
    def key(self) -> Key:
        """What it is the same row by, in another lane."""
        return self.kind, self.id


@dataclass(frozen=True, slots=True)
class Closeness:
    """Cosines of a row's phrasings with the query: the greatest, and the mean of the `NEIGHBOURS` greatest."""

    similarity: float
    neighbours: float


@dataclass(slots=True)
class Ranked:
    """A row with what put it where it is. `similarity` is None where it has no vector."""

    key: Key
    similarity: float | None
    score: float = 0.0
    lanes: list[Lane] = field(default_factory=list)

    @property
    def rank_method(self) -> RankMethod:
        """The lane that put it there, or `hybrid` for more than one."""
        if "exact" in self.lanes:
            return "exact"
        return self.lanes[0] if len(self.lanes) == 1 else "hybrid"


def fuse(lanes: Mapping[Lane, Sequence[Candidate]], closeness: Mapping[Key, Closeness], tuning: Tuning) -> list[Ranked]:
    """One list out of all lanes, exact hits pinned on top.

    A weighted sum of scores and not of ranks (Bruch, Gai and Ingber 2023, "An analysis of fusion functions for hybrid
    retrieval"): a lane that knows little says little, where in a fusion of ranks its first row weighs as much as that
    of a lane that is sure. How close a row is, is the mean of its nearest phrasing and its nearest few, a vote of
    neighbours. A row that only its vector speaks for must be at least `floor` close.
    """
    ranked: dict[Key, Ranked] = {}
    for lane in sorted(lanes):
        weight = {"fulltext": tuning.lexical, "trigram": tuning.trigram}.get(lane, 0.0)
        for candidate in lanes[lane]:
            near = closeness.get(candidate.key)
            row = ranked.setdefault(candidate.key, Ranked(candidate.key, near.similarity if near else None))
            row.lanes.append(lane)
            row.score += weight * candidate.score + tuning.share * candidate.share
    for row in ranked.values():
        row.score += _close(closeness.get(row.key), tuning) + (tuning.curated if row.key[0] == "curated" else 0.0)
    kept = [row for row in ranked.values() if row.lanes != ["vector"] or (row.similarity or 0.0) >= tuning.floor]
    return sorted(kept, key=lambda row: ("exact" not in row.lanes, -row.score, row.key[0], str(row.key[1])))


def _close(near: Closeness | None, tuning: Tuning) -> float:
    if near is None:
        return tuning.floor  # its vector is not there yet, which says nothing against it
    return (1 - tuning.pooling) * near.similarity + tuning.pooling * near.neighbours


def pooled(cosines: Iterable[float]) -> Closeness | None:
    """How close a row is whose phrasings have these cosines. What is no number has no say."""
    best = sorted((each for each in cosines if math.isfinite(each)), reverse=True)[:NEIGHBOURS]
    return Closeness(best[0], sum(best) / len(best)) if best else None


def strength(row: Ranked, tuning: Tuning) -> Strength:
    """How good the match is: by the score where there is a vector, else by the lanes alone."""
    if "exact" in row.lanes:
        return "exact"
    if row.similarity is None:
        return "fair" if len(row.lanes) > 1 else "weak"
    if row.score >= tuning.strong:
        return "strong"
    return "fair" if row.score >= tuning.fair else "weak"
