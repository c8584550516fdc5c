"""Rows of an older platform's table `content_items`, as pairs: JSON lines or CSV in, pairs or problems with lines out.

The older platform cut the question at 120 characters for its `title`; the whole of it is in the `Q:` line of `content`.
Its vector was of title, summary and content together, so it is left behind: only the question is embedded here.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from libs.contracts.library import LegacyPair
from services.qa_ingest.domain.blocks import Problem, normalise

CUT_AT = 120
Q_A_PAIR = "q_a_pair"
MOST_PROBLEMS = 50
MAX_FIELD = 1_000_000

_KEPT = (
    *("primary_domain", "primary_subtopic", "secondary_domain", "secondary_subtopic", "classification_confidence"),
    *("publication_status", "governance_review_status", "governance_review_due", "governance_reviewer", "layer"),
    *("next_review_date", "review_cadence_days", "verified_at", "verified_by", "valid_to", "superseded_by"),
    *("created_at", "created_by", "updated_by", "archived_at", "archived_by", "archive_reason", "ingest_source"),
)
"""Columns that mean the same here."""
_PLACE = ("table_index", "row_index")
_BOOKKEEPING = {*_PLACE, "has_standard", "has_advanced"}
"""Keys of the old `metadata` that say nothing once the row is a pair."""


class LegacyRejected(ValueError):
    """A file of which nothing may be imported: every problem found, by line."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Legacy:
    """The pairs of a file, and how many of its rows are of other content types."""

    pairs: tuple[LegacyPair, ...]
    others: int
    notices: tuple[Problem, ...]


@dataclass(slots=True)
class _Reading:
    problems: list[Problem] = field(default_factory=list)
    notices: list[Problem] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    others: int = 0


def read(text: str, *, is_csv: bool, memberships: Mapping[str, str] | None = None, into: UUID | None = None) -> Legacy:
    """The pairs of an export. Raises `LegacyRejected`.

    `memberships` gives a row's workspace by its id, where the rows do not say it; `into` is where all of them go,
    whatever the rows say.
    """
    reading = _Reading()
    pairs = []
    rows = _csv_rows(text, reading) if is_csv else _json_rows(text, reading)
    for line, row in rows:
        if row.get("content_type") != Q_A_PAIR:
            reading.others += 1
            continue
        pair = _pair(line, row, memberships or {}, into, reading)
        pairs += [pair] if pair else []
    if not pairs and not reading.problems:
        reading.problems.append(Problem(1, f"no row has the content_type {Q_A_PAIR}"))
    if reading.problems:
        raise LegacyRejected(sorted(reading.problems, key=lambda problem: problem.line)[:MOST_PROBLEMS])
    return Legacy(tuple(pairs), reading.others, tuple(reading.notices))


def read_memberships(text: str) -> dict[str, str]:
    """`content_item_workspaces` as CSV: a row's workspace by its id. Raises `LegacyRejected`, also for a row in two."""
    reading = _Reading()
    found: dict[str, str] = {}
    for line, row in _csv_rows(text, reading):
        item, workspace = row.get("content_item_id"), row.get("workspace_id")
        if not item or not workspace:
            reading.problems.append(Problem(line, "content_item_id and workspace_id are both needed"))
        elif found.setdefault(item.casefold(), workspace) != workspace:
            told = f"{item} is in two workspaces; a pair is in one: keep the line of that one"
            reading.problems.append(Problem(line, told))
    if reading.problems:
        raise LegacyRejected(reading.problems[:MOST_PROBLEMS])
    return found


# --- rows ---------------------------------------------------------------------------------------------------------


def _json_rows(text: str, reading: _Reading) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, said in enumerate(normalise(text).split("\n"), 1):
        if not said.strip():
            continue
        try:
            row = json.loads(said)
        except (ValueError, RecursionError):
            reading.problems.append(Problem(line, "not a JSON object; one row a line was expected"))
            continue
        if not isinstance(row, dict):
            reading.problems.append(Problem(line, "not a JSON object; one row a line was expected"))
            continue
        yield line, row


def _csv_rows(text: str, reading: _Reading) -> Iterator[tuple[int, Mapping[str, Any]]]:
    csv.field_size_limit(MAX_FIELD)
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    line = 1
    try:
        names = next(reader, [])
        while True:
            line = reader.line_num + 1
            row = next(reader, None)
            if row is None:
                return
            if len(row) != len(names):
                told = f"{len(row)} fields, and the header names {len(names)}"
                reading.problems.append(Problem(line, told))
                continue
            yield line, {name: value for name, value in zip(names, row, strict=True) if value != ""}
    except csv.Error as error:
        reading.problems.append(Problem(line, f"not CSV: {error}"))


# --- a row as a pair ----------------------------------------------------------------------------------------------


def _pair(
    line: int, row: Mapping[str, Any], memberships: Mapping[str, str], into: UUID | None, reading: _Reading
) -> LegacyPair | None:
    before = len(reading.problems)
    identity = str(row.get("id") or "")
    workspace = into or row.get("workspace_id") or memberships.get(identity.casefold())
    if not workspace:
        told = "its workspace is missing: add the column workspace_id, name the memberships, or one workspace for all"
        reading.problems.append(Problem(line, told))
    first = reading.seen.setdefault(identity.casefold(), line)
    if first != line:
        reading.problems.append(Problem(line, f"the id is there twice, in lines {first} and {line}"))
    question, answer = _question_and_answer(line, row, reading)
    metadata = _mapping(line, row, reading)
    tags = [_list(line, name, row.get(name), reading) for name in ("scope_tag", "user_tags")]
    if len(reading.problems) > before:
        return None
    said = {name: _time(row[name]) for name in _KEPT if row.get(name) is not None}
    advanced = _answer(row.get("answer_advanced"))
    try:
        return LegacyPair(
            **said,
            line=line,
            id=identity,
            workspace_id=workspace,
            question=question,
            answer_standard=answer,
            answer_advanced=advanced if advanced and advanced != answer else None,
            scope_tags=tuple(dict.fromkeys(tags[0] or tags[1])),
            sources=_sources(row, metadata),
            metadata={key: value for key, value in metadata.items() if key not in _BOOKKEEPING},
        )
    except ValidationError as error:
        for each in error.errors()[:5]:
            place = ".".join(map(str, each["loc"])) or "the row"
            reading.problems.append(Problem(line, f"{place}: {each['msg']}"))
        return None


def _question_and_answer(line: int, row: Mapping[str, Any], reading: _Reading) -> tuple[str, str]:
    """The question out of the `Q:` line, and the standard answer, or else what follows that line."""
    content = normalise(str(row.get("content") or ""))
    title = " ".join(str(row.get("title") or "").split())
    answer = _answer(row.get("answer_standard"))
    found = re.match(r"\s*Q:[ \t]*([^\n]*)(?:\n|\Z)(.*)", content, re.DOTALL)
    question = found[1].strip() if found else ""
    if not question:
        told = "content has no `Q:` line, and title may be cut, so that the question is not known"
        reading.problems.append(Problem(line, told))
    elif title and not " ".join(question.split()).startswith(title[: CUT_AT - 3].rstrip("…. ")):
        reading.notices.append(Problem(line, "title and the `Q:` line ask different things; the `Q:` line is taken"))
    answer = answer or _answer(found[2] if found else "")
    if question and not answer:
        reading.problems.append(Problem(line, "it has no answer: neither answer_standard nor text below the `Q:` line"))
    return question, answer


def _time(value: Any) -> Any:
    """A time as Postgres writes it into CSV, with the offset as ISO 8601 has it; anything else as it is."""
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?[+-]\d\d", value, re.ASCII):
        return f"{value}:00"
    return value


def _answer(value: Any) -> str:
    return re.sub(r"\A(?:[ \t]*\n)+", "", normalise(str(value or ""))).rstrip()


def _sources(row: Mapping[str, Any], metadata: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    file = str(row.get("source_file") or "").strip()
    if not file:
        return ()
    return ({"file": file, **{key: metadata[key] for key in _PLACE if isinstance(metadata.get(key), int)}},)


def _mapping(line: int, row: Mapping[str, Any], reading: _Reading) -> dict[str, Any]:
    value = row.get("metadata") or {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if isinstance(value, dict):
        return value
    reading.problems.append(Problem(line, "metadata is no JSON object"))
    return {}


def _list(line: int, name: str, value: Any, reading: _Reading) -> list[str]:
    """A list of texts as JSON, or as Postgres writes an array: `{a,"b c"}`."""
    if value is None:
        return []
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return [each.strip() for each in value if each.strip()]
    if isinstance(value, str) and (array := re.fullmatch(r"\{(.*)\}", value.strip(), re.DOTALL)):
        items = re.findall(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^,]*?))\s*(?:,|\Z)', array[1], re.DOTALL)
        texts = [re.sub(r"\\(.)", r"\1", quoted) if quoted else bare for quoted, bare in items]
        return [each.strip() for each in texts if each.strip() and each != "NULL"]
    reading.problems.append(Problem(line, f"{name} is no list of texts"))
    return []
