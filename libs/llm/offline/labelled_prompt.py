"""Reads a Markdown prompt with a Labels section: what it says about each label, and where. Pure.

---
name: support-intents            (front matter, optional)
---
Instructions in free text.

## Labels
### card_fee
What the label means, in free text.

Examples:
- why was I charged for my card
### card_lost
...
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from libs.llm.base import PromptError

EXAMPLES_LINE = "Examples:"

_EXPECTED = "expected a '## Labels' section with '### name' headings"
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)$")
_EXAMPLES = re.compile(r"[ \t]*\*{0,2}examples?[ \t]*:?[ \t]*\*{0,2}:?[ \t]*$", re.IGNORECASE)
_ITEM = re.compile(r"[ \t]*[-*][ \t]+(.*)$")
_QUOTED = re.compile(r"([\"'`])(.+)\1$")


@dataclass(frozen=True)
class LabelSpec:
    """What a prompt says about one label.

    Lines count from 1 in the parsed text. `line` is the heading, `examples_line` the `Examples:` marker where
    there is one, `last_line` the label's last line that is not blank: new text goes after it.
    """

    name: str
    description: str
    examples: tuple[str, ...]
    line: int
    examples_line: int | None
    last_line: int

    @property
    def title(self) -> str:
        """The name as words: `card_fee?` reads `card fee`."""
        return " ".join(re.sub(r"[_\-.?/]+", " ", self.name).split())


def split_lines(text: str) -> list[str]:
    """Lines with their ends, split at `\\n` only, so that joining them gives the text back exactly."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def parse_labels(text: str) -> list[LabelSpec]:
    """The labels of a prompt, in order; never empty.

    Raises `PromptError` naming the line for a heading without a name, a name used twice, or a Labels section
    without labels, and without a line when there is no such section. Messages never quote the prompt.
    """
    if not text.strip():
        raise PromptError(f"the prompt is empty: {_EXPECTED}")
    drafts, section_line = _read(text)
    if section_line is None:
        raise PromptError(f"no labels: {_EXPECTED}")
    if not drafts:
        raise PromptError("the '## Labels' section has no '### name' headings", line=section_line)
    _check_names(drafts)
    return [draft.finished() for draft in drafts]


def _check_names(drafts: "list[_Draft]") -> None:
    seen: dict[str, int] = {}
    for draft in drafts:
        if not draft.name:
            raise PromptError("a label heading without a name: expected '### name'", line=draft.line)
        if draft.name in seen:
            raise PromptError(f"a label of this name is already at line {seen[draft.name]}", line=draft.line)
        seen[draft.name] = draft.line


@dataclass
class _Draft:
    name: str
    line: int
    last_line: int
    prose: list[str] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)
    examples_line: int | None = None

    def add(self, line: "_Line") -> None:
        if not line.text.strip():
            return
        self.last_line = line.number
        if line.fence:
            return
        if self.examples_line is None:
            self._add_prose(line)
        elif not line.fenced:
            self._add_example(line.text)

    def _add_prose(self, line: "_Line") -> None:
        if not line.fenced and _EXAMPLES.match(line.text):
            self.examples_line = line.number
        else:
            self.prose.append(line.text.strip())

    def _add_example(self, text: str) -> None:
        if item := _ITEM.match(text):
            self.examples.append(unquoted(item[1].strip()))
        elif self.examples and text[0] in " \t":
            self.examples[-1] = f"{self.examples[-1]} {text.strip()}".strip()

    def finished(self) -> LabelSpec:
        return LabelSpec(
            name=self.name,
            description=" ".join(self.prose),
            examples=tuple(example for example in self.examples if example),
            line=self.line,
            examples_line=self.examples_line,
            last_line=self.last_line,
        )


def _read(text: str) -> tuple[list[_Draft], int | None]:
    """The labels as found, and the line of the (first) Labels section."""
    drafts: list[_Draft] = []
    section_line: int | None = None
    inside = False
    for line in _lines(text):
        heading = None if line.fenced else _HEADING.match(line.text)
        level = len(heading[1]) if heading else 0
        title = (heading[2] or "").strip() if heading else ""
        if 0 < level <= 2:
            inside = level == 2 and title.rstrip(":").strip().casefold() == "labels"
            section_line = line.number if inside and section_line is None else section_line
        elif inside and level == 3:
            drafts.append(_Draft(unquoted(title), line.number, line.number))
        elif inside and drafts:
            drafts[-1].add(line)
    return drafts, section_line


@dataclass(frozen=True)
class _Line:
    number: int
    text: str
    fenced: bool
    fence: bool = False


def _lines(text: str) -> Iterator[_Line]:
    """Lines after the front matter, each with whether it is in a code fence (the fence lines are, too)."""
    lines = [line.rstrip("\r\n") for line in split_lines(text)]
    opened = ""
    for index in range(_front_matter(lines), len(lines)):
        fence = _FENCE.match(lines[index])
        if not opened and fence:
            opened = fence[1]
            yield _Line(index + 1, lines[index], fenced=True, fence=True)
        elif fence and fence[1].startswith(opened) and not fence[2].strip():
            opened = ""
            yield _Line(index + 1, lines[index], fenced=True, fence=True)
        else:
            yield _Line(index + 1, lines[index], fenced=bool(opened))


def _front_matter(lines: list[str]) -> int:
    """How many lines the YAML front matter takes; 0 when there is none or it is never closed."""
    if not lines or lines[0].lstrip("\ufeff").rstrip() != "---":
        return 0
    ends = (index for index in range(1, len(lines)) if lines[index].rstrip() in ("---", "..."))
    return next(ends, -1) + 1


def unquoted(text: str) -> str:
    """The text without one pair of quotes or backticks around it: `- "lost my card"` means what is inside."""
    quoted = _QUOTED.fullmatch(text)
    return quoted[2].strip() if quoted else text
