"""Where new examples of a label go in a prompt's text, as an exact replacement. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from libs.llm.offline.labelled_prompt import EXAMPLES_LINE, LabelSpec, split_lines

_HEADING_WITHIN = 8
"""A passage starts at the label's heading when that is at most this many lines above, for its readers."""


@dataclass(frozen=True)
class Passage:
    """In part number `part`, `before` occurs exactly once (and in no other part) and becomes `after`."""

    part: int
    before: str
    after: str


def with_examples(parts: Sequence[str], spec: LabelSpec, examples: Sequence[str]) -> Passage | None:
    """The passage that adds `examples` to a label of the joined `parts`, under an `Examples:` line.

    `spec` comes from parsing `join_parts(parts)`. Returns None when no passage is unique, as where the same
    text stands in two parts.
    """
    part, lines, offset = _part_of(parts, spec.line)
    heading = spec.line - 1 - offset
    last = min(spec.last_line - offset, len(lines))  # the label's text may go on in the next part
    first = heading if last - heading <= _HEADING_WITHIN else last - 2
    while first >= 0:
        before = "".join(lines[first:last])
        if _occurs_once(before, parts):
            return Passage(part, before, _appended(before, _added(spec, examples), _line_end(lines)))
        first -= 1
    return None


def _part_of(parts: Sequence[str], line: int) -> tuple[int, list[str], int]:
    """Number and lines of the part with this line of the joined text, and how many lines come before it."""
    offset = 0
    for part, text in enumerate(parts):
        lines = split_lines(text)
        if line <= offset + len(lines):
            return part, lines, offset
        offset += len(lines)
    raise ValueError(f"line {line} is beyond the {offset} lines of the prompt")


def _occurs_once(passage: str, parts: Sequence[str]) -> bool:
    found = 0
    for text in parts:
        at = text.find(passage)
        while at >= 0:
            found += 1
            at = text.find(passage, at + 1)  # occurrences may overlap
    return found == 1


def _added(spec: LabelSpec, examples: Sequence[str]) -> list[str]:
    opening = [] if spec.examples_line is not None else ["", EXAMPLES_LINE]
    return [*opening, *(f"- {example}" for example in examples)]


def _appended(before: str, added: Sequence[str], end: str) -> str:
    block = end.join(added)
    return f"{before}{block}{end}" if before.endswith("\n") else f"{before}{end}{block}"


def _line_end(lines: Sequence[str]) -> str:
    return "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
