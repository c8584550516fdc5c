"""What a new version of a document changes: what stays, what is new, what is gone, and which pairs to look at."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from services.qa_ingest.domain.envelope import Envelope


@dataclass(frozen=True, slots=True)
class Live:
    """An extraction that is served, as far as a comparison needs it."""

    extraction_id: UUID
    ordinal: int
    content_sha256: str
    question: str
    answer: str
    id_token: str | None
    pair_id: UUID | None


@dataclass(frozen=True, slots=True)
class Changed:
    """A promoted extraction whose question or answer is another now, or gone; `by` is what came instead."""

    pair_id: UUID
    extraction_id: UUID
    by: int | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """`carried` gives a new extraction, by its ordinal, the pair that its equal before was promoted to."""

    carried: Mapping[int, UUID]
    changed: Sequence[Changed]


def content_sha256(envelope: Envelope) -> str:
    """The hash of everything that an extraction says, without its place in the file."""
    said = envelope.model_dump(mode="json", exclude={"ordinal", "place"})
    return hashlib.sha256(json.dumps(said, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def compare(before: Iterable[Live], now: Sequence[tuple[Envelope, str]]) -> Comparison:
    """What became of the promotions of `before`; `now` are the new extractions with their hashes."""
    free = {n: (envelope, sha) for n, (envelope, sha) in enumerate(now)}
    carried: dict[int, UUID] = {}
    changed: list[Changed] = []
    promoted = [live for live in before if live.pair_id is not None]
    waiting = []
    for live in promoted:
        same = next((n for n, (_, sha) in free.items() if sha == live.content_sha256), None)
        if same is None:
            waiting.append(live)
        elif live.pair_id is not None:
            carried[same] = live.pair_id
            free.pop(same)
    for live in waiting:
        near = _successor(live, free)
        if near is not None and live.pair_id is not None and _says_the_same(live, free[near][0]):
            carried[near] = live.pair_id
            free.pop(near)
        elif live.pair_id is not None:
            changed.append(Changed(live.pair_id, live.extraction_id, near))
            if near is not None:
                free.pop(near)
    return Comparison(carried, changed)


def _successor(live: Live, free: Mapping[int, tuple[Envelope, str]]) -> int | None:
    """What stands in for an extraction now: the same id, else the same question, else the same place."""
    by_id = [n for n, (envelope, _) in free.items() if live.id_token and envelope.id_token == live.id_token]
    by_question = [n for n, (envelope, _) in free.items() if _folded(envelope.question) == _folded(live.question)]
    unnamed = [n for n, (envelope, _) in free.items() if not envelope.id_token and not live.id_token]
    in_place = [n for n in unnamed if n == live.ordinal]
    return next(iter([*by_id, *by_question, *in_place]), None)


def _says_the_same(live: Live, envelope: Envelope) -> bool:
    return live.question == envelope.question and live.answer == envelope.answer_text


def _folded(question: str) -> str:
    return " ".join(question.casefold().split())
