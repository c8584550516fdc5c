"""`xlsx_table_v1`: question tables in workbooks, and in text with separators."""

from __future__ import annotations

from collections.abc import Sequence

from services.qa_ingest.documents import sheets
from services.qa_ingest.documents.package import Refused
from services.qa_ingest.documents.sheets import Sheet
from services.qa_ingest.domain.blocks import Problem
from services.qa_ingest.domain.envelope import Extracted, Notice, Place, Tally
from services.qa_ingest.domain.question_tables import Cell, Found, Table, has_header, read
from services.qa_ingest.extractors.base import Extractor, File, FileRejected
from services.qa_ingest.extractors.text import decode


class XlsxTables(Extractor):
    """See the module."""

    kind = "xlsx_table_v1"
    version = "1"
    suffixes: Sequence[str] = (".xlsx", ".xlsm", ".csv", ".tsv")

    def extract(self, file: File) -> Extracted:
        """Every row of every question table on a sheet that is seen."""
        try:
            found = self._read(file)
        except Refused as error:
            raise FileRejected(error.code, [Problem(error.line, error.message)]) from error
        if not found.pairs and not found.rejects:
            raise FileRejected("no_tables", [Problem(1, "no sheet that is seen has text in it")])
        return Extracted(
            extractor=self.kind,
            extractor_version=self.version,
            pairs=tuple(pair.model_copy(update={"extractor": None}) for pair in found.pairs),
            rejects=tuple(found.rejects),
            notices=tuple(found.notices),
            losses=found.tally.losses(),
        )

    def _read(self, file: File) -> Found:
        is_text = file.name.casefold().endswith((".csv", ".tsv"))
        found_sheets = (
            [sheets.separated(decode(file.content), _is_header)] if is_text else sheets.workbook(file.content)
        )
        found = Found(Tally(sum(sheet.characters for sheet in found_sheets)))
        for index, sheet in enumerate(found_sheets):
            if sheet.hidden:
                found.tally.rule("hidden_sheet", sheet.characters)
                place = Place(sheet=sheet.name[:500] or None, table_index=index)
                found.notices.append(Notice(message="a hidden sheet is left out", place=place))
            else:
                read([Table(_grid(sheet, found.tally), index, sheet=sheet.name[:500] or None)], found)
        return found


def _is_header(row: Sequence[str]) -> bool:
    return has_header([[Cell(text) for text in row]])


def _grid(sheet: Sheet, tally: Tally) -> list[list[Cell]]:
    """The cells; a text below a merged one is seen by nobody, and left out by name."""
    rows = [[Cell(text) for text in row] for row in sheet.rows]
    for (top, left), (bottom, right) in sheet.merged:
        if top >= len(rows) or left >= len(rows[top]):
            continue
        text = rows[top][left].text
        for row in range(top, min(bottom, len(rows) - 1) + 1):
            for column in range(left, min(right, len(rows[row]) - 1) + 1):
                if (row, column) != (top, left):
                    tally.rule("covered_by_merge", len(rows[row][column].text))
                    rows[row][column] = Cell(text, column > left, row > top, characters=0)
    return rows


XLSX_TABLE = XlsxTables()
