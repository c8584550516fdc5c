"""Reads workbooks and separated text as grids: values as a person sees them, hidden sheets apart, sizes known first."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import zip_longest

import clevercsv
from python_calamine import CalamineError, CalamineSheet, CalamineWorkbook, SheetVisibleEnum

from services.qa_ingest.documents.package import Package, Refused

MAX_COLUMNS = 1_000
MAX_AREA = 2_000_000
MAX_SHEETS = 200
MAX_CHARACTERS = 64 * 1024 * 1024
"""Of all cells together: one long text that every cell refers to is small in the file only."""
DELIMITERS = (",", ";", "\t", "|")
_CELL = re.compile(rb"<(?:\w+:)?c\s[^>]*?\br\s*=\s*[\"']([A-Za-z]{1,7})(\d{1,10})[\"']")
_ROW = re.compile(rb"<(?:\w+:)?row\s[^>]*?\br\s*=\s*[\"'](\d{1,10})[\"']")
_ANY_CELL = re.compile(rb"<(?:\w+:)?c[\s/>]")
_ANY_ROW = re.compile(rb"<(?:\w+:)?row[\s/>]")
_VALUE = re.compile(rb"<(?:\w+:)?v(?:\s[^>]*)?>\s*(\d{1,9})\s*<")
_TEXT_END = re.compile(rb"</(?:\w+:)?si\s*>")
_SHEET = re.compile(r"xl/worksheets/[^/]+\.xml\Z")
_CONTROLS = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127), "\ufffd")
_SAMPLE = 2_000
_HINT = re.compile(r"\A\"?sep=([,;\t|])\"?\r?\n", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Sheet:
    """One sheet as rows of texts. `merged` holds ranges ((row, column), (row, column)), both ends included."""

    name: str
    rows: Sequence[Sequence[str]]
    hidden: bool = False
    merged: Sequence[tuple[tuple[int, int], tuple[int, int]]] = ()

    @property
    def characters(self) -> int:
        """How much text it holds."""
        return sum(len(text) for row in self.rows for text in row)


def workbook(content: bytes) -> list[Sheet]:
    """Every sheet with cells. Raises `Refused`, also for macros and for what would be fetched."""
    package = Package(content)
    package.refuse_active()
    return sheets_of(package, content)


def sheets_of(package: Package, content: bytes) -> list[Sheet]:
    """Every sheet with cells, whatever else is in the package: nothing of it runs here. Raises `Refused`."""
    _bounded(package)
    try:
        book = CalamineWorkbook.from_filelike(io.BytesIO(content))
        if len(book.sheets_metadata) > MAX_SHEETS:
            raise Refused("too_large", f"more than {MAX_SHEETS} sheets")
        return [
            _sheet(book.get_sheet_by_name(told.name), hidden=told.visible is not SheetVisibleEnum.Visible)
            for told in book.sheets_metadata
        ]
    except (CalamineError, ValueError, OSError) as error:
        raise Refused("bad_workbook", f"no workbook that can be read: {str(error)[:200]}") from error


def separated(text: str, is_header: Callable[[Sequence[str]], bool]) -> Sheet:
    """Text with separators as one sheet. `is_header` tells whether a row names columns of questions and answers.

    The separator is the one that makes such a header, else the one that makes even rows. `csv` reads them, strictly,
    so that none is joined or dropped. Raises `Refused` with the line where columns stop to fit.
    """
    hint = _HINT.match(text)
    lines_before = 1 if hint else 0
    text = text[hint.end() :] if hint else text
    ways = [way for mark in (hint[1] if hint else DELIMITERS) for way in _ways(text, mark)]
    way = _best(ways, is_header, text)
    header = next((row for _, row in way.rows if is_header(row)), None)
    width = len(header) if header else max((len(row) for _, row in way.rows), default=0)
    if width > MAX_COLUMNS or len(way.rows) * width > MAX_AREA:
        raise Refused("too_large", f"{len(way.rows):,} rows of {width:,} columns")
    if width < 2:
        raise Refused("bad_csv", way.error or "no separator that makes columns: comma, semicolon, tab or |")
    if not header and way.is_uneven:
        raise Refused("bad_csv", f"no header for questions and answers, and rows of different widths by {way.mark!r}")
    odd = next(((line, row) for line, row in way.rows if len(row) > width), None)
    if odd is not None:
        line = odd[0] + lines_before
        told = f"line {line} has {len(odd[1])} columns and the header has {width}, separated by {way.mark!r}"
        raise Refused("bad_csv", f"{told}; put texts in quotes", line)
    _read_in_one_way(way, text, lines_before)
    return Sheet("", [[_clean(value) if value.strip() else "" for value in row] for _, row in way.rows])


def _read_in_one_way(way: _Way, text: str, lines_before: int) -> None:
    """Another reader must find as many rows, and the same in each: a quote in the middle of a text divides them."""
    if way.blanks or '"' not in text:
        return
    other = clevercsv.reader(io.StringIO(text, newline=""), delimiter=way.mark, quotechar='"')
    rows = [kept for row in other if (kept := _without_end(row))]
    odd = next((mine for mine, row in zip_longest(way.rows, rows) if mine is None or mine[1] != row), None)
    if odd is not None or len(rows) != len(way.rows):
        line = lines_before + (odd[0] if odd else 1)
        told = f"a quote in line {line} can be read in two ways; put the text in quotes, and double those within it"
        raise Refused("bad_csv", told, line)


# --- workbooks --------------------------------------------------------------------------------------------------


def _bounded(package: Package) -> None:
    """The area that the cells of each sheet span, for a cell far away makes a grid of billions; and all their text."""
    texts = _lengths(package)
    characters = 0
    for name in package.names():
        if not _SHEET.match(name):
            continue
        content = package.read(name)
        told = [(_column(found[1]), int(found[2])) for found in _CELL.finditer(content)]
        counted = [sum(1 for _ in _ANY_CELL.finditer(row)) for row in _ANY_ROW.split(content)]
        columns = max([1, *(column for column, _ in told), *counted])
        rows = max([len(counted) - 1, *(row for _, row in told), *(int(found[1]) for found in _ROW.finditer(content))])
        if columns > MAX_COLUMNS or rows * columns > MAX_AREA:
            raise Refused("too_large", f"{name} spans {rows:,} rows and {columns:,} columns")
        values = (int(found[1]) for found in _VALUE.finditer(content))
        characters += sum(texts[value] for value in values if value < len(texts))
        if characters > MAX_CHARACTERS:
            raise Refused("too_large", f"its cells hold more than {MAX_CHARACTERS:,} characters")


def _lengths(package: Package) -> list[int]:
    """How long each shared text is at most, in bytes of its XML."""
    name = next((name for name in package.names() if name.casefold() == "xl/sharedstrings.xml"), None)
    return [len(part) for part in _TEXT_END.split(package.read(name))] if name else []


def _column(letters: bytes) -> int:
    number = 0
    for letter in letters.upper():
        number = number * 26 + letter - 64
    return number


def _sheet(sheet: CalamineSheet, *, hidden: bool) -> Sheet:
    rows = [[_text(value) for value in row] for row in sheet.to_python(skip_empty_area=False)]
    return Sheet(sheet.name, rows, hidden, sheet.merged_cell_ranges or ())


def _text(value: object) -> str:
    """A value as a person sees it."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat(sep=" ")
    if isinstance(value, date | time | timedelta):
        return str(value)
    return _clean(str(value))  # `_x000D_` and the like are resolved by the reader


def _clean(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS).encode("utf-8", "replace").decode()


# --- separated text ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to read a text: rows with the line that each ends at, without empty cells at their ends."""

    mark: str
    rows: Sequence[tuple[int, Sequence[str]]] = ()
    error: str = ""
    blanks: bool = False

    @property
    def is_uneven(self) -> bool:
        return len({len(row) for _, row in self.rows}) > 1


def _ways(text: str, mark: str) -> Iterator[_Way]:
    """As it stands, and with blanks between a separator and a quote."""
    yield _split(text, mark, blanks=False)
    if f'{mark} "' in text:
        yield _split(text, mark, blanks=True)


def _split(text: str, mark: str, *, blanks: bool) -> _Way:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True, skipinitialspace=blanks)
    rows: list[tuple[int, Sequence[str]]] = []
    try:
        for row in reader:
            if kept := _without_end(row):
                rows.append((reader.line_num, kept))
    except csv.Error as error:
        told = "a quote that is never closed" if "unexpected end" in str(error) else str(error)[:200]
        return _Way(mark, error=f"line {reader.line_num}: {told}")
    return _Way(mark, rows, blanks=blanks)


def _without_end(row: list[str]) -> list[str]:
    while row and not row[-1].strip():
        row.pop()
    return row


def _best(ways: Sequence[_Way], is_header: Callable[[Sequence[str]], bool], text: str) -> _Way:
    """The way with a header that no row is wider than; one with a header; one with even rows (sniffed, if several)."""
    with_header = [(way, len(row)) for way in ways for _, row in way.rows if is_header(row)]
    fitting = [way for way, width in with_header if all(len(row) <= width for _, row in way.rows)]
    even = [way for way in ways if way.rows and not way.is_uneven and len(way.rows[0][1]) > 1]
    if len(even) > 1:
        chosen = _sniffed(text)
        even = [way for way in even if way.mark == chosen] or even
    return next(iter([*fitting, *(way for way, _ in with_header), *even, *ways]))


def _sniffed(text: str) -> str:
    try:
        dialect = clevercsv.Sniffer().sniff(text[:_SAMPLE], delimiters="".join(DELIMITERS))
    except clevercsv.Error:
        return ","
    return str(dialect.delimiter) if dialect and dialect.delimiter else ","
