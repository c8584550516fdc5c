"""Question tables in Word: columns by name, merged cells, tracked changes, controls, and what is no pair."""

from __future__ import annotations

import os
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.qa_ingest.domain.dates import NotADate, stamped
from services.qa_ingest.domain.envelope import Envelope, Extracted
from services.qa_ingest.extractors import named
from services.qa_ingest.extractors.base import File, FileRejected
from services.qa_ingest.tests.office import (
    W,
    cell,
    control,
    deleted,
    heading,
    inserted,
    item,
    package,
    par,
    row,
    run,
    table,
    word,
)

SHARED = Path(os.environ.get("BURNISH_SHARED_DATA", "../shared/data")) / "faq"
needs_data = pytest.mark.skipif(not SHARED.is_dir(), reason=f"needs the public FAQ files in {SHARED}")
HEADER = ["Question", "Answer"]


def extract(content: bytes, kind: str = "docx_pattern_a") -> Extracted:
    found = named(kind).extract(File("answers.docx", content))
    assert found.losses.unaccounted == 0
    assert "unread_markup" not in found.losses.rules
    return found


def pairs(*body: str) -> list[tuple[str, str]]:
    return [(pair.question, pair.answer_standard) for pair in extract(word(*body)).pairs]


def only(*body: str) -> Envelope:
    (pair,) = extract(word(*body)).pairs
    return pair


# --- columns --------------------------------------------------------------------------------------------------


def test_six_columns_in_any_order() -> None:
    pair = only(
        heading(1, "Product"),
        heading(2, "Security"),
        table(
            [
                "Date Added",
                "Answer for Advanced Audits",
                "Question",
                "LT Verified for accuracy, date and initial",
                "Answer for Standard Audit System",
                "Source of Information",
            ],
            ["22/05/2024", "More.", "Is it safe?", "2024-06-01 MB", "It is safe indeed.", "Handbook"],
        ),
    )
    assert (pair.question, pair.answer_standard, pair.answer_advanced) == ("Is it safe?", "It is safe indeed.", "More.")
    assert pair.valid_from == datetime(2024, 5, 22, tzinfo=UTC)
    assert (pair.verified_at, pair.verified_by) == (datetime(2024, 6, 1, tzinfo=UTC), "MB")
    assert (pair.citations, pair.extractor, pair.confidence) == (("Handbook",), "docx_pattern_a", 1.0)
    assert pair.place.section_path == ("Product", "Security")


@pytest.mark.parametrize(
    ("header", "extractor"),
    [
        (["Question", "Answer"], "docx_pattern_b"),
        (["Questions:", "Our response"], "docx_pattern_b"),
        (["Q", "A"], "docx_pattern_b"),
        (["Query", "Standard answer"], "docx_pattern_b"),
    ],
)
def test_names_of_columns(header: list[str], extractor: str) -> None:
    pair = only(table(header, ["Why?", "Because."]))
    assert (pair.question, pair.answer_text, pair.extractor) == ("Why?", "Because.", extractor)


def test_a_numbered_table_with_its_section_in_a_column() -> None:
    pair = only(
        table(["No.", "Category", "Question", "Answer", "Tags", "Owner"], ["7", "Data", "Why?", "So.", "a, b", "Kim"])
    )
    assert (pair.id_token, pair.place.section_path, pair.scope_tags) == ("7", ("Data",), ("a", "b"))
    assert (pair.metadata, pair.extractor) == ({"Owner": "Kim"}, "docx_pattern_c")


def test_a_date_that_could_be_two_is_kept_and_named() -> None:
    found = extract(word(table(["Question", "Answer", "Date added"], ["Why?", "So.", "03/04/2024"])))
    assert (found.pairs[0].valid_from, found.pairs[0].metadata) == (None, {"added": "03/04/2024"})
    assert "either way round" in found.notices[0].message


@pytest.mark.parametrize(
    ("text", "day", "who"),
    [
        ("2024-05-22", (2024, 5, 22), None),
        ("MB 22.5.24", (2024, 5, 22), "MB"),
        ("05/22/2024", (2024, 5, 22), None),
        ("22nd May 2024, J. Doe", (2024, 5, 22), "J. Doe"),
        ("May 22, 2024", (2024, 5, 22), None),
        ("4/4/2024", (2024, 4, 4), None),
    ],
)
def test_stamps(text: str, day: tuple[int, int, int], who: str | None) -> None:
    assert stamped(text) == (datetime(*day, tzinfo=UTC), who)


@pytest.mark.parametrize("text", ["soon", "31.02.2024", "Q2 2024", "22 Foo 2024", "13/13/2024"])
def test_what_is_no_day(text: str) -> None:
    with pytest.raises(NotADate):
        stamped(text)


def test_positional_reads_what_has_no_names() -> None:
    empty = [""] * 5
    rows = [["Why is it so?", "Because.", "Book", "2024-01-02", "KS 2024-01-03"], ["How?", "Thus.", "", "", ""]]
    (first, second) = extract(word(table(empty, *rows)), "docx_pattern_positional").pairs
    assert (first.question, first.answer_text, first.citations, first.verified_by) == (
        "Why is it so?",
        "Because.",
        ("Book",),
        "KS",
    )
    assert second.question == "How?"
    for kind, body in (("docx_pattern_a", [empty, *rows]), ("docx_pattern_positional", [rows[0], *rows])):
        assert extract(word(table(*body)), kind).rejects[0].reason == "no_question_header"


@pytest.mark.parametrize("rows", [[[""] * 4, ["Why?"] * 4], [[""] * 5, ["Name", "b", "c", "d", "e"]], [[""] * 5]])
def test_positional_does_not_guess(rows: list[list[str]]) -> None:
    with pytest.raises((FileRejected, AssertionError)):
        assert extract(word(table(*rows)), "docx_pattern_positional").pairs


# --- rows that are no pairs -----------------------------------------------------------------------------------


def test_rows_that_head_others_give_the_section() -> None:
    found = extract(
        word(
            table(
                HEADER,
                row(cell("Access", span=2)),
                ["Who?", "Staff."],
                ["Backups", ""],
                ["When?", "Daily."],
            )
        )
    )
    assert [(pair.question, pair.place.section_path) for pair in found.pairs] == [
        ("Who?", ("Access",)),
        ("When?", ("Backups",)),
    ]
    assert found.losses.rules == {"table_header": 14, "section_label": 13}


def test_a_merged_category_is_filled_down() -> None:
    body = table(
        ["Section", "Question", "Answer"],
        row(cell("Access", merge="restart"), "Who?", "Staff."),
        row(cell(merge="continue"), "When?", "Always."),
        row(cell("Data", merge="restart"), "Where?", "Here."),
    )
    assert [pair.place.section_path for pair in extract(word(body)).pairs] == [("Access",), ("Access",), ("Data",)]


def test_an_answer_merged_over_rows_is_each_questions() -> None:
    body = table(
        HEADER, row("Who?", cell("Staff.", merge="restart")), row("Whose?", cell(merge="continue")), ["Why?", "So."]
    )
    assert pairs(body) == [("Who?", "Staff."), ("Whose?", "Staff."), ("Why?", "So.")]


def test_a_table_that_goes_on_without_a_header() -> None:
    first, second = table(HEADER, ["Who?", "Staff."]), table(["When?", "Always."])
    found = extract(word(first, par(""), second)).pairs
    assert [(pair.ordinal, pair.place.table_index, pair.question) for pair in found] == [
        (0, 0, "Who?"),
        (1, 1, "When?"),
    ]
    apart = extract(word(first, par("Other text."), second))
    assert [reject.reason for reject in apart.rejects] == ["no_question_header"]


def test_a_header_again_in_the_middle() -> None:
    found = extract(word(table(HEADER, ["Who?", "Staff."], HEADER, ["When?", "Always."])))
    assert (len(found.pairs), found.losses.rules["repeated_header"]) == (2, 14)


def test_questions_without_answers_and_answers_without_questions_are_named() -> None:
    found = extract(word(table(HEADER, ["Who?", ""], ["", "Staff."], ["When?", "x" * 50_001])))
    assert [(reject.reason, reject.place.row_index) for reject in found.rejects] == [
        ("no_answer", 1),
        ("no_question", 2),
        ("answer_too_long", 3),
    ]


# --- what Word does to text -----------------------------------------------------------------------------------


def test_tracked_changes_are_accepted_and_the_pair_marked() -> None:
    pair = only(
        table(
            HEADER, row("How long?", cell(par(run("We keep it "), deleted("30"), inserted(run("90")), run(" days."))))
        )
    )
    assert (pair.answer_text, pair.revised) == ("We keep it 90 days.", True)
    assert extract(word(table(HEADER, ["Why?", "So."]))).pairs[0].revised is False


def test_inserted_and_deleted_paragraphs_and_rows() -> None:
    found = extract(
        word(
            table(
                HEADER,
                row(
                    "What?",
                    cell(
                        par("One."),
                        par(inserted(run("Two.")), properties="<w:rPr><w:ins/></w:rPr>"),
                        par(deleted("Gone."), properties="<w:rPr><w:del/></w:rPr>"),
                    ),
                ),
                row("Old?", "Gone too.", properties="<w:del/>"),
                row("New?", "Here.", properties="<w:ins/>"),
            )
        )
    )
    assert [(pair.question, pair.answer_text, pair.revised) for pair in found.pairs] == [
        ("What?", "One.\n\nTwo.", True),
        ("New?", "Here.", True),
    ]
    assert found.losses.rules["tracked_deletion"] == len("Gone.Old?Gone too.")


def test_moved_text_is_where_it_was_moved_to() -> None:
    moved = f"<w:moveFrom><w:r><w:t>Away.</w:t></w:r></w:moveFrom>{run('Stays.')}<w:moveTo>{run(' Came.')}</w:moveTo>"
    assert only(table(HEADER, row("What?", cell(par(moved))))).answer_text == "Stays. Came."


def test_cells_in_content_controls_do_not_shift_columns() -> None:
    body = table(["Question", "Answer", "Source"], row("Why?", control(cell("Because.")), "Book"))
    pair = only(body)
    assert (pair.answer_text, pair.citations) == ("Because.", ("Book",))


def test_rows_and_tables_in_content_controls() -> None:
    body = control("<w:tbl>" + row(*HEADER) + control(row("Why?", "Because.")) + "</w:tbl>")
    assert pairs(body) == [("Why?", "Because.")]


def test_values_of_controls_are_kept_and_prompts_are_not() -> None:
    chosen = control(run("Monthly"), "<w:dropDownList/>")
    day = control(run("1 May 2024"), '<w:date w:fullDate="2024-05-01T00:00:00Z"/>')
    prompt = control(run("Click to enter text."), "<w:showingPlcHdr/>")
    found = extract(word(table(HEADER, row("When?", cell(par(run("Reviewed "), chosen, run(" since "), day, prompt))))))
    assert found.pairs[0].answer_text == "Reviewed Monthly since 1 May 2024"
    assert found.losses.rules["placeholder"] == len("Click to enter text.")


def test_boxes_and_ticks() -> None:
    def box(value: str) -> str:
        return control(run("☐"), f'<w14:checkbox><w14:checked w14:val="{value}"/></w14:checkbox>')

    tick = '<w:r><w:sym w:font="Wingdings" w:char="F0FC"/></w:r>'
    state = '<w:ffData><w:checkBox><w:default w:val="1"/></w:checkBox></w:ffData>'
    legacy = f'<w:r><w:fldChar w:fldCharType="begin">{state}</w:fldChar></w:r>'
    answer = cell(par(box("1"), run(" yes "), box("0"), run(" no "), tick, legacy))
    assert only(table(HEADER, row("Which?", answer))).answer_text == "☒ yes ☐ no ✓☒"


def test_hidden_text_is_left_out_by_name() -> None:
    answer = cell(par(run("Seen."), run(" Not seen.", "<w:vanish/>"), run(" Seen too.", '<w:vanish w:val="0"/>')))
    found = extract(word(table(HEADER, row("What?", answer))))
    assert found.pairs[0].answer_text == "Seen. Seen too."
    assert found.losses.rules["hidden_text"] == len(" Not seen.")


def test_fields_show_their_result() -> None:
    field = (
        '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>REF x</w:instrText></w:r>'
        f'<w:r><w:fldChar w:fldCharType="separate"/></w:r>{run("Chapter 3")}<w:r><w:fldChar w:fldCharType="end"/></w:r>'
    )
    answer = cell(par(run("See "), field, f"<w:hyperlink>{run(' here')}</w:hyperlink>"))
    assert only(table(HEADER, row("Where?", answer))).answer_text == "See Chapter 3 here"


def test_lists_and_tables_in_an_answer_are_markdown() -> None:
    inner = table(["Plan", "Price"], ["Small", "1 | 2"])
    pair = only(
        table(HEADER, row("What?", cell(par("Both:"), item("one"), item("two"), item("first", 2), inner, par(""))))
    )
    assert pair.answer_text == ("Both:\n\n- one\n- two\n1. first\n\n| Plan | Price |\n|---|---|\n| Small | 1 \\| 2 |")


def test_a_frame_of_one_cell_round_the_table() -> None:
    assert pairs(table(row(cell(table(row(cell(table(HEADER, ["Why?", "So."]), par("")))))))) == [("Why?", "So.")]


def test_line_breaks_and_alternative_content() -> None:
    text = "<w:r><w:t>One</w:t><w:br/><w:t>two</w:t><w:noBreakHyphen/><w:t>three</w:t></w:r>"
    either = (
        f"<mc:AlternateContent><mc:Choice>{run(' new')}</mc:Choice><mc:Fallback>{run(' old')}</mc:Fallback>"
        "</mc:AlternateContent>"
    )
    found = extract(word(table(HEADER, row("What?", cell(par(text, either))))))
    assert found.pairs[0].answer_text == "One\ntwo-three new"
    assert found.losses.rules["alternative_content"] == 4


def test_text_in_other_parts_is_counted() -> None:
    footer = f"<w:ftr {W}>{par('Page')}</w:ftr>"
    found = extract(word(par("Before."), table(HEADER, ["Why?", "So."]), more={"word/footer1.xml": footer}))
    assert found.losses.rules == {"other_parts": 4, "outside_tables": 7, "table_header": 14}


# --- hostile files --------------------------------------------------------------------------------------------

XML_16 = "<?xml version='1.0' encoding='utf-16'?>"
DTD_CODE = "document_type"
DTD = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">]>'


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "no_package"),
        (b"PK\x03\x04 damaged", "no_package"),
        (bytes.fromhex("d0cf11e0a1b11ae1") + b"\0" * 600, "encrypted_or_legacy"),
        (package({"other.xml": "<a/>"}), "no_word_document"),
        (package({"word/document.xml": f"{DTD}<a>&a;</a>"}), "document_type"),
        (package({"word/document.xml": (XML_16 + DTD + "<a/>").encode("utf-16")}), DTD_CODE),
        (package({"word/document.xml": "<a>"}), "bad_xml"),
        (package({"word/document.xml": b"<?xml version='1.0' encoding='nonsense'?><a/>"}), "bad_xml"),
        (package({"word/document.xml": f"<w:document {W}/>"}), "no_word_document"),
        (package({"../evil": "x", "word/document.xml": "<a/>"}), "bad_path"),
        (package({f"part{n}": "" for n in range(2_001)}), "zip_bomb"),
        (package({"word/document.xml": "<a>" + " " * 5_000_000 + "</a>"}), "zip_bomb"),
        (word("<w:sdt><w:sdtContent>" * 200 + par("deep") + "</w:sdtContent></w:sdt>" * 200), "too_deep"),
        (word(par("No table.")), "no_tables"),
        (word(table(*([[""]] * 3))), "no_tables"),
    ],
)  # fmt: skip
def test_what_is_no_question_document_is_refused_with_a_code(content: bytes, code: str) -> None:
    with pytest.raises(FileRejected) as refused:
        named("docx_pattern_a").extract(File("x.docx", content))
    assert refused.value.code == code


def test_a_part_that_unpacks_to_more_than_it_says(tmp_path: Path) -> None:
    content = bytearray(word(table(HEADER, ["Why?", "So."])))
    path = tmp_path / "x.docx"
    path.write_bytes(content)
    with zipfile.ZipFile(path) as archive:
        size = archive.getinfo("word/document.xml").file_size
    lie = bytes(content).replace(size.to_bytes(4, "little"), (10).to_bytes(4, "little"))
    with pytest.raises(FileRejected) as refused:
        named("docx_pattern_a").extract(File("x.docx", lie))
    assert refused.value.code in ("damaged", "zip_bomb", "bad_xml", "no_package")


# --- laws -----------------------------------------------------------------------------------------------------

TEXTS = st.sampled_from(["", "Question", "Answer", "Why?", "So it is.", "Access", "  ", "2024-01-01"])
CELLS = st.builds(
    lambda text, span, merge: cell(text, span=span, merge=merge),
    TEXTS,
    st.integers(1, 3),
    st.sampled_from(["", "", "", "restart", "continue"]),
)


@given(st.lists(st.lists(CELLS, max_size=5), max_size=8))
def test_nothing_is_lost_however_cells_are_merged(rows: list[list[str]]) -> None:
    content = word(par("Before."), table(*(row(*cells) for cells in rows)))
    for kind in ("docx_pattern_a", "docx_pattern_positional"):
        try:
            extract(content, kind)
        except FileRejected as refused:
            assert refused.code == "no_tables"  # noqa: PT017


# --- real files -----------------------------------------------------------------------------------------------

TABLES_WITHOUT_QUESTIONS = {
    "03-asvs-redline/redline.docx": 22,
    "15-fixtures/docling/docx_checkboxes.docx": 1,
    "15-fixtures/docling/docx_rich_cells.docx": 7,
    "15-fixtures/docling/tablecell.docx": 2,
    "15-fixtures/docling/word_tables.docx": 7,
    "15-fixtures/unstructured/docx-tables.docx": 3,
    "15-fixtures/unstructured/tables-with-incomplete-rows.docx": 6,
}
NO_TABLES = (
    "08-vrdb/FAQ.docx",
    "09-dash/FAQ.docx",
    "15-fixtures/docling/content_control_with_picture.docx",
    "15-fixtures/docling/textbox.docx",
    "15-fixtures/unstructured/page-breaks.docx",
)


@needs_data
@pytest.mark.parametrize(("path", "tables"), TABLES_WITHOUT_QUESTIONS.items())
def test_tables_without_questions_yield_named_rejects(path: str, tables: int) -> None:
    found = extract((SHARED / path).read_bytes(), "docx_pattern_positional")
    assert found.pairs == ()
    assert [reject.reason for reject in found.rejects] == ["no_question_header"] * tables


@needs_data
@pytest.mark.parametrize("path", NO_TABLES)
def test_documents_without_tables_are_refused(path: str) -> None:
    with pytest.raises(FileRejected) as refused:
        extract((SHARED / path).read_bytes())
    assert refused.value.code == "no_tables"


@needs_data
def test_the_redline_keeps_its_ticks_and_inserted_words() -> None:
    from services.qa_ingest.documents import word as reader

    document = reader.read((SHARED / "03-asvs-redline/redline.docx").read_bytes())
    texts = [
        reader.text_of(each.blocks)
        for block in document.blocks
        if isinstance(block, reader.WordTable)
        for cells in block.rows
        for each in cells
    ]
    assert sum(text.count("✓") for text in texts) > 300
    assert document.left_out["tracked_deletion"] > 6_000
