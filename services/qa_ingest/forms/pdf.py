"""Forms in PDF: fields of an AcroForm are filled by an appended update, the file before it stays byte for byte.

A PDF without fields is flat: its questions are listed, and nothing can be filled. Scripts and actions are kept and
never run. Structure after ISO 32000-2, 12.7.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pypdfium2
from pypdf import PdfReader, PdfWriter
from pypdf.errors import PyPdfError
from pypdf.generic import ArrayObject, DictionaryObject, IndirectObject, NameObject, PdfObject, StreamObject

from services.qa_ingest.documents.package import Refused
from services.qa_ingest.domain.question_tables import asks
from services.qa_ingest.forms.base import Form, FormFormat, Outcome, Slot, State, bounded, clean_question, fitting

MAX_PAGES = 300
MAX_FIELDS = 5_000
MAX_DEPTH = 20
MAX_TEXT = 2_000_000
READ_ONLY, MULTILINE, PASSWORD = 1, 1 << 12, 1 << 13
RADIO, PUSH, FILE_SELECT, COMB, RICH = 1 << 15, 1 << 16, 1 << 20, 1 << 24, 1 << 25
logging.getLogger("pypdf").setLevel(logging.CRITICAL + 1)  # its warnings quote the texts of fields
_NUMBERED = re.compile(r"\s*(?:[Qq]?\d{1,3}(?:\.\d{1,3}){0,4}[.):]?|[a-zA-Z][.)]|[•▪–-])\s+")
_ENDS = re.compile(r"[.?!:？。]\s*\Z")


class Pdf(FormFormat):
    """See the module."""

    def read(self, content: bytes) -> Form:
        """The fields with the text beside them; without fields, the questions of the text."""
        _check(content)
        with _Pages(content) as pages:
            reader = _reader(content)
            try:
                found = _AcroForm(reader, pages)
                slots = [each.slot for each in found.questions]
            except _BAD as error:
                raise _damaged(error) from error
            notices = list(found.notices)
            if not found.has_fields:
                slots = [_flat(question, page) for question, page in pages.questions()]
                notices.append("the PDF has no fields to fill: its questions are only listed")
        bounded(slots)
        return Form(slots=tuple(slots), notices=tuple(notices))

    def fill(self, content: bytes, answers: Mapping[int, str]) -> tuple[bytes, Mapping[int, Outcome]]:
        """The file with an update appended that changes the fields which have an answer, and nothing else."""
        _check(content)
        outcomes: dict[int, Outcome] = {}
        chosen: dict[int, str] = {}
        with _Pages(content) as pages:
            try:
                for number, question in enumerate(_AcroForm(_reader(content), pages).questions):
                    if number in answers and question.slot.state == "open":
                        text, outcomes[number] = fitting(question.slot, _lines(answers[number], question.is_multiline))
                        if outcomes[number] == "filled":
                            chosen[number] = text
                if not chosen:
                    return content, outcomes
                writer = PdfWriter(_reader(content), incremental=True)
                questions = _AcroForm(writer, pages).questions
                _write(writer, [(questions[number], text) for number, text in chosen.items()])
                made = io.BytesIO()
                writer.write(made)
            except _BAD as error:
                raise _damaged(error) from error
        if not made.getvalue().startswith(content):
            raise Refused("not_fillable", "the PDF cannot be filled without a change of what it holds already")
        return made.getvalue(), outcomes


_BAD = (PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError, AssertionError, NotImplementedError)
"""What the reader of PDFs raises for files that are not as they should be."""


def _damaged(error: Exception) -> Refused:
    if isinstance(error, Refused):
        return error
    return Refused("bad_pdf", "damaged, or not as a PDF should be; print it to a new PDF, or save it anew")


def _check(content: bytes) -> None:
    if b"%PDF-" not in content[:1024]:
        raise Refused("bad_pdf", "no PDF")


def _reader(content: bytes) -> PdfReader:
    reader = PdfReader(io.BytesIO(content))
    if reader.is_encrypted:
        raise Refused("encrypted_or_legacy", "protected by a password; save it anew without")
    return reader


def _lines(text: str, is_multiline: bool) -> str:
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return lines if is_multiline else " ".join(lines.split())


def _flat(question: str, page: int) -> Slot:
    return Slot(question=question, place=f"page {page}", state="no_place", why="the PDF has no fields")


# --- fields ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Widget:
    annotation: DictionaryObject
    page: int
    states: tuple[str, ...]


@dataclass(slots=True)
class _FieldFound:
    name: str
    partial: str
    kind: str
    flags: int
    dictionary: DictionaryObject
    inherited: Mapping[str, PdfObject]
    widgets: list[_Widget] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Question:
    slot: Slot
    found: _FieldFound
    choices: Mapping[str, str] = field(default_factory=dict)
    """What is written for each option."""

    @property
    def is_multiline(self) -> bool:
        return self.found.kind == "/Tx" and bool(self.found.flags & MULTILINE)


class _AcroForm:
    """The fields of a document that a person fills in."""

    def __init__(self, document: PdfReader | PdfWriter, pages: _Pages) -> None:
        self.notices: list[str] = []
        self._pages = pages
        root = _dictionary(document.root_object)
        form = _dictionary(root.get("/AcroForm"))
        self._page_of = _annotations(document)
        self._closed = ""
        fields = list(self._walk(_array(form.get("/Fields")), {}, (), set(), 0))
        if "/XFA" in form:
            self._close("an XFA form, which shows other data than its fields hold")
        if "/DocMDP" in _dictionary(root.get("/Perms")) or any(
            each.kind == "/Sig" and "/V" in each.dictionary for each in fields
        ):
            self._close("signed, and filling it would be a change after the signature")
        self.has_fields = any(each.kind in ("/Tx", "/Ch", "/Btn") for each in fields)
        names = [each.name for each in fields] + [each.partial for each in fields if each.partial != each.name]
        self.questions = [
            self._question(each, names.count(each.name) == 1)
            for each in sorted(fields, key=self._order)
            if each.kind in ("/Tx", "/Ch") or (each.kind == "/Btn" and not each.flags & PUSH)
        ]

    def _close(self, why: str) -> None:
        self._closed = self._closed or why
        self.notices.append(f"the PDF is {why}; it is only read")

    def _walk(
        self,
        kids: Sequence[PdfObject],
        inherited: Mapping[str, PdfObject],
        names: tuple[str, ...],
        seen: set[int],
        depth: int,
    ) -> Iterator[_FieldFound]:
        if depth > MAX_DEPTH:
            raise Refused("too_deep", "fields nested deeper than in any form")
        for kid in kids:
            identity = kid.idnum if isinstance(kid, IndirectObject) else id(kid)
            if identity in seen:
                continue
            seen.add(identity)
            if len(seen) > MAX_FIELDS:
                raise Refused("too_large", f"more than {MAX_FIELDS:,} fields")
            node = _dictionary(kid)
            partial = str(node["/T"]) if "/T" in node else ""
            own = {**inherited, **{key: node[key] for key in ("/FT", "/Ff", "/MaxLen", "/Opt") if key in node}}
            path = (*names, partial) if partial else names
            below = _array(node.get("/Kids"))
            fields = [each for each in below if "/T" in _dictionary(each)]
            if fields:
                yield from self._walk(fields, own, path, seen, depth + 1)
                continue
            found = _FieldFound(".".join(path), partial, str(own.get("/FT", "")), _int(own.get("/Ff")), node, own)
            found.widgets = [self._widget(each) for each in below or [kid]]
            yield found

    def _widget(self, annotation: PdfObject) -> _Widget:
        node = _dictionary(annotation)
        states = tuple(name[1:] for name in _dictionary(_dictionary(node.get("/AP")).get("/N")) if name != "/Off")
        is_stream = isinstance(_resolved(_dictionary(node.get("/AP")).get("/N")), StreamObject)
        page = self._page_of.get(annotation.idnum, -1) if isinstance(annotation, IndirectObject) else -1
        return _Widget(node, page, () if is_stream else states)

    def _order(self, found: _FieldFound) -> tuple[int, float, float]:
        widget = found.widgets[0]
        left, _, _, top = _box(widget)
        return (widget.page if widget.page >= 0 else MAX_PAGES, -top, left)

    def _question(self, found: _FieldFound, is_unique: bool) -> _Question:
        options, choices = self._options(found)
        state, why = self._state(found, options, is_unique)
        most = _int(found.inherited.get("/MaxLen")) or None
        page = found.widgets[0].page
        place = f"page {page + 1}, field {found.name}" if page >= 0 else f"field {found.name}"
        slot = Slot(
            question=self._label(found) or clean_question(found.name) or "?",
            place=place[:500],
            state=state,
            why=why,
            options=tuple(options[:500]),
            max_characters=most if found.kind == "/Tx" else None,
        )
        return _Question(slot, found, choices)

    def _state(self, found: _FieldFound, options: Sequence[str], is_unique: bool) -> tuple[State, str]:
        if self._closed:
            return "closed", f"the PDF is {self._closed}"
        if found.flags & READ_ONLY:
            return "closed", "the field is read-only"
        if found.kind == "/Btn" and not found.flags & RADIO:
            return "closed", "a box for people to tick"
        if found.kind == "/Tx" and found.flags & (PASSWORD | FILE_SELECT | RICH):
            return "closed", "a field for passwords, files or formatted text"
        if not is_unique or not found.name:
            return "closed", "another field has the same name"
        if found.kind != "/Tx" and not options:
            return "closed", "it offers nothing to choose"
        value = _resolved(found.dictionary.get("/V"))
        if value is not None and str(value).strip() and str(value) != "/Off":
            return "closed", "something stands there already"
        return "open", ""

    def _options(self, found: _FieldFound) -> tuple[list[str], dict[str, str]]:
        """What people can choose, each with what is written for it. A group of radio buttons has all its states."""
        told = [_resolved(each) for each in _array(found.inherited.get("/Opt"))]
        if found.kind == "/Ch":
            pairs = [_pair(each) for each in told]
            return [shown for shown, _ in pairs], dict(pairs)
        if found.kind != "/Btn" or not found.flags & RADIO:
            return [], {}
        shown: dict[str, str] = {}
        for number, widget in enumerate(found.widgets):
            for state in widget.states:
                listed = told[number] if number < len(told) else None
                label = str(listed) if listed is not None else self._beside_button(widget, found.widgets) or state
                shown[label if label not in shown else state] = state
        return list(shown), shown

    def _beside_button(self, widget: _Widget, group: Sequence[_Widget]) -> str:
        """The text between a button and the next one of its group on the same line."""
        _, bottom, right, top = _box(widget)
        boxes = [_box(each) for each in group if each.page == widget.page]
        ends = [box[0] for box in boxes if box[0] >= right and box[1] < top and box[3] > bottom]
        text = self._pages.text(widget.page, (right, bottom - 1, min([right + 150, *ends]), top + 1)).strip()
        return "" if "\n" in text else text[:100]

    def _label(self, found: _FieldFound) -> str:
        """What a field asks: its own description, else the text to its left, else that above it."""
        told = clean_question(str(_resolved(found.dictionary.get("/TU")) or ""))
        if " " in told or asks(told):
            return told
        widget = found.widgets[0]
        left, bottom, right, top = _box(widget)
        if widget.page < 0:
            return told
        beside = self._pages.text(widget.page, (0, bottom - 1, left, top + 1))
        above = self._pages.text(widget.page, (0, top, max(right, left + 300), top + 26))
        lines = [line for line in (beside if beside.strip() else above).splitlines() if line.strip()]
        return clean_question(" ".join(lines if beside.strip() else lines[-1:])) or told


def _write(writer: PdfWriter, answers: Sequence[tuple[_Question, str]]) -> None:
    redraw: bool | None = None
    for question, text in answers:
        found = question.found
        if found.kind == "/Btn":
            _choose(found, question.choices[text])
            continue
        value = question.choices.get(text, text)
        if value != text or not value.isascii() or _is_wide(found, value):
            redraw = True  # what is not drawn here as it should be, the program that opens it draws
        for page in sorted({widget.page for widget in found.widgets if widget.page >= 0}):
            writer.update_page_form_field_values(writer.pages[page], {found.name: value}, auto_regenerate=None)
    if redraw:
        writer.set_need_appearances_writer(True)


def _is_wide(found: _FieldFound, text: str) -> bool:
    """Is a line perhaps longer than the field is wide? Lines are drawn here without wrapping them."""
    left, _, right, _ = _box(found.widgets[0])
    return max(map(len, text.split("\n"))) * 5 > right - left


def _choose(found: _FieldFound, state: str) -> None:
    """One state of a group of radio buttons; the others are off."""
    found.dictionary[NameObject("/V")] = NameObject(f"/{state}")
    for widget in found.widgets:
        widget.annotation[NameObject("/AS")] = NameObject(f"/{state}" if state in widget.states else "/Off")


def _annotations(document: PdfReader | PdfWriter) -> dict[int, int]:
    """The page of each annotation, by the number of its object."""
    found: dict[int, int] = {}
    for number, page in enumerate(document.pages):
        for annotation in _array(page.get("/Annots")):
            if isinstance(annotation, IndirectObject):
                found.setdefault(annotation.idnum, number)
    return found


def _box(widget: _Widget) -> tuple[float, float, float, float]:
    """left, bottom, right, top in points; zeros for none."""
    told = [float(str(_resolved(each))) for each in _array(widget.annotation.get("/Rect"))]
    if len(told) != 4:
        return 0.0, 0.0, 0.0, 0.0
    return min(told[0], told[2]), min(told[1], told[3]), max(told[0], told[2]), max(told[1], told[3])


def _resolved(value: object) -> object:
    return value.get_object() if isinstance(value, PdfObject) else value


def _dictionary(value: object) -> DictionaryObject:
    found = _resolved(value)
    return found if isinstance(found, DictionaryObject) else DictionaryObject()


def _array(value: object) -> list[PdfObject]:
    found = _resolved(value)
    return list(found) if isinstance(found, ArrayObject) else []


def _pair(option: object) -> tuple[str, str]:
    """What a list shows for an option, and what it writes."""
    if isinstance(option, list) and option:
        return str(_resolved(option[-1])), str(_resolved(option[0]))
    return str(option), str(option)


def _int(value: object) -> int:
    found = _resolved(value)
    return int(found) if isinstance(found, int) else 0


# --- text ------------------------------------------------------------------------------------------------------


class _Pages:
    """The text of pages, by place."""

    def __init__(self, content: bytes) -> None:
        try:
            self._document = pypdfium2.PdfDocument(content)
        except pypdfium2.PdfiumError as error:
            if "password" in str(error).casefold() or "security" in str(error).casefold():
                raise Refused("encrypted_or_legacy", "protected by a password; save it anew without") from error
            raise Refused("bad_pdf", "a PDF that cannot be read: damaged, or something else") from error
        self._texts: dict[int, pypdfium2.PdfTextPage] = {}
        if len(self._document) > MAX_PAGES:
            count = len(self._document)
            self._document.close()
            raise Refused("too_large", f"{count:,} pages; at most {MAX_PAGES} in one form")

    def __enter__(self) -> _Pages:
        return self

    def __exit__(self, *_: object) -> None:
        self._document.close()

    def text(self, page: int, box: tuple[float, float, float, float]) -> str:
        """The text within left, bottom, right, top."""
        if not 0 <= page < len(self._document):
            return ""
        return str(self._page(page).get_text_bounded(*box)).replace("\r\n", "\n")

    def questions(self) -> Iterator[tuple[str, int]]:
        """Every question of the text, with the number of its page."""
        read = 0
        for number in range(len(self._document)):
            text = str(self._page(number).get_text_bounded()).replace("\r\n", "\n")
            read += len(text)
            if read > MAX_TEXT:
                raise Refused("too_large", f"more than {MAX_TEXT:,} characters of text")
            for question in questions_in(text):
                yield question, number + 1

    def _page(self, number: int) -> pypdfium2.PdfTextPage:
        if number not in self._texts:
            self._texts[number] = self._document[number].get_textpage()
        return self._texts[number]


def questions_in(text: str) -> Iterator[str]:
    """Questions of running text: what ends with a question mark, and numbered passages that ask; lines joined."""
    passage: list[str] = []
    for line in [*text.split("\n"), ""]:
        starts = not line.strip() or _NUMBERED.match(line) is not None
        if passage and (starts or _ENDS.search(passage[-1])):
            yield from _asked(" ".join(passage))
            passage = []
        if line.strip():
            passage.append(line.strip())


def _asked(passage: str) -> Iterator[str]:
    number = _NUMBERED.match(passage)
    bare = clean_question(passage[number.end() :] if number else passage)
    if bare.endswith(("?", "？")) or (number and asks(bare)):
        yield bare


FORMAT = Pdf()
