"""Writes canonical bundles: what is written is read again as the same pairs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

from services.qa_ingest.domain.blocks import normalise, outside_fences
from services.qa_ingest.domain.bundle import BundleRejected, Entry, parse

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./@+-]*\Z")
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_MARKER_LIKE = re.compile(r"\\*(?:---[ \t]*\Z|\*\*(?:standard|advanced) answer)", re.IGNORECASE)
_FENCE_LINE = re.compile(r" {0,3}(?:`{3,}|~{3,})")
_DEFAULTS = Entry(question="?", answer_standard="?")
_BODY = ("answer_standard", "answer_advanced")
_KEYS = ("id", *(each.name for each in fields(Entry) if each.name not in {"id", *_BODY, "metadata"}))


def render(entries: Iterable[Entry], *, title: str, workspace_id: UUID | None = None) -> str:
    """A whole bundle. A key that has its default is left out."""
    head = f"# {_one_line(title)}\n\nWorkspace ID: {workspace_id or ''}".rstrip()
    return "\n\n".join([head, *map(render_entry, entries)]) + "\n"


def render_entry(entry: Entry) -> str:
    """One block: metadata between rules, then the answers. Text that would be read as structure is escaped."""
    written = _block(entry, escaped=False)
    return written if _reads_back(written, entry) else _block(entry, escaped=True)


def _block(entry: Entry, *, escaped: bool) -> str:
    standard = _answer(entry.answer_standard, escaped)
    if entry.answer_advanced is None:
        body = standard if not escaped else f"**Standard answer:**\n\n{standard}"
    else:
        body = (
            f"**Standard answer:**\n\n{standard}\n\n**Advanced answer:**\n\n{_answer(entry.answer_advanced, escaped)}"
        )
    return f"---\n\n{_metadata(entry)}\n\n---\n\n{body}"


def _reads_back(written: str, entry: Entry) -> bool:
    try:
        # Another block behind it: a code fence left open would take that along.
        again = parse(f"{written}\n\n---\n\nquestion: next\n\n---\n\nnext\n")
    except BundleRejected:
        return False
    return [each.entry for each in again.entries[:-1]] == [entry] and len(again.entries) == 2


def _metadata(entry: Entry) -> str:
    values = {key: getattr(entry, key) for key in _KEYS}
    said = {key: value for key, value in values.items() if key == "question" or value != getattr(_DEFAULTS, key)}
    return "\n".join(f"{_key(key)}: {_value(value)}" for key, value in {**said, **entry.metadata}.items())


def _value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return _instant(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, int | float):
        return f"{value:.9f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)}: {_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    places = {name: getattr(value, name) for name in ("file", "table_index", "row_index")}
    return _value({name: place for name, place in places.items() if place is not None})


def _key(text: str) -> str:
    return text if _PLAIN.match(text) else _quoted(text)


def _quoted(text: str) -> str:
    """Always in quotes, so that no text is ever taken for something else."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def _instant(value: datetime) -> str:
    value = value.astimezone(UTC)
    if (value.hour, value.minute, value.second, value.microsecond) == (0, 0, 0, 0):
        return value.date().isoformat()
    return value.isoformat().replace("+00:00", "Z")


def _answer(text: str, escaped: bool) -> str:
    if not escaped:
        return text
    lines = normalise(text).split("\n")
    for number, line in list(outside_fences(lines)):
        if _MARKER_LIKE.match(line):
            lines[number] = f"\\{line}"
    return "\n".join(lines) + _closing_fence(lines)


def _closing_fence(lines: list[str]) -> str:
    """What closes a code fence that the answer leaves open."""
    covered = {number for number, _ in outside_fences([*lines, "x"])}
    if len(lines) in covered:
        return ""
    opened = max(number for number in range(len(lines)) if number not in covered and _opens(lines, number))
    mark = _FENCE_LINE.match(lines[opened])
    return "\n" + (mark[0].strip() if mark else "```")


def _opens(lines: list[str], number: int) -> bool:
    return _FENCE_LINE.match(lines[number]) is not None and len(lines[:number]) in {
        n for n, _ in outside_fences([*lines[:number], "x"])
    }


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200] or "Questions and answers"
