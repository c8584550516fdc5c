"""Questions that wait for an answer in a table, and the cell that each is answered in.

Columns are known by the names of their headers. Where no header names one for answers, it is the first column beside
the questions that nothing else has a use for; where there is none, an answer stands in the empty row below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from services.qa_ingest.domain.question_tables import Cell, Table, asks, role_of

MAX_LABEL = 60

_ANSWERS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?:(?:your|our|the|vendor|supplier|bidder|tenderer|company|provider|contractor|respondent|applicant|"
        r"organi[sz]ation|standard|final|full)(?:['’]?s)? )?(?:answers?|responses?|repl(?:y|ies))\b.{0,40}",
        r"(?:yes ?/ ?no|y ?/ ?n)\b.{0,40}",
        r"(?:(?:your|vendor|supplier|bidder|additional|further)(?:['’]?s)? )?"
        r"(?:comments?|details?|explanations?|remarks?|statements?|evidence)\b.{0,40}",
    )
)
"""Names of a column for answers, the best first."""
_QUESTIONS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?:.{0,40}\b)?(?:questions?|requirements?|controls?|criteri(?:on|a)|quer(?:y|ies)|requested)\b.{0,40}",
        r"(?:details?|descriptions?|items?|topics?|points?)\b.{0,20}",
    )
)
"""Names of a column for questions besides those that a library's tables have."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question of a form with the cell for its answer, both as (row, column) of the grid. `answer`: None for none.

    `answered`: something stands there already.
    """

    question: str
    at: tuple[int, int]
    answer: tuple[int, int] | None
    answered: bool = False
    section: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Layout:
    question: int
    answer: int | None
    id: int | None
    width: int
    below: bool = False


def asked(table: Table, edge: int | None = None) -> list[Asked]:
    """Every question of a table, top to bottom. A table in which nothing asks has none.

    Columns from `edge` on are those of an endless sheet: beside a question without headers one may hold its answer, a
    table with headers ends before them.
    """
    grid = table.rows
    edge = _width(grid) if edge is None else edge
    found: list[Asked] = []
    section = table.section_path
    for header, first, last in _pieces(grid):
        layout = (
            _headed(grid, header, first, last, edge) if header is not None else _without_header(grid, first, last, edge)
        )
        if layout is None:
            continue
        for number in range(first, last):
            label = _label(grid, number, layout)
            if label is not None:
                section = (*table.section_path, label)
            elif (one := _row(grid, number, layout, section, headed=header is not None)) is not None:
                found.append(one)
    return found


def _pieces(grid: Sequence[Sequence[Cell]]) -> Iterator[tuple[int | None, int, int]]:
    """The rows below each header, as (its row, first, last + 1); the whole grid where there is no header.

    What stands above the first header is its title, unless it asks by itself.
    """
    headers = [number for number, row in enumerate(grid) if _is_header(row)]
    if not headers or headers[0] > 0:
        yield None, 0, headers[0] if headers else len(grid)
    for place, number in enumerate(headers):
        yield number, number + 1, headers[place + 1] if place + 1 < len(headers) else len(grid)


def _is_header(row: Sequence[Cell]) -> bool:
    """It names a column for questions, and nothing in it asks. Names that may mean much need another beside them."""
    names = _names(row)
    if any("?" in name or len(name) > 80 for name in names.values()):
        return False
    question = _question_column(names)
    if question is None:
        return False
    others = [name for at, name in names.items() if at != question]
    return role_of(names[question]) == "question" or any(
        _answer_rank(name) is not None or role_of(name) == "id" for name in others
    )


def _headed(grid: Sequence[Sequence[Cell]], header: int, first: int, last: int, edge: int) -> _Layout | None:
    names = _names(grid[header])
    question = _question_column(names)
    if question is None:
        return None
    ranked = [(rank, at) for at, name in names.items() if (rank := _answer_rank(name)) is not None and at != question]
    answer = min(ranked)[1] if ranked else None
    if answer is None:
        answer = _empty_column([row[:edge] for row in grid], question, first, last, names)
    identity = next((at for at, name in names.items() if role_of(name) == "id"), None)
    asking = [number for number in range(first, last) if _question(grid[number], question)]
    below = answer is None and len(names) == 1 and _answered_below(grid, asking)
    return _Layout(question, answer, identity, _width(grid), below)


def _question_column(names: Mapping[int, str]) -> int | None:
    named = next((at for at, name in names.items() if role_of(name) == "question"), None)
    left = {at: name for at, name in names.items() if role_of(name) is None and not _ANSWERS[0].fullmatch(name)}
    for pattern in _QUESTIONS:
        if named is None:
            named = next((at for at, name in left.items() if pattern.fullmatch(name)), None)
    return named


def _names(row: Sequence[Cell]) -> dict[int, str]:
    return {at: _name(cell) for at, cell in enumerate(row) if not cell.covered_from_left and _name(cell)}


def _without_header(grid: Sequence[Sequence[Cell]], first: int, last: int, edge: int) -> _Layout | None:
    """The column in which most texts ask."""
    width = _width(grid)
    best: tuple[int, int] | None = None
    for at in range(width):
        texts = [cell.text.strip() for row in grid[first:last] if not (cell := _cell(row, at)).covered]
        said = [text for text in texts if text]
        count = sum(map(_asks, said))
        if count and count * 2 >= len(said) and (best is None or count > best[0]):
            best = count, at
    if best is None:
        return None
    question = best[1]
    asking = [number for number in range(first, last) if _asks(_question(grid[number], question))]
    below = _answered_below(grid, asking)
    if below and question + 1 >= edge:
        return _Layout(question, None, None, width, below)
    answer = _empty_column(grid, question, first, last, {})
    return _Layout(question, answer, None, width, below and answer is None)


def _answered_below(grid: Sequence[Sequence[Cell]], asking: Sequence[int]) -> bool:
    """Is the row below each question free?"""
    return all(_is_blank(grid, number + 1) for number in asking)


def _is_blank(grid: Sequence[Sequence[Cell]], number: int) -> bool:
    return number < len(grid) and not any(cell.text.strip() for cell in grid[number])


def _empty_column(
    grid: Sequence[Sequence[Cell]], question: int, first: int, last: int, names: Mapping[int, str]
) -> int | None:
    """The first column to the right with room for answers, which is free in most rows that ask something.

    Without a header it is the one beside, or none. One whose header means nothing to us may be for anything: it must be
    free in all rows, and the only one of its kind.
    """
    rows = [row for row in grid[first:last] if _question(row, question)]
    unknown = [at for at, name in names.items() if at > question and role_of(name) is None]
    for at in range(question + 1, _width(grid)):
        cells = [cell for row in rows if not (cell := _cell(row, at)).covered_from_left]
        if not cells:
            continue
        free = sum(1 for cell in cells if not cell.text.strip() and not cell.covered)
        if at not in names and free * 2 >= len(rows):
            return at
        if unknown == [at] and free == len(rows):
            return at
        if not names:
            return None
    return None


def _row(
    grid: Sequence[Sequence[Cell]], number: int, layout: _Layout, section: tuple[str, ...], *, headed: bool
) -> Asked | None:
    row = grid[number]
    question = _question(row, layout.question)
    if not (headed or _asks(question)) or not any(letter.isalnum() for letter in question):
        return None
    at = (number, layout.question)
    answer = _answer_cell(grid, number, layout)
    answered = answer is not None and bool(grid[answer[0]][answer[1]].text.strip())
    return Asked(question, at, answer, answered, section)


def _answer_cell(grid: Sequence[Sequence[Cell]], number: int, layout: _Layout) -> tuple[int, int] | None:
    if layout.answer is not None:
        cell = _cell(grid[number], layout.answer)
        exists = layout.answer < len(grid[number])
        return (number, layout.answer) if exists and not cell.covered else None
    if not layout.below or _cell(grid[number + 1], layout.question).covered_from_above:
        return None
    return (number + 1, layout.question) if layout.question < len(grid[number + 1]) else None


def _label(grid: Sequence[Sequence[Cell]], number: int, layout: _Layout) -> str | None:
    """The text of a row that heads those below: over every column, or short, alone and without the number of others."""
    row = grid[number]
    own = [(at, cell) for at, cell in enumerate(row) if not cell.covered and cell.text.strip()]
    if len(own) != 1:
        return None
    at, cell = own[0]
    text = " ".join(cell.text.split())
    if len(row) > 1 and at == 0 and all(each.covered_from_left for each in row[1:]):
        return None if layout.width == 1 else text[:200]
    if at != layout.question:
        return text[:200] if len(text) <= MAX_LABEL else None
    numbered = layout.id is not None and any(_cell(each, layout.id).text.strip() for each in grid)
    return text if numbered and len(text) <= MAX_LABEL and not _asks(text) else None


def _question(row: Sequence[Cell], at: int) -> str:
    cell = _cell(row, at)
    return "" if cell.covered else cell.text.strip()


def _asks(text: str) -> bool:
    return bool(text.strip(" :：")) and (asks(text) or text.rstrip().endswith((":", "：")))


def _answer_rank(name: str) -> int | None:
    if role_of(name) in ("standard", "advanced"):
        return 0 if role_of(name) == "standard" else len(_ANSWERS)
    return next((rank for rank, pattern in enumerate(_ANSWERS) if pattern.fullmatch(name)), None)


def _name(cell: Cell) -> str:
    return " ".join(cell.text.split()).strip(" :*.")


def _cell(row: Sequence[Cell], at: int) -> Cell:
    return row[at] if at < len(row) else Cell()


def _width(grid: Sequence[Sequence[Cell]]) -> int:
    return max((len(row) for row in grid), default=0)
