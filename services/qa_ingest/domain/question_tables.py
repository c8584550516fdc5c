"""Questions and answers in tables, whatever file the table was in: columns are known by their headers' names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from services.qa_ingest.domain.dates import NotADate, stamped
from services.qa_ingest.domain.envelope import (
    FRAGMENT,
    MAX_ANSWER,
    MAX_ID,
    MAX_QUESTION,
    MAX_TEXT,
    Envelope,
    Notice,
    Place,
    Reject,
    Tally,
    excerpt,
)

Role = Literal[
    "question", "standard", "advanced", "id", "section", "subsection", "tags", "source", "added", "verified"
]  # fmt: skip

CONFIDENCE = 1.0
MAX_LABEL = 300
"""A text over all columns that is longer heads nothing."""
POSITIONAL = {
    5: ("question", "standard", "source", "added", "verified"),
    6: ("question", "standard", "advanced", "source", "added", "verified"),
}

# Each role's names as people write them above a column; the first pattern that fits a header decides.
HEADERS: tuple[tuple[Role, str], ...] = (
    ("advanced", r"(answers?|responses?)\b.*\badvanced\b.*|.*\badvanced\b.*\b(answers?|responses?)\b.*|advanced"),
    ("standard", r"((standard|suggested|approved|final|our|model|draft|supplier) )?(answers?|responses?|repl(y|ies))"),
    ("standard", r"(answers?|responses?)\b.*\bstandard\b.*|standard\b.*\b(answers?|responses?)|standard"),
    ("verified", r".*\b(verified|checked|approved by|reviewed)\b.*"),
    ("added", r".*\b(date added|added (date|on)|date|valid from|last updated|updated)\b.*"),
    ("source", r"(source( of information)?|sources|reference document|evidence|origin)"),
    ("id", r"(#|id|no|nr|number|ref|reference|item|question (no|number|id|ref)|q)"),
    ("section", r"(section|(sub-?)?category|topic area|area|theme|domain|chapter|group)"),
    ("tags", r"(tags?|topics?|keywords?|labels?)"),
    ("question", r"(questions?|queries|query|question text|enquiry|the question|customer question|faqs?)"),
)  # fmt: skip
_HEADERS = tuple((role, re.compile(pattern, re.IGNORECASE)) for role, pattern in HEADERS)
_CONTINUED = re.compile(r"\s*[(\[]?\s*(?:continued|cont(?:['’]?d)?\.?)\s*[)\]]?\Z", re.IGNORECASE)
_ASKS = re.compile(
    r"[?？؟]|\A(?:what|who|which|when|where|why|how|can|do|does|is|are|please|describe|explain|provide|list|confirm)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a grid. `covered`: part of a merged one whose place is elsewhere; the text is that one's."""

    text: str = ""
    covered_from_left: bool = False
    covered_from_above: bool = False
    revised: bool = False
    characters: int | None = None

    @property
    def weight(self) -> int:
        """How many characters of the source it stands for, where that is not the length of its text."""
        if self.characters is not None:
            return self.characters
        return 0 if self.covered else len(self.text)

    @property
    def covered(self) -> bool:
        """Not the first cell of what is merged."""
        return self.covered_from_left or self.covered_from_above


@dataclass(frozen=True, slots=True)
class Table:
    """A grid, and where it stands.

    `follows_on`: nothing but blank text stands between it and the table before; `below_heading`: or headings alone.
    """

    rows: Sequence[Sequence[Cell]]
    index: int
    section_path: tuple[str, ...] = ()
    sheet: str | None = None
    follows_on: bool = False
    below_heading: bool = False
    first_row: int = 0


@dataclass(slots=True)
class Found:
    """What tables came to; characters are counted into the file's tally."""

    tally: Tally
    pairs: list[Envelope] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Columns:
    roles: Mapping[Role, int]
    names: Mapping[int, str]
    width: int

    @property
    def pattern(self) -> str:
        """Which of the known layouts this is."""
        if "id" in self.roles or "section" in self.roles:
            return "docx_pattern_c"
        return "docx_pattern_a" if "advanced" in self.roles else "docx_pattern_b"


def size(rows: Sequence[Sequence[Cell]]) -> int:
    """How many characters a grid holds; what is merged counts once."""
    return sum(cell.weight for row in rows for cell in row)


def read(tables: Sequence[Table], found: Found, *, positional: bool = False) -> None:
    """Take every table apart into `found`."""
    columns: _Columns | None = None
    for table in tables:
        inherited = columns if columns and _goes_on(table, columns) else None
        columns = _read_table(table, inherited, found, positional)


def _read_table(table: Table, inherited: _Columns | None, found: Found, positional: bool) -> _Columns | None:
    columns, section = inherited, list(table.section_path)
    pending: list[tuple[int, Sequence[Cell]]] = []
    if inherited is None and positional and (guessed := _by_position(table)):
        columns = guessed
    for number, row in enumerate(table.rows):
        header = _columns(row)
        if header is not None:
            found.tally.rule("repeated_header" if columns else "table_header", size([row]))
            columns = header
            continue
        if columns is None:
            pending.append((number, row))
            continue
        if not size([row]):
            continue
        if (label := _section_label(row, columns) or _numbered_label(table.rows, number, columns)) is not None:
            if len(label) > MAX_LABEL:
                _reject(
                    table, number, row, ("note", "a text over all columns, too long to head others"), section, found
                )
                continue
            section = [*table.section_path, label]
            found.tally.rule("section_label", size([row]))
            continue
        _read_row(table, number, row, columns, section, found)
    _above_the_header(table, pending, columns, found)
    return columns


def _above_the_header(
    table: Table, pending: Sequence[tuple[int, Sequence[Cell]]], columns: _Columns | None, found: Found
) -> None:
    rows = [row for _, row in pending]
    characters = size(rows)
    if not characters:
        return
    if columns is not None:
        found.tally.rule("table_title", characters)
        return
    found.tally.reject(characters)
    found.rejects.append(
        Reject(
            reason="no_question_header",
            message="a table without a header for questions and one for answers",
            place=_place(table, pending[0][0], table.section_path),
            excerpt=excerpt(cell.text for row in rows for cell in row if not cell.covered),
            characters=characters,
        )
    )


def _read_row(
    table: Table, number: int, row: Sequence[Cell], columns: _Columns, section: Sequence[str], found: Found
) -> None:
    texts = {
        role: "" if _is_of_another(row, at, columns) else _cell(row, at).text.strip()
        for role, at in columns.roles.items()
    }
    place = _place(table, number, _path(section, texts.get("section", ""), texts.get("subsection", "")))
    refusal = _refusal(texts)
    if refusal is not None:
        _reject(table, number, row, refusal, place.section_path, found)
        return
    found.tally.pair(size([row]))
    found.pairs.append(_envelope(row, texts, columns, place, found))


def _reject(
    table: Table, number: int, row: Sequence[Cell], why: tuple[str, str], path: Sequence[str], found: Found
) -> None:
    characters = size([row])
    found.tally.reject(characters)
    seen = excerpt(cell.text for cell in row if not cell.covered)
    place = _place(table, number, path)
    found.rejects.append(Reject(reason=why[0], message=why[1], place=place, excerpt=seen, characters=characters))


def _envelope(
    row: Sequence[Cell], texts: Mapping[Role, str], columns: _Columns, place: Place, found: Found
) -> Envelope:
    standard = texts.get("standard", "") or texts.get("advanced", "")
    taken = set(columns.roles.values())
    others = [(at, cell.text.strip()) for at, cell in enumerate(row) if at not in taken and not cell.covered_from_left]
    kept = {columns.names.get(at, f"column {at + 1}")[:100]: text for at, text in others if text}
    added = _stamp(texts.get("added", ""), "added", place, found, kept)
    verified = _stamp(texts.get("verified", ""), "verified", place, found, kept)
    token = texts.get("id", "")
    if len(token) > MAX_ID:
        kept["id"] = token
    return Envelope(
        ordinal=len(found.pairs),
        extractor=columns.pattern,
        place=place,
        question=texts["question"],
        answer_text=standard,
        answer_standard=standard,
        answer_advanced=texts.get("advanced", "") or None if texts.get("standard") else None,
        id_token=token if 0 < len(token) <= MAX_ID else None,
        scope_tags=_tags(texts.get("tags", "")),
        confidence=CONFIDENCE,
        valid_from=added[0],
        verified_at=verified[0],
        verified_by=verified[1],
        citations=tuple(line.strip()[:MAX_TEXT] for line in texts.get("source", "").splitlines() if line.strip()),
        revised=any(cell.revised for cell in row),
        fragment=len(standard) < FRAGMENT,
        metadata=kept,
    )


def _stamp(
    text: str, role: str, place: Place, found: Found, kept: dict[str, str]
) -> tuple[datetime | None, str | None]:
    try:
        return stamped(text)
    except NotADate as error:
        kept[role] = text
        found.notices.append(Notice(message=f"`{role}` is kept as text: {error}"[:MAX_TEXT], place=place))
        return None, None


def _refusal(texts: Mapping[Role, str]) -> tuple[str, str] | None:
    question = texts.get("question", "")
    answers = [texts.get("standard", ""), texts.get("advanced", "")]
    if not question:
        return "no_question", "a row without a question"
    if not any(answers):
        return "no_answer", "a question without an answer"
    if len(question) > MAX_QUESTION:
        return "question_too_long", f"the question has {len(question):,} characters; the most is {MAX_QUESTION:,}"
    if max(map(len, answers)) > MAX_ANSWER:
        return "answer_too_long", f"the answer has {max(map(len, answers)):,} characters; the most is {MAX_ANSWER:,}"
    return None


# --- what a table is ---------------------------------------------------------------------------------------------


def has_header(rows: Sequence[Sequence[Cell]]) -> bool:
    """Does one of the rows name a column for questions and one for answers?"""
    return any(_columns(row) is not None for row in rows)


def _goes_on(table: Table, columns: _Columns) -> bool:
    """Is it a further piece of the table before? Below a heading only where most of its first texts ask."""
    if columns.width != _width(table) or not (table.follows_on or table.below_heading):
        return False
    asked = [_cell(row, columns.roles["question"]).text.strip() for row in table.rows]
    return table.follows_on or sum(1 for text in asked if _ASKS.search(text)) * 2 > len(asked)


# --- what a row is --------------------------------------------------------------------------------------------


def _columns(row: Sequence[Cell]) -> _Columns | None:
    """The columns, if this row is a header: it names one for questions and one for answers."""
    roles: dict[Role, int] = {}
    names: dict[int, str] = {}
    for at, cell in enumerate(row):
        if cell.covered_from_left:
            continue
        name = _CONTINUED.sub("", " ".join(cell.text.split())).strip(" :*.")
        role = _role(name)
        role = "subsection" if role == "section" and "section" in roles else role
        if role is not None and role not in roles:
            roles[role] = at
        elif name:
            names[at] = name
    if "question" not in roles and "id" in roles and _is_q(row[roles["id"]]):
        roles["question"] = roles.pop("id")
    if "question" not in roles or not {"standard", "advanced"} & set(roles):
        return None
    return _Columns(roles, names, len(row))


def _is_q(cell: Cell) -> bool:
    return cell.text.strip(" :.").casefold() == "q"


def _role(name: str) -> Role | None:
    if not name or len(name) > 80 or name.endswith("?"):
        return None
    if name.casefold() == "a":
        return "standard"
    return next((role for role, pattern in _HEADERS if pattern.fullmatch(name)), None)


def _by_position(table: Table) -> _Columns | None:
    """Five or six columns below an empty row, with texts in the first that ask something."""
    width = _width(table)
    if width not in POSITIONAL or len(table.rows) < 2 or size(table.rows[:1]):
        return None
    first = [row[0].text.strip() for row in table.rows[1:] if row and row[0].text.strip()]
    asking = sum(1 for text in first if _ASKS.search(text))
    if not first or asking * 2 <= len(first):
        return None
    return _Columns({role: at for at, role in enumerate(POSITIONAL[width])}, {}, width)  # type: ignore[misc]


def _section_label(row: Sequence[Cell], columns: _Columns) -> str | None:
    """The text of a row that heads those below: one text over all columns, or in the first with the rest empty."""
    own = [cell for cell in row if not cell.covered and cell.text.strip()]
    if len(own) != 1:
        return None
    text = " ".join(own[0].text.split())
    over_all = len(row) > 1 and row[0] is own[0] and all(cell.covered_from_left for cell in row[1:])
    if over_all:
        return text
    others = [cell for cell in row if cell is not own[0] and not cell.covered_from_left and cell.text.strip()]
    in_front = row.index(own[0]) in (0, columns.roles["question"])
    return text if in_front and not others and not _ASKS.search(text) and len(text) <= 120 else None


def _numbered_label(rows: Sequence[Sequence[Cell]], number: int, columns: _Columns) -> str | None:
    """The text of a row with the number 3 and no answer, where the numbers go on with 3.1 below."""
    at, asked = columns.roles.get("id"), columns.roles["question"]
    if at is None:
        return None
    own = [cell for cell in rows[number] if not cell.covered and cell.text.strip()]
    token = _cell(rows[number], at).text.strip().rstrip(".")
    label = " ".join(_cell(rows[number], asked).text.split())
    below = next((_cell(row, at).text.strip() for row in rows[number + 1 :] if size([row])), "")
    return label if token and label and len(own) == 2 and below.startswith(f"{token}.") else None


def _tags(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tag.strip()[:MAX_TEXT] for tag in re.split(r"[,;|\n]", text) if tag.strip()))


# --- helpers --------------------------------------------------------------------------------------------------


def _cell(row: Sequence[Cell], at: int) -> Cell:
    return row[at] if at < len(row) else Cell()


def _is_of_another(row: Sequence[Cell], at: int, columns: _Columns) -> bool:
    """A cell that is part of one to its left, which has a meaning of its own."""
    begins = at
    while begins and _cell(row, begins).covered_from_left:
        begins -= 1
    return begins != at and begins in columns.roles.values()


def _width(table: Table) -> int:
    return max((len(row) for row in table.rows), default=0)


def _path(section: Sequence[str], *named: str) -> tuple[str, ...]:
    texts = [*section, *(" ".join(name.split()) for name in named)]
    return tuple(text[:MAX_TEXT] for text in texts if text.strip())


def _place(table: Table, row: int, path: Sequence[str]) -> Place:
    return Place(section_path=_path(path), sheet=table.sheet, table_index=table.index, row_index=table.first_row + row)


def rows_of(table: Table) -> Iterator[Sequence[str]]:
    """The texts of a grid, row by row, as a person sees them."""
    for row in table.rows:
        yield ["" if cell.covered_from_left else cell.text for cell in row]


# --- for whoever reads tables with questions alone ----------------------------------------------------------------


def role_of(header: str) -> Role | None:
    """The role of a column with this header; None for a name that is not known."""
    return _role(" ".join(header.split()).strip(" :*."))


def asks(text: str) -> bool:
    """Does a text ask something?"""
    return _ASKS.search(text) is not None
