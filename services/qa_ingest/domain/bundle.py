"""The canonical bundle: Markdown with a block of YAML metadata above each answer. Text in, pairs or problems out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from typing import Any, get_args
from uuid import UUID

from services.qa_ingest.domain import strict_yaml
from services.qa_ingest.domain.blocks import Block, Blocks, Problem, cut, normalise, outside_fences
from services.qa_ingest.domain.envelope import (
    MAX_ANSWER,
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

MOST_PROBLEMS = 50

PROVENANCES: tuple[str, ...] = get_args(Provenance)
STATUSES: tuple[str, ...] = get_args(PublicationStatus)


class BundleRejected(ValueError):
    """A file that is no bundle: every problem found, by line. Nothing of it may be kept."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One pair of a bundle, with every key of the format. `metadata` holds the keys that are not of the format."""

    question: str
    answer_standard: str
    answer_advanced: str | None = None
    id: str | None = None
    alternate_phrasings: tuple[str, ...] = ()
    scope_tags: tuple[str, ...] = ()
    anti_scope_tags: tuple[str, ...] = ()
    primary_domain: str | None = None
    primary_subtopic: str | None = None
    secondary_domain: str | None = None
    secondary_subtopic: str | None = None
    confidence: float = 1.0
    provenance: Provenance = "EXTRACTED"
    publication_status: PublicationStatus = "draft"
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    sources: tuple[Source, ...] = ()
    verified_at: datetime | None = None
    verified_by: str | None = None
    layer: str | None = None
    next_review_date: date | None = None
    review_cadence_days: int | None = None
    sensitive: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Placed:
    """An entry, the line its block begins at (from 1), and the lines that are its own (from 0, end not included)."""

    entry: Entry
    line: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Bundle:
    """A whole file: its pairs in order, and what its author should know."""

    entries: tuple[Placed, ...]
    warnings: tuple[Problem, ...]
    head: str
    lines: int


class _FieldError(ValueError):
    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def parse(text: str, *, workspace_id: UUID | None = None) -> Bundle:
    """The pairs of a bundle; `workspace_id` is the one that the head may name. Raises `BundleRejected`."""
    blocks = cut(normalise(text), is_reserved)
    problems = [*blocks.problems, *_head_problems(blocks, workspace_id), *_unstorable(blocks)]
    warnings = list(blocks.warnings)
    placed: list[Placed] = []
    for block in blocks.blocks:
        entry = _entry(blocks, block, problems, warnings)
        if entry is not None:
            placed.append(Placed(entry, block.opens + 1, block.opens, block.end))
    problems += _repeated_ids(placed)
    if not blocks.blocks and not problems:
        problems.append(Problem(1, "no block of metadata: `---`, a mapping with `question`, `---`, then the answer"))
    if problems:
        raise BundleRejected(sorted(problems, key=lambda problem: problem.line)[:MOST_PROBLEMS])
    warnings += _repeated_questions(placed)
    head = "\n".join(blocks.lines[: blocks.head])
    return Bundle(tuple(placed), tuple(sorted(warnings, key=lambda each: each.line)), head, len(blocks.lines))


# --- keys -------------------------------------------------------------------------------------------------------


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


# --- one block --------------------------------------------------------------------------------------------------


def _entry(blocks: Blocks, block: Block, problems: list[Problem], warnings: list[Problem]) -> Entry | None:
    offset = block.metadata_start + 1
    values: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    before = len(problems)
    for key, node in block.metadata.items:
        line = offset + key.line
        reader = FIELDS.get(key.text)
        meant = meant_by(key.text)
        if reader is not None:
            try:
                values[key.text] = reader(node)
            except _FieldError as error:
                problems.append(Problem(offset + error.line, f"`{key.text}` {error}"))
        elif meant is not None:
            problems.append(Problem(line, f"`{key.text[:80]}` is not a key; `{meant}` is"))
        else:
            extra[key.text] = strict_yaml.plain(node)
            warnings.append(Problem(line, f"`{key.text[:80]}` is not a key of the format; it is kept as it stands"))
    if "question" not in block.metadata_keys:
        problems.append(Problem(block.opens + 1, "the block has no `question`"))
    body = _answers(blocks, block, problems)
    problems += _validity(values, offset, block)
    if len(problems) > before or body is None:
        return None
    present = {name: value for name, value in values.items() if value is not None}
    return Entry(**present, answer_standard=body[0], answer_advanced=body[1], metadata=extra)


def _validity(values: Mapping[str, Any], offset: int, block: Block) -> list[Problem]:
    begins, ends = values.get("valid_from"), values.get("valid_to")
    if begins is None or ends is None or ends > begins:
        return []
    return [Problem(offset + block.line_of("valid_to"), "`valid_to` must be later than `valid_from`")]


_MARKER = re.compile(r"\*\*(standard|advanced) answer(?::\*\*|\*\*:?)[ \t]*(.*)\Z", re.IGNORECASE)
_ESCAPED = re.compile(r"\\(?=\\*(?:---[ \t]*\Z|\*\*(?:standard|advanced) answer))", re.IGNORECASE)


def _answers(blocks: Blocks, block: Block, problems: list[Problem]) -> tuple[str, str | None] | None:
    lines = list(blocks.lines[block.body_start : block.end])
    first = block.body_start + 1
    begins: dict[str, int] = {}
    for number, line in outside_fences(lines):
        marker = _MARKER.match(line)
        if marker is None:
            lines[number] = _ESCAPED.sub("", line, count=1) if line.startswith("\\") else line
            continue
        tier = marker[1].casefold()
        if tier in begins:
            told = f"a second **{tier.title()} answer:** in one block; the first is in line {first + begins[tier]}"
            problems.append(Problem(first + number, told))
        begins.setdefault(tier, number)
        lines[number] = marker[2]
    texts, unmarked = _parts(lines, begins)
    if unmarked and "standard" in begins:
        problems.append(Problem(first, "text above **Standard answer:** belongs to no answer"))
    standard = texts.get("standard") or unmarked
    if not standard:
        problems.append(Problem(first, "the block has no answer"))
        return None
    advanced = texts.get("advanced")
    if "advanced" in begins and not advanced:
        problems.append(Problem(first + begins["advanced"], "**Advanced answer:** is empty"))
    for tier, text in (("standard", standard), ("advanced", advanced or "")):
        if len(text) > MAX_ANSWER:
            problems.append(
                Problem(first, f"the {tier} answer has {len(text):,} characters; the most is {MAX_ANSWER:,}")
            )
    return standard, advanced


def _parts(lines: list[str], begins: Mapping[str, int]) -> tuple[dict[str, str], str]:
    """The text of each marked answer, and what stands above the first marker."""
    order = sorted(begins.items(), key=lambda item: item[1])
    ends = [*(start for _, start in order[1:]), len(lines)][: len(order)]
    texts = {tier: _trimmed(lines[start:end]) for (tier, start), end in zip(order, ends, strict=True)}
    return texts, _trimmed(lines[: order[0][1] if order else len(lines)])


def _trimmed(lines: list[str]) -> str:
    """Without blank lines at both ends; the indentation of the first line may mean something."""
    text = "\n".join(lines)
    return re.sub(r"\A(?:[ \t]*\n)+", "", text).rstrip()


# --- the whole file ---------------------------------------------------------------------------------------------

_WORKSPACE = re.compile(r"[*_ \t]*Workspace ID[*_ \t]*:[*_ \t]*(.*)\Z", re.IGNORECASE)


def _head_problems(blocks: Blocks, workspace_id: UUID | None) -> list[Problem]:
    problems = []
    for number, line in enumerate(blocks.lines[: blocks.head if blocks.blocks else 0]):
        named = _WORKSPACE.match(line)
        said = re.sub(r"\{\{.*?\}\}|\(.*?\)|[*_`]", "", named[1]).strip() if named else ""
        if not said:
            continue
        try:
            wrong = workspace_id is not None and UUID(said) != workspace_id
        except ValueError:
            problems.append(Problem(number + 1, "`Workspace ID` is neither blank nor a UUID"))
            continue
        if wrong:
            told = f"`Workspace ID` is {said}, and the file was put into the workspace {workspace_id}"
            problems.append(Problem(number + 1, told))
    return problems


_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff\ud800-\udfff]")


def _unstorable(blocks: Blocks) -> list[Problem]:
    return [
        Problem(number + 1, f"a control character (U+{ord(found[0]):04X}) in column {found.start() + 1}")
        for number, line in enumerate(blocks.lines)
        if (found := _FORBIDDEN.search(line))
    ]


def _repeated_ids(placed: list[Placed]) -> list[Problem]:
    seen: dict[str, int] = {}
    problems = []
    for each in placed:
        if each.entry.id is None:
            continue
        if each.entry.id in seen:
            told = (
                f"`id` {each.entry.id!r} is there twice, in the blocks of lines {seen[each.entry.id]} and {each.line}"
            )
            problems.append(Problem(each.line, told))
        seen.setdefault(each.entry.id, each.line)
    return problems


def _repeated_questions(placed: list[Placed]) -> list[Problem]:
    seen: dict[str, int] = {}
    warnings = []
    for each in placed:
        key = " ".join(each.entry.question.casefold().split())
        if key in seen:
            warnings.append(Problem(each.line, f"the same question as in the block of line {seen[key]}; both are kept"))
        seen.setdefault(key, each.line)
    return warnings


# --- fields: from a node to a value, or an error that names what would be right -----------------------------------


def _text(most: int) -> Callable[[Node], str | None]:
    def read(node: Node) -> str | None:
        if not isinstance(node, Scalar):
            raise _FieldError(node.line, "is one text, not a list or a mapping")
        if node.cut:
            raise _FieldError(node.line, "has a ` #` in it, which YAML takes for a comment; put the text in quotes")
        text = node.text.strip()
        if node.is_null or not text:
            return None
        if len(text) > most:
            raise _FieldError(node.line, f"has {len(text):,} characters; the most is {most:,}")
        return text

    return read


def _question(node: Node) -> str:
    text = _text(MAX_QUESTION)(node)
    if text is None:
        raise _FieldError(node.line, "is empty")
    return text


def _texts(node: Node) -> tuple[str, ...]:
    if isinstance(node, Scalar) and node.is_null:
        return ()
    if not isinstance(node, Sequence):
        raise _FieldError(node.line, "is a list: `[a, b]`, or one `- a` a line")
    if len(node.items) > MAX_ITEMS:
        raise _FieldError(node.line, f"has {len(node.items):,} items; the most is {MAX_ITEMS}")
    read = _text(MAX_QUESTION)
    texts = []
    for item in node.items:
        text = read(item)
        if text is None:
            raise _FieldError(item.line, "has an empty item")
        texts.append(text)
    return tuple(dict.fromkeys(texts))


def _one_of(names: tuple[str, ...]) -> Callable[[Node], str | None]:
    def read(node: Node) -> str | None:
        text = _text(MAX_TEXT)(node)
        if text is not None and text not in names:
            raise _FieldError(node.line, f"is one of {', '.join(names)}, not {text[:40]!r}")
        return text

    return read


def _confidence(node: Node) -> float | None:
    text = _text(MAX_TEXT)(node)
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,3}(\.\d{1,9})?|\.\d{1,9}", text, re.ASCII) or not 0 <= float(text) <= 1:
        raise _FieldError(node.line, f"is a number from 0 to 1, not {text[:40]!r}")
    return float(text)


def _whole(least: int, most: int) -> Callable[[Node], int | None]:
    def read(node: Node) -> int | None:
        text = _text(MAX_TEXT)(node)
        if text is None:
            return None
        if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not least <= int(text) <= most:
            raise _FieldError(node.line, f"is a whole number from {least} to {most:,}, not {text[:40]!r}")
        return int(text)

    return read


def _yes_or_no(node: Node) -> bool | None:
    text = _text(MAX_TEXT)(node)
    if text is None:
        return None
    if text.casefold() not in ("true", "false"):
        raise _FieldError(node.line, f"is true or false, not {text[:40]!r}")
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
        raise _FieldError(node.line, f"is a date (2024-01-31) or an ISO 8601 time, not {text[:40]!r}") from None


def _day(node: Node) -> date | None:
    text = _text(MAX_TEXT)(node)
    if text is None:
        return None
    try:
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
            raise ValueError(text)
        return date.fromisoformat(text)
    except ValueError:
        raise _FieldError(node.line, f"is a date (2024-01-31), not {text[:40]!r}") from None


_SOURCE_KEYS: dict[str, Callable[[Node], Any]] = {
    "file": _text(MAX_TEXT),
    "table_index": _whole(0, 1_000_000),
    "row_index": _whole(0, 1_000_000),
}


def _sources(node: Node) -> tuple[Source, ...]:
    if isinstance(node, Scalar) and node.is_null:
        return ()
    if not isinstance(node, Sequence):
        raise _FieldError(node.line, "is a list of `file`, `table_index` and `row_index`")
    if len(node.items) > MAX_ITEMS:
        raise _FieldError(node.line, f"has {len(node.items):,} items; the most is {MAX_ITEMS}")
    return tuple(_source(item) for item in node.items)


def _source(node: Node) -> Source:
    if not isinstance(node, strict_yaml.Mapping):
        raise _FieldError(node.line, "is a list of mappings with `file`")
    values = {}
    for key, value in node.items:
        if key.text not in _SOURCE_KEYS:
            raise _FieldError(key.line, f"has {key.text[:40]!r}; a source has `file`, `table_index` and `row_index`")
        values[key.text] = _SOURCE_KEYS[key.text](value)
    if not values.get("file"):
        raise _FieldError(node.line, "has a source without `file`")
    return Source(**values)


FIELDS: dict[str, Callable[[Node], Any]] = {
    "question": _question,
    "id": _text(MAX_ID),
    "alternate_phrasings": _texts,
    "scope_tags": _texts,
    "anti_scope_tags": _texts,
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
