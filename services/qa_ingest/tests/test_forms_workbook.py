"""Forms in Excel: which cells wait for an answer, and that a filled form differs in those cells alone."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import openpyxl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openpyxl.comments import Comment
from openpyxl.formatting.rule import CellIsRule
from openpyxl.styles import Alignment, Font, Protection
from openpyxl.worksheet.datavalidation import DataValidation
from openpyxl.worksheet.worksheet import Worksheet
from python_calamine import CalamineWorkbook

from services.qa_ingest.documents import sheets
from services.qa_ingest.documents.package import Refused
from services.qa_ingest.forms.base import Outcome, Slot
from services.qa_ingest.forms.workbook import FORMAT, MAX_LINE_BREAKS
from services.qa_ingest.tests.office import package

SHEET = "xl/worksheets/sheet1.xml"


def saved(book: openpyxl.Workbook) -> bytes:
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def book(*rows: Sequence[Any]) -> bytes:
    made, sheet = new()
    for number, row in enumerate(rows, start=1):
        for column, value in enumerate(row, start=1):
            cell = sheet.cell(number, column, value)
            cell.alignment = Alignment(wrap_text=True)  # so that an empty cell is written too
    return saved(made)


def new() -> tuple[openpyxl.Workbook, Worksheet]:
    made = openpyxl.Workbook()
    return made, sheet_of(made)


def sheet_of(made: openpyxl.Workbook) -> Worksheet:
    assert isinstance(made.active, Worksheet)
    return made.active


def opened(content: bytes) -> Worksheet:
    return sheet_of(openpyxl.load_workbook(io.BytesIO(content)))


MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
REL = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
EXCEL = "application/vnd.openxmlformats-officedocument.spreadsheetml"
TYPES = (
    f'<Types xmlns="{PACKAGE}/content-types"><Default Extension="xml" ContentType="{EXCEL}.sheet.main+xml"/>'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    f'<Override PartName="/{SHEET}" ContentType="{EXCEL}.worksheet+xml"/></Types>'
)


def related(kind: str, target: str) -> str:
    relation = f'<Relationship Id="r1" Type="{REL}/{kind}" Target="{target}"/>'
    return f'<Relationships xmlns="{PACKAGE}/relationships">{relation}</Relationships>'


def raw(rows: str, *, more: Mapping[str, str] | None = None) -> bytes:
    """A workbook of one sheet with this XML for its rows."""
    listed = '<sheets><sheet name="S" sheetId="1" r:id="r1"/></sheets>'
    return package(
        {
            "[Content_Types].xml": TYPES,
            "_rels/.rels": related("officeDocument", "xl/workbook.xml"),
            "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{REL}">{listed}</workbook>',
            "xl/_rels/workbook.xml.rels": related("worksheet", "worksheets/sheet1.xml"),
            SHEET: f'<worksheet xmlns="{MAIN}"><sheetData>{rows}</sheetData></worksheet>',
            **(more or {}),
        }
    )


def text(place: str, said: str) -> str:
    return f'<c r="{place}" t="inlineStr"><is><t>{said}</t></is></c>'


def slots(content: bytes) -> list[Slot]:
    return list(FORMAT.read(content).slots)


def seen(content: bytes) -> list[tuple[str, str, str]]:
    return [(slot.question, slot.place, slot.state) for slot in slots(content)]


def filled(content: bytes, answers: Mapping[int, str]) -> tuple[bytes, Mapping[int, Outcome]]:
    """The filled form, after a look at every part that must be as it was."""
    made, outcomes = FORMAT.fill(content, answers)
    before, after = zipfile.ZipFile(io.BytesIO(content)), zipfile.ZipFile(io.BytesIO(made))
    assert [info.filename for info in before.infolist()] == [info.filename for info in after.infolist()]
    assert [info.date_time for info in before.infolist()] == [info.date_time for info in after.infolist()]
    for name in before.namelist():
        if not name.startswith("xl/worksheets/sheet"):
            assert before.read(name) == after.read(name), name
        else:
            assert without_answers(before.read(name)) == without_answers(after.read(name)), name
    return made, outcomes


def without_answers(sheet: bytes) -> bytes:
    """A sheet without its empty and its inline cells, and without the rows that hold nothing else."""
    sheet = re.sub(
        rb'<c [^>]*t="inlineStr"[^>]*><is><t xml:space="preserve">.*?</t></is></c>', b"", sheet, flags=re.DOTALL
    )
    sheet = re.sub(rb"<c\b[^>]*/>|<c\b[^>]*></c>", b"", sheet)
    return re.sub(rb"<row\b[^>]*(?:/>|></row>)", b"", sheet)


def values(content: bytes) -> list[list[Any]]:
    return [[cell.value for cell in row] for row in opened(content).rows]


def test_the_column_named_for_answers_is_filled_where_it_is_empty() -> None:
    form = book(
        ["No", "Question", "Your response"], [1, "Do you encrypt?", None], [2, "Where is the data?", "In the EU"]
    )
    assert seen(form) == [("Do you encrypt?", "Sheet!C2", "open"), ("Where is the data?", "Sheet!C3", "closed")]
    made, outcomes = filled(form, {0: "Yes.\nAES.", 1: "Nowhere"})
    assert outcomes == {0: "filled"}
    assert values(made)[1:] == [[1, "Do you encrypt?", "Yes.\nAES."], [2, "Where is the data?", "In the EU"]]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # beside, without any header
        ([["Company name:", None], ["Who is responsible?", None]], ["B1", "B2"]),
        # below: nothing beside, the row under it is free
        ([["How do you log?"], [None], ["Who reads the logs?"], [None]], ["A2", "A4"]),
        # the column that nothing else uses
        (
            [
                ["Ref", "Requirement", "Source", None],
                ["1", "Data is encrypted", "ISO", None],
                ["2", "Logs", None, None],
            ],
            ["D2", "D3"],
        ),
        # two columns for answers: the one that is called so, not the comments
        ([["Question", "Comments", "Answer"], ["Why?", None, None]], ["C2"]),
        # a title above the header, a row that heads others, a second header
        (
            [["Security form", None], ["Question", "Answer"], ["Why?", None], ["Question", "Answer"], ["How?", None]],
            ["B3", "B5"],
        ),
        # a column with a name of its own is used where it is the only one, and free: levels to tick are not
        (
            [["Requirement", "No", "Status quo"], ["Data is encrypted", 1, None], ["Logs are kept", 2, None]],
            ["C2", "C3"],
        ),
        ([["Requirement", "No", "Level 1", "Level 2"], ["Data is encrypted", 1, None, None]], []),
        # nothing asks
        ([["Name", "Price"], ["Pen", 2]], []),
    ],
)
def test_where_answers_go(rows: Sequence[Sequence[Any]], expected: Sequence[str]) -> None:
    form = book(*rows)
    found = [slot.place.removeprefix("Sheet!") for slot in slots(form) if slot.state == "open"]
    assert found == list(expected)
    made, _ = filled(form, dict.fromkeys(range(len(found)), "So."))
    sheet = opened(made)
    assert [cell.coordinate for row in sheet.rows for cell in row if cell.value == "So."] == list(expected)


def test_text_is_never_a_formula_and_comes_back_as_it_was() -> None:
    said = "=HYPERLINK(\"http://x.example\")\n<b> & ]]> _x000D_ \t'quoted' “ü” 😀 end "
    made, _ = filled(book(["Question", "Answer"], ["Why?", None]), {0: said + "\x00\x0b\x1f\ufffe"})
    cell = opened(made)["B2"]
    assert cell.data_type == "s"
    # openpyxl leaves `_x005F_` as it is; calamine resolves it, as Excel does
    assert CalamineWorkbook.from_filelike(io.BytesIO(made)).get_sheet_by_index(0).to_python()[1][1] == said
    assert b"<f" not in zipfile.ZipFile(io.BytesIO(made)).read(SHEET)


def test_what_does_not_fit_a_cell_is_left_out_whole() -> None:
    form = book(["Question", "Answer"], ["A?", None], ["B?", None], ["C?", None], ["D?", None])
    most = "😀" * 16_383 + "x"
    many = "\n" * MAX_LINE_BREAKS
    made, outcomes = filled(form, {0: most, 1: most + "y", 2: f"a{many}b", 3: f"a{many}\nb"})
    assert outcomes == {0: "filled", 1: "too_long", 2: "filled", 3: "too_long"}
    assert [row[1] for row in values(made)[1:]] == [most, None, f"a{many}b", None]


def test_styles_formulas_comments_validations_and_macros_stay() -> None:
    made, sheet = new()
    sheet.append(["Question", "Answer", "Sum"])
    sheet.append(["Why?", None, "=1+1"])
    sheet.append(["How?", "=A1", None])
    sheet["B2"].font = Font(bold=True, name="Courier New")
    sheet["A2"].comment = Comment("mind this", "a")
    listed = DataValidation(type="list", formula1='"a,b"')
    sheet.add_data_validation(listed)
    listed.add("C3")
    rule = CellIsRule(operator="equal", formula=["1"])  # type: ignore[no-untyped-call]
    sheet.conditional_formatting.add("B2:B3", rule)
    made.create_sheet("Hidden").sheet_state = "hidden"
    made["Hidden"].append(["Question", "Answer"])
    made["Hidden"].append(["Secret?", None])
    form = saved(made)
    with_macro = io.BytesIO(form)
    with zipfile.ZipFile(with_macro, "a") as archive:
        archive.writestr("xl/vbaProject.bin", b"\xd0\xcf\x11\xe0 macro")
    form = with_macro.getvalue()
    assert seen(form) == [("Why?", "Sheet!B2", "open"), ("How?", "Sheet!B3", "closed")]
    assert FORMAT.read(form).notices == ("a hidden sheet is left out",)
    after, _ = filled(form, {0: "So."})
    back = opened(after)
    assert (back["B2"].value, back["B2"].font.name, back["B2"].font.b) == ("So.", "Courier New", True)
    assert (back["B3"].value, back["C2"].value, back["A2"].comment.text) == ("=A1", "=1+1", "mind this")


def test_a_list_takes_its_values_alone() -> None:
    made, sheet = new()
    sheet.append(["Question", "Answer", None, "Yes"])
    for question in ("A?", "B?", "C?", "D?"):
        sheet.append([question, None, None, {"A?": "No", "B?": "Not applicable"}.get(question)])
    for formula, cell in (('"Yes,No,Not applicable"', "B2"), ("$D$1:$D$3", "B3"), ("Elsewhere", "B4")):
        listed = DataValidation(type="list", formula1=formula)
        sheet.add_data_validation(listed)
        listed.add(cell)
    form = saved(made)
    found = slots(form)
    assert [slot.options for slot in found] == [("Yes", "No", "Not applicable")] * 2 + [(), ()]
    assert [slot.state for slot in found] == ["open", "open", "closed", "open"]
    after, outcomes = filled(form, {0: "yes, always", 1: "Nothing of it", 2: "Yes", 3: "Yes, always"})
    assert outcomes == {0: "filled", 1: "not_an_option", 3: "filled"}
    assert [row[1] for row in values(after)[1:]] == ["Yes", None, None, "Yes, always"]


def test_locked_cells_stay_empty() -> None:
    made, sheet = new()
    sheet.append(["Question", "Answer"])
    sheet.append(["A?", None])
    sheet.append(["B?", None])
    sheet["B3"].protection = Protection(locked=False)
    sheet.protection.sheet = True
    assert [slot.state for slot in slots(saved(made))] == ["closed", "open"]


def test_a_new_cell_takes_the_style_of_its_row_or_column() -> None:
    header = f'<row r="1">{text("A1", "Question")}{text("B1", "Answer")}{text("C1", "Id")}</row>'
    rows = (
        f'<row r="2" s="1" customFormat="1">{text("A2", "Why?")}</row>'
        f'<row r="3">{text("A3", "How?")}{text("C3", "7")}</row><row r="4"/>'
    )
    form = raw(header + rows)
    assert seen(form) == [("Why?", "S!B2", "open"), ("How?", "S!B3", "open")]
    made, _ = FORMAT.fill(form, {0: "So.", 1: "Thus."})
    xml = zipfile.ZipFile(io.BytesIO(made)).read(SHEET).decode()
    inline = '{}t="inlineStr"><is><t xml:space="preserve">{}</t></is></c>'
    first, second = '<c r="B2" s="1" ' + inline.format("", "So."), '<c r="B3" ' + inline.format("", "Thus.")
    assert (
        header
        + rows.replace("Why?</t></is></c>", "Why?</t></is></c>" + first).replace(
            "How?</t></is></c>", "How?</t></is></c>" + second
        )
        in xml
    )


def test_prefixes_cells_without_a_place_and_empty_rows() -> None:
    rows = (
        '<x:row><x:c t="inlineStr"><x:is><x:t>What do you log?</x:t></x:is></x:c></x:row>'
        '<x:row/><x:row><x:c t="inlineStr"><x:is><x:t>Why?</x:t></x:is></x:c></x:row><x:row><x:c t="s"/></x:row>'
    )
    declared = '<?xml version="1.0" encoding="UTF-8"?>\n'
    sheet = f'{declared}<x:worksheet xmlns:x="{MAIN}"><x:sheetData>{rows}</x:sheetData></x:worksheet>'
    form = raw("", more={SHEET: sheet})
    assert seen(form) == [("What do you log?", "S!A2", "open"), ("Why?", "S!A4", "open")]
    made, _ = FORMAT.fill(form, {0: "All.", 1: "So."})
    (read,) = sheets.workbook(made)
    assert [row[0] for row in read.rows] == ["What do you log?", "All.", "Why?", "So."]
    after = zipfile.ZipFile(io.BytesIO(made)).read(SHEET).decode()
    cell = '<x:is><x:t xml:space="preserve">{}</x:t></x:is></x:c>'
    assert after == sheet.replace(
        "<x:row/>", '<x:row><x:c r="A2" t="inlineStr">' + cell.format("All.") + "</x:row>"
    ).replace('<x:c t="s"/>', '<x:c t="inlineStr">' + cell.format("So."))


def test_a_merged_answer_cell_is_filled_at_its_corner() -> None:
    made, sheet = new()
    sheet.append(["Question", "Answer", None])
    sheet.append(["A?", None, None])
    sheet.merge_cells("B2:C2")
    sheet.append(["B?", None, None])
    sheet.merge_cells("A3:A4")
    after, _ = filled(saved(made), {0: "So.", 1: "Thus."})
    assert seen(saved(made)) == [("A?", "Sheet!B2", "open"), ("B?", "Sheet!B3", "open")]
    assert [row[1] for row in values(after)] == ["Answer", "So.", "Thus.", None]


def test_signed_workbooks_are_only_read() -> None:
    form = io.BytesIO(book(["Question", "Answer"], ["Why?", None]))
    with zipfile.ZipFile(form, "a") as archive:
        archive.writestr("_xmlsignatures/sig1.xml", "<a/>")
    assert [slot.state for slot in slots(form.getvalue())] == ["closed"]
    assert FORMAT.fill(form.getvalue(), {0: "So."}) == (form.getvalue(), {})


@pytest.mark.parametrize(
    ("sheet", "code"),
    [
        (b'<!DOCTYPE a [<!ENTITY b "c">]><worksheet>&b;</worksheet>', "document_type"),
        ("<worksheet/>".encode("utf-16"), "bad_encoding"),
        (b"<worksheet><sheetData>", "bad_xml"),
    ],
)
def test_what_cannot_be_changed_in_place_is_refused(sheet: bytes, code: str) -> None:
    from services.qa_ingest.documents.positions import located

    with pytest.raises(Refused) as refused:
        located(sheet, "sheet1.xml")
    assert refused.value.code == code


CELLS = st.sampled_from(["", " ", "x", "Why?", "Question", "Answer", "Is it so?", "12", "=1+1", "Name:"])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.lists(CELLS, min_size=1, max_size=4), min_size=1, max_size=6),
    answer=st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)
def test_of_any_table_only_open_cells_change(rows: list[list[str]], answer: str) -> None:
    form = book(*[[value or None for value in row] for row in rows])
    found = slots(form)
    made, outcomes = filled(form, dict.fromkeys(range(len(found)), answer + "!"))
    wanted = {slot.place.removeprefix("Sheet!") for slot in found if slot.state == "open"}
    assert len(wanted) == len(outcomes)
    before, after = opened(form), opened(made)
    for row in range(1, len(rows) + 2):
        for column in range(1, 7):
            cell = before.cell(row, column)
            if cell.coordinate in wanted:
                assert str(cell.value or "").strip() == ""
                assert after.cell(row, column).value is not None
            else:
                assert after.cell(row, column).value == cell.value
