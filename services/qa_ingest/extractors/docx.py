"""`docx_pattern_a`, `_b`, `_c`, `_positional`: question tables in Word documents.

The patterns differ in their columns (tiers of answers, numbers, sections) and are told apart by the headers of each
table; which one a pair came from stands in its `extractor`. Only `docx_pattern_positional` does without headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from services.qa_ingest.documents import word
from services.qa_ingest.documents.package import Refused
from services.qa_ingest.documents.word import Paragraph, WordCell, WordTable
from services.qa_ingest.domain.blocks import Problem
from services.qa_ingest.domain.envelope import MAX_TEXT, Extracted, Tally
from services.qa_ingest.domain.question_tables import Cell, Found, Table, has_header, read
from services.qa_ingest.extractors.base import Extractor, File, FileRejected

_CONTINUED = re.compile(r".{0,60}\b(?:continued|cont['’]?d|cont\.)\W*\Z", re.IGNORECASE)


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
    follows_on = below_heading = False
    for block in _unframed(blocks):
        if isinstance(block, WordTable):
            path = tuple(text for _, text in headings)
            table = Table(_grid(block), len(tables), path, follows_on=follows_on, below_heading=below_heading)
            tables.append(table)
            follows_on = below_heading = True
            continue
        tally.rule("outside_tables", block.characters)
        said = block.text.strip()
        follows_on = follows_on and (not said or _CONTINUED.match(said) is not None)
        below_heading = below_heading and (not said or follows_on or block.level > 0)
        if block.level and said:
            headings = [each for each in headings if each[0] < block.level]
            headings.append((block.level, " ".join(said.split())[:MAX_TEXT]))
    return tables


def _unframed(blocks: Sequence[Paragraph | WordTable]) -> Iterator[Paragraph | WordTable]:
    """The blocks, where a table that only frames others is replaced by what it holds."""
    for block in blocks:
        if isinstance(block, WordTable) and _is_frame(block):
            for row in block.rows:
                for cell in row:
                    yield from _unframed(cell.blocks)
        else:
            yield block


def _is_frame(table: WordTable) -> bool:
    """One cell that holds a table and no text, or a table that asks nothing round one that has questions."""
    inner = _tables_in(table)
    if len(table.rows) == 1 and len(table.rows[0]) == 1 and len(inner) == 1:
        said = [block for block in table.rows[0][0].blocks if isinstance(block, Paragraph) and block.text.strip()]
        return not said or _holds_questions(inner[0])
    return any(map(_holds_questions, inner)) and not has_header(_grid(table))


def _holds_questions(table: WordTable) -> bool:
    return has_header(_grid(table)) or any(map(_holds_questions, _tables_in(table)))


def _tables_in(table: WordTable) -> list[WordTable]:
    return [block for row in table.rows for cell in row for block in cell.blocks if isinstance(block, WordTable)]


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
