"""Question tables in workbooks and separated text: hidden sheets, merged cells, odd texts, files that are too much."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpyxl import Workbook
from openpyxl.worksheet.worksheet import Worksheet

from services.qa_ingest.domain.envelope import Extracted
from services.qa_ingest.extractors import named
from services.qa_ingest.extractors.base import File, FileRejected
from services.qa_ingest.tests.office import package

SHARED = Path(os.environ.get("BURNISH_SHARED_DATA", "../shared/data")) / "faq"
needs_data = pytest.mark.skipif(not SHARED.is_dir(), reason=f"needs the public FAQ files in {SHARED}")
HEADER = ["Question", "Answer"]


def extract(content: bytes, name: str = "answers.xlsx") -> Extracted:
    found = named("xlsx_table_v1").extract(File(name, content))
    assert found.losses.unaccounted == 0
    return found


def book(rows: Sequence[Sequence[Any]], change: Callable[[Worksheet, Workbook], None] = lambda *_: None) -> bytes:
    workbook = Workbook()
    sheet = workbook.active
    assert isinstance(sheet, Worksheet)
    for row in rows:
        sheet.append(list(row))
    change(sheet, workbook)
    buffer = io.BytesIO()
    workbook.save(buffer)
    return buffer.getvalue()


def found_in(rows: Sequence[Sequence[Any]]) -> list[tuple[str, str]]:
    return [(pair.question, pair.answer_text) for pair in extract(book(rows)).pairs]


def test_values_are_what_a_person_sees() -> None:
    rows: list[list[Any]] = [
        ["#", "Question", "Answer", "Date added", "Weight"],
        [1, "How many?", 12, date(2024, 5, 22), 0.5],
        [2, "Really?", True, datetime(2024, 5, 22), 3.0],
    ]
    first, second = extract(book(rows)).pairs
    assert (first.id_token, first.answer_text, first.metadata) == ("1", "12", {"Weight": "0.5"})
    assert first.valid_from == datetime(2024, 5, 22, tzinfo=UTC) == second.valid_from
    assert (second.answer_text, second.metadata) == ("TRUE", {"Weight": "3"})


def test_a_title_above_gaps_within_and_a_column_without_a_name() -> None:
    rows = [["Our answers"], [], ["Question", "", "Answer"], ["Why?", "note", "So."], [], ["How?", "", "Thus."]]
    found = extract(book(rows))
    assert [(pair.question, pair.answer_text, pair.metadata) for pair in found.pairs] == [
        ("Why?", "So.", {"column 2": "note"}),
        ("How?", "Thus.", {}),
    ]
    assert found.losses.rules == {"table_title": 11, "table_header": 14}


def test_several_tables_on_a_sheet() -> None:
    rows = [[*HEADER, ""], ["Why?", "So.", ""], ["", *HEADER], ["", "How?", "Thus."]]
    assert found_in(rows) == [("Why?", "So."), ("How?", "Thus.")]


@pytest.mark.parametrize("state", ["hidden", "veryHidden"])
def test_hidden_sheets_are_left_out_and_told(state: str) -> None:
    def hide(_: Worksheet, workbook: Workbook) -> None:
        secret = workbook.create_sheet("Secret")
        secret.append(HEADER)
        secret.append(["Who?", "Nobody."])
        secret.sheet_state = state

    found = extract(book([HEADER, ["Why?", "So."]], hide))
    assert [pair.question for pair in found.pairs] == ["Why?"]
    assert (found.notices[0].place.sheet, found.losses.rules["hidden_sheet"]) == ("Secret", 25)


def test_merged_cells() -> None:
    def merge(sheet: Worksheet, _: Workbook) -> None:
        sheet.merge_cells("A2:C2")
        sheet.merge_cells("C3:C4")

    rows: list[list[Any]] = [
        ["Section", *HEADER],
        ["Access", None, None],
        ["", "Who?", "Staff."],
        ["", "Whose?", None],
        ["", "Why?", "So."],
    ]
    found = extract(book(rows, merge))
    assert [(pair.question, pair.answer_text, pair.place.section_path) for pair in found.pairs] == [
        ("Who?", "Staff.", ("Access",)),
        ("Whose?", "Staff.", ("Access",)),
        ("Why?", "So.", ("Access",)),
    ]


def test_line_ends_however_they_are_written() -> None:
    plain = extract(book([HEADER, ["Why?", "One\nTwo"]])).pairs
    for text in ("One\r\nTwo", "One_x000D_\nTwo"):
        assert extract(book([HEADER, ["Why?", text]])).pairs == plain


@pytest.mark.parametrize(
    "answer",
    [
        '<r><t xml:space="preserve">So </t></r><r><rPr><b/></rPr><t>it is.</t></r>',
        '<t xml:space="preserve">So </t><r><rPr><b/></rPr><t>it is.</t></r>',
    ],
)
def test_plain_text_before_a_rich_run_is_kept(answer: str) -> None:
    strings = (
        '<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
        "<si><t>Question</t></si><si><t>Answer</t></si><si><t>Why?</t></si>"
        f"<si>{answer}</si></sst>"
    )
    cells = [("A1", 0), ("B1", 1), ("A2", 2), ("B2", 3)]
    rows = "".join(
        f'<row r="{n}">'
        + "".join(f'<c r="{at}" t="s"><v>{s}</v></c>' for at, s in cells if at.endswith(str(n)))
        + "</row>"
        for n in (1, 2)
    )
    assert extract(workbook_of(rows, strings)).pairs[0].answer_text == "So it is."


def workbook_of(rows: str, strings: str = "") -> bytes:
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    rel = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    pkg = "http://schemas.openxmlformats.org/package/2006"
    relations = "".join(
        f'<Relationship Id="r{n}" Type="{rel}/{kind}" Target="{target}"/>'
        for n, (kind, target) in enumerate(
            [("worksheet", "worksheets/sheet1.xml"), ("sharedStrings", "sharedStrings.xml")]
        )
    )
    return package(
        {
            "[Content_Types].xml": f'<Types xmlns="{pkg}/content-types"/>',
            "_rels/.rels": f'<Relationships xmlns="{pkg}/relationships"><Relationship Id="r" '
            f'Type="{rel}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
            "xl/workbook.xml": f'<workbook {main} xmlns:r="{rel}"><sheets>'
            '<sheet name="S" sheetId="1" r:id="r0"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{pkg}/relationships">{relations}</Relationships>',
            "xl/sharedStrings.xml": strings or f"<sst {main}/>",
            "xl/worksheets/sheet1.xml": f"<worksheet {main}><sheetData>{rows}</sheetData></worksheet>",
        }
    )


FAR = '<row r="1048576"><c r="XFD1048576" t="inlineStr"><is><t>far</t></is></c></row>'
COLUMNS = (f"{a}{b}{c}" for a in "ABC" for b in "ABCDEFGHIJ" for c in "AZ")
WIDE = '<row r="1">' + "".join(f'<c r="{column}1"><v>1</v></c>' for column in COLUMNS) + "</row>"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"no zip", "no_package"),
        (bytes.fromhex("d0cf11e0a1b11ae1") + b"\0" * 600, "encrypted_or_legacy"),
        (package({"a": "b"}), "bad_workbook"),
        (workbook_of(FAR), "too_large"),
        (workbook_of(WIDE), "too_large"),
        (workbook_of(""), "no_tables"),
        (package({"xl/worksheets/sheet1.xml": b"<a>" + b"0" * 8_000_000}), "zip_bomb"),
    ],
)
def test_what_is_no_workbook_or_too_much_is_refused_with_a_code(content: bytes, code: str) -> None:
    with pytest.raises(FileRejected) as refused:
        extract(content)
    assert refused.value.code == code


# --- separated text -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        'Question,Answer\n"Why, oh why?","So, and so."\n',
        'Question;Answer\n"Why, oh why?";So, and so.\n',
        "Question\tAnswer\nWhy, oh why?\tSo, and so.\n",
        "Question|Answer|\nWhy, oh why?|So, and so.|\n",
        '\ufeffQuestion,Answer\r\n"Why, oh why?","So, and so."\r\n',
    ],
)
def test_separators(text: str) -> None:
    found = extract(text.encode(), "answers.csv")
    assert [(pair.question, pair.answer_text) for pair in found.pairs] == [("Why, oh why?", "So, and so.")]


def test_a_line_break_in_quotes() -> None:
    assert extract(b'Question,Answer\n"Why?","One\nTwo"\n', "a.csv").pairs[0].answer_text == "One\nTwo"


@pytest.mark.parametrize(
    "text", ["Question,Answer\nWhy, oh why?,So.\n", "Just prose.\nMore of it.\n", "", '"open,quote\n']
)
def test_what_makes_no_columns_is_refused(text: str) -> None:
    with pytest.raises(FileRejected) as refused:
        extract(text.encode(), "a.csv")
    assert refused.value.code == "bad_csv"


VALUE = st.sampled_from(["", "Question", "Answer", "Why?", "So it is.", "Access", "#", 1, 2.5, True])


@given(st.lists(st.lists(VALUE, max_size=4), max_size=6))
def test_nothing_is_lost(rows: list[list[Any]]) -> None:
    try:
        extract(book(rows))
    except FileRejected as refused:
        assert refused.code == "no_tables"  # noqa: PT017


# --- real files -----------------------------------------------------------------------------------------------

PAIRS_AND_REJECTS = {
    "04-asvs-xlsx/ASVS-excel-v3.0.1.xlsx": (0, 2),
    "15-fixtures/docling/xlsx_05_table_with_title.xlsx": (0, 1),
    "15-fixtures/docling/xlsx_06_edge_cases_.xlsx": (9, 3),
    "15-fixtures/docling/xlsx_07_gap_tolerance_.xlsx": (0, 1),
    "15-fixtures/docling/xlsx_09_section_label_header.xlsx": (0, 1),
    "15-fixtures/unstructured/vodafone.xlsx": (0, 1),
    "15-fixtures/unstructured/xlsx-subtable-cases.xlsx": (0, 1),
}


@needs_data
@pytest.mark.parametrize(("path", "expected"), PAIRS_AND_REJECTS.items())
def test_real_workbooks(path: str, expected: tuple[int, int]) -> None:
    found = extract((SHARED / path).read_bytes())
    assert (len(found.pairs), len(found.rejects)) == expected


@needs_data
def test_a_workbook_with_a_password_is_refused() -> None:
    with pytest.raises(FileRejected, match="encrypted_or_legacy"):
        extract((SHARED / "15-fixtures/unstructured/password_protected.xlsx").read_bytes())
