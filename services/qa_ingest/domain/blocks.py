"""Cuts a bundle into blocks: where metadata opens and closes, and which text belongs to which pair.

A column-0 `---` opens metadata only where the text up to the next one is a strict YAML mapping that holds `question` or
`id`. CommonMark would read it as a rule or as a heading's underline, depending on what stands above it; here a rule
stays part of the answer, and metadata is metadata with or without a blank line around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from services.qa_ingest.domain.strict_yaml import Mapping, NotStrictYaml, read_mapping

_RULE = re.compile(r"---[ \t]*\Z")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)\Z", re.DOTALL)
_MARKS = re.compile("^\ufeff+", re.MULTILINE)
_KEY = re.compile(r"[\"']?([A-Za-z_][\w -]*?)[\"']?[ \t]*:(?:[ \t]|\Z)")


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, or noteworthy, at a line of the file; lines count from 1."""

    line: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


@dataclass(frozen=True, slots=True)
class Block:
    """One block's metadata, and its body: lines `body_start` to `end`, from 0, the end not included.

    `opens` is the line of the `---` above the metadata.
    """

    opens: int
    metadata: Mapping
    body_start: int
    end: int

    @property
    def metadata_start(self) -> int:
        """The first line of the metadata, from 0."""
        return self.opens + 1

    @property
    def metadata_keys(self) -> frozenset[str]:
        """The keys that the metadata has."""
        return frozenset(key.text for key, _ in self.metadata.items)

    def line_of(self, key: str) -> int:
        """The line of a key within the metadata, from 0."""
        return next((name.line for name, _ in self.metadata.items if name.text == key), 0)


@dataclass(frozen=True, slots=True)
class Blocks:
    """A file, cut. `head` is the number of lines above the first block."""

    lines: tuple[str, ...]
    head: int
    blocks: tuple[Block, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    """What stands between two rules."""

    metadata: Mapping | None = None
    problem: Problem | None = None
    warning: Problem | None = None


def normalise(text: str) -> str:
    """Without byte order marks where a line begins, with `\\n` at the end of every line.

    Files that were put together of several have such marks within.
    """
    return _MARKS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def cut(text: str, is_reserved: Callable[[str], bool]) -> Blocks:
    """The blocks of a normalised text. `is_reserved` tells whether a word makes a text between two rules metadata."""
    lines = tuple(text.split("\n"))
    blocks: list[Block] = []
    problems: list[Problem] = []
    warnings: list[Problem] = []
    fence = _Fence()
    at = 0
    while at < len(lines):
        if fence.holds(lines[at], at) or not _RULE.match(lines[at]):
            at += 1
            continue
        closes = next((n for n in range(at + 1, len(lines)) if _RULE.match(lines[n])), None)
        found = _between(lines, at, closes, is_reserved)
        problems += [found.problem] if found.problem else []
        warnings += [found.warning] if found.warning else []
        if found.metadata is None or closes is None:
            # A rule of the text. After a mistake the file is refused anyway: go on behind it, to tell the others too.
            at = closes + 1 if found.problem and closes is not None else at + 1
            continue
        if blocks:
            blocks[-1] = _ended(blocks[-1], at)
        blocks.append(Block(at, found.metadata, closes + 1, len(lines)))
        at = closes + 1
    problems += _swallowed(lines, fence, is_reserved)
    head = blocks[0].opens if blocks else len(lines)
    return Blocks(lines, head, tuple(blocks), tuple(problems), tuple(warnings))


def outside_fences(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The lines that are no part of a code block, with their numbers from 0."""
    fence = _Fence()
    for number, line in enumerate(lines):
        if not fence.holds(line, number):
            yield number, line


def closing_fence(text: str) -> str:
    """The text, with the code block closed that it leaves open at its end, if it does."""
    fence = _Fence()
    for number, line in enumerate(text.split("\n")):
        fence.holds(line, number)
    return f"{text}\n{fence.mark}" if fence.is_open else text


class _Fence:
    """Follows code fences as CommonMark has them: closed by as many of the same character, with nothing behind."""

    def __init__(self) -> None:
        self.mark = ""
        self.opened_at = 0

    @property
    def is_open(self) -> bool:
        """Inside a code block."""
        return bool(self.mark)

    def holds(self, line: str, number: int) -> bool:
        """Is this line code, or a fence?"""
        found = _FENCE.match(line)
        if self.mark:
            closes = found and found[1][0] == self.mark[0] and len(found[1]) >= len(self.mark)
            if found and closes and not found[2].strip():
                self.mark = ""
            return True
        if found is None or (found[1][0] == "`" and "`" in found[2]):
            return False
        self.mark, self.opened_at = found[1], number
        return True


def _between(lines: Sequence[str], opens: int, closes: int | None, is_reserved: Callable[[str], bool]) -> _Found:
    inner = lines[opens + 1 : closes]
    means_metadata = _first_key_is(inner, is_reserved)
    if closes is None:
        if means_metadata:
            return _Found(problem=Problem(opens + 1, "the metadata that begins here has no `---` below it"))
        return _Found()
    try:
        mapping = read_mapping("\n".join(inner))
    except NotStrictYaml as error:
        if not means_metadata:
            return _Found()
        return _Found(problem=Problem(opens + 2 + error.line, _yaml_message(error, opens + 2)))
    if mapping is None:
        return _Found(warning=_only_comments(inner, opens))
    keys = [key.text for key, _ in mapping.items]
    if "question" in keys or "id" in keys:
        return _Found(metadata=mapping)
    meant = next((key for key, _ in mapping.items if is_reserved(key.text)), None)
    if meant is not None:
        return _Found(problem=Problem(opens + 2 + meant.line, _without_question(meant.text, keys)))
    return _Found()


def _first_key_is(lines: Sequence[str], is_reserved: Callable[[str], bool]) -> bool:
    said = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    key = _KEY.match(said)
    return key is not None and is_reserved(key[1])


def _yaml_message(error: NotStrictYaml, offset: int) -> str:
    if error.first is not None:
        return f"{error.message}, in lines {offset + error.first} and {offset + error.line}"
    if "mapping values are not allowed" in error.message:
        return "a `: ` within a value; put the value in quotes"
    return f"the metadata is no plain YAML: {error.message}"


def _without_question(meant: str, keys: Sequence[str]) -> str:
    if "question" in meant.casefold() and meant != "question":
        return f"`{meant[:80]}` is not a key; `question` is"
    return f"the metadata has neither `question` nor `id`; it has {', '.join(f'`{key[:40]}`' for key in keys[:5])}"


def _only_comments(lines: Sequence[str], opens: int) -> Problem | None:
    if any(line.strip() for line in lines):
        return Problem(opens + 2, "only lines that begin with `#` between two rules: no pair, kept as text")
    return None


def _ended(block: Block, end: int) -> Block:
    return Block(block.opens, block.metadata, block.body_start, end)


def _swallowed(lines: Sequence[str], fence: _Fence, is_reserved: Callable[[str], bool]) -> list[Problem]:
    """An open code fence at the end of a file: harmless in the last answer, a mistake where it hides a block."""
    if not fence.is_open:
        return []
    rules = [n for n in range(fence.opened_at + 1, len(lines)) if _RULE.match(lines[n])]
    for opens, closes in pairwise(rules):
        if _between(lines, opens, closes, is_reserved).metadata is not None:
            told = f"the code fence that opens here is never closed, and would take the block in line {opens + 1} along"
            return [Problem(fence.opened_at + 1, told)]
    return []
