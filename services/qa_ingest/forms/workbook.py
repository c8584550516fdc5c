"""Forms in Excel: answers go into the XML of their sheet as inline text; no other byte of any part changes.

Text is never a formula, whatever it begins with. Structure after ECMA-376 part 1 (SpreadsheetML).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from services.qa_ingest.documents import sheets
from services.qa_ingest.documents.package import Package, Refused
from services.qa_ingest.documents.positions import Edit, Located, changed, escaped, located
from services.qa_ingest.documents.sheets import Sheet
from services.qa_ingest.domain.form_tables import Asked, asked
from services.qa_ingest.domain.question_tables import Cell, Table
from services.qa_ingest.forms.base import Form, FormFormat, Outcome, Slot, State, bounded, clean_question, fitting

S = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
BOOK = "xl/workbook.xml"
MAX_CHARACTERS = 32_767
MAX_LINE_BREAKS = 253
"""Of one cell; Excel repairs, and so loses, what is more."""
MAX_SHEET_BYTES = 48 * 1024 * 1024
_REFERENCE = re.compile(r"\$?([A-Z]{1,3})\$?(\d{1,7})\Z")
_ESCAPE = re.compile(r"_(x[0-9A-Fa-f]{4}_)")
_TYPE = re.compile(rb"""\s+t\s*=\s*(?:"[^"]*"|'[^']*')""")
_ATTRIBUTE_END = re.compile(rb"\s*/?>\Z")

Place = tuple[int, int]


class Workbook(FormFormat):
    """See the module."""

    def read(self, content: bytes) -> Form:
        """Every question of every table on the sheets that are seen."""
        book = _Book(content)
        slots = [question.slot for question in book.questions()]
        bounded(slots)
        return Form(slots=tuple(slots), notices=tuple(book.notices))

    def fill(self, content: bytes, answers: Mapping[int, str]) -> tuple[bytes, Mapping[int, Outcome]]:
        """Answers become texts of their cells; the style of a cell, its row or its column stays."""
        book = _Book(content)
        outcomes: dict[int, Outcome] = {}
        texts: dict[str, dict[Place, str]] = {}
        for number, question in enumerate(book.questions()):
            if number not in answers or question.slot.state != "open" or question.cell is None:
                continue
            text, outcome = fitting(question.slot, _lines(answers[number]))
            if outcome == "filled" and text.count("\n") > MAX_LINE_BREAKS:
                outcome = "too_long"
            outcomes[number] = outcome
            if outcome == "filled":
                texts.setdefault(question.part, {})[question.cell] = text
        parts = {part: _filled(book.sheet(part), cells) for part, cells in texts.items()}
        return (book.package.with_parts(parts) if parts else content), outcomes


@dataclass(frozen=True, slots=True)
class _Question:
    slot: Slot
    part: str
    cell: Place | None


class _Book:
    """A workbook with its parts, its sheets as grids, and what is locked in it."""

    def __init__(self, content: bytes) -> None:
        self.package = Package(content)
        if BOOK not in self.package:
            raise Refused("no_workbook", f"the package has no {BOOK}; it is no Excel workbook")
        self.notices: list[str] = []
        self._signed = any(name.startswith("_xmlsignatures/") for name in self.package.names())
        if self._signed:
            self.notices.append("the workbook is signed: filling it would break the signature, so it is only read")
        self._grids = {sheet.name: sheet for sheet in sheets.sheets_of(self.package, content)}
        self._parts = self._names()
        self._unlocked = self._unlocked_styles()
        self._read: dict[str, _SheetXml] = {}

    def questions(self) -> Iterator[_Question]:
        """In the order of sheets and rows."""
        for index, (name, sheet) in enumerate(self._grids.items()):
            if sheet.hidden:
                self.notices.append("a hidden sheet is left out")
                continue
            part = self._parts.get(name)
            grid, edge = _grid(sheet, self.sheet(part).width if part else 0)
            for one in asked(Table(grid, index, sheet=name), edge):
                yield self._question(one, name, part)

    def sheet(self, part: str) -> _SheetXml:
        """A sheet's XML, parsed once."""
        if part not in self._read:
            content = self.package.read(part)
            if len(content) > MAX_SHEET_BYTES:
                raise Refused("too_large", f"{part} is larger than {MAX_SHEET_BYTES // 1024**2} MiB")
            self._read[part] = _SheetXml(located(content, part))
        return self._read[part]

    def _question(self, one: Asked, name: str, part: str | None) -> _Question:
        state: State = "open"
        why = ""
        options: tuple[str, ...] = ()
        if one.answer is None or part is None:
            state, why = "no_place", "no cell beside or below it is free for an answer"
        elif one.answered or self.sheet(part).is_taken(one.answer):
            state, why = "closed", "something stands there already"
        elif self._signed:
            state, why = "closed", "the workbook is signed"
        elif self.sheet(part).is_locked(one.answer, self._unlocked):
            state, why = "closed", "the cell is locked"
        else:
            listed = self._options(self.sheet(part), one.answer, name)
            if listed is None:
                state, why = "closed", "the cell takes values of a list that is not in the sheet"
            options = listed or ()
        at = one.answer or one.at
        place = f"{name}!{reference(at)}"
        slot = Slot(
            question=clean_question(one.question),
            place=place[:500],
            state=state,
            why=why,
            section=tuple(text[:500] for text in one.section),
            options=options[:500],
            max_characters=MAX_CHARACTERS,
        )
        return _Question(slot, part or "", one.answer)

    def _options(self, sheet: _SheetXml, at: Place, name: str) -> tuple[str, ...] | None:
        """What a cell takes where its data validation lists it: nothing for any text, None where nobody can tell."""
        formula = sheet.list_formula(at)
        if formula is None:
            return ()
        if formula.startswith('"') and formula.endswith('"'):
            return tuple(text.strip() for text in formula[1:-1].replace('""', '"').split(",") if text.strip())
        sheet_name, _, area = formula.rpartition("!")
        grid = self._grids.get(sheet_name.strip("'").replace("''", "'") if sheet_name else name)
        first, last = _area(area)
        if grid is None or first is None or last is None:
            return None
        rows = grid.rows[first[0] : min(last[0], first[0] + 1_000) + 1]
        return tuple(text.strip() for row in rows for text in row[first[1] : last[1] + 1] if text.strip()) or None

    def _names(self) -> dict[str, str]:
        relations = self.package.relations(BOOK)
        return {
            sheet.get("name", ""): part
            for sheet in self.package.xml(BOOK).iter(f"{S}sheet")
            if (part := relations.get(sheet.get(f"{R}id", ""), "")) in self.package
        }

    def _unlocked_styles(self) -> frozenset[int]:
        if "xl/styles.xml" not in self.package:
            return frozenset()
        formats = self.package.xml("xl/styles.xml").find(f"{S}cellXfs")
        found = enumerate(formats if formats is not None else ())
        return frozenset(
            number
            for number, style in found
            if (told := style.find(f"{S}protection")) is not None and told.get("locked") in ("0", "false")
        )


@dataclass(slots=True)
class _Row:
    element: Element
    cells: dict[int, Element] = field(default_factory=dict)


class _SheetXml:
    """A sheet's XML with its rows and cells by number, counted from 0."""

    def __init__(self, xml: Located) -> None:
        self.xml = xml
        found = xml.root.find(f"{S}sheetData")
        if found is None:
            raise Refused("no_workbook", "a sheet without data; Strict Open XML is not read")
        self.data = found
        self.rows = dict(_rows(found))
        told = xml.root.find(f"{S}sheetProtection")
        self._is_protected = told is not None and told.get("sheet") in ("1", "true")
        self._lists = [
            (validation.get("sqref", ""), (validation.findtext(f"{S}formula1") or "").strip())
            for validation in xml.root.iterfind(f"{S}dataValidations/{S}dataValidation")
            if validation.get("type") == "list"
        ]

    @property
    def width(self) -> int:
        """How many columns have cells, if only with a style."""
        return max((max(row.cells) + 1 for row in self.rows.values() if row.cells), default=0)

    def cell(self, at: Place) -> Element | None:
        row = self.rows.get(at[0])
        return row.cells.get(at[1]) if row else None

    def is_taken(self, at: Place) -> bool:
        """A formula stands there, whatever it shows."""
        cell = self.cell(at)
        return cell is not None and cell.find(f"{S}f") is not None

    def is_locked(self, at: Place, unlocked: frozenset[int]) -> bool:
        return self._is_protected and int(self.style(at) or 0) not in unlocked

    def list_formula(self, at: Place) -> str | None:
        """What lists the values of a cell, if something does."""
        for areas, formula in self._lists:
            if any(_holds(area, at) for area in areas.split()):
                return formula
        return None

    def style(self, at: Place) -> str | None:
        """The style of a cell, or that which a new one takes from its row or column."""
        cell = self.cell(at)
        if cell is not None:
            return _number(cell.get("s"))
        row = self.rows.get(at[0])
        if row is not None and row.element.get("s") and row.element.get("customFormat") in ("1", "true"):
            return _number(row.element.get("s"))
        for column in self.xml.root.iterfind(f"{S}cols/{S}col"):
            if int(_number(column.get("min")) or 0) <= at[1] + 1 <= int(_number(column.get("max")) or 0):
                return _number(column.get("style"))
        return None


def _filled(sheet: _SheetXml, texts: Mapping[Place, str]) -> bytes:
    edits: list[Edit] = []
    new_rows: dict[int, list[tuple[Place, str]]] = {}
    for at, text in sorted(texts.items()):
        row = sheet.rows.get(at[0])
        if row is None:
            new_rows.setdefault(at[0], []).append((at, text))
        elif at[1] in row.cells:
            edits.append(_into(sheet.xml, row.cells[at[1]], text))
        else:
            edits.append(_beside(sheet, row, at, text))
    for number, cells in sorted(new_rows.items()):
        prefix = sheet.xml.prefix(sheet.data)
        inner = b"".join(_new_cell(sheet, at, text) for at, text in cells)
        made = b'<%brow r="%d">%b</%brow>' % (prefix, number + 1, inner, prefix)
        later = min((known for known in sheet.rows if known > number), default=None)
        if later is None:
            edits.append(sheet.xml.put_in(sheet.data, made))
        else:
            start = sheet.xml.span(sheet.rows[later].element).start
            edits.append(Edit(start, start, made))
    return changed(sheet.xml.content, edits)


def _into(xml: Located, cell: Element, text: str) -> Edit:
    """An empty cell gets a text; its attributes stay, but for the type."""
    span = xml.span(cell)
    tag = xml.content[span.start : span.inner or span.end]
    opened = _ATTRIBUTE_END.sub(b"", _TYPE.sub(b"", tag))
    prefix = xml.prefix(cell)
    return Edit(span.start, span.end, opened + b' t="inlineStr">' + _inline(prefix, text) + b"</%bc>" % prefix)


def _beside(sheet: _SheetXml, row: _Row, at: Place, text: str) -> Edit:
    made = _new_cell(sheet, at, text)
    later = min((column for column in row.cells if column > at[1]), default=None)
    if later is None:
        return sheet.xml.put_in(row.element, made)
    start = sheet.xml.span(row.cells[later]).start
    return Edit(start, start, made)


def _new_cell(sheet: _SheetXml, at: Place, text: str) -> bytes:
    prefix, style = sheet.xml.prefix(sheet.data), sheet.style(at)
    styled = b' s="%b"' % style.encode() if style else b""
    inner = _inline(prefix, text)
    return b'<%bc r="%b"%b t="inlineStr">%b</%bc>' % (prefix, reference(at).encode(), styled, inner, prefix)


def _inline(prefix: bytes, text: str) -> bytes:
    kept = escaped(_ESCAPE.sub(r"_x005F_\1", text))
    return b'<%bis><%bt xml:space="preserve">%b</%bt></%bis>' % (prefix, prefix, kept, prefix, prefix)


# --- places -----------------------------------------------------------------------------------------------------


def reference(at: Place) -> str:
    """The name of a cell, e.g. B3 for row 2 and column 1 counted from 0."""
    letters, number = "", at[1] + 1
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(65 + rest) + letters
    return f"{letters}{at[0] + 1}"


def _place(name: str) -> Place | None:
    found = _REFERENCE.match(name)
    if not found:
        return None
    column = 0
    for letter in found[1]:
        column = column * 26 + ord(letter) - 64
    return int(found[2]) - 1, column - 1


def _area(area: str) -> tuple[Place | None, Place | None]:
    first, _, last = area.partition(":")
    return _place(first), _place(last or first)


def _holds(area: str, at: Place) -> bool:
    first, last = _area(area)
    if first is None or last is None:
        return False
    return first[0] <= at[0] <= last[0] and first[1] <= at[1] <= last[1]


def _rows(data: Element) -> Iterator[tuple[int, _Row]]:
    """Rows and cells say where they are, or follow the one before."""
    number = -1
    for element in data.iterfind(f"{S}row"):
        told = _number(element.get("r"))
        number = int(told) - 1 if told else number + 1
        row, column = _Row(element), -1
        for cell in element.iterfind(f"{S}c"):
            place = _place(cell.get("r", ""))
            column = place[1] if place else column + 1
            row.cells[column] = cell
        yield number, row


def _number(text: str | None) -> str | None:
    return text if text and text.isascii() and text.isdigit() and len(text) < 8 else None


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _grid(sheet: Sheet, width: int) -> tuple[list[list[Cell]], int]:
    """One cell a place, those that are merged marked as covered, and the first column that nothing is said of.

    That one and the row below the last belong to it too: a sheet has no end.
    """
    width = min(max([width, *map(len, sheet.rows)]), sheets.MAX_COLUMNS)
    rows = [[Cell(text) for text in row] + [Cell()] * (width + 1 - len(row)) for row in [*sheet.rows, []]]
    for (top, left), (bottom, right) in sheet.merged:
        for row in range(top, min(bottom, len(rows) - 1) + 1):
            for column in range(left, min(right, width) + 1):
                if (row, column) != (top, left):
                    rows[row][column] = Cell(rows[top][left].text, column > left, row > top)
    return rows, width


FORMAT = Workbook()
__all__: Sequence[str] = ("FORMAT", "Workbook", "reference")
