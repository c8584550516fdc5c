"""Writes canonical bundles: what is written is read again as the same pairs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

from services.qa_ingest.domain.blocks import closing_fence, normalise, outside_fences
from services.qa_ingest.domain.bundle import BundleRejected, Entry, parse
from services.qa_ingest.domain.bundle_keys import FIELDS, meant_by

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./@+-]*\Z")
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_MARKER_LIKE = re.compile(r"\\*(?:---[ \t]*\Z|\*\*(?:standard|advanced) answer)", re.IGNORECASE)
_DEFAULTS = Entry(question="?", answer_standard="?")
_BODY = ("answer_standard", "answer_advanced")
_KEYS = ("id", *(each.name for each in fields(Entry) if each.name not in {"id", *_BODY, "metadata"}))


class Unwritable(ValueError):
    """A pair that no bundle can say; `question` is whose, the message why."""

    def __init__(self, question: str, reason: str) -> None:
        super().__init__(reason)
        self.question = question


def render(entries: Iterable[Entry], *, title: str, workspace_id: UUID | None = None) -> str:
    """A whole bundle. A key that has its default is left out. Raises `Unwritable`."""
    return joined(map(render_entry, entries), title=title, workspace_id=workspace_id)


def joined(blocks: Iterable[str], *, title: str, workspace_id: UUID | None = None) -> str:
    """A whole bundle, of blocks that are written already."""
    head = f"# {_one_line(title)}\n\nWorkspace ID: {workspace_id or ''}".rstrip()
    return "\n\n".join([head, *blocks]) + "\n"


def render_entry(entry: Entry) -> str:
    """One block: metadata between rules, then the answers. Text that would be read as structure is escaped.

    What is read back is the entry as `canonical` gives it. Raises `Unwritable` where no block would be.
    """
    meant = canonical(entry)
    reasons: list[str] = []
    for escaped in (False, True):
        written = _block(meant, escaped=escaped)
        reasons = _read_back(written, meant)
        if not reasons:
            return written
    raise Unwritable(entry.question, reasons[0])


def canonical(entry: Entry) -> Entry:
    """The entry as a bundle can say it: lines end in `\\n`, code blocks are closed, no blank lines around texts.

    A key of its own that would be taken for one of the format is renamed; numbers in it become texts.
    """
    advanced = _canonical_answer(entry.answer_advanced or "")
    return replace(
        entry,
        question=entry.question.strip(),
        alternate_phrasings=tuple(dict.fromkeys(each.strip() for each in entry.alternate_phrasings)),
        answer_standard=_canonical_answer(entry.answer_standard),
        answer_advanced=advanced or None,
        confidence=round(entry.confidence, 9),
        metadata={own_key(key): _as_text(value) for key, value in entry.metadata.items()},
    )


def own_key(name: str) -> str:
    """A name that is no key of the format, and is not mistaken for one."""
    return name if name not in FIELDS and meant_by(name) is None else f"original_{name}"


def _canonical_answer(text: str) -> str:
    return closing_fence(re.sub(r"\A(?:[ \t]*\n)+", "", normalise(text)).rstrip())


def _as_text(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _as_text(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_text(each) for each in value]
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


def _block(entry: Entry, *, escaped: bool) -> str:
    standard = _answer(entry.answer_standard, escaped)
    if entry.answer_advanced is None:
        body = standard if not escaped else f"**Standard answer:**\n\n{standard}"
    else:
        body = (
            f"**Standard answer:**\n\n{standard}\n\n**Advanced answer:**\n\n{_answer(entry.answer_advanced, escaped)}"
        )
    return f"---\n\n{_metadata(entry)}\n\n---\n\n{body}"


def _read_back(written: str, entry: Entry) -> list[str]:
    """Why the block would not be read back as this entry; nothing where it would."""
    try:
        # Another block behind it: a code fence left open would take that along.
        again = parse(f"{written}\n\n---\n\nquestion: next\n\n---\n\nnext\n")
    except BundleRejected as error:
        return [str(error.problems[0])]
    same = [each.entry for each in again.entries[:-1]] == [entry] and len(again.entries) == 2
    return [] if same else ["it would be read back as something else"]


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
    lines = text.split("\n")
    for number, line in list(outside_fences(lines)):
        if _MARKER_LIKE.match(line):
            lines[number] = f"\\{line}"
    return "\n".join(lines)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200] or "Questions and answers"
