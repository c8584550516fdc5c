"""Hunks of a prompt: apply them exactly, show them as a unified diff, move them to a newer text. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from libs.contracts.prompts import PromptPart
from libs.contracts.proposals import Hunk

MAX_PART_CHARS = 262_144
CONTEXT_LINES = 3
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_ITEM = re.compile(r"[ \t]*[-*+][ \t]+(.*)$")


class HunkError(Exception):
    """A hunk does not fit the prompt. `reason` names the hunk (from 1) and what would be right, never its text."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Span:
    """Where a hunk stands: characters `start` to `end` of the base text of part number `part`."""

    hunk: int
    part: int
    start: int
    end: int


@dataclass(frozen=True)
class AddedLine:
    """A line of a hunk's `after` that its `before` has not; `index` counts from 0 in `after`."""

    index: int
    text: str

    @property
    def item(self) -> str | None:
        """What stands behind the bullet when the line is a list item."""
        found = _ITEM.match(self.text)
        return found[1].strip() if found else None


# --- applying ---------------------------------------------------------------------------------------------


def apply(parts: Sequence[PromptPart], hunks: Sequence[Hunk]) -> tuple[PromptPart, ...]:
    """The parts with every hunk applied. All hunks are read against `parts`, so their order does not matter.

    Raises `HunkError` unless there is at least one hunk, each changes something in a part that exists, each
    `before` occurs exactly once in its part (overlapping occurrences count), and no two hunks overlap.
    """
    texts = [part.text for part in parts]
    for span in sorted(spans(parts, hunks), key=lambda span: span.start, reverse=True):
        text = texts[span.part]
        texts[span.part] = text[: span.start] + hunks[span.hunk].after + text[span.end :]
    for part, text in zip(parts, texts, strict=True):
        if len(text) > MAX_PART_CHARS:
            raise HunkError(f"{part.path!r} would have {len(text)} characters, the limit is {MAX_PART_CHARS}")
    return tuple(PromptPart(path=part.path, text=text) for part, text in zip(parts, texts, strict=True))


def spans(parts: Sequence[PromptPart], hunks: Sequence[Hunk]) -> list[Span]:
    """Where each hunk stands, in the order given. Raises `HunkError` as `apply` does."""
    if not hunks:
        raise HunkError("there is no hunk: expected at least one")
    found = [_span(parts, number, hunk) for number, hunk in enumerate(hunks)]
    ordered = sorted(found, key=lambda span: (span.part, span.start))
    for left, right in pairwise(ordered):
        if left.part == right.part and right.start < left.end:
            raise HunkError(f"hunks {left.hunk + 1} and {right.hunk + 1} overlap: join them into one")
    return found


def _span(parts: Sequence[PromptPart], number: int, hunk: Hunk) -> Span:
    name = f"hunk {number + 1}"
    part = next((at for at, one in enumerate(parts) if one.path == hunk.path), None)
    if part is None:
        paths = ", ".join(repr(one.path) for one in parts)
        raise HunkError(f"{name}: its path is not a part of the prompt, which has {paths}")
    if not hunk.before:
        raise HunkError(f"{name}: `before` is empty; quote the passage that is replaced")
    if hunk.before == hunk.after:
        raise HunkError(f"{name}: `before` and `after` are equal, so it changes nothing")
    starts = list(_occurrences(parts[part].text, hunk.before))
    if len(starts) != 1:
        raise HunkError(f"{name}: `before` occurs {len(starts)} times in {hunk.path!r}, expected exactly once")
    return Span(number, part, starts[0], starts[0] + len(hunk.before))


def _occurrences(text: str, passage: str) -> Iterator[int]:
    """Starts of the first three occurrences at most; more make no difference."""
    at = text.find(passage)
    for _ in range(3):
        if at < 0:
            return
        yield at
        at = text.find(passage, at + 1)


# --- a newer base -----------------------------------------------------------------------------------------


def rebase(
    base: Sequence[PromptPart], hunks: Sequence[Hunk], live: Sequence[PromptPart]
) -> tuple[PromptPart, ...] | None:
    """The live text with the hunks applied; None when they no longer apply.

    As in a three-way merge, neighbouring changes conflict: up to the nearest line that is not blank, what
    stands around a passage must be what stood there in `base`. Without this, a hunk that adds to a heading
    would go in twice, or between the heading and what another proposal has added to it.
    """
    try:
        was, now = spans(base, hunks), spans(live, hunks)
        result = apply(live, hunks)
    except HunkError:
        return None
    pairs = zip(was, now, strict=True)
    same = all(_around(base[old.part].text, old) == _around(live[new.part].text, new) for old, new in pairs)
    return result if same else None


def _around(text: str, span: Span) -> tuple[str, str]:
    return _near(_LINE.findall(text[: span.start])[::-1]), _near(_LINE.findall(text[span.end :]))


def _near(lines: Sequence[str]) -> str:
    near = ""
    for line in lines:
        near += line
        if line.strip():
            break
    return near


# --- what a hunk adds -------------------------------------------------------------------------------------


def added(hunk: Hunk) -> tuple[AddedLine, ...]:
    """The lines that the hunk adds or changes, blank ones left out."""
    before, after = _LINE.findall(hunk.before), _LINE.findall(hunk.after)
    matcher = difflib.SequenceMatcher(None, _bare(before), _bare(after), autojunk=False)
    new = [at for tag, _, _, low, high in matcher.get_opcodes() if tag != "equal" for at in range(low, high)]
    return tuple(AddedLine(at, after[at].rstrip("\r\n")) for at in new if after[at].strip())


def without(hunk: Hunk, dropped: Collection[int]) -> Hunk | None:
    """The hunk without these added lines (indices in `after`); None when nothing is left that is worth adding.

    A list of which every added item is dropped takes its heading along: the whole hunk goes.
    """
    lines = added(hunk)
    kept = [line for line in lines if line.index not in dropped]
    had_items = any(line.item is not None for line in lines)
    if not kept or (had_items and all(line.item is None for line in kept)):
        return None
    after = "".join(line for at, line in enumerate(_LINE.findall(hunk.after)) if at not in dropped)
    return hunk.model_copy(update={"after": after}) if after != hunk.before else None


def _bare(lines: Sequence[str]) -> list[str]:
    """Lines without their ends, so that a last line that gains a line end is no new line."""
    return [line.rstrip("\r\n") for line in lines]


# --- showing ----------------------------------------------------------------------------------------------


def unified_diff(base: Sequence[PromptPart], proposed: Sequence[PromptPart]) -> str:
    """The change as `git apply` takes it: one file section a changed part, `a/` and `b/` paths."""
    sections = [_section(old, new) for old, new in zip(base, proposed, strict=True) if old.text != new.text]
    return "".join(sections)


def _section(old: PromptPart, new: PromptPart) -> str:
    lines = difflib.unified_diff(
        _LINE.findall(old.text),
        _LINE.findall(new.text),
        fromfile=f"a/{old.path}",
        tofile=f"b/{new.path}",
        n=CONTEXT_LINES,
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
