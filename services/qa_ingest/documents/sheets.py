"""Reads workbooks and separated text as grids: values as a person sees them, hidden sheets apart, sizes known first."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

import clevercsv
from python_calamine import CalamineError, CalamineSheet, CalamineWorkbook, SheetVisibleEnum

from services.qa_ingest.documents.package import Package, Refused

MAX_COLUMNS = 1_000
MAX_AREA = 2_000_000
MAX_SHEETS = 200
DELIMITERS = (",", ";", "\t", "|")
_CELL = re.compile(rb'<(?:\w+:)?c\b[^>]*?\br="([A-Z]{1,7})(\d{1,10})"')
_ROW = re.compile(rb'<(?:\w+:)?row\b[^>]*?\br="(\d{1,10})"')
_ESCAPE = re.compile(r"_x([0-9A-Fa-f]{4})_")
_SHEET = re.compile(r"xl/worksheets/[^/]+\.xml\Z")
_CONTROLS = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127), "\ufffd")
_SAMPLE = 20_000


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
    """Every sheet with cells. Raises `Refused`."""
    _bounded(Package(content))
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


def separated(text: str) -> Sheet:
    """Text with separators as one sheet. Raises `Refused` with the line where columns stop to fit."""
    split = [(mark, _split(text, mark)) for mark in DELIMITERS]
    fitting = [(mark, rows) for mark, rows in split if rows and _is_even(rows) and len(rows[0]) > 1]
    if len(fitting) != 1:
        chosen = _sniffed(text)
        fitting = [each for each in fitting if each[0] == chosen] or [(chosen, _split(text, chosen))]
    mark, rows = fitting[0]
    if not rows or len(rows[0]) < 2:
        raise Refused("bad_csv", "no separator that makes columns: comma, semicolon, tab or |")
    odd = next((n for n, row in enumerate(rows) if len(row) > len(rows[0])), None)
    if odd is not None:
        told = f"row {odd + 1} has {len(rows[odd])} columns and the first has {len(rows[0])}, separated by {mark!r}"
        raise Refused("bad_csv", f"{told}; put texts in quotes")
    if len(rows[0]) > MAX_COLUMNS or len(rows) * len(rows[0]) > MAX_AREA:
        raise Refused("too_large", f"{len(rows):,} rows of {len(rows[0]):,} columns")
    return Sheet("", [[_clean(value) for value in row] for row in rows])


# --- workbooks --------------------------------------------------------------------------------------------------


def _bounded(package: Package) -> None:
    """The area that the cells of each sheet span: a cell far away makes a grid of billions."""
    for name in package.names():
        if not _SHEET.match(name):
            continue
        content = package.read(name)
        columns = max((_column(found[1]) for found in _CELL.finditer(content)), default=0)
        rows = max((int(found[1]) for found in _ROW.finditer(content)), default=0)
        rows = max(rows, max((int(found[2]) for found in _CELL.finditer(content)), default=0))
        rows, columns = max(rows, content.count(b"<row")), max(columns, 1)
        if columns > MAX_COLUMNS or rows * columns > MAX_AREA:
            raise Refused("too_large", f"{name} spans {rows:,} rows and {columns:,} columns")


def _column(letters: bytes) -> int:
    number = 0
    for letter in letters:
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
    return _clean(_ESCAPE.sub(lambda found: chr(int(found[1], 16)), str(value)))


def _clean(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS).encode("utf-8", "replace").decode()


# --- separated text ---------------------------------------------------------------------------------------------


def _split(text: str, mark: str) -> list[list[str]]:
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True))
    except csv.Error:
        return []
    kept = [row for row in rows if any(value.strip() for value in row)]
    # A separator at the end of every line makes no column.
    while kept and len(kept[0]) > 1 and all(not row[-1].strip() for row in kept if len(row) == len(kept[0])):
        width = len(kept[0])
        kept = [row[:-1] if len(row) == width else row for row in kept]
    return kept


def _is_even(rows: Iterable[Sequence[str]]) -> bool:
    return len({len(row) for row in rows}) == 1


def _sniffed(text: str) -> str:
    try:
        dialect = clevercsv.Sniffer().sniff(text[:_SAMPLE], delimiters="".join(DELIMITERS))
    except clevercsv.Error:
        return ","
    return str(dialect.delimiter) if dialect and dialect.delimiter else ","
