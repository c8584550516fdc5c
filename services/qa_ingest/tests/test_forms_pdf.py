"""Forms in PDF: fields with all that they offer, an update that is only appended, and flat files that are only read."""

from __future__ import annotations

import ctypes
import io
from collections.abc import Mapping

import pypdf
import pypdfium2
import pytest

from services.qa_ingest.documents.package import Refused
from services.qa_ingest.forms.base import Outcome, Slot
from services.qa_ingest.forms.pdf import FORMAT, MAX_PAGES, MULTILINE, READ_ONLY, questions_in
from services.qa_ingest.tests.pdfs import FONT, Choice, Radio, Text, flat, form, pdf

FORM = form(
    ("Do you encrypt data at rest?", Text("encryption", flags=MULTILINE)),
    ("Is there a recovery plan?", Radio("plan", ["1", "2", "3"], ["Yes", "No", "Planned"])),
    ("Where is it hosted?", Choice("region", [("eu", "Europe"), ("us", "America")])),
    ("Name?", Text("name", value="Ann")),
    ("Approved?", Text("approved", flags=READ_ONLY)),
    ("Country code?", Text("code", more="/MaxLen 2")),
)


def slots(content: bytes) -> list[Slot]:
    return list(FORMAT.read(content).slots)


def filled(content: bytes, answers: Mapping[int, str]) -> tuple[bytes, Mapping[int, Outcome]]:
    """The filled form, which must begin with the form as it was."""
    made, outcomes = FORMAT.fill(content, answers)
    assert made.startswith(content)
    return made, outcomes


def values(content: bytes) -> dict[str, str]:
    """What each field holds, as PDFium reads it; of radio buttons the state that is on."""
    raw = pypdfium2.raw
    document = pypdfium2.PdfDocument(content)
    document.init_forms()
    found: dict[str, str] = {}

    def text(of: object, annotation: object) -> str:
        buffer = ctypes.create_string_buffer(4_000)
        place = ctypes.cast(buffer, ctypes.POINTER(raw.FPDF_WCHAR))
        size = of(document.formenv, annotation, place, len(buffer))  # type: ignore[operator]
        return buffer.raw[: max(size - 2, 0)].decode("utf-16-le")

    page = document[0]
    for number in range(raw.FPDFPage_GetAnnotCount(page)):
        annotation = raw.FPDFPage_GetAnnot(page, number)
        found[text(raw.FPDFAnnot_GetFormFieldName, annotation)] = text(raw.FPDFAnnot_GetFormFieldValue, annotation)
        raw.FPDFPage_CloseAnnot(annotation)
    document.close()
    return found


def test_fields_ask_what_stands_beside_them() -> None:
    assert [(slot.question, slot.place, slot.state, slot.options) for slot in slots(FORM)] == [
        ("Do you encrypt data at rest?", "page 1, field encryption", "open", ()),
        ("Is there a recovery plan?", "page 1, field plan", "open", ("Yes", "No", "Planned")),
        ("Where is it hosted?", "page 1, field region", "open", ("Europe", "America")),
        ("Name?", "page 1, field name", "closed", ()),
        ("Approved?", "page 1, field approved", "closed", ()),
        ("Country code?", "page 1, field code", "open", ()),
    ]


def test_three_radio_buttons_offer_three_states() -> None:  # case 53
    (slot,) = slots(form(("Which?", Radio("which", ["low", "middle", "high"]))))
    assert slot.options == ("low", "middle", "high")
    for state in slot.options:
        made, _ = filled(form(("Which?", Radio("which", ["low", "middle", "high"]))), {0: state})
        assert values(made) == {"which": state}
        on = [kid.get_object()["/AS"] for kid in pypdf.PdfReader(io.BytesIO(made)).pages[0]["/Annots"]]  # type: ignore[attr-defined]
        assert on == [f"/{each}" if each == state else "/Off" for each in slot.options]


def test_only_fields_with_an_answer_change() -> None:
    answers = {0: "Yes, (AES)\nfor “all”.", 1: "Planned for May.", 2: "Europe, mostly", 3: "x", 4: "x", 5: "DEU"}
    made, outcomes = filled(FORM, answers)
    assert outcomes == {0: "filled", 1: "filled", 2: "filled", 5: "too_long"}
    before = values(FORM)
    expected = {"encryption": "Yes, (AES)\nfor “all”.", "plan": "3", "region": "eu"}
    after = values(made)
    assert after["encryption"].replace("\r", "\n") == expected["encryption"]
    assert {name: value for name, value in after.items() if name not in expected} == {
        name: value for name, value in before.items() if name not in expected
    }
    read = {name: found.get("/V") for name, found in (pypdf.PdfReader(io.BytesIO(made)).get_fields() or {}).items()}
    assert {name: str(read[name]).lstrip("/") for name in expected} == expected
    changed = objects_changed(FORM, made)
    assert {"encryption", "plan", "region"} <= changed
    assert not {"name", "approved", "code", "page", "text"} & changed


def objects_changed(before: bytes, after: bytes) -> set[str]:
    """What the update writes anew of what was there: fields by name, the page and its text by kind."""
    old, new = (pypdf.PdfReader(io.BytesIO(each)) for each in (before, after))
    names = {10: "page", 11: "text", 1: "catalogue", 2: "pages", 3: "font"}
    names |= {number: str(old.get_object(number)["/T"]) for number in range(20, 140, 20)}  # type: ignore[index]
    return {name for number, name in names.items() if as_written(old, number) != as_written(new, number)}


def as_written(reader: pypdf.PdfReader, number: int) -> bytes:
    found = reader.get_object(number)
    assert found is not None
    written = io.BytesIO()
    found.write_to_stream(written)
    return written.getvalue()


def test_texts_that_fonts_lack_are_drawn_by_who_opens_it() -> None:
    made, _ = filled(FORM, {0: "日本語 😀"})
    assert values(made)["encryption"] == "日本語 😀"
    assert pypdf.PdfReader(io.BytesIO(made)).root_object["/AcroForm"]["/NeedAppearances"]  # type: ignore[index]


@pytest.mark.parametrize(
    "content",
    [
        form(("Why?", Text("why")), acro="/XFA (x)"),
        form(("Why?", Text("why")), catalogue="/Perms << /DocMDP 5 0 R >>"),
        form(("Why?", Text("why")), ("Why not?", Text("why"))),
    ],
    ids=["xfa", "certified", "one name twice"],
)
def test_what_must_not_be_filled(content: bytes) -> None:
    assert {slot.state for slot in slots(content)} == {"closed"}
    assert FORMAT.fill(content, {0: "So."}) == (content, {})


def test_scripts_stay_and_do_not_run() -> None:
    content = form(("Why?", Text("why", more="/AA << /K << /S /JavaScript /JS (app.alert\\(1\\)) >> >>")))
    made, _ = filled(content, {0: "So."})
    assert values(made) == {"why": "So."}
    assert made.count(b"/JavaScript") == 2  # once as it was, once in the field's new version


def test_flat_files_are_a_list() -> None:
    content = flat(
        ["Security form", "1. Do you encrypt data", "at rest?", "2. Describe your backups."], ["Who reads logs?"]
    )
    assert [(slot.question, slot.place, slot.state) for slot in slots(content)] == [
        ("Do you encrypt data at rest?", "page 1", "no_place"),
        ("Describe your backups.", "page 1", "no_place"),
        ("Who reads logs?", "page 2", "no_place"),
    ]
    assert FORMAT.fill(content, {0: "So."}) == (content, {})


def test_questions_of_running_text() -> None:
    text = "We ask for little.\nIs it so?\na) Provide a list of\nyour sites\n\nb) Not this one\n3.1 Who\nruns it?"
    assert list(questions_in(text)) == ["Is it so?", "Provide a list of your sites", "Who runs it?"]


def test_hostile_files_are_refused() -> None:
    many = {1: b"<< /Type /Catalog /Pages 2 0 R >>", 3: FONT}
    kids = range(10, 10 + MAX_PAGES + 1)
    many[2] = f"<< /Type /Pages /Kids [{' '.join(f'{n} 0 R' for n in kids)}] /Count {len(kids)} >>".encode()
    many |= dict.fromkeys(kids, b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>")
    circle = {1: b"<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [4 0 R] >> >>"}
    circle |= {2: b"<< /Type /Pages /Kids [10 0 R] /Count 1 >>", 10: many[10]}
    circle[4] = b"<< /T (a) /Kids [4 0 R] >>"
    writer = pypdf.PdfWriter(io.BytesIO(FORM))
    writer.encrypt("secret")
    encrypted = io.BytesIO()
    writer.write(encrypted)
    for content, code in (
        (pdf(many), "too_large"),
        (encrypted.getvalue(), "encrypted_or_legacy"),
        (b"%PDF-1.7 nothing", "bad_pdf"),
        (b"text", "bad_pdf"),
    ):
        with pytest.raises(Refused) as refused:
            FORMAT.read(content)
        assert refused.value.code == code
    assert len(slots(pdf(circle))) <= 1
