"""Forms in Word: cells, content controls and text fields, and that a filled form differs in those alone."""

from __future__ import annotations

import difflib
import io
import zipfile
from collections.abc import Mapping

import docx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.qa_ingest.forms.base import Outcome, Slot
from services.qa_ingest.forms.document import FORMAT
from services.qa_ingest.tests.office import W, cell, control, deleted, heading, par, row, run, table, word

MAIN = "word/document.xml"
PROMPT = "<w:showingPlcHdr/>"
TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
AROUND = {
    "[Content_Types].xml": f'<Types xmlns="{TYPES}"><Default Extension="xml" ContentType="{WORD}"/><Default '
    'Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/></Types>',
    "_rels/.rels": f'<Relationships xmlns="{RELATIONS}"><Relationship Id="r1" Type="{OFFICE}" Target="{MAIN}"/>'
    "</Relationships>",
    "word/vbaProject.bin": "a macro",
}


def form(*body: str, more: dict[str, str] | None = None) -> bytes:
    return word(*body, more={**AROUND, **(more or {})})


def slots(content: bytes) -> list[Slot]:
    return list(FORMAT.read(content).slots)


def seen(content: bytes) -> list[tuple[str, str, str]]:
    return [(slot.question, slot.place, slot.state) for slot in slots(content)]


def main(content: bytes) -> str:
    return zipfile.ZipFile(io.BytesIO(content)).read(MAIN).decode()


def filled(content: bytes, answers: Mapping[int, str]) -> tuple[bytes, Mapping[int, Outcome]]:
    """The filled form, after a look at every part that must be as it was."""
    made, outcomes = FORMAT.fill(content, answers)
    before, after = zipfile.ZipFile(io.BytesIO(content)), zipfile.ZipFile(io.BytesIO(made))
    assert before.namelist() == after.namelist()
    for name in before.namelist():
        if name != MAIN:
            assert before.read(name) == after.read(name), name
    return made, outcomes


def added_and_removed(before: bytes, after: bytes) -> tuple[list[str], list[str]]:
    """What differs between two main parts, as whole stretches of text."""
    old, new = main(before).replace("<", "\n<").split("\n"), main(after).replace("<", "\n<").split("\n")
    told = list(difflib.ndiff(old, new))
    return [line[2:] for line in told if line[:2] == "+ "], [line[2:] for line in told if line[:2] == "- "]


def test_empty_cells_below_the_header_for_answers() -> None:
    content = form(
        heading(1, "Security"),
        table(["Question", "Answer"], ["Do you encrypt?", ""], ["Where is the data?", "In the EU"]),
        par("After"),
    )
    (first, second) = slots(content)
    assert (first.question, first.place, first.state) == ("Do you encrypt?", "table 1, row 2", "open")
    assert first.section == ("Security",)
    assert (second.place, second.state) == ("table 1, row 3", "closed")
    made, outcomes = filled(content, {0: "Yes: <AES> & more.\nSince\t2020 “ü” 😀\x00\x0b", 1: "No"})
    assert outcomes == {0: "filled"}
    added, removed = added_and_removed(content, made)
    assert removed == []
    assert added[0] == "<w:r>"
    assert added[-1] == "</w:r>"
    rows = docx.Document(io.BytesIO(made)).tables[0].rows
    assert [each.text for each in rows[1].cells] == ["Do you encrypt?", "Yes: <AES> & more.\nSince\t2020 “ü” 😀"]
    assert [each.text for each in rows[2].cells] == ["Where is the data?", "In the EU"]


@pytest.mark.parametrize(
    ("paragraph", "expected"),
    [
        ("<w:p/>", "<w:p><w:r>{}</w:r></w:p>"),
        ('<w:p w:rsidR="1" />', '<w:p w:rsidR="1" ><w:r>{}</w:r></w:p>'),
        (
            "<w:p><w:pPr><w:rPr><w:b/></w:rPr></w:pPr></w:p>",
            "<w:p><w:pPr><w:rPr><w:b/></w:rPr></w:pPr><w:r><w:rPr><w:b/></w:rPr>{}</w:r></w:p>",
        ),
        # the mark of a tracked change is not the text's
        (
            '<w:p><w:pPr><w:rPr><w:ins w:id="1" w:author="a"/></w:rPr></w:pPr></w:p>',
            '<w:p><w:pPr><w:rPr><w:ins w:id="1" w:author="a"/></w:rPr></w:pPr><w:r>{}</w:r></w:p>',
        ),
    ],
)
def test_an_answer_takes_the_format_of_its_paragraph(paragraph: str, expected: str) -> None:
    asked = "<w:tc><w:tcPr/>" + par("Why?") + "</w:tc>"
    content = form(table(["Question", "Answer"], f"<w:tr>{asked}<w:tc><w:tcPr/>{paragraph}</w:tc></w:tr>"))
    made, _ = filled(content, {0: "So."})
    answer = expected.format('<w:t xml:space="preserve">So.</w:t>')
    assert main(made) == main(content).replace(paragraph, answer)


def test_controls_lose_their_prompt_and_nothing_else() -> None:
    asked = control(
        run("Click to enter text", "<w:i/>") + run("!"), f'<w:alias w:val="why"/>{PROMPT}<w:rPr><w:b/></w:rPr>'
    )
    content = form(
        table(["Question", "Answer"], ["Why?", cell(par(asked))]),
        par(run("Your name: "), control(run("Name"), PROMPT), run(" and place: "), control(run("Place"), PROMPT)),
        par("Describe your backups."),
        control(par("Type here"), PROMPT),
        par(run("Old: "), control(run("said before"))),
        par(run("Locked: "), control(run("x"), f'<w:lock w:val="sdtContentLocked"/>{PROMPT}')),
        par(run("Bound: "), control(run("x"), f'<w:dataBinding w:xpath="/a"/>{PROMPT}')),
    )
    assert [(slot.question, slot.state) for slot in slots(content)] == [
        ("Why?", "open"),
        ("Your name:", "open"),
        ("and place:", "open"),
        ("Describe your backups.", "open"),
        ("Old:", "closed"),
        ("Locked:", "closed"),
        ("Bound:", "closed"),
    ]
    made, outcomes = filled(content, {0: "So.", 1: "Ann", 2: "Bonn", 3: "Daily.", 4: "x", 5: "x", 6: "x"})
    assert set(outcomes) == {0, 1, 2, 3}
    for old, new, style in (("Click to enter text", "So.", "<w:rPr><w:b/></w:rPr>"), ("Place", "Bonn", "")):
        assert old not in main(made)
        assert f'<w:r>{style}<w:t xml:space="preserve">{new}</w:t></w:r>' in main(made)
    assert main(made).count(PROMPT) == 2
    assert '<w:alias w:val="why"/><w:rPr>' in main(made)
    paragraphs = [each.text for each in docx.Document(io.BytesIO(made)).paragraphs]
    assert "said before" in main(made)
    assert paragraphs[1] == "Describe your backups."


def test_lists_take_their_items_alone() -> None:
    items = "".join(f'<w:listItem w:displayText="{text}" w:value="{text}"/>' for text in ("Yes", "No", "In part"))
    listed = f'<w:dropDownList><w:listItem w:displayText="Choose" w:value=""/>{items}</w:dropDownList>{PROMPT}'
    content = form(
        *(table(["Question", "Answer"], [f"{name}?", cell(par(control(run("Choose"), listed)))]) for name in "AB")
    )
    assert [slot.options for slot in slots(content)] == [("Yes", "No", "In part")] * 2
    made, outcomes = filled(content, {0: "In part: only at rest.", 1: "Perhaps"})
    assert outcomes == {0: "filled", 1: "not_an_option"}
    assert '<w:t xml:space="preserve">In part</w:t>' in main(made)
    assert main(made).count(PROMPT) == 1


def legacy(name: str, more: str = "", result: str = "\u2002\u2002") -> str:
    marks = {kind: f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("separate", "end")}
    data = f'<w:ffData><w:name w:val="{name}"/><w:enabled/><w:textInput>{more}</w:textInput></w:ffData>'
    return (
        f'<w:r><w:fldChar w:fldCharType="begin">{data}</w:fldChar></w:r>'
        "<w:r><w:instrText> FORMTEXT </w:instrText></w:r>"
        f"{marks['separate']}{run(result, '<w:b/>')}{run(result)}{marks['end']}"
    )


def test_text_fields_of_older_documents() -> None:
    content = form(
        par(run("Your name: "), legacy("Name"), run(" Your town: "), legacy("Town", '<w:maxLength w:val="4"/>')),
        table(["Question", "Answer"], ["Why?", cell(par(legacy("Why")))]),
        par(run("Since: "), legacy("Since", '<w:type w:val="date"/>'), run("Old: "), legacy("Old", result="x")),
    )
    assert seen(content) == [
        ("Your name:", "field Name", "open"),
        ("Your town:", "field Town", "open"),
        ("Why?", "table 1, row 2", "open"),
        ("Since:", "field Since", "closed"),
        ("Old:", "field Old", "closed"),
    ]
    made, outcomes = filled(content, {0: "Ann", 1: "Düren", 2: "So.\nThus."})
    assert outcomes == {0: "filled", 1: "too_long", 2: "filled"}
    added, removed = added_and_removed(content, made)
    assert [line for line in added if line.startswith("<w:t ")] == [
        f'<w:t xml:space="preserve">{text}' for text in ("Ann", "So.", "Thus.")
    ]
    assert not [line for line in removed if "fld" in line or "ffData" in line]


def test_protected_documents_open_their_fields_alone() -> None:
    body = (table(["Question", "Answer"], ["Why?", ""], ["How?", cell(par(legacy("How")))]),)
    for edit, states in (("forms", ["closed", "open"]), ("readOnly", ["closed", "closed"]), ("none", ["open", "open"])):
        told = f'<w:settings {W}><w:documentProtection w:edit="{edit}" w:enforcement="1"/></w:settings>'
        assert [slot.state for slot in slots(form(*body, more={"word/settings.xml": told}))] == states
    assert [slot.state for slot in slots(form(*body, more={"_xmlsignatures/sig1.xml": "<a/>"}))] == ["closed"] * 2


def test_merged_cells_frames_pictures_and_tracked_changes() -> None:
    inner = table(
        ["Question", "Answer", "Evidence"],
        row(cell("A?", merge="restart"), cell(span=2)),
        row(cell(merge="continue"), cell(span=2)),
        ["B?", cell("<w:p><w:r><w:drawing/></w:r></w:p>"), ""],
        ["C?", cell(par(deleted("old answer"))), ""],
        row(cell("Part two", span=3)),
        ["D?", "", ""],
    )
    content = form("<w:tbl><w:tr><w:tc>" + inner + "<w:p/></w:tc></w:tr></w:tbl>")
    assert seen(content) == [
        ("A?", "table 1, row 2", "open"),
        ("B?", "table 1, row 4", "closed"),
        ("C?", "table 1, row 5", "open"),
        ("D?", "table 1, row 7", "open"),
    ]
    assert slots(content)[3].section == ("Part two",)
    made, _ = filled(content, {0: "a", 2: "c", 3: "d"})
    rows = docx.Document(io.BytesIO(made)).tables[0].rows[0].cells[0].tables[0].rows
    assert [each.cells[-1].text for each in rows[:2]] == ["Evidence", "a"]
    assert [each.cells[1].text for each in rows[3:]] == ["", "c", "Part two", "d"]


TEXTS = st.sampled_from(["", " ", "x", "Why?", "Question", "Answer", "Is it so?", "Name:", "Describe it"])


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.lists(TEXTS, min_size=1, max_size=3), min_size=1, max_size=5), answer=st.text(max_size=20))
def test_of_any_table_only_open_cells_change(rows: list[list[str]], answer: str) -> None:
    width = max(map(len, rows))
    grid = [each + [""] * (width - len(each)) for each in rows]
    content = form(table(*grid))
    found = slots(content)
    made, outcomes = filled(content, dict.fromkeys(range(len(found)), answer + "!"))
    assert len(outcomes) == sum(1 for slot in found if slot.state == "open")
    after = docx.Document(io.BytesIO(made)).tables[0]
    changed = 0
    for texts, read in zip(grid, after.rows, strict=True):
        for before, now in zip(texts, (each.text for each in read.cells), strict=True):
            changed += before != now
            assert before == now or not before.strip()
    assert changed == len(outcomes)
