"""`markdown_heading_v1`: Markdown whose headings, or bold lines under them, are the questions.

A heading that holds a question, after its id, is the question; under any other heading each paragraph that begins with
a bold question is one. Lines like `**Topics**: a, b` tell about a pair, a quote that begins with `**When asked**` is
another way to ask, an index of topics and a flag of duplicates are no pairs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

from services.qa_ingest.domain.blocks import Problem, normalise
from services.qa_ingest.domain.envelope import (
    FRAGMENT,
    MAX_ANSWER,
    MAX_ID,
    MAX_QUESTION,
    MAX_TEXT,
    Envelope,
    Extracted,
    Notice,
    Place,
    Reject,
    Tally,
    Variant,
    excerpt,
)
from services.qa_ingest.domain.strict_yaml import NotStrictYaml, plain, read_mapping
from services.qa_ingest.extractors.base import Extractor, File, FileRejected
from services.qa_ingest.extractors.text import decode

CONFIDENCE = 0.9

_ID = re.compile(r"[^\w\[\]]*\[?([A-Z][A-Z0-9]{1,11}-\d{1,6})\]?\s*[:.)–—-]*\s*(.*)\Z", re.DOTALL)
_NUMBER = re.compile(r"(?:Q\s*)?\d{1,4}(?:\.\d{1,4})*[.):]\s+(?=\S)", re.IGNORECASE)
_QUESTION = re.compile(r"[?？؟⁇]\W*\Z")
_ASKS = re.compile(
    r"(?:\A|[.!?]\s+)(?:what|who|whom|whose|which|when|where|why|how)\s+(?:(?!(?:i|it|our|they|this|to|we|you)\b)\w+\s+){0,3}?"
    r"(?:am|are|can|could|did|do|does|has|have|is|may|must|shall|should|was|were|will|would)\b[^.!]*\Z",
    re.IGNORECASE,
)
_REQUESTS = re.compile(
    r"(?:please\s+)?(?:confirm|describe|detail|explain|give|identify|list|outline|provide|specify|state|summari[sz]e)\s+\w+",
    re.IGNORECASE,
)
_DEDUP = re.compile(r"\bdedup", re.IGNORECASE)
_INDEX = re.compile(r"\b(?:topic index|table of contents|contents)\W*\Z", re.IGNORECASE)
_IDS = re.compile(r"\b[A-Z][A-Z0-9]{1,11}-\d{1,6}\b")
_FIELD = re.compile(r"(?:\*\*|__)([^*_:\n]{1,40}?)(?:(?:\*\*|__)[ \t]*:|:(?:\*\*|__))[ \t]*(.*)\Z")
_BOLD = re.compile(r"(?:\*\*|__)(.+?)(?:\*\*|__)[ \t]*(.*)\Z", re.DOTALL)
_VARIANT_FIELD = re.compile(r"(?:\*\*|__)(When asked|Source|Detail)(?:(?:\*\*|__)\s*:|:(?:\*\*|__))", re.IGNORECASE)
_SENSITIVE = re.compile(r"\A\W*SENSITIVE\b")
_RULE_LINE = re.compile(r" {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})\Z")
# Bounded, so that a line of marks that never close costs no more than its length.
_EMPHASIS = re.compile(r"(\*\*|__|\*|_|`{1,5})(?=\S)(.{1,300}?)(?<=\S)\1")
_LINK = re.compile(r"!?\[([^\]]{0,300})\]\([^)]{0,2000}\)")

FIELDS = frozenset({
    "id", "source", "sources", "topic", "topics", "from", "merged from", "status", "last updated", "tags", "category",
    "entries", "version", "owner", "reviewed", "context", "cross-reference", "related",
})  # fmt: skip


@dataclass(slots=True)
class _Block:
    """A block of the document: lines `start` to `end`, from 0, the end not included."""

    kind: str
    start: int
    end: int
    level: int = 0
    text: str = ""


@dataclass(slots=True)
class _Section:
    """Text under one heading, or under one bold question of it."""

    question: str | None
    start: int
    level: int
    path: tuple[str, ...]
    id_token: str | None = None
    end: int = 0
    body: list[_Block] = field(default_factory=list)
    first_line: str = ""
    by_bold: bool = False
    skipped_as: str | None = None


class MarkdownHeading(Extractor):
    """See the module."""

    kind = "markdown_heading_v1"
    version = "1"
    suffixes: Sequence[str] = (".md", ".markdown")

    def extract(self, file: File) -> Extracted:
        """Every question with its answer; what looks like one and is none is named."""
        text = normalise(decode(file.content))
        return _Document(text).extracted(self.kind, self.version)


class _Document:
    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._sizes = [len(line) + 1 for line in self._lines]
        self._sizes[-1] -= 1
        self._tally = Tally(len(text))
        self._pairs: list[Envelope] = []
        self._rejects: list[Reject] = []
        self._notices: list[Notice] = []
        self._duplicates: dict[str, list[str]] = {}
        self._front: dict[str, object] = {}
        self._inherited = _Told()
        self._begin = self._front_matter()

    def extracted(self, kind: str, version: str) -> Extracted:
        """Everything in the document."""
        sections = self._sections(self._blocks())
        if not any(section.question for section in sections):
            told = "no heading and no bold line of the file is a question"
            raise FileRejected("no_questions", [Problem(1, told)])
        for section in sections:
            self._take(section)
        pairs = tuple(
            pair.model_copy(update={"duplicates": tuple(self._duplicates.get(pair.id_token or "", ()))})
            for pair in self._pairs
        )
        return Extracted(
            extractor=kind,
            extractor_version=version,
            pairs=pairs,
            rejects=tuple(self._rejects),
            notices=tuple(self._notices),
            losses=self._tally.losses(),
        )

    # --- the document's structure -----------------------------------------------------------------------------

    def _front_matter(self) -> int:
        """Metadata above everything, where there is some; the first line behind it."""
        if not self._lines or self._lines[0].rstrip() != "---":
            return 0
        ends = next((n for n in range(1, len(self._lines)) if self._lines[n].rstrip() == "---"), None)
        if ends is None:
            return 0
        try:
            mapping = read_mapping("\n".join(self._lines[1:ends]))
        except NotStrictYaml:
            return 0
        self._front = plain(mapping) if mapping is not None else {}
        self._rule("front_matter", 0, ends + 1)
        return ends + 1

    def _blocks(self) -> list[_Block]:
        tokens = MarkdownIt("commonmark").enable("table").parse("\n".join(self._lines[self._begin :]))
        blocks = []
        for index, token in enumerate(tokens):
            if token.level or token.map is None or token.nesting < 0:
                continue
            start, end = token.map[0] + self._begin, token.map[1] + self._begin
            text = _inline(tokens, index)
            level = int(token.tag[1:]) if token.type == "heading_open" else 0
            kind = "paragraph" if token.markup == "-" and level and _is_ruled_off(text, end - start) else None
            blocks.append(_Block(kind or token.type.removesuffix("_open"), start, end, level, text))
        for block, after in pairwise(blocks):
            block.end = after.start  # blank lines go with what stands above them
        if blocks:
            blocks[-1].end = len(self._lines)
        return blocks

    def _sections(self, blocks: list[_Block]) -> list[_Section]:
        first = blocks[0].start if blocks else len(self._lines)
        sections = [_Section(None, self._begin, 0, (), end=first, skipped_as="introduction")]
        headings: list[tuple[int, str]] = []
        for block in blocks:
            open_section = sections[-1]
            if block.kind == "heading" and self._stays_in(open_section, block):
                open_section.body.append(block)
            elif block.kind == "heading":
                headings = [each for each in headings if each[0] < block.level]
                sections.append(_headed(block, tuple(title for _, title in headings)))
                if sections[-1].question is None:
                    headings.append((block.level, _plain(block.text)[:MAX_TEXT] or "untitled"))
            elif block.kind == "paragraph" and (bold := _bold_question(open_section, block)):
                path = tuple(title for _, title in headings)
                question, rest = bold
                sections.append(
                    _Section(question, block.start, open_section.level, path, first_line=rest, by_bold=True)
                )
            else:
                open_section.body.append(block)
            sections[-1].end = block.end
        return sections

    @staticmethod
    def _stays_in(section: _Section, heading: _Block) -> bool:
        """A deeper heading that asks nothing belongs to the answer, or to the index, above it."""
        if heading.level <= section.level or section.level == 0:
            return False
        if section.skipped_as == "topic_index":
            return True
        return (
            section.question is not None and _headed(heading, ()).question is None and not _DEDUP.search(heading.text)
        )

    # --- what becomes of each section -------------------------------------------------------------------------

    def _take(self, section: _Section) -> None:
        if section.skipped_as == "dedup_flag":
            ids = list(dict.fromkeys(_IDS.findall("\n".join(self._lines[section.start : section.end]))))
            for one in ids:
                self._duplicates.setdefault(one, []).extend(other for other in ids if other != one)
        if section.question is None:
            self._leave_out(section)
        else:
            self._pair(section, section.question)

    def _leave_out(self, section: _Section) -> None:
        self._inherited = _Told()
        said = [block for block in section.body if block.kind not in ("hr", "html_block")]
        title = section.start < section.end and section.skipped_as is None
        if section.skipped_as is not None or not said or (title and section.level == 1):
            rule = section.skipped_as or ("introduction" if section.level == 1 else "section_heading")
            self._rule(rule, section.start, section.end)
            return
        self._inherited = self._about(section)
        if not _trimmed(self._inherited.answer) and not self._inherited.variants:
            self._rule("metadata_line", section.start, section.end)
            return
        message = "text under a heading that is no question, without a bold question"
        self._reject("no_question", message, section, section.start, section.end)

    def _pair(self, section: _Section, question: str) -> None:
        told = self._about(section)
        answer = "\n\n".join(filter(None, [_trimmed([section.first_line]), _trimmed(told.answer)])).strip("\n")
        if not answer.strip():
            self._reject("no_answer", "a question without an answer", section, section.start, section.end)
            return
        for text, most, what in ((question, MAX_QUESTION, "question"), (answer, MAX_ANSWER, "answer")):
            if len(text) > most:
                message = f"the {what} has {len(text):,} characters; the most is {most:,}"
                self._reject(f"{what}_too_long", message, section, section.start, section.end)
                return
        fields = {**(self._inherited.fields if section.by_bold else {}), **told.fields}
        own_id = fields.pop("id", "")[:MAX_ID]
        self._pairs.append(
            Envelope(
                ordinal=len(self._pairs),
                place=Place(line=section.start + 1, section_path=section.path),
                question=question,
                answer_text=answer,
                answer_standard=answer,
                id_token=section.id_token or own_id or None,
                variants=tuple(told.variants),
                scope_tags=_tags(fields.pop("topics", "") or fields.pop("topic", "") or fields.pop("tags", "")),
                confidence=CONFIDENCE,
                citations=tuple(filter(None, [(fields.pop("source", "") or fields.pop("sources", ""))[:MAX_TEXT]])),
                sensitive=told.sensitive or (section.by_bold and self._inherited.sensitive),
                fragment=len(answer) < FRAGMENT,
                metadata={**self._front, **fields},
            )
        )
        self._tally.pair(sum(self._sizes[section.start : section.end]))

    def _about(self, section: _Section) -> _Told:
        told = _Told()
        for block in section.body:
            lines = self._lines[block.start : block.end]
            if block.kind == "blockquote" and (variant := _variant(lines)):
                told.variants.append(variant)
            elif block.kind == "blockquote" and _SENSITIVE.search(_unquoted(lines)):
                told.sensitive = True
            elif block.kind == "paragraph" and not told.begun and self._is_fields(block):
                told.fields.update(_fields(lines))
            else:
                told.begun = True
                told.answer += lines
        return told

    def _is_fields(self, block: _Block) -> bool:
        if block.kind != "paragraph":
            return False
        lines = [line for line in self._lines[block.start : block.end] if line.strip()]
        return bool(lines) and len(_fields(lines)) == len(lines)

    def _rule(self, name: str, start: int, end: int) -> None:
        self._tally.rule(name, sum(self._sizes[start:end]))

    def _reject(self, reason: str, message: str, section: _Section, start: int, end: int) -> None:
        characters = sum(self._sizes[start:end])
        self._tally.reject(characters)
        place = Place(line=start + 1, section_path=section.path)
        seen = excerpt(self._lines[start:end])
        self._rejects.append(Reject(reason=reason, message=message, place=place, excerpt=seen, characters=characters))


@dataclass(slots=True)
class _Told:
    """What the blocks under a question say."""

    answer: list[str] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)
    variants: list[Variant] = field(default_factory=list)
    sensitive: bool = False
    begun: bool = False


def _headed(block: _Block, path: tuple[str, ...]) -> _Section:
    title = _plain(block.text)
    found = _ID.match(title)
    token, rest = (found[1], found[2].strip()) if found else (None, title)
    rest = _NUMBER.sub("", rest, count=1)
    section = _Section(None, block.start, block.level, path, end=block.end)
    if _DEDUP.search(title):
        section.skipped_as = "dedup_flag"
    elif _INDEX.search(title):
        section.skipped_as = "topic_index"
    elif rest and (token or _QUESTION.search(rest) or _ASKS.search(rest) or _REQUESTS.match(rest)):
        section.question, section.id_token = rest, token
    return section


def _bold_question(section: _Section, block: _Block) -> tuple[str, str] | None:
    """The question that a paragraph begins with, in bold, and the rest of it; under a question it is answer."""
    if section.skipped_as in ("topic_index", "dedup_flag") or (section.question is not None and not section.by_bold):
        return None
    found = _BOLD.match(block.text)
    if found is None or not _QUESTION.search(found[1]):
        return None
    return _plain(found[1]), found[2].strip()


def _is_ruled_off(text: str, lines: int) -> bool:
    """Text with a rule right below it, which CommonMark takes for a heading: more than a line, or no title."""
    return lines > 2 or _BOLD.match(text) is not None or text.rstrip().endswith((".", ":", ";", ",", "!"))


def _inline(tokens: list[Token], index: int) -> str:
    after = tokens[index + 1] if index + 1 < len(tokens) else None
    return after.content if after is not None and after.type == "inline" else ""


def _plain(text: str) -> str:
    """A heading's text without emphasis, code marks and link targets."""
    text = _LINK.sub(r"\1", text)
    for _ in range(3):
        text = _EMPHASIS.sub(r"\2", text)
    return " ".join(text.split())


def _fields(lines: Sequence[str]) -> dict[str, str]:
    found = {}
    for line in lines:
        match = _FIELD.match(line.strip().removesuffix("\\").rstrip())
        if match and match[1].strip().casefold() in FIELDS:
            found[match[1].strip().casefold()] = match[2].strip()
    return found


def _unquoted(lines: Sequence[str]) -> str:
    return "\n".join(re.sub(r"^ {0,3}> ?", "", line) for line in lines).strip()


def _variant(lines: Sequence[str]) -> Variant | None:
    """A quote of the form `**When asked**: … **Source**: … **Detail**: …`."""
    text = _unquoted(lines)
    parts = re.split(
        r"(?:\*\*|__)(When asked|Source|Detail)(?:(?:\*\*|__)\s*:|:(?:\*\*|__))", text, flags=re.IGNORECASE
    )
    said = {name.casefold(): value.strip().strip('"“”') for name, value in zip(parts[1::2], parts[2::2], strict=True)}
    question = " ".join(said.get("when asked", "").split())
    if not question or len(question) > MAX_QUESTION:
        return None
    return Variant(
        question=question,
        source=" ".join(said.get("source", "").split())[:MAX_TEXT] or None,
        detail=said.get("detail", "")[:MAX_ANSWER] or None,
    )


def _tags(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tag.strip()[:MAX_TEXT] for tag in re.split(r"[,;|]", text) if tag.strip()))


def _trimmed(lines: list[str]) -> str:
    """Without blank lines and rules at both ends."""
    kept = list(lines)
    while kept and (not kept[-1].strip() or _RULE_LINE.match(kept[-1])):
        kept.pop()
    while kept and not kept[0].strip():
        kept.pop(0)
    return "\n".join(line.rstrip() for line in kept)


MARKDOWN_HEADING = MarkdownHeading()
