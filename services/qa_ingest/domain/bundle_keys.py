"""The keys of a bundle: what each may hold, and which one a mistyped key is meant to be."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from typing import Any, get_args

from services.qa_ingest.domain import strict_yaml
from services.qa_ingest.domain.envelope import (
    MAX_CADENCE_DAYS,
    MAX_ID,
    MAX_ITEMS,
    MAX_QUESTION,
    MAX_TEXT,
    Provenance,
    PublicationStatus,
    Source,
)
from services.qa_ingest.domain.strict_yaml import Node, Scalar, Sequence

PROVENANCES: tuple[str, ...] = get_args(Provenance)
STATUSES: tuple[str, ...] = get_args(PublicationStatus)


class FieldError(ValueError):
    """A value that its key cannot hold: what would be right, and the line of it within the metadata, from 0."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def is_reserved(key: str) -> bool:
    """A key of the format, or one that is meant to be `question`: prose between two rules hardly begins so."""
    return key in FIELDS or meant_by(key) == "question"


def meant_by(key: str) -> str | None:
    """The key of the format that a mistyped one is nearest to: another case, number or separator, or one slip."""
    if key in FIELDS:
        return None
    folded = re.sub(r"[\s-]+", "_", key.strip().casefold())
    for other in (folded, folded.rstrip("s"), f"{folded}s", folded.removesuffix("es")):
        if other in FIELDS:
            return other
    return next((name for name in FIELDS if len(name) > 4 and _one_slip(folded, name)), None)


def _one_slip(typed: str, meant: str) -> bool:
    """One letter more, less, another, or two that changed places."""
    if abs(len(typed) - len(meant)) > 1:
        return False
    same = next((n for n, (a, b) in enumerate(zip(typed, meant, strict=False)) if a != b), min(len(typed), len(meant)))
    rest, goal = typed[same:], meant[same:]
    swapped = rest[:2] == goal[1::-1] and rest[2:] == goal[2:]
    return swapped or goal in (rest[1:], goal[:1] + rest[1:], goal[:1] + rest)


# --- from a node to a value, or an error that names what would be right ---------------------------------------------


def _text(most: int) -> Callable[[Node], str | None]:
    def read(node: Node) -> str | None:
        if not isinstance(node, Scalar):
            raise FieldError(node.line, "is one text, not a list or a mapping")
        if node.cut:
            raise FieldError(node.line, "has a ` #` in it, which YAML takes for a comment; put the text in quotes")
        text = node.text.strip()
        if node.is_null or not text:
            return None
        if len(text) > most:
            raise FieldError(node.line, f"has {len(text):,} characters; the most is {most:,}")
        return text

    return read


def _question(node: Node) -> str:
    text = _text(MAX_QUESTION)(node)
    if text is None:
        raise FieldError(node.line, "is empty")
    return text


def _texts(most: int) -> Callable[[Node], tuple[str, ...]]:
    read_one = _text(most)

    def read(node: Node) -> tuple[str, ...]:
        if isinstance(node, Scalar) and node.is_null:
            return ()
        if not isinstance(node, Sequence):
            raise FieldError(node.line, "is a list: `[a, b]`, or one `- a` a line")
        if len(node.items) > MAX_ITEMS:
            raise FieldError(node.line, f"has {len(node.items):,} items; the most is {MAX_ITEMS}")
        texts = []
        for item in node.items:
            text = read_one(item)
            if text is None:
                raise FieldError(item.line, "has an empty item")
            texts.append(text)
        return tuple(dict.fromkeys(texts))

    return read


def _one_of(names: tuple[str, ...]) -> Callable[[Node], str | None]:
    def read(node: Node) -> str | None:
        text = _text(MAX_TEXT)(node)
        if text is not None and text not in names:
            raise FieldError(node.line, f"is one of {', '.join(names)}, not {text[:40]!r}")
        return text

    return read


def _confidence(node: Node) -> float | None:
    text = _text(MAX_TEXT)(node)
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,3}(\.\d{1,9})?|\.\d{1,9}", text, re.ASCII) or not 0 <= float(text) <= 1:
        raise FieldError(node.line, f"is a number from 0 to 1, not {text[:40]!r}")
    return float(text)


def _whole(least: int, most: int) -> Callable[[Node], int | None]:
    def read(node: Node) -> int | None:
        text = _text(MAX_TEXT)(node)
        if text is None:
            return None
        if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not least <= int(text) <= most:
            raise FieldError(node.line, f"is a whole number from {least} to {most:,}, not {text[:40]!r}")
        return int(text)

    return read


def _yes_or_no(node: Node) -> bool | None:
    text = _text(MAX_TEXT)(node)
    if text is None:
        return None
    if text.casefold() not in ("true", "false"):
        raise FieldError(node.line, f"is true or false, not {text[:40]!r}")
    return text.casefold() == "true"


def _instant(node: Node) -> datetime | None:
    text = _text(MAX_TEXT)(node)
    if text is None:
        return None
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
            return datetime.combine(date.fromisoformat(text), time(), UTC)
        read = datetime.fromisoformat(text)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise FieldError(node.line, f"is a date (2024-01-31) or an ISO 8601 time, not {text[:40]!r}") from None


def _day(node: Node) -> date | None:
    text = _text(MAX_TEXT)(node)
    if text is None:
        return None
    try:
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
            raise ValueError(text)
        return date.fromisoformat(text)
    except ValueError:
        raise FieldError(node.line, f"is a date (2024-01-31), not {text[:40]!r}") from None


_SOURCE_KEYS: dict[str, Callable[[Node], Any]] = {
    "file": _text(MAX_TEXT),
    "table_index": _whole(0, 1_000_000),
    "row_index": _whole(0, 1_000_000),
}


def _sources(node: Node) -> tuple[Source, ...]:
    if isinstance(node, Scalar) and node.is_null:
        return ()
    if not isinstance(node, Sequence):
        raise FieldError(node.line, "is a list of `file`, `table_index` and `row_index`")
    if len(node.items) > MAX_ITEMS:
        raise FieldError(node.line, f"has {len(node.items):,} items; the most is {MAX_ITEMS}")
    return tuple(_source(item) for item in node.items)


def _source(node: Node) -> Source:
    if not isinstance(node, strict_yaml.Mapping):
        raise FieldError(node.line, "is a list of mappings with `file`")
    values = {}
    for key, value in node.items:
        if key.text not in _SOURCE_KEYS:
            raise FieldError(key.line, f"has {key.text[:40]!r}; a source has `file`, `table_index` and `row_index`")
        values[key.text] = _SOURCE_KEYS[key.text](value)
    if not values.get("file"):
        raise FieldError(node.line, "has a source without `file`")
    return Source(**values)


FIELDS: dict[str, Callable[[Node], Any]] = {
    "question": _question,
    "id": _text(MAX_ID),
    "alternate_phrasings": _texts(MAX_QUESTION),
    "scope_tags": _texts(MAX_TEXT),
    "anti_scope_tags": _texts(MAX_TEXT),
    "primary_domain": _text(MAX_TEXT),
    "primary_subtopic": _text(MAX_TEXT),
    "secondary_domain": _text(MAX_TEXT),
    "secondary_subtopic": _text(MAX_TEXT),
    "confidence": _confidence,
    "provenance": _one_of(PROVENANCES),
    "publication_status": _one_of(STATUSES),
    "valid_from": _instant,
    "valid_to": _instant,
    "sources": _sources,
    "verified_at": _instant,
    "verified_by": _text(MAX_TEXT),
    "layer": _text(MAX_TEXT),
    "next_review_date": _day,
    "review_cadence_days": _whole(1, MAX_CADENCE_DAYS),
    "sensitive": _yes_or_no,
}
