"""Drafts and finals: which documents are versions of one by their names, and which answers the better one replaces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

MAX_STEM = 300

_DRAFT = re.compile(r"(?<![^\W_])draft(?![^\W_])(?:[\s_-]*v?\d{1,3}(?![^\W_]))?", re.IGNORECASE)
_FINAL = re.compile(r"(?<![^\W_])final(?![^\W_])", re.IGNORECASE)
_COPY = re.compile(r"[\s_-]*(?<![^\W_])copy(?:[\s_]*\(\d{1,3}\))?\s*$|\s*\(\d{1,3}\)\s*$", re.IGNORECASE)
_BETWEEN = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class Name:
    """A document's name without what says which version it is, and how good a version: 0 draft to 3 final."""

    stem: str
    rank: int


@dataclass(frozen=True, slots=True)
class Said:
    """One extraction of a document, as far as drafts and finals are concerned. `live`: it is served now."""

    extraction_id: UUID
    question: str
    answers: tuple[str, str]
    sha256: str
    pair_id: UUID | None = None
    live: bool = True


@dataclass(frozen=True, slots=True)
class Decisions:
    """What becomes of the extractions of the lesser versions; each pair is (lesser, better)."""

    superseded: Sequence[tuple[Said, Said]]
    suggested: Sequence[tuple[Said, Said]]
    restored: Sequence[Said]


def name_of(object_key: str) -> Name | None:
    """What the name of an object says; None where nothing is left of it."""
    name = object_key.rsplit("/", 1)[-1]
    base = name.rsplit(".", 1)[0] if "." in name[1:] else name
    whole = _COPY.sub("", base)
    rank = 0 if _DRAFT.search(whole) else 1 if whole != base else 3 if _FINAL.search(whole) else 2
    stem = " ".join(_BETWEEN.sub(" ", _FINAL.sub(" ", _DRAFT.sub(" ", whole))).casefold().split())[:MAX_STEM]
    return Name(stem, rank) if stem else None


def decide(lesser: Iterable[Said], better: Sequence[Said]) -> Decisions:
    """Compare by question. The same answer in the better version supersedes; another one is for a person to look at."""
    by_question: dict[str, Said] = {}
    for each in better:
        by_question.setdefault(_folded(each.question), each)
    superseded, suggested, restored = [], [], []
    for each in lesser:
        match = by_question.get(_folded(each.question))
        if match is not None and _same(each, match):
            superseded.append((each, match))
            continue
        if not each.live:
            restored.append(each)
        if match is not None:
            suggested.append((each, match))
    return Decisions(superseded, suggested, restored)


def _same(one: Said, other: Said) -> bool:
    return tuple(map(_folded, one.answers)) == tuple(map(_folded, other.answers))


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
