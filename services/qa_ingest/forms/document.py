"""Forms in Word: answers become runs in empty cells, content controls and text form fields; no other byte changes.

Structure after ECMA-376 part 1 (WordprocessingML). What is read is the main part alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from services.qa_ingest.documents import word
from services.qa_ingest.documents.package import Package, Refused
from services.qa_ingest.documents.positions import Edit, Located, changed, escaped, located
from services.qa_ingest.documents.word import MAIN, W14, Paragraph, W, WordTable
from services.qa_ingest.domain.form_tables import Asked, asked
from services.qa_ingest.domain.question_tables import Cell, Table
from services.qa_ingest.forms.base import Form, FormFormat, Outcome, Slot, bounded, clean_question, fitting

MAX_MAIN_BYTES = 32 * 1024 * 1024
_FOR_PEOPLE = {
    f"{W}date",
    f"{W}picture",
    f"{W}docPartObj",
    f"{W}docPartList",
    f"{W}group",
    f"{W}citation",
    f"{W}bibliography",
    f"{W}equation",
    f"{W14}checkbox",
}
"""Kinds of content controls that take no text."""
_REVISIONS = {f"{W}{name}" for name in ("ins", "del", "moveFrom", "moveTo", "rPrChange")}
_PICTURES = {f"{W}{name}" for name in ("drawing", "pict", "object", "altChunk")}


class Document(FormFormat):
    """See the module."""

    def read(self, content: bytes) -> Form:
        """Every question of every table, control and text field of the main part."""
        form = _Form(content)
        slots = [found.slot for found in form.questions()]
        bounded(slots)
        return Form(slots=tuple(slots), notices=tuple(form.notices))

    def fill(self, content: bytes, answers: Mapping[int, str]) -> tuple[bytes, Mapping[int, Outcome]]:
        """Answers take the format of the place they are put in."""
        form = _Form(content)
        outcomes: dict[int, Outcome] = {}
        edits: list[Edit] = []
        for number, found in enumerate(form.questions()):
            if number not in answers or found.slot.state != "open" or found.target is None:
                continue
            text, outcomes[number] = fitting(found.slot, answers[number])
            if outcomes[number] == "filled":
                edits += found.target.edits(form.xml, text)
        if not edits:
            return content, outcomes
        return form.package.with_parts({MAIN: changed(form.xml.content, edits)}), outcomes


# --- where an answer goes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Cell:
    """An empty cell with the paragraph that takes the answer."""

    paragraph: Element

    def edits(self, xml: Located, text: str) -> list[Edit]:
        return [xml.put_in(self.paragraph, _run(xml, self.paragraph, _mark_format(xml, self.paragraph), text))]


@dataclass(frozen=True, slots=True)
class _Control:
    """A content control; its prompt goes, and with it the mark that it shows one."""

    control: Element

    def edits(self, xml: Located, text: str) -> list[Edit]:
        properties, content = self.control.find(f"{W}sdtPr"), self.control.find(f"{W}sdtContent")
        assert content is not None  # else it is not open
        own = properties.find(f"{W}rPr") if properties is not None else None
        marks = properties.findall(f"{W}showingPlcHdr") if properties is not None else ()
        edits = [_without(xml, mark) for mark in marks]
        run = _run(xml, self.control, b"" if own is None else xml.bytes_of(own), text)
        runs = list(content.iter(f"{W}r"))
        if runs:
            first = xml.span(runs[0])
            return [*edits, Edit(first.start, first.end, run), *(_without(xml, each) for each in runs[1:])]
        paragraph = content.find(f".//{W}p")
        return [*edits, xml.put_in(content if paragraph is None else paragraph, run)]


@dataclass(frozen=True, slots=True)
class _Field:
    """A legacy text field: the runs of its result."""

    result: Sequence[Element]

    def edits(self, xml: Located, text: str) -> list[Edit]:
        first = self.result[0]
        style = first.find(f"{W}rPr")
        span = xml.span(first)
        run = _run(xml, first, b"" if style is None else xml.bytes_of(style), text)
        return [Edit(span.start, span.end, run), *(_without(xml, each) for each in self.result[1:])]


_Target = _Cell | _Control | _Field


@dataclass(frozen=True, slots=True)
class _Question:
    slot: Slot
    target: _Target | None
    at: int


def _run(xml: Located, near: Element, style: bytes, text: str) -> bytes:
    """A run of text with its line breaks and tabs as elements."""
    w = xml.prefix(near)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    breaks = b"<%bbr/>" % w
    return b"<%br>%b%b</%br>" % (w, style, breaks.join(_line(w, line) for line in lines), w)


def _line(w: bytes, line: str) -> bytes:
    parts = [
        b'<%bt xml:space="preserve">%b</%bt>' % (w, escaped(part), w) if part else b"" for part in line.split("\t")
    ]
    return (b"<%btab/>" % w).join(parts)


def _mark_format(xml: Located, paragraph: Element) -> bytes:
    """The format of a paragraph's end, which is what a person's first letter in it gets."""
    style = paragraph.find(f"{W}pPr/{W}rPr")
    if style is None or any(child.tag in _REVISIONS for child in style):
        return b""
    return xml.bytes_of(style)


def _without(xml: Located, element: Element) -> Edit:
    span = xml.span(element)
    return Edit(span.start, span.end, b"")


# --- what asks -------------------------------------------------------------------------------------------------


class _Form:
    def __init__(self, content: bytes) -> None:
        self.package = Package(content)
        if MAIN not in self.package:
            raise Refused("no_word_document", f"the package has no {MAIN}; it is no Word document")
        main = self.package.read(MAIN)
        if len(main) > MAX_MAIN_BYTES:
            raise Refused("too_large", f"{MAIN} is larger than {MAX_MAIN_BYTES // 1024**2} MiB")
        self.xml = located(main, MAIN)
        self.document = word.read_part(self.package, self.xml.root)
        self._parents = {child: parent for parent in self.xml.root.iter() for child in parent}
        self.notices: list[str] = []
        self._protection = _protection(self.package)
        self._is_signed = any(name.startswith("_xmlsignatures/") for name in self.package.names())
        if self._is_signed:
            self.notices.append("the document is signed: filling it would break the signature, so it is only read")

    def questions(self) -> list[_Question]:
        """In the order of the document."""
        found = [question for question, _ in self._in_tables()]
        taken = {cell for _, cell in self._in_tables() if cell is not None}
        found += self._outside(taken)
        return sorted(found, key=lambda each: each.at)

    # --- tables -----------------------------------------------------------------------------------------------

    def _in_tables(self) -> Iterator[tuple[_Question, Element | None]]:
        headings: list[tuple[int, str]] = []
        number = 0
        for block in self.document.blocks:
            if isinstance(block, Paragraph):
                if block.level and block.text.strip():
                    headings = [each for each in headings if each[0] < block.level]
                    headings.append((block.level, clean_question(block.text)[:500]))
                continue
            number += 1
            cells, sources = _grid(_unframed(block))
            for one in asked(Table(cells, number - 1, tuple(text for _, text in headings))):
                yield self._of_table(one, sources, number)

    def _of_table(
        self, one: Asked, sources: Sequence[Sequence[Element | None]], number: int
    ) -> tuple[_Question, Element | None]:
        source = sources[one.at[0]][one.at[1]]
        answer = sources[one.answer[0]][one.answer[1]] if one.answer is not None else None
        place = f"table {number}, row {(one.answer or one.at)[0] + 1}"
        if answer is None:
            slot = self._slot(one, place, "no_place", "no cell beside or below it is free for an answer")
            return _Question(slot, None, self._start(source)), None
        target, why, options, most = self._target(answer)
        if one.answered:
            why = "something stands there already"
        slot = self._slot(one, place, "closed" if why else "open", why, options, most)
        return _Question(slot, target, self._start(source)), answer

    def _slot(
        self,
        one: Asked,
        place: str,
        state: str,
        why: str = "",
        options: Sequence[str] = (),
        most: int | None = None,
    ) -> Slot:
        return Slot.model_validate(
            {
                "question": clean_question(one.question),
                "place": place,
                "state": state,
                "why": why,
                "section": tuple(text[:500] for text in one.section),
                "options": tuple(options),
                "max_characters": most,
            }
        )

    def _target(self, cell: Element) -> tuple[_Target | None, str, tuple[str, ...], int | None]:
        """Where in a cell the answer goes; why not; what may be chosen; how long it may be."""
        controls = list(cell.iter(f"{W}sdt")) or self._around(cell)
        fields = [field for paragraph in cell.iter(f"{W}p") for field in _fields(paragraph)]
        if controls:
            return self._control(controls[0])
        if fields:
            return self._field(fields[0])
        paragraph = cell.find(f"{W}p")
        if paragraph is None or cell.find(f"{W}tbl") is not None or any(each.tag in _PICTURES for each in cell.iter()):
            return None, "something stands there already", (), None
        if self._is_signed or self._protection is not None:
            return None, "the document is signed" if self._is_signed else "the document is protected", (), None
        return _Cell(paragraph), "", (), None

    def _around(self, cell: Element) -> list[Element]:
        """The control that is around a cell as a whole."""
        content = self._parents.get(cell)
        control = self._parents.get(content) if content is not None and content.tag == f"{W}sdtContent" else None
        return [control] if control is not None and len(content or ()) == 1 else []

    # --- controls and fields ----------------------------------------------------------------------------------

    def _control(self, control: Element) -> tuple[_Target | None, str, tuple[str, ...], int | None]:
        properties, content = control.find(f"{W}sdtPr"), control.find(f"{W}sdtContent")
        kinds = {child.tag for child in properties} if properties is not None else set()
        lock = properties.find(f"{W}lock") if properties is not None else None
        options = _items(properties.find(f"{W}dropDownList")) if properties is not None else ()
        why = ""
        if content is None or kinds & _FOR_PEOPLE or list(content.iter(f"{W}sdt")):
            why = "a control for people to choose in"
        elif f"{W}dataBinding" in kinds:
            why = "its text comes from other data of the document"
        elif (lock is not None and "content" in lock.get(f"{W}val", "").casefold()) or self._protection == "readOnly":
            why = "it is locked"
        elif self._is_signed:
            why = "the document is signed"
        elif f"{W}showingPlcHdr" not in kinds and _text(content).strip():
            why = "something stands there already"
        elif f"{W}dropDownList" in kinds and not options:
            why = "its list is empty"
        return _Control(control), why, options, None

    def _field(self, field: _LegacyField) -> tuple[_Target | None, str, tuple[str, ...], int | None]:
        why = ""
        if not field.result or not field.takes_text:
            why = "a field for people to choose in"
        elif "".join(map(_text, field.result)).strip():
            why = "something stands there already"
        elif self._is_signed or self._protection == "readOnly":
            why = "the document is signed" if self._is_signed else "the document is protected"
        return (_Field(field.result) if field.result else None), why, (), field.most

    def _outside(self, taken: set[Element]) -> Iterator[_Question]:
        """Controls and text fields that stand in no answer cell, each with the text before it."""
        before = ""
        seen: set[Element] = set()
        for element in self.xml.root.iter():
            if element.tag not in (f"{W}p", f"{W}sdt") or element not in self._parents:
                continue
            above = list(self._above(element))
            if taken & {element, *above} or any(each in seen for each in above):
                continue
            if element.tag == f"{W}sdt":
                if self._is_fillable(element):
                    seen.add(element)
                    parent = next((each for each in above if each.tag == f"{W}p"), None)
                    label = _text_before(parent, element) if parent is not None else ""
                    alias = _value(element.find(f"{W}sdtPr/{W}alias")) or ""
                    yield from self._labelled(label or before, alias, "control", self._control(element), element)
                    before = ""
                continue
            for field in _fields(element):
                label = _text_before(element, field.begin) or before
                yield from self._labelled(label, field.name, "field", self._field(field), field.begin)
            before = "" if element.find(f".//{W}sdt") is not None else _text(element).strip() or before

    def _labelled(
        self,
        label: str,
        name: str,
        kind: str,
        found: tuple[_Target | None, str, tuple[str, ...], int | None],
        element: Element,
    ) -> Iterator[_Question]:
        target, why, options, most = found
        one = Asked(label or name, (0, 0), None)
        if not any(letter.isalnum() for letter in one.question):
            return
        place = f"{kind} {name[:100]}".strip() if name else kind
        yield _Question(
            self._slot(one, place, "closed" if why else "open", why, options, most), target, self._start(element)
        )

    def _is_fillable(self, control: Element) -> bool:
        properties = control.find(f"{W}sdtPr")
        kinds = {child.tag for child in properties} if properties is not None else set()
        holds = control.find(f"{W}sdtContent")
        if holds is None or kinds & _FOR_PEOPLE:
            return False
        return not any(each.tag in (f"{W}tbl", f"{W}tc", f"{W}tr", f"{W}sdt") for each in holds.iter())

    def _above(self, element: Element) -> Iterator[Element]:
        while (parent := self._parents.get(element)) is not None:
            yield parent
            element = parent

    def _start(self, element: Element | None) -> int:
        return self.xml.span(element).start if element is not None else 0


@dataclass(frozen=True, slots=True)
class _LegacyField:
    begin: Element
    name: str
    result: tuple[Element, ...]
    takes_text: bool
    most: int | None


def _fields(paragraph: Element) -> list[_LegacyField]:
    """The text form fields of a paragraph, each with the runs of its result."""
    found: list[_LegacyField] = []
    begin: Element | None = None
    result: list[Element] | None = None
    for run in paragraph.iter(f"{W}r"):
        mark = run.find(f"{W}fldChar")
        kind = mark.get(f"{W}fldCharType") if mark is not None else None
        if kind == "begin":
            begin, result = run, None
        elif kind == "separate" and begin is not None:
            result = []
        elif kind == "end" and begin is not None:
            data = begin.find(f"{W}fldChar/{W}ffData")
            told = data.find(f"{W}textInput") if data is not None else None
            if data is not None and told is not None:
                found.append(_legacy(begin, data, told, result or ()))
            begin = None
        elif result is not None and begin is not None:
            result.append(run)
    return found


def _legacy(begin: Element, data: Element, told: Element, result: Sequence[Element]) -> _LegacyField:
    most = _value(told.find(f"{W}maxLength"))
    limit = int(most) if most and most.isdigit() and len(most) < 8 and int(most) else None
    enabled = data.find(f"{W}enabled")
    is_on = enabled is None or enabled.get(f"{W}val", "1") not in ("0", "false", "off")
    regular = _value(told.find(f"{W}type")) in (None, "regular")
    return _LegacyField(begin, _value(data.find(f"{W}name")) or "", tuple(result), is_on and regular, limit)


def _items(listed: Element | None) -> tuple[str, ...]:
    """What a list offers, without the prompt that is its empty value."""
    items = listed.findall(f"{W}listItem") if listed is not None else []
    texts = [item.get(f"{W}displayText") or item.get(f"{W}value") or "" for item in items if item.get(f"{W}value")]
    return tuple(text[:500] for text in texts[:500] if text.strip())


def _text_before(paragraph: Element, stop: Element) -> str:
    """The text of a paragraph between the last field or control before `stop` and it."""
    parts: list[str] = []
    within: set[Element] = set()
    for element in paragraph.iter():
        if element is stop:
            break
        if element.tag == f"{W}sdt":
            within.update(element.iter())
        if element in within or (element.tag == f"{W}fldChar" and element.get(f"{W}fldCharType") == "end"):
            parts = []
        elif element.tag == f"{W}t":
            parts.append(element.text or "")
    return "".join(parts).strip()


def _text(element: Element) -> str:
    return "".join(each.text or "" for each in element.iter(f"{W}t"))


def _value(element: Element | None) -> str | None:
    return element.get(f"{W}val") if element is not None else None


def _protection(package: Package) -> str | None:
    """How the document is protected while that is enforced: `forms`, `readOnly`, `comments`, `trackedChanges`."""
    if "word/settings.xml" not in package:
        return None
    told = package.xml("word/settings.xml").find(f"{W}documentProtection")
    if told is None or told.get(f"{W}enforcement") not in ("1", "true", "on"):
        return None
    kind = told.get(f"{W}edit", "none")
    return None if kind in ("none", "trackedChanges") else "forms" if kind == "forms" else "readOnly"


# --- grids -----------------------------------------------------------------------------------------------------


def _unframed(table: WordTable) -> WordTable:
    """The table itself, where it stands in a frame: one cell that holds a table and no text."""
    while len(table.rows) == 1 and len(table.rows[0]) == 1:
        blocks = table.rows[0][0].blocks
        inner = [block for block in blocks if isinstance(block, WordTable)]
        if len(inner) != 1 or any(isinstance(block, Paragraph) and block.text.strip() for block in blocks):
            break
        table = inner[0]
    return table


def _grid(table: WordTable) -> tuple[list[list[Cell]], list[list[Element | None]]]:
    """One cell a column, those that are merged marked as covered, and what each was read from."""
    rows: list[list[Cell]] = []
    sources: list[list[Element | None]] = []
    for row in table.rows:
        cells: list[Cell] = []
        of: list[Element | None] = []
        for cell in row:
            text = word.text_of(cell.blocks).strip()
            covered = cell.merge == "continue"
            cells += [Cell(text, covered_from_above=covered)]
            cells += [Cell(text, covered_from_left=True, covered_from_above=covered)] * (cell.span - 1)
            of += [cell.source] * cell.span
        rows.append(cells)
        sources.append(of)
    return rows, sources


FORMAT = Document()
