"""The canonical bundle: Markdown with a block of YAML metadata above each answer. Text in, pairs or problems out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any
from uuid import UUID

from services.qa_ingest.domain import strict_yaml
from services.qa_ingest.domain.blocks import Block, Blocks, Problem, closing_fence, cut, normalise, outside_fences
from services.qa_ingest.domain.bundle_keys import FIELDS, FieldError, is_reserved, meant_by
from services.qa_ingest.domain.envelope import MAX_ANSWER, Provenance, PublicationStatus, Source
from services.qa_ingest.domain.strict_yaml import FORBIDDEN

MOST_PROBLEMS = 50


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
            except FieldError as error:
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
    """Without blank lines at both ends; the indentation of the first line may mean something.

    A code fence that the last answer of a file leaves open is closed, as it could not be followed by another otherwise.
    """
    text = "\n".join(lines)
    return closing_fence(re.sub(r"\A(?:[ \t]*\n)+", "", text).rstrip())


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


def _unstorable(blocks: Blocks) -> list[Problem]:
    return [
        Problem(number + 1, f"a control character (U+{ord(found[0]):04X}) in column {found.start() + 1}")
        for number, line in enumerate(blocks.lines)
        if (found := FORBIDDEN.search(line))
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
