"""Reads a Word document as its reader sees it: insertions kept, deletions gone, content controls and ticks as text.

Structure after ECMA-376 part 1 (WordprocessingML). Only the text of the main part is read; other parts that hold text
(headers, footnotes, comments) are counted, so that the loss ledger can name them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar
from xml.etree.ElementTree import Element

from services.qa_ingest.documents.package import Package, Refused
from services.qa_ingest.documents.symbols import symbol

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
W14 = "{http://schemas.microsoft.com/office/word/2010/wordml}"
M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
MAIN = "word/document.xml"
MAX_DEPTH = 120
MAX_CELLS = 500_000
MAX_COLUMNS = 200

T = TypeVar("T")
CHECKED, UNCHECKED = "☒", "☐"
_OTHER_PARTS = re.compile(
    r"word/(header\d*|footer\d*|footnotes\d*|endnotes\d*|comments\d*|diagrams/data\d*|charts/chart\d*)\.xml\Z"
)
_TEXTS = (f"{W}t", f"{W}delText", f"{M}t", f"{A}t")
_HEADING = re.compile(r"heading\s*([1-9])\Z", re.IGNORECASE)


@dataclass(slots=True)
class Paragraph:
    """One paragraph. `level` is 1–9 for headings, else 0; lists are Markdown already.

    `characters` is how much of the source's own text it stands for.
    """

    text: str
    level: int = 0
    revised: bool = False
    characters: int = 0


@dataclass(slots=True)
class WordCell:
    """A cell with its blocks, how many columns it spans, its part in a vertical merge, and what it was read from."""

    blocks: list[Paragraph | WordTable] = field(default_factory=list)
    span: int = 1
    merge: str | None = None
    source: Element | None = field(default=None, repr=False, compare=False)


@dataclass(slots=True)
class WordTable:
    """Rows of cells, as the file has them; `revised` rows were inserted."""

    rows: list[list[WordCell]] = field(default_factory=list)
    revised_rows: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Document:
    """A whole document. `total` counts the characters of its text, `left_out` those that a rule leaves out."""

    blocks: list[Paragraph | WordTable]
    total: int
    left_out: dict[str, int]


def read(content: bytes) -> Document:
    """The document. Raises `Refused`."""
    package = Package(content)
    if MAIN not in package:
        raise Refused("no_word_document", f"the package has no {MAIN}; it is no Word document")
    package.refuse_active()
    return read_part(package, package.xml(MAIN))


def read_part(package: Package, root: Element) -> Document:
    """The document whose main part was parsed already; what newer programs do not show is taken out of the tree."""
    return _Reader(package).document(root)


@dataclass(slots=True)
class _Run:
    """Text of a paragraph so far."""

    parts: list[str] = field(default_factory=list)
    characters: int = 0
    revised: bool = False
    boxes: list[Element] = field(default_factory=list)
    fields: list[bool] = field(default_factory=list)  # open fields, the innermost last: still in its instructions?


class _Reader:
    def __init__(self, package: Package) -> None:
        self._package = package
        self._left_out: dict[str, int] = {}
        self._styles, self._lists = _styles(package)
        self._numbers = _numbering(package)
        self._cells = 0

    def document(self, root: Element) -> Document:
        body = root.find(f"{W}body")
        if body is None:
            raise Refused("no_word_document", f"{MAIN} has no body")
        others = sum(_characters(self._package.xml(name)) for name in self._package.names() if _OTHER_PARTS.match(name))
        total = _characters(root) + others
        self._count("other_parts", others)
        self._drop_fallbacks(root)
        try:
            blocks = self._blocks(body, 0)
        except RecursionError:
            raise Refused("too_deep", "nested deeper than any document") from None
        read = sum(characters(block) for block in blocks)
        self._count("unread_markup", total - read - sum(self._left_out.values()))
        return Document(blocks, total, self._left_out)

    def _drop_fallbacks(self, root: Element) -> None:
        """What older programs would show instead of what newer ones do is the same text again."""
        for alternative in list(root.iter(f"{MC}AlternateContent")):
            for fallback in alternative.findall(f"{MC}Fallback") if alternative.find(f"{MC}Choice") is not None else ():
                self._leave_out("alternative_content", fallback)
                alternative.remove(fallback)

    # --- blocks -----------------------------------------------------------------------------------------------

    def _blocks(self, parent: Element, depth: int) -> list[Paragraph | WordTable]:
        if depth > MAX_DEPTH:
            raise Refused("too_deep", "nested deeper than any document")
        blocks: list[Paragraph | WordTable] = []
        joined: Paragraph | None = None
        for child in _children(parent):
            if child.tag == f"{W}p":
                paragraph, mark_deleted, boxes = self._paragraph(child)
                if joined is not None:
                    joined.text += paragraph.text
                    joined.characters += paragraph.characters
                    joined.revised = True
                elif not (mark_deleted and not paragraph.text):
                    blocks.append(paragraph)
                    joined = paragraph
                # The mark of a deleted paragraph end: what follows continues in this one.
                joined = joined if mark_deleted else None
                for box in boxes:
                    blocks += self._blocks(box, depth + 1)
            elif child.tag == f"{W}tbl":
                joined = None
                blocks.append(self._table(child, depth + 1))
            elif _is_prompt(child):
                self._leave_out("placeholder", child)
            elif child.tag in (f"{W}sdt", f"{W}customXml", f"{W}smartTag", f"{W}ins", f"{W}moveTo"):
                joined = None
                blocks += self._blocks(_content(child), depth + 1)
            elif child.tag in (f"{W}del", f"{W}moveFrom"):
                self._leave_out("tracked_deletion", child)
        return blocks

    def _paragraph(self, element: Element) -> tuple[Paragraph, bool, list[Element]]:
        properties = element.find(f"{W}pPr")
        run = _Run()
        self._inline(element, run, 0, None)
        text = "".join(run.parts).strip("\n")
        marks = properties.find(f"{W}rPr") if properties is not None else None
        deleted = marks is not None and (marks.find(f"{W}del") is not None or marks.find(f"{W}moveFrom") is not None)
        inserted = marks is not None and marks.find(f"{W}ins") is not None
        level = self._level(properties)
        if text.strip() and not level:
            text = self._list_mark(properties) + text
        revised = run.revised or deleted or inserted
        return Paragraph(text, level, revised, run.characters), deleted, run.boxes

    def _level(self, properties: Element | None) -> int:
        if properties is None:
            return 0
        outline = properties.find(f"{W}outlineLvl")
        if outline is not None and (outline.get(f"{W}val") or "9").isdigit() and int(outline.get(f"{W}val", "9")) < 9:
            return int(outline.get(f"{W}val", "0")) + 1
        style = properties.find(f"{W}pStyle")
        return self._styles.get(style.get(f"{W}val", ""), 0) if style is not None else 0

    def _list_mark(self, properties: Element | None) -> str:
        numbering = properties.find(f"{W}numPr") if properties is not None else None
        style = _value(properties.find(f"{W}pStyle")) if properties is not None else None
        number, level = self._lists.get(style or "", (None, "0"))
        if numbering is not None:
            number = _value(numbering.find(f"{W}numId")) or number
            level = _value(numbering.find(f"{W}ilvl")) or level
        if number in (None, "0"):
            return ""
        indent = "  " * min(int(level) if level.isdigit() else 0, 8)
        return f"{indent}{'1.' if self._numbers.get((number, level)) else '-'} "

    # --- text -------------------------------------------------------------------------------------------------

    def _inline(self, parent: Element, run: _Run, depth: int, listed: str | None) -> None:
        if depth > MAX_DEPTH:
            raise Refused("too_deep", "nested deeper than any document")
        for child in _children(parent):
            tag = child.tag
            if tag == f"{W}r":
                self._one_run(child, run)
            elif tag in (f"{M}oMath", f"{M}oMathPara"):
                text = "".join(each.text or "" for each in child.iter(f"{M}t"))
                run.parts.append(text)
                run.characters += len(text)
            elif tag in (f"{W}del", f"{W}moveFrom"):
                self._leave_out("tracked_deletion", child)
                run.revised = True
            elif tag in (f"{W}ins", f"{W}moveTo"):
                run.revised = True
                self._inline(child, run, depth + 1, listed)
            elif tag == f"{W}sdt":
                self._control(child, run, depth)
            elif tag in (f"{W}hyperlink", f"{W}fldSimple", f"{W}smartTag", f"{W}customXml", f"{W}dir", f"{W}bdo"):
                self._inline(child, run, depth + 1, listed)

    def _control(self, control: Element, run: _Run, depth: int) -> None:
        properties = control.find(f"{W}sdtPr")
        if properties is not None:
            box = properties.find(f"{W14}checkbox")
            if box is not None:
                state = box.find(f"{W14}checked")
                checked = state is not None and state.get(f"{W14}val") in ("1", "true")
                run.parts.append(CHECKED if checked else UNCHECKED)
                run.characters += _characters(control)
                return
        if _is_prompt(control):
            self._leave_out("placeholder", control)
            return
        self._inline(_content(control), run, depth + 1, None)

    def _one_run(self, element: Element, run: _Run) -> None:
        """One run's text; a field may go over several runs, and hold another."""
        properties = element.find(f"{W}rPr")
        if properties is not None and _is_on(properties.find(f"{W}vanish")):
            self._leave_out("hidden_text", element)
            return
        for child in _children(element):
            tag = child.tag
            if tag == f"{W}fldChar":
                kind = child.get(f"{W}fldCharType")
                if kind == "begin":
                    run.fields.append(True)
                    run.parts.append(_form_field(child))
                elif kind == "separate" and run.fields:
                    run.fields[-1] = False
                elif kind == "end" and run.fields:
                    run.fields.pop()
            elif tag == f"{W}delText":  # outside of a deletion: no program shows it
                self._leave_out("tracked_deletion", child)
            elif tag == f"{W}t" and any(run.fields):
                self._leave_out("field_code", child)
            elif tag == f"{W}t":
                run.parts.append(child.text or "")
                run.characters += len(child.text or "")
            elif tag == f"{W}sym":
                run.parts.append(symbol(child.get(f"{W}font", ""), child.get(f"{W}char", "")))
            elif tag == f"{W}tab":
                run.parts.append("\t")
            elif tag == f"{W}cr" or (tag == f"{W}br" and child.get(f"{W}type") not in ("page", "column")):
                run.parts.append("\n")
            elif tag == f"{W}noBreakHyphen":
                run.parts.append("-")
            elif tag == f"{W}ruby":
                self._ruby(child, run)
            elif tag in (f"{W}drawing", f"{W}pict", f"{W}object"):
                run.boxes += _outermost(child, f"{W}txbxContent")

    def _ruby(self, element: Element, run: _Run) -> None:
        """Text with a reading aid above it, which is left out."""
        base, above = element.find(f"{W}rubyBase"), element.find(f"{W}rt")
        if above is not None:
            self._leave_out("reading_aid", above)
        if base is not None:
            self._inline(base, run, 0, None)

    def _leave_out(self, rule: str, element: Element) -> None:
        self._count(rule, _characters(element))

    def _count(self, rule: str, characters: int) -> None:
        if characters:
            self._left_out[rule] = self._left_out.get(rule, 0) + characters

    # --- tables -----------------------------------------------------------------------------------------------

    def _table(self, element: Element, depth: int) -> WordTable:
        table = WordTable()
        for row in _through_controls(element, f"{W}tr"):
            properties = row.find(f"{W}trPr")
            if properties is not None and properties.find(f"{W}del") is not None:
                self._leave_out("tracked_deletion", row)
                continue
            if properties is not None and properties.find(f"{W}ins") is not None:
                table.revised_rows.add(len(table.rows))
            table.rows.append(self._row(row, properties, depth))
        return table

    def _row(self, row: Element, properties: Element | None, depth: int) -> list[WordCell]:
        before = _value(properties.find(f"{W}gridBefore")) if properties is not None else None
        cells = [WordCell(span=_span(before))] if before and before != "0" else []
        prompts = {id(cell) for prompt in row.iter(f"{W}sdt") if _is_prompt(prompt) for cell in _cells_of(prompt)}
        for cell in _through_controls(row, f"{W}tc"):
            self._cells += 1
            if self._cells > MAX_CELLS:
                raise Refused("too_large", f"more than {MAX_CELLS:,} cells")
            told = cell.find(f"{W}tcPr")
            merge = told.find(f"{W}vMerge") if told is not None else None
            deleted = told is not None and told.find(f"{W}cellDel") is not None
            if deleted:
                self._leave_out("tracked_deletion", cell)
                continue
            if prompt := id(cell) in prompts:
                self._leave_out("placeholder", cell)
            cells.append(
                WordCell(
                    blocks=[] if prompt else self._blocks(cell, depth + 1),
                    span=_span(_value(told.find(f"{W}gridSpan")) if told is not None else None),
                    merge=None if merge is None else merge.get(f"{W}val", "continue"),
                    source=cell,
                )
            )
        return cells


# --- XML --------------------------------------------------------------------------------------------------------


def _characters(element: Element) -> int:
    return sum(len(each.text or "") for each in element.iter() if each.tag in _TEXTS)


def _children(parent: Element) -> Iterator[Element]:
    """The children, alternative content taken once: the choice for newer programs, not what older ones fall back to."""
    for child in parent:
        if child.tag == f"{MC}AlternateContent":
            chosen = child.find(f"{MC}Choice")
            yield from _children(chosen if chosen is not None else child.find(f"{MC}Fallback") or ())  # type: ignore[arg-type]
        else:
            yield child


def _through_controls(parent: Element, tag: str) -> Iterator[Element]:
    """Rows or cells, those within content controls included."""
    waiting = list(_children(parent))[::-1]
    while waiting:
        child = waiting.pop()
        if child.tag == tag:
            yield child
        elif child.tag in (f"{W}sdt", f"{W}customXml", f"{W}ins", f"{W}moveTo"):
            waiting += list(_children(_content(child)))[::-1]


def _cells_of(control: Element) -> Iterator[Element]:
    """The cells that a content control is round, not those of tables within them."""
    return _through_controls(_content(control), f"{W}tc")


def _is_prompt(element: Element) -> bool:
    """A content control that nobody filled in: it shows what to do."""
    return element.tag == f"{W}sdt" and element.find(f"{W}sdtPr/{W}showingPlcHdr") is not None


def _outermost(parent: Element, tag: str) -> list[Element]:
    """Descendants with this tag that stand in no other such."""
    found: list[Element] = []
    waiting = [parent]
    while waiting:
        element = waiting.pop()
        if element.tag == tag:
            found.append(element)
        else:
            waiting += list(_children(element))[::-1]
    return found


def _content(control: Element) -> Element:
    found = control.find(f"{W}sdtContent")
    return control if control.tag != f"{W}sdt" else found if found is not None else Element("empty")


def _value(element: Element | None) -> str | None:
    return element.get(f"{W}val") if element is not None else None


def _is_on(element: Element | None) -> bool:
    return element is not None and element.get(f"{W}val", "true") not in ("0", "false", "off")


def _span(value: str | None) -> int:
    return min(max(int(value), 1), MAX_COLUMNS) if value and value.isdigit() and len(value) < 6 else 1


def _form_field(element: Element) -> str:
    """The state of a legacy form field: a box, or the chosen item of a list."""
    box = element.find(f"{W}ffData/{W}checkBox")
    if box is not None:
        state = box.find(f"{W}checked") if box.find(f"{W}checked") is not None else box.find(f"{W}default")
        return CHECKED if _is_on(state) else UNCHECKED
    chosen = element.find(f"{W}ffData/{W}ddList")
    if chosen is None:
        return ""
    entries = [_value(entry) or "" for entry in chosen.findall(f"{W}listEntry")]
    index = _value(chosen.find(f"{W}result")) or _value(chosen.find(f"{W}default")) or "0"
    return entries[int(index)] if index.isdigit() and int(index) < len(entries) else ""


def _styles(package: Package) -> tuple[dict[str, int], dict[str, tuple[str | None, str]]]:
    """The heading level of each paragraph style that is one, and the list and level of those that are of a list."""
    if "word/styles.xml" not in package:
        return {}, {}
    levels: dict[str, int] = {}
    lists: dict[str, tuple[str | None, str]] = {}
    parents: dict[str, str] = {}
    for style in package.xml("word/styles.xml").iter(f"{W}style"):
        identity = style.get(f"{W}styleId", "")
        named = _HEADING.match(_value(style.find(f"{W}name")) or "")
        outline = _value(style.find(f"{W}pPr/{W}outlineLvl"))
        parents[identity] = _value(style.find(f"{W}basedOn")) or ""
        if named:
            levels[identity] = int(named[1])
        elif outline and outline.isdigit() and int(outline) < 9:
            levels[identity] = int(outline) + 1
        if (number := _value(style.find(f"{W}pPr/{W}numPr/{W}numId"))) is not None:
            lists[identity] = number, _value(style.find(f"{W}pPr/{W}numPr/{W}ilvl")) or "0"
    return (
        {identity: level for identity in parents if (level := _inherited(identity, levels, parents))},
        {identity: found for identity in parents if (found := _inherited(identity, lists, parents))},
    )


def _inherited(identity: str, known: Mapping[str, T], parents: Mapping[str, str]) -> T | None:
    for _ in range(20):
        if identity in known:
            return known[identity]
        identity = parents.get(identity, "")
    return None


def _numbering(package: Package) -> dict[tuple[str, str], bool]:
    """Which levels of which lists count, by number and level; the others have bullets."""
    if "word/numbering.xml" not in package:
        return {}
    root = package.xml("word/numbering.xml")
    formats = {
        (abstract.get(f"{W}abstractNumId", ""), level.get(f"{W}ilvl", "")): _value(level.find(f"{W}numFmt"))
        for abstract in root.findall(f"{W}abstractNum")
        for level in abstract.findall(f"{W}lvl")
    }
    numbered = {}
    for number in root.findall(f"{W}num"):
        abstract = _value(number.find(f"{W}abstractNumId"))
        for (owner, level), kind in formats.items():
            if owner == abstract:
                numbered[number.get(f"{W}numId", ""), level] = kind not in ("bullet", "none", None)
    return numbered


def characters(block: Paragraph | WordTable) -> int:
    """How much of the source's text a block stands for."""
    if isinstance(block, Paragraph):
        return block.characters
    return sum(characters(inner) for row in block.rows for cell in row for inner in cell.blocks)


def text_of(blocks: Iterable[Paragraph | WordTable]) -> str:
    """Blocks as Markdown; a table within is one."""
    parts = [block.text.rstrip() if isinstance(block, Paragraph) else markdown_table(block) for block in blocks]
    lines: list[str] = []
    for part in filter(None, parts):
        is_item = re.match(r"\s*(?:-|1\.) ", part)
        if lines and not (is_item and re.match(r"\s*(?:-|1\.) ", lines[-1])):
            lines.append("")
        lines.append(part)
    return "\n".join(lines)


def markdown_table(table: WordTable) -> str:
    """A table as GitHub's Markdown has it."""
    rows = [[" ".join(text_of(cell.blocks).split()).replace("|", "\\|") for cell in row] for row in table.rows]
    width = max((len(row) for row in rows), default=0)
    if not width:
        return ""
    padded = [row + [""] * (width - len(row)) for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in padded]
    return "\n".join([lines[0], "|" + "---|" * width, *lines[1:]])
