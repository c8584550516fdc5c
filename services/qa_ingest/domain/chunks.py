"""Cuts the text of a document into passages that can be searched by themselves. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

WANTED = 1_000
"""Characters up to which paragraphs of one section are kept together."""
MAX_CHARACTERS = 2_000
MAX_CHUNKS = 5_000
MAX_TITLE = 200
TEXT_FILES = (".md", ".markdown", ".txt", ".text")

_HEADING = re.compile(r"(#{1,6})[ \t]+(.+?)[ \t]*#*[ \t]*\Z")
_FENCE = re.compile(r"[ ]{0,3}(`{3,}|~{3,})")
_QUESTION = re.compile(r"question:[ \t]*(.+)\Z")
_BREAK = re.compile(r"(?<=[.!?。])\s+|\n")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage of at most `MAX_CHARACTERS`, under the headings above it."""

    section_path: tuple[str, ...]
    content: str


def is_text(name: str) -> bool:
    """Can a file of this name be cut as it is?"""
    return name.lower().endswith(TEXT_FILES)


def split(text: str) -> list[Chunk]:
    """Passages of a Markdown or plain text, in their order; at most `MAX_CHUNKS`.

    A passage never crosses a heading, and a paragraph is cut only where it is longer than a passage may be. Of the
    metadata of a bundle's block its question is kept, as the heading of its answer.
    """
    found: list[Chunk] = []
    for path, paragraphs in _sections(text):
        for content in _gathered(paragraphs):
            found.append(Chunk(path, content))
            if len(found) == MAX_CHUNKS:
                return found
    return found


def _sections(text: str) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    path: list[tuple[int, str]] = []
    lines: list[str] = []
    fence = ""
    for line in _without_metadata(text.replace("\r\n", "\n").replace("\r", "\n").split("\n")):
        opened = _FENCE.match(line)
        if opened and not fence:
            fence = opened[1]
        elif opened and opened[1].startswith(fence):
            fence = ""
        heading = None if fence else _HEADING.fullmatch(line)
        if heading is None:
            lines.append(line)
            continue
        yield tuple(title for _, title in path), _paragraphs(lines)
        lines = []
        level = len(heading[1])
        path = [(above, title) for above, title in path if above < level]
        path.append((level, heading[2][:MAX_TITLE]))
    yield tuple(title for _, title in path), _paragraphs(lines)


def _without_metadata(lines: list[str]) -> Iterator[str]:
    """Each `---` block that has a question becomes a heading; other rules and metadata stay as they are."""
    at = 0
    while at < len(lines):
        end = _end_of_block(lines, at)
        asked = [match[1] for line in lines[at:end] if (match := _QUESTION.match(line))] if end else []
        if end and asked:
            yield f"###### {asked[0].strip(chr(34) + chr(39))}"
            at = end + 1
        else:
            yield lines[at]
            at += 1


def _end_of_block(lines: list[str], at: int) -> int:
    """Where the metadata block that begins here ends; 0 where none does."""
    if lines[at].rstrip() != "---":
        return 0
    for n in range(at + 1, min(at + 200, len(lines))):
        if lines[n].rstrip() == "---":
            return n
    return 0


def _paragraphs(lines: list[str]) -> list[str]:
    return [part.strip("\n") for part in re.split(r"\n[ \t]*\n", "\n".join(lines)) if part.strip()]


def _gathered(paragraphs: list[str]) -> Iterator[str]:
    held = ""
    for part in (piece for paragraph in paragraphs for piece in _pieces(paragraph)):
        if held and len(held) + 2 + len(part) > WANTED:
            yield held
            held = ""
        held = f"{held}\n\n{part}" if held else part
    if held:
        yield held


def _pieces(paragraph: str) -> Iterator[str]:
    """A paragraph, cut at the end of a sentence where it is too long, else at a space, else anywhere."""
    rest = paragraph
    while len(rest) > MAX_CHARACTERS:
        ends = [match.end() for match in _BREAK.finditer(rest, 0, MAX_CHARACTERS)]
        at = ends[-1] if ends else rest.rfind(" ", 1, MAX_CHARACTERS) + 1 or MAX_CHARACTERS
        if rest[:at].strip():
            yield rest[:at].strip()
        rest = rest[at:]
    if rest.strip():
        yield rest.strip()
