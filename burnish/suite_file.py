"""Reads a suite's cases from `.jsonl` or `.csv`. Every error names the file, the line and the field."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from burnish.json_text import NotJson, read_json
from libs.contracts.evaluations import Case
from libs.files import UnreadableFile, read_text

MAX_BYTES = 50_000_000
MAX_CASES = 20_000
COLUMNS = {"text": "input", "category": "expected", "label": "expected", "id": "case_id"}
KNOWN = frozenset(Case.model_fields)
MOST_MISTAKES = 20


class SuiteFileError(Exception):
    """The file cannot be used; the text lists what is wrong, one line each."""


def read_suite(path: Path) -> list[Case]:
    """The cases of a `.jsonl` file (one object a line) or a `.csv` file with a header.

    Needed are `input` (or `text`) and `expected` (or `category`, `label`); `case_id`, `split` and `cluster` may be
    there. A case without an id gets one from its content, so that the same case keeps it when the file is sorted anew.
    Raises `SuiteFileError`.
    """
    readers = {".jsonl": _jsonl, ".csv": _csv}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise SuiteFileError(f"{path}: a suite is a .jsonl or a .csv file")
    mistakes: list[str] = []
    cases: list[Case] = []
    lines: dict[str, int] = {}
    for line, row in reader(path, _text(path)):
        try:
            case = _case(row, lines)
        except ValueError as error:
            mistakes += [f"{path}, line {line}: {told}" for told in _told(error)]
            continue
        if case.case_id in lines:
            mistakes.append(
                f"{path}, line {line}: case_id: {case.case_id!r} is there already, in line {lines[case.case_id]}"
            )
        lines.setdefault(case.case_id, line)
        cases.append(case)
    if not cases and not mistakes:
        mistakes.append(f"{path}: it has no cases")
    if len(cases) > MAX_CASES:
        mistakes.append(f"{path}: it has {len(cases):,} cases; a suite has at most {MAX_CASES:,}")
    if mistakes:
        more = [f"… and {len(mistakes) - MOST_MISTAKES} more"] if len(mistakes) > MOST_MISTAKES else []
        raise SuiteFileError("\n".join([*mistakes[:MOST_MISTAKES], *more]))
    return cases


def _text(path: Path) -> str:
    try:
        return read_text(path, MAX_BYTES, encoding="utf-8-sig")
    except UnreadableFile as error:
        raise SuiteFileError(str(error)) from error


def _jsonl(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    # Not `splitlines()`: a JSON text may hold U+2028 and its like.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield number, read_json(line)
        except NotJson as error:
            raise SuiteFileError(f"{path}, line {number}: {error}") from error


def _csv(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    reader = csv.DictReader(text.splitlines(keepends=True), strict=True)
    try:
        columns = {COLUMNS.get(name, name) for name in reader.fieldnames or []}
        missing = {"input": "input` (or `text", "expected": "expected` (or `category"}
        for needed, told in missing.items():
            if needed not in columns:
                there = ", ".join(reader.fieldnames or []) or "nothing"
                raise SuiteFileError(f"{path}, line 1: it has no column `{told}`); the header has {there}")
        for row in reader:
            if None in row:
                raise SuiteFileError(f"{path}, line {reader.line_num}: it has more fields than the header has columns")
            yield reader.line_num, {name: value for name, value in row.items() if value}
    except csv.Error as error:
        raise SuiteFileError(f"{path}, line {reader.line_num}: it is not CSV: {error}") from error


def _case(row: Any, taken: Mapping[str, int]) -> Case:
    if not isinstance(row, dict):
        raise ValueError("a case is an object with `input` and `expected`")
    named = {COLUMNS.get(name, name): value for name, value in row.items()}
    known = {name: value for name, value in named.items() if name in KNOWN}
    known.setdefault("case_id", _identity(known, taken))
    return Case.model_validate(known)


def _identity(row: Mapping[str, Any], taken: Mapping[str, int]) -> str:
    content = json.dumps([row.get("input"), row.get("expected"), row.get("split", "test")])
    base = f"case-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    copy = 1
    identity = base
    while identity in taken:
        copy += 1
        identity = f"{base}-{copy}"
    return identity


def _told(error: ValueError) -> list[str]:
    if isinstance(error, ValidationError):
        plain = {"missing": "is missing"}
        return [
            f"{'.'.join(map(str, one['loc']))}: {plain.get(one['type'], one['msg'])}"
            for one in error.errors(include_url=False, include_input=False)
        ]
    return [str(error)]
