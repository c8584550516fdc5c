"""`docx_pattern_a`, `_b`, `_c`, `_positional`: question tables in Word documents.

The patterns differ in their columns (tiers of answers, numbers, sections) and are told apart by the headers of each
table; which one a pair came from stands in its `extractor`. Only `docx_pattern_positional` does without headers.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.qa_ingest.documents import word
from services.qa_ingest.documents.package import Refused
from services.qa_ingest.documents.word import Paragraph, WordCell, WordTable
from services.qa_ingest.domain.blocks import Problem
from services.qa_ingest.domain.envelope import MAX_TEXT, Extracted, Tally
from services.qa_ingest.domain.question_tables import Cell, Found, Table, read
from services.qa_ingest.extractors.base import Extractor, File, FileRejected


class DocxTables(Extractor):
    """See the module."""

    version = "1"
    suffixes: Sequence[str] = (".docx",)

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def extract(self, file: File) -> Extracted:
        """Every row of every question table."""
        try:
            document = word.read(file.content)
        except Refused as error:
            raise FileRejected(error.code, [Problem(1, error.message)]) from error
        tally = Tally(document.total)
        for rule, characters in document.left_out.items():
            tally.rule(rule, characters)
        found = Found(tally)
        read(_tables(document.blocks, tally), found, positional=self.kind == "docx_pattern_positional")
        if not found.pairs and not found.rejects:
            raise FileRejected("no_tables", [Problem(1, "no table with text in it")])
        return Extracted(
            extractor=self.kind,
            extractor_version=self.version,
            pairs=tuple(found.pairs),
            rejects=tuple(found.rejects),
            notices=tuple(found.notices),
            losses=tally.losses(),
        )


def _tables(blocks: Sequence[Paragraph | WordTable], tally: Tally) -> list[Table]:
    """The tables with the headings above them; text between them is left out by name."""
    tables: list[Table] = []
    headings: list[tuple[int, str]] = []
    follows_on = False
    for block in blocks:
        if isinstance(block, Paragraph):
            tally.rule("outside_tables", block.characters)
            follows_on = follows_on and not block.text.strip()
            if block.level and block.text.strip():
                headings = [each for each in headings if each[0] < block.level]
                headings.append((block.level, " ".join(block.text.split())[:MAX_TEXT]))
            continue
        table = _unframed(block)
        path = tuple(text for _, text in headings)
        tables.append(Table(_grid(table), len(tables), path, follows_on=follows_on))
        follows_on = True
    return tables


def _unframed(table: WordTable) -> WordTable:
    """The table itself, where it stands in a frame: one cell that holds a table and no text."""
    while len(table.rows) == 1 and len(table.rows[0]) == 1:
        blocks = table.rows[0][0].blocks
        inner = [block for block in blocks if isinstance(block, WordTable)]
        said = [block for block in blocks if isinstance(block, Paragraph) and block.text.strip()]
        if len(inner) != 1 or said:
            break
        table = inner[0]
    return table


def _grid(table: WordTable) -> list[list[Cell]]:
    """One cell a column: what is merged is repeated, and marked as covered."""
    rows: list[list[Cell]] = []
    for number, row in enumerate(table.rows):
        above = rows[-1] if rows else []
        cells: list[Cell] = []
        for cell in row:
            cells += _columns(
                cell, above[len(cells)] if len(cells) < len(above) else None, number in table.revised_rows
            )
        rows.append(cells)
    return rows


def _columns(cell: WordCell, above: Cell | None, revised: bool) -> list[Cell]:
    own = word.text_of(cell.blocks).strip()
    weight = sum(word.characters(block) for block in cell.blocks)
    continued = cell.merge == "continue" and above is not None and not own
    text = above.text if continued and above else own
    changed = revised or any(_revised(block) for block in cell.blocks)
    first = Cell(text, covered_from_above=continued, revised=changed, characters=weight)
    return [first, *[Cell(text, covered_from_left=True, covered_from_above=continued, characters=0)] * (cell.span - 1)]


def _revised(block: Paragraph | WordTable) -> bool:
    if isinstance(block, Paragraph):
        return block.revised
    return bool(block.revised_rows) or any(
        _revised(inner) for row in block.rows for cell in row for inner in cell.blocks
    )


PATTERN_A = DocxTables("docx_pattern_a")
PATTERN_B = DocxTables("docx_pattern_b")
PATTERN_C = DocxTables("docx_pattern_c")
POSITIONAL = DocxTables("docx_pattern_positional")
