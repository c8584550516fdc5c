"""Writes the example's Word table and workbook: `python -m examples.help_library.office`. The same bytes each time.

Both are the least XML that Word and Excel open, so that what is in the files can be read here.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

FOLDER = Path(__file__).parent
TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
S = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
TYPE = "application/vnd.openxmlformats-officedocument"

RETURNS = (
    ("No", "Section", "Question", "Answer", "Notes"),
    ("1", "Sending back", "How long may I take to send something back?", "Thirty days from the day it came.", ""),
    (
        "2",
        "Sending back",
        "Who pays for the parcel back?",
        "We do within the EU: print the label under My orders. Elsewhere you do.",
        "ask legal about CH",
    ),
    ("3", "Money", "When do I get my money?", "Within five days of the parcel's arrival.", ""),
    ("4", "Money", "Can a planner with my name on it be returned?", "", "to be decided"),
)
SHOP = (
    ("Question", "Answer", "Tags", "Date added"),
    ("Is the paper recycled?", "The inside pages are, the cover is not.", "products", "2025-11-04"),
    ("Do the pens fit the loops?", "All of ours do; others up to 11 mm.", "products", "2025-11-04"),
    ("Is there a student discount?", "Ten percent, with a student's e-mail address.", "prices", "soon"),
)


def word(rows: Sequence[Sequence[str]], heading: str) -> bytes:
    """A document with a heading and one table."""
    table = "".join("<w:tr>" + "".join(f"<w:tc>{_paragraph(cell)}</w:tc>" for cell in row) + "</w:tr>" for row in rows)
    body = f"{_paragraph(heading)}<w:tbl>{table}</w:tbl>{_paragraph('')}"
    return _package(
        {"word/document.xml": f'<w:document xmlns:w="{W}"><w:body>{body}</w:body></w:document>'},
        {"/word/document.xml": f"{TYPE}.wordprocessingml.document.main+xml"},
        "word/document.xml",
    )


def workbook(rows: Sequence[Sequence[str]], name: str) -> bytes:
    """A workbook with one sheet of texts."""
    sheet = "".join(
        f'<row r="{n}">' + "".join(_cell(f"{chr(ord('A') + m)}{n}", cell) for m, cell in enumerate(row)) + "</row>"
        for n, row in enumerate(rows, 1)
    )
    relation = f'<Relationship Id="rId1" Type="{OFFICE}/worksheet" Target="worksheets/sheet1.xml"/>'
    return _package(
        {
            "xl/workbook.xml": f'<workbook xmlns="{S}" xmlns:r="{OFFICE}"><sheets>'
            f'<sheet name="{escape(name)}" sheetId="1" r:id="rId1"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{RELATIONS}">{relation}</Relationships>',
            "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{S}"><sheetData>{sheet}</sheetData></worksheet>',
        },
        {
            "/xl/workbook.xml": f"{TYPE}.spreadsheetml.sheet.main+xml",
            "/xl/worksheets/sheet1.xml": f"{TYPE}.spreadsheetml.worksheet+xml",
        },
        "xl/workbook.xml",
    )


def _paragraph(text: str) -> str:
    return f'<w:p><w:r><w:t xml:space="preserve">{escape(text)}</w:t></w:r></w:p>'


def _cell(place: str, text: str) -> str:
    return f'<c r="{place}" t="inlineStr"><is><t>{escape(text)}</t></is></c>'


def _package(parts: dict[str, str], types: dict[str, str], main: str) -> bytes:
    overrides = "".join(f'<Override PartName="{name}" ContentType="{kind}"/>' for name, kind in types.items())
    known = '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    relation = f'<Relationship Id="rId1" Type="{OFFICE}/officeDocument" Target="{main}"/>'
    whole = {
        "[Content_Types].xml": f'<Types xmlns="{TYPES}">{known}{overrides}</Types>',
        "_rels/.rels": f'<Relationships xmlns="{RELATIONS}">{relation}</Relationships>',
        **parts,
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in whole.items():
            declared = f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n{text}'
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), declared)
    return buffer.getvalue()


FILES = {
    FOLDER / "word" / "returns.docx": word(RETURNS, "Returns"),
    FOLDER / "sheets" / "shop.xlsx": workbook(SHOP, "Shop"),
}

if __name__ == "__main__":
    for path, content in FILES.items():
        path.write_bytes(content)
