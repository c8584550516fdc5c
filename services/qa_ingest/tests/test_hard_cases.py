"""Every row of the list of hard inputs, with siblings of its kind in other layouts; `ROWS` says where each is tested.

Expected pairs, reasons and counts are written by hand. Rows of buckets, search, MCP and forms are tested there.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from openpyxl import Workbook
from openpyxl.worksheet.worksheet import Worksheet

from services.qa_ingest.domain.changes import content_sha256
from services.qa_ingest.domain.envelope import Envelope, Extracted
from services.qa_ingest.extractors import named
from services.qa_ingest.extractors.base import File, FileRejected
from services.qa_ingest.tests.office import (
    cell,
    control,
    deleted,
    heading,
    inserted,
    item,
    par,
    row,
    run,
    table,
    word,
)

HERE = "test_hard_cases"
# Row of the list: the tests of its own example, and then those of its siblings.
ROWS: dict[int, tuple[str, ...]] = {
    1: ("test_docx.test_rows_that_head_others_give_the_section", f"{HERE}.test_1_a_row_merged_over_all_columns"),
    3: ("test_docx.test_a_merged_category_is_filled_down", f"{HERE}.test_3_categories_beside_several_rows"),
    4: (
        "test_docx.test_tracked_changes_are_accepted_and_the_pair_marked",
        f"{HERE}.test_4_tracked_changes_wherever_they_are",
    ),
    5: ("test_docx.test_inserted_and_deleted_paragraphs_and_rows", f"{HERE}.test_5_what_was_inserted_whole_is_there"),
    6: (
        "test_docx.test_cells_in_content_controls_do_not_shift_columns",
        f"{HERE}.test_6_controls_round_cells_shift_nothing",
    ),
    7: ("test_docx.test_values_of_controls_are_kept_and_prompts_are_not", f"{HERE}.test_7_and_9_values_of_controls"),
    9: ("test_docx.test_values_of_controls_are_kept_and_prompts_are_not", f"{HERE}.test_7_and_9_values_of_controls"),
    10: (
        "test_docx.test_lists_and_tables_in_an_answer_are_markdown",
        f"{HERE}.test_10_a_table_in_a_cell_stays_in_that_cell",
    ),
    11: ("test_docx.test_a_frame_of_one_cell_round_the_table", f"{HERE}.test_11_frames_round_the_table"),
    13: ("test_docx.test_rows_that_head_others_give_the_section", f"{HERE}.test_13_rows_that_only_label"),
    14: ("test_docx.test_a_table_that_goes_on_without_a_header", f"{HERE}.test_14_a_table_in_pieces"),
    16: ("test_docx.test_a_header_again_in_the_middle", f"{HERE}.test_16_headers_that_come_again"),
    17: ("test_docx.test_lists_and_tables_in_an_answer_are_markdown", f"{HERE}.test_17_lists_in_cells"),
    18: ("test_sandbox.test_a_bomb_costs_next_to_nothing", "test_hostile.test_refused_at_once_in_bounded_memory"),
    19: ("test_xlsx.test_hidden_sheets_are_left_out_and_told", f"{HERE}.test_19_hidden_sheets_only"),
    21: ("test_xlsx.test_merged_cells", f"{HERE}.test_21_answers_beside_several_rows"),
    22: ("test_xlsx.test_separators", f"{HERE}.test_22_separators_within_texts"),
    24: ("test_xlsx.test_line_ends_however_they_are_written", f"{HERE}.test_24_line_ends_make_no_difference"),
    25: ("test_xlsx.test_plain_text_before_a_rich_run_is_kept", f"{HERE}.test_25_rich_text_is_read_whole"),
    27: ("test_bundle.test_rules_in_an_answer_stay_in_it", f"{HERE}.test_27_rules_in_answers"),
    28: ("test_bundle.test_metadata_needs_no_blank_lines_around_it", f"{HERE}.test_28_metadata_right_above_a_rule"),
    29: ("test_bundle.test_only_comments_are_no_pair_and_a_warning", f"{HERE}.test_29_blocks_that_say_nothing"),
    30: ("test_bundle.test_a_byte_order_mark_and_other_line_ends", f"{HERE}.test_30_byte_order_marks"),
    32: (
        "test_bundle.test_a_mistake_names_its_line_and_what_would_be_right",
        f"{HERE}.test_32_keys_that_are_there_twice",
    ),
    33: (
        "test_bundle.test_a_date_is_the_same_instant_however_it_is_written",
        f"{HERE}.test_33_dates_of_every_shape",
    ),
    34: (
        "test_bundle.test_words_that_yaml_would_turn_into_something_else_stay_words",
        f"{HERE}.test_34_words_stay_words",
    ),
}
OF_OTHERS = {35, 36, 37, 39, 40, 42, 43, 44, 46, 47, 48, 51, 52, 53}
"""Rows of buckets, search, MCP and forms."""


def test_every_row_has_its_test() -> None:
    for row_number, tests in ROWS.items():
        for told in tests:
            module, name = told.split(".")
            found = importlib.import_module(f"services.qa_ingest.tests.{module}")
            assert callable(getattr(found, name, None)), f"row {row_number}: {told}"
    assert not set(ROWS) & OF_OTHERS
    assert len(ROWS) + len(OF_OTHERS) == 40


HEADER = ["Question", "Answer"]
Told = tuple[str, str]


def extract(content: bytes, name: str = "a.docx", kind: str = "docx_pattern_a") -> Extracted:
    return named(kind).extract(File(name, content))


def pairs(found: Extracted) -> list[Told]:
    return [(pair.question, pair.answer_standard) for pair in found.pairs]


def in_word(*body: str) -> list[Told]:
    return pairs(extract(word(*body)))


def only(*body: str) -> Envelope:
    (pair,) = extract(word(*body)).pairs
    return pair


def sections(found: Extracted) -> list[tuple[str, tuple[str, ...]]]:
    return [(pair.question, pair.place.section_path) for pair in found.pairs]


def book(rows: list[list[Any]], change: Callable[[Worksheet, Workbook], None] | None = None) -> Extracted:
    workbook = Workbook()
    sheet = workbook.worksheets[0]
    for cells in rows:
        sheet.append(cells)
    if change:
        change(sheet, workbook)
    buffer = io.BytesIO()
    workbook.save(buffer)
    return extract(buffer.getvalue(), "a.xlsx", "xlsx_table_v1")


def separated(text: str, name: str = "a.csv") -> list[Told]:
    return pairs(extract(text.encode(), name, "xlsx_table_v1"))


def bundle(text: str | bytes) -> Extracted:
    content = text.encode() if isinstance(text, str) else text
    return extract(content, "a.md", "yaml_frontmatter_v1")


def refusals(text: str) -> list[str]:
    with pytest.raises(FileRejected) as refused:
        bundle(text)
    return list(map(str, refused.value.problems))


def block(metadata: str, body: str = "An answer.") -> str:
    return f"---\n{metadata}\n---\n{body}\n"


# --- Word: what a row is ----------------------------------------------------------------------------------------


def test_1_a_row_merged_over_all_columns() -> None:
    header = ["No.", "Question", "Answer", "Source"]
    found = extract(
        word(
            table(
                row(cell("Our answers", span=4)),  # above the header: the table's title
                header,
                row(cell("Who are we?", span=4)),  # a merged row heads others, even where it asks
                ["1", "Name?", "Example Ltd, since 1999.", "Web"],
                row("", cell("Access", span=3)),  # over all but the column of numbers
                ["2", "Who has access?", "The staff only.", ""],
                row(cell("Data", merge=""), cell("", span=3)),  # in the first, the rest merged and empty
                ["3", "Where is it?", "In our data centre.", ""],
                row(cell("Last")),  # a row of one cell only
                ["4", "Anything else?", "Nothing else at all.", ""],
            )
        )
    )
    assert sections(found) == [
        ("Name?", ("Who are we?",)),
        ("Who has access?", ("Access",)),
        ("Where is it?", ("Data",)),
        ("Anything else?", ("Last",)),
    ]
    assert found.rejects == ()
    assert found.losses.rules == {
        "table_title": len("Our answers"),
        "table_header": len("No.QuestionAnswerSource"),
        "section_label": len("Who are we?AccessDataLast"),
    }


def test_1_a_long_text_over_all_columns_is_no_section() -> None:
    note = "Please read this note before the rest. " * 20
    found = extract(word(table(HEADER, row(cell(note, span=2)), ["Why?", "Because it is so."])))
    assert sections(found) == [("Why?", ())]
    assert [(reject.reason, reject.characters) for reject in found.rejects] == [("note", len(note))]


def test_1_in_a_workbook() -> None:
    def merge(sheet: Worksheet, _: Workbook) -> None:
        sheet.merge_cells("A1:C1")
        sheet.merge_cells("A3:C3")

    rows: list[list[Any]] = [["Our answers"], ["Id", *HEADER], ["Access"], [1, "Who?", "The staff, nobody else."]]
    found = book(rows, merge)
    assert sections(found) == [("Who?", ("Access",))]
    assert found.losses.rules == {"table_title": 11, "table_header": 16, "section_label": 6}


def test_3_categories_beside_several_rows() -> None:
    body = table(
        ["Category", "Sub-category", "Question", "Answer"],
        row(cell("Access", merge="restart"), cell("People", merge="restart"), "Who?", "The staff alone."),
        row(cell(merge="continue"), cell(merge="continue"), "When?", "At any time of day."),
        row(cell(merge="continue"), cell("Doors", merge="restart"), "Where?", "At the front only."),
        row(cell("Data", merge="restart"), cell("", merge="restart"), "What?", "Names and addresses."),
    )
    assert sections(extract(word(heading(1, "Form"), body))) == [
        ("Who?", ("Form", "Access", "People")),
        ("When?", ("Form", "Access", "People")),
        ("Where?", ("Form", "Access", "Doors")),
        ("What?", ("Form", "Data")),
    ]


def test_3_a_category_in_a_workbook() -> None:
    def merge(sheet: Worksheet, _: Workbook) -> None:
        sheet.merge_cells("A2:A3")

    rows: list[list[Any]] = [
        ["Section", *HEADER],
        ["Access", "Who?", "Staff."],
        [None, "When?", "Always."],
        ["Data", "What?", "Names."],
    ]
    assert sections(book(rows, merge)) == [("Who?", ("Access",)), ("When?", ("Access",)), ("What?", ("Data",))]


def test_13_rows_that_only_label() -> None:
    found = extract(
        word(
            table(
                ["Ref", "Question", "Answer"],
                ["1", "Company", ""],  # its numbers go on below: 1, then 1.1
                ["1.1", "What is its name?", "Example Limited, UK."],
                ["1.2", "Turnover last year", ""],  # a question that nobody answered
                ["", "Security", ""],
                ["2.1", "Is data encrypted?", "Yes, always and everywhere."],
                ["3 Hosting", "", ""],
                ["3.1", "Where is it hosted?", "In two places in Wales."],
            )
        )
    )
    assert sections(found) == [
        ("What is its name?", ("Company",)),
        ("Is data encrypted?", ("Security",)),
        ("Where is it hosted?", ("3 Hosting",)),
    ]
    assert [(reject.reason, reject.place.row_index) for reject in found.rejects] == [("no_answer", 3)]


def test_14_a_table_in_pieces() -> None:
    page = '<w:p><w:r><w:br w:type="page"/></w:r></w:p>'
    found = extract(
        word(
            table(HEADER, ["One?", "First of all."]),
            page,
            table(["Two?", "Second of all."]),
            par("Table 1 (continued)"),
            table(["Three?", "Third of all."]),
            heading(2, "Security"),
            table(["Is it safe?", "Fourth of all."], ["Is it sound?", "Fifth of all."]),
        )
    )
    assert [(pair.ordinal, pair.place.table_index, pair.question) for pair in found.pairs] == [
        (0, 0, "One?"),
        (1, 1, "Two?"),
        (2, 2, "Three?"),
        (3, 3, "Is it safe?"),
        (4, 3, "Is it sound?"),
    ]
    assert found.pairs[3].place.section_path == ("Security",)


def test_14_another_table_below_inherits_nothing() -> None:
    found = extract(
        word(
            table(HEADER, ["One?", "First of all."]),
            heading(2, "Prices"),
            table(["Small", "10"], ["Large", "20"]),
            table(["a", "b", "c"]),
        )
    )
    assert pairs(found) == [("One?", "First of all.")]
    assert [reject.reason for reject in found.rejects] == ["no_question_header"] * 2


def test_16_headers_that_come_again() -> None:
    found = extract(
        word(
            table(
                ["Question", "Answer", "Source"],
                ["One?", "First of all.", ""],
                ["QUESTION:", "ANSWER:", "SOURCE:"],
                ["Two?", "Second of all.", ""],
                ["Question (continued)", "Answer (cont'd)", "Source"],
                ["Three?", "Third of all.", ""],
                ["Source", "Question", "Answer"],  # in another order: what is below follows it
                ["Book", "Four?", "Fourth of all."],
            )
        )
    )
    assert pairs(found) == [
        ("One?", "First of all."),
        ("Two?", "Second of all."),
        ("Three?", "Third of all."),
        ("Four?", "Fourth of all."),
    ]
    assert found.pairs[3].citations == ("Book",)
    assert found.rejects == ()


def test_16_a_header_of_two_rows() -> None:
    found = extract(
        word(
            table(
                row(cell("Question", merge="restart"), cell("Answers", span=2)),
                row(cell(merge="continue"), "Standard", "Advanced"),
                ["Why?", "So it is.", "So it is, and more."],
            )
        )
    )
    (pair,) = found.pairs
    assert (pair.answer_standard, pair.answer_advanced) == ("So it is.", "So it is, and more.")


# --- Word: what is in a cell ------------------------------------------------------------------------------------


def test_4_tracked_changes_wherever_they_are() -> None:
    found = extract(
        word(
            table(
                HEADER,
                row(cell(par(run("Keep it "), deleted("how "), inserted(run("for how long?")))), "Thirty days or so."),
                row("In a list?", cell(item("one"), par(inserted(run("two")), properties=NUMBERED))),
                row("In a table?", cell(table(row("a", cell(par(deleted("30"), inserted(run("90")))))), par(""))),
                row("Added, then taken back?", cell(par(run("It stays."), inserted(deleted("It goes."))))),
                row(
                    "A link?",
                    cell(par("<w:hyperlink>" + deleted("old") + inserted(run("new address")) + "</w:hyperlink>")),
                ),
                row("Untouched?", "Nothing was changed here."),
            )
        )
    )
    assert [(pair.question, pair.answer_standard, pair.revised) for pair in found.pairs] == [
        ("Keep it for how long?", "Thirty days or so.", True),
        ("In a list?", "- one\n- two", True),
        ("In a table?", "| a | 90 |\n|---|---|", True),
        ("Added, then taken back?", "It stays.", True),
        ("A link?", "new address", True),
        ("Untouched?", "Nothing was changed here.", False),
    ]
    assert found.losses.rules["tracked_deletion"] == len("how 30It goes.old")


NUMBERED = '<w:numPr><w:ilvl w:val="0"/><w:numId w:val="1"/></w:numPr>'


def test_4_a_column_that_was_deleted_shifts_nothing() -> None:
    gone = "<w:tc><w:tcPr><w:cellDel w:id='1' w:author='a'/></w:tcPr>{}</w:tc>"
    found = extract(
        word(
            table(
                row("Question", gone.format(par(deleted("Old answer"))), "Answer"),
                row("Why?", gone.format(par(deleted("For nothing."))), "Because it is so."),
            )
        )
    )
    assert pairs(found) == [("Why?", "Because it is so.")]
    assert found.losses.rules["tracked_deletion"] == len("Old answerFor nothing.")


def test_5_what_was_inserted_whole_is_there() -> None:
    mark = "<w:rPr><w:ins w:id='3' w:author='a'/></w:rPr>"
    moved = "<w:moveTo w:id='4' w:author='a'>" + run("Moved here.") + "</w:moveTo>"
    body = table(
        row(*HEADER, properties="<w:ins/>"),
        row(
            "All new?",
            cell(par(inserted(run("First.")), properties=mark), par(inserted(run("Second.")), properties=mark)),
        ),
        row("Moved?", cell(par(moved))),
    )
    found = extract(word(inserted(body)))
    assert [(pair.question, pair.answer_standard, pair.revised) for pair in found.pairs] == [
        ("All new?", "First.\n\nSecond.", True),
        ("Moved?", "Moved here.", True),
    ]


def test_6_controls_round_cells_shift_nothing() -> None:
    prompt = "<w:showingPlcHdr/>"
    header = row(control(cell("Question")), "Answer", control(control(cell("Source"))))
    found = extract(
        word(
            table(
                header,
                row("One?", control(cell("First of all.")), "Book"),
                row("Two?", control(control(cell("Second of all."))), control(cell("Web"))),
                row("Three?", cell(control(par("Third of all."))), "Mail"),
                row("Four?", "Fourth of all.", control(cell("Click or tap here."), prompt)),
                row("Five?", control(cell("Click or tap here."), prompt), "Phone"),
                row("Six?", cell(control(par("Click or tap here."), prompt)), "Fax"),
            )
        )
    )
    assert [(pair.question, pair.answer_standard, pair.citations) for pair in found.pairs] == [
        ("One?", "First of all.", ("Book",)),
        ("Two?", "Second of all.", ("Web",)),
        ("Three?", "Third of all.", ("Mail",)),
        ("Four?", "Fourth of all.", ()),
    ]
    assert [(reject.reason, reject.place.row_index) for reject in found.rejects] == [("no_answer", 5), ("no_answer", 6)]
    assert found.losses.rules["placeholder"] == 3 * len("Click or tap here.")


def test_7_and_9_values_of_controls() -> None:
    combo = control(run("Quarterly"), "<w:comboBox><w:listItem w:value='q'/></w:comboBox>")
    entries = '<w:listEntry w:val="No"/><w:listEntry w:val="Yes"/>'
    chosen = f'<w:ffData><w:ddList><w:result w:val="1"/>{entries}</w:ddList></w:ffData>'
    legacy = (
        f'<w:r><w:fldChar w:fldCharType="begin">{chosen}</w:fldChar></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r>'
    )
    day = control(cell("1 May 2024"), '<w:date w:fullDate="2024-05-01T00:00:00Z"/>')
    found = extract(
        word(
            table(
                ["Question", "Answer", "Date added"],
                row("How often?", cell(par(run("It is "), combo, run("."))), day),
                row("Is it so?", cell(par(legacy, run(", it is."))), "2024-05-02"),
                row("Which?", cell(control(par("Chosen from a list"), "<w:dropDownList/>")), ""),
            )
        )
    )
    assert [(pair.question, pair.answer_standard, pair.valid_from) for pair in found.pairs] == [
        ("How often?", "It is Quarterly.", datetime(2024, 5, 1, tzinfo=UTC)),
        ("Is it so?", "Yes, it is.", datetime(2024, 5, 2, tzinfo=UTC)),
        ("Which?", "Chosen from a list", None),
    ]


def test_10_a_table_in_a_cell_stays_in_that_cell() -> None:
    inner = table(HEADER, ["Inner?", "Not a pair."])
    found = extract(
        word(
            table(
                HEADER,
                row("One?", cell(inner, par(""))),
                row("Two?", cell(par("See:"), table(row(cell(table(["deep", "er"]), par("")), "beside")), par("End."))),
                row(cell(table(["in", "the question"]), par("Three?")), "Third of all."),
            )
        )
    )
    assert pairs(found) == [
        ("One?", "| Question | Answer |\n|---|---|\n| Inner? | Not a pair. |"),
        ("Two?", "See:\n\n| \\| deep \\| er \\| \\|---\\|---\\| | beside |\n|---|---|\n\nEnd."),
        ("| in | the question |\n|---|---|\n\nThree?", "Third of all."),
    ]


def test_11_frames_round_the_table() -> None:
    inner = table(HEADER, ["Why?", "Because it is so."])
    expected = [("Why?", "Because it is so.")]
    for frame in (
        table(row(cell(par("Section A: about us"), inner, par("Thank you.")))),  # with text around it
        table(row(cell(inner, par("")), "")),  # with an empty cell beside
        table(row("Logo"), row(cell(inner, par("")))),  # in the second row, below another text
        table(row(cell(table(row(cell(par("Part 1"), inner))), par("")))),  # two frames
        control(table(row(control(cell(inner, par("")))))),  # in content controls
    ):
        assert in_word(frame) == expected
    both = table(row(cell(inner, par(""))), row(cell(table(HEADER, ["How?", "Like this, exactly."]), par(""))))
    assert in_word(both) == [*expected, ("How?", "Like this, exactly.")]


def test_17_lists_in_cells() -> None:
    nested = par("inner", properties='<w:numPr><w:ilvl w:val="1"/><w:numId w:val="1"/></w:numPr>')
    by_style = par("by style", properties='<w:pStyle w:val="ListBullet"/>')
    answer = cell(
        par("These:"), item("outer"), nested, by_style, par("And in order:"), item("first", 2), item("second", 2)
    )
    assert only(table(HEADER, row("Which?", answer))).answer_standard == (
        "These:\n\n- outer\n  - inner\n- by style\n\nAnd in order:\n\n1. first\n1. second"
    )
    assert pairs(book([HEADER, ["Which?", "- one\n- two\n  - three"]])) == [("Which?", "- one\n- two\n  - three")]


# --- workbooks and separated text -------------------------------------------------------------------------------


def test_19_hidden_sheets_only() -> None:
    def hide(sheet: Worksheet, workbook: Workbook) -> None:
        workbook.create_sheet("Seen")
        sheet.sheet_state = "veryHidden"

    with pytest.raises(FileRejected, match="no sheet that is seen has text"):
        book([HEADER, ["Why?", "So."]], hide)


def test_21_answers_beside_several_rows() -> None:
    def merge(sheet: Worksheet, _: Workbook) -> None:
        sheet.merge_cells("B2:B4")  # over three questions
        sheet.merge_cells("B5:C6")  # over two questions and the column beside
        sheet.merge_cells("A8:A9")  # one question beside two answers

    rows: list[list[Any]] = [
        ["Question", "Answer", "Source"],
        ["One?", "All the same.", "a"],
        ["Two?", None, "b"],
        ["Three?", None, None],
        ["Four?", "Over a block."],
        ["Five?"],
        ["Six?", "By itself.", None],
        ["Seven?", "One way.", None],
        [None, "Another way.", None],
    ]
    found = book(rows, merge)
    assert pairs(found) == [
        ("One?", "All the same."),
        ("Two?", "All the same."),
        ("Three?", "All the same."),
        ("Four?", "Over a block."),
        ("Five?", "Over a block."),
        ("Six?", "By itself."),
        ("Seven?", "One way."),
        ("Seven?", "Another way."),
    ]
    assert [pair.place.row_index for pair in found.pairs] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [pair.citations for pair in found.pairs[:5]] == [("a",), ("b",), (), (), ()]


def test_21_a_question_merged_over_its_answer_has_none() -> None:
    found = extract(word(table(["No", *HEADER], ["1", "Who?", "The staff."], row("2", cell("And who else?", span=2)))))
    assert pairs(found) == [("Who?", "The staff.")]
    assert [reject.reason for reject in found.rejects] == ["no_answer"]


@pytest.mark.parametrize(
    "text",
    [
        'Question,Answer\n"Why, oh why, oh why?","So, and so, and so."\n',
        'Question;Answer\n"Why, oh why, oh why?";"So, and so, and so."\n',
        "Question;Answer\nWhy, oh why, oh why?;So, and so, and so.\n",
        'Question\tAnswer\r\n"Why, oh why, oh why?"\tSo, and so, and so.\r\n',
        'Question, Answer\n"Why, oh why, oh why?", "So, and so, and so."\n',
        "sep=;\nQuestion;Answer\nWhy, oh why, oh why?;So, and so, and so.\n",
        'Our answers\n\nQuestion,Answer\n"Why, oh why, oh why?","So, and so, and so."\n',
        "Exported by Kim; 2024\nQuestion;Answer\nWhy, oh why, oh why?;So, and so, and so.\n",
        'Question,Answer,Source\n"Why, oh why, oh why?","So, and so, and so."\n',
        'Question,Answer\n\n"Why, oh why, oh why?","So, and so, and so."\n,\n',
    ],
)
def test_22_separators_within_texts(text: str) -> None:
    assert separated(text) == [("Why, oh why, oh why?", "So, and so, and so.")]


def test_22_quotes_and_lines_within_texts() -> None:
    text = 'Question,Answer\n"Who said ""why, oh why""?","One,\ntwo; three\tfour"\n"Next?",Last\n'
    assert separated(text) == [('Who said "why, oh why"?', "One,\ntwo; three\tfour"), ("Next?", "Last")]


def test_22_commas_without_quotes_are_refused_with_their_line() -> None:
    with pytest.raises(FileRejected, match="line 3 has 3 columns and the header has 2") as refused:
        separated("Question,Answer\nWho?,Me.\nWhy, oh why?,So.\n")
    assert refused.value.code == "bad_csv"


def test_22_quotes_that_can_be_read_in_two_ways_are_refused() -> None:
    assert separated('Question,Answer\nWhich?,The "best" of them.\n') == [("Which?", 'The "best" of them.')]
    with pytest.raises(FileRejected, match="a quote in line 2 can be read in two ways"):
        separated('Question,Answer\nWhat size?,A 5" disk or less.\nWhy?,"So, and so."\n')


def test_24_line_ends_make_no_difference() -> None:
    hashes = {
        content_sha256(pair)
        for text in (
            "One\nTwo\n\nThree",
            "One\r\nTwo\r\n\r\nThree",
            "One_x000D_\nTwo_x000D_\n_x000D_\nThree",
            "One\rTwo\r\rThree",
        )
        for pair in book([HEADER, ["Why?", text]]).pairs
    }
    assert len(hashes) == 1
    csvs = [
        'Question,Answer\n"Why?","One\nTwo"\n',
        'Question,Answer\r\n"Why?","One\r\nTwo"\r\n',
        'Question,Answer\r"Why?","One\rTwo"\r',
    ]
    assert (
        len({content_sha256(pair) for text in csvs for pair in extract(text.encode(), "a.csv", "xlsx_table_v1").pairs})
        == 1
    )
    text = block("question: Why?", "One\nTwo")
    for kind in ("yaml_frontmatter_v1", "pseudo_yaml_v1"):
        texts = [text, text.replace("\n", "\r\n"), text.replace("\n", "\r")]
        assert len({content_sha256(pair) for each in texts for pair in extract(each.encode(), "a.md", kind).pairs}) == 1


def test_24_what_looks_like_an_escape_and_was_typed_stays() -> None:
    assert pairs(book([HEADER, ["Why?", "Typed _x005F_x000D_ here"]])) == [("Why?", "Typed _x000D_ here")]


def test_25_rich_text_is_read_whole() -> None:
    from services.qa_ingest.tests.test_xlsx import workbook_of

    texts = [
        '<is><t xml:space="preserve">So </t><r><t xml:space="preserve">it </t></r><r><rPr/><t>is.</t></r></is>',
        '<is><r><t xml:space="preserve">So </t></r><r><t xml:space="preserve">it </t></r><r><t>is.</t></r></is>',
        '<is><t>So it is.</t><rPh sb="0" eb="1"><t>read aloud</t></rPh></is>',
    ]
    for text in texts:
        rows = (
            '<row r="1"><c r="A1" t="inlineStr"><is><t>Question</t></is></c>'
            '<c r="B1" t="inlineStr"><is><t>Answer</t></is></c></row>'
            f'<row r="2"><c r="A2" t="inlineStr"><is><t>Why?</t></is></c><c r="B2" t="inlineStr">{text}</c></row>'
        )
        assert pairs(extract(workbook_of(rows), "a.xlsx", "xlsx_table_v1")) == [("Why?", "So it is.")]


# --- bundles ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["---", "--- ", "***", "___", "- - -", "----", "-----"])
def test_27_rules_in_answers(rule: str) -> None:
    body = f"One.\n\n{rule}\n\nTwo: more.\n\n{rule}\nThree"
    assert bundle(block("question: Why?", body)).pairs[0].answer_standard == body
    heading_style = extract(f"# Why?\n\n{body}\n".encode(), "a.md", "markdown_heading_v1")
    assert heading_style.pairs[0].answer_standard == "\n".join(line.rstrip() for line in body.split("\n"))
    near_yaml = extract(block("id: A-1\nquestion: Why?", body).encode(), "a.md", "pseudo_yaml_v1")
    assert pairs(near_yaml) == [("Why?", "\n".join(line.rstrip() for line in body.split("\n")))]


def test_27_rules_round_what_only_looks_like_metadata() -> None:
    body = "Before.\n\n---\nNote: this is prose.\nSee also: the manual\n---\n\nAfter."
    assert bundle(block("question: Why?", body)).pairs[0].answer_standard == body


def test_28_metadata_right_above_a_rule() -> None:
    head = "# Title\nLast updated: today\n"
    text = head + "---\nid: a\nquestion: One?\n---\nFirst.\n---\nquestion: Two?\nid: b\n---\nSecond."
    assert pairs(bundle(text)) == [("One?", "First."), ("Two?", "Second.")]
    heading_style = "## FAQ\n\n**Why is it so?**\nBecause it is so.\n---\n**How is it done?**\nLike this.\n---\n"
    found = extract(heading_style.encode(), "a.md", "markdown_heading_v1")
    assert pairs(found) == [("Why is it so?", "Because it is so."), ("How is it done?", "Like this.")]


@pytest.mark.parametrize("inner", ["# one\n# two", "#", "\n# one\n\n", "# question: Why?"])
def test_29_blocks_that_say_nothing(inner: str) -> None:
    found = bundle(f"---\n{inner}\n---\n" + block("question: Why?"))
    assert (pairs(found), [notice.place.line for notice in found.notices]) == ([("Why?", "An answer.")], [2])


@pytest.mark.parametrize("mark", ["\ufeff", "\ufeff\n", "\ufeff\r\n"])
def test_30_byte_order_marks(mark: str) -> None:
    text = block("question: Why?")
    assert pairs(bundle(mark + text)) == [("Why?", "An answer.")]
    assert pairs(extract((mark + text).encode(), "a.md", "pseudo_yaml_v1")) == [("Why?", "An answer.")]
    assert pairs(extract(f"{mark}# Why?\n\nBecause.\n".encode(), "a.md", "markdown_heading_v1")) == [
        ("Why?", "Because.")
    ]


def test_30_marks_within_a_file_that_was_put_together_of_several() -> None:
    text = "\ufeff" + block("question: One?", "First.") + "\ufeff" + block("question: Two?", "Second.")
    assert pairs(bundle(text)) == [("One?", "First."), ("Two?", "Second.")]
    assert pairs(extract(text.encode(), "a.md", "pseudo_yaml_v1")) == [("One?", "First."), ("Two?", "Second.")]


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ("question: One?\nid: a\nquestion: Two?", "line 4: `question` is there twice, in lines 2 and 4"),
        ('question: One?\n"question": Two?', "line 3: `question` is there twice, in lines 2 and 3"),
        ("id: a\nid: b\nquestion: x", "line 3: `id` is there twice, in lines 2 and 3"),
        ("question: x\nsources: [{file: a, file: b}]", "line 3: `file` is there twice, in lines 3 and 3"),
        ("question: One?\nQuestion: Two?", "line 3: `Question` is not a key; `question` is"),
    ],
)
def test_32_keys_that_are_there_twice(metadata: str, told: str) -> None:
    assert any(problem.startswith(told) for problem in refusals(block(metadata))), refusals(block(metadata))


@pytest.mark.parametrize(
    "value",
    ["2024-01-01", '"2024-01-01"', "'2024-01-01'", "2024-01-01T00:00:00", "2024-01-01 00:00:00", "2024-01-01T00:00:00Z",
     "2023-12-31T19:00:00-05:00", '"2024-01-01T00:00:00+00:00"', "2024-01-01   # the first"],
)  # fmt: skip
def test_33_dates_of_every_shape(value: str) -> None:
    if "#" in value:
        assert any(
            "`valid_from` has a ` #`" in problem for problem in refusals(block(f"question: x\nvalid_from: {value}"))
        )
        return
    assert bundle(block(f"question: x\nvalid_from: {value}")).pairs[0].valid_from == datetime(2024, 1, 1, tzinfo=UTC)


def test_34_words_stay_words() -> None:
    written = [
        "y",
        "no",
        "on",
        "Off",
        "true",
        "NULL-ish",
        "1.0",
        "007",
        "1_000",
        "12:30:45",
        "0o17",
        ".5",
        "1e3",
        "2024-01-01",
    ]
    for form in (f"scope_tags: [{', '.join(written)}]", "scope_tags:\n" + "\n".join(f"- {each}" for each in written)):
        assert bundle(block(f"question: x\n{form}")).pairs[0].scope_tags == tuple(written)
    pair = bundle(block("question: no\nid: 007\nprimary_domain: on")).pairs[0]
    assert (pair.question, pair.id_token, pair.primary_domain) == ("no", "007", "on")
