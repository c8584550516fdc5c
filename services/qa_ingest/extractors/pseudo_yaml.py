"""`pseudo_yaml_v1`: blocks that look like YAML between rules and are none, with answers marked `[ALL]` or `[ADVANCED]`.

Each block is lines of `key: value` below a `---`, up to the next `---` or the first line that is none. `[ALL]` text is
the standard answer; `[ADVANCED]` text makes the advanced one, together with what stands under `[ALL]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from services.qa_ingest.domain.blocks import Problem, normalise
from services.qa_ingest.domain.envelope import (
    FRAGMENT,
    MAX_ANSWER,
    MAX_ID,
    MAX_QUESTION,
    MAX_TEXT,
    Envelope,
    Extracted,
    Place,
    Reject,
    Tally,
    excerpt,
)
from services.qa_ingest.extractors.base import Extractor, File, FileRejected
from services.qa_ingest.extractors.text import decode

CONFIDENCE = 0.9
_RULE = re.compile(r"---[ \t]*\Z")
_KEY = re.compile(r"([A-Za-z][\w-]{0,39})[ \t]*:(?:[ \t]+(.*))?\Z")
_MODULE = re.compile(r"\[(ALL|STANDARD|ADVANCED)\][ \t]*", re.IGNORECASE)
TAGS = ("topics", "tags", "scope_tags")


@dataclass(frozen=True, slots=True)
class _Block:
    """Metadata below the rule in line `start`, and the lines of its answer; lines from 0."""

    start: int
    fields: Sequence[tuple[str, str]]
    body: int
    end: int


class PseudoYaml(Extractor):
    """See the module."""

    kind = "pseudo_yaml_v1"
    version = "1"
    suffixes: Sequence[str] = (".md", ".markdown", ".txt")

    def extract(self, file: File) -> Extracted:
        """Every block that names a question."""
        text = normalise(decode(file.content))
        lines = text.split("\n")
        blocks = list(_blocks(lines))
        if not blocks:
            raise FileRejected("no_questions", [Problem(1, "no `---` with a line `question: …` below it")])
        sizes = [len(line) + 1 for line in lines]
        sizes[-1] -= 1
        tally = Tally(len(text))
        tally.rule("file_head", sum(sizes[: blocks[0].start]))
        pairs: list[Envelope] = []
        rejects: list[Reject] = []
        for block in blocks:
            characters = sum(sizes[block.start : block.end])
            found = _envelope(lines, block, len(pairs), characters)
            if isinstance(found, Envelope):
                pairs.append(found)
                tally.pair(characters)
            else:
                rejects.append(found)
                tally.reject(characters)
        return Extracted(
            extractor=self.kind,
            extractor_version=self.version,
            pairs=tuple(pairs),
            rejects=tuple(rejects),
            losses=tally.losses(),
        )


def _blocks(lines: Sequence[str]) -> Iterator[_Block]:
    starts = [n for n, line in enumerate(lines) if _RULE.match(line) and "question" in dict(_fields(lines, n + 1)[0])]
    for start, end in pairwise([*starts, len(lines)]):
        fields, body = _fields(lines, start + 1)
        yield _Block(start, fields, body, end)


def _fields(lines: Sequence[str], at: int) -> tuple[list[tuple[str, str]], int]:
    """The `key: value` lines from line `at` on, and the first line of the answer.

    They end at the next rule where only such lines and blank ones stand above it, else at the first other line.
    """
    closes = at
    while closes < len(lines) and not _RULE.match(lines[closes]) and _is_metadata(lines[closes]):
        closes += 1
    if closes < len(lines) and _RULE.match(lines[closes]) and not _opens(lines, closes):
        return _read(lines[at:closes]), closes + 1
    ends = at
    while ends < len(lines) and _KEY.match(lines[ends].strip()):
        ends += 1
    return _read(lines[at:ends]), ends


def _opens(lines: Sequence[str], rule: int) -> bool:
    """A rule right above another block's metadata is that block's, and closes nothing."""
    at = rule + 1
    while at < len(lines) and _is_metadata(lines[at]) and not _RULE.match(lines[at]):
        at += 1
    return "question" in dict(_read(lines[rule + 1 : at]))


def _is_metadata(line: str) -> bool:
    return not line.strip() or _KEY.match(line.strip()) is not None


def _read(lines: Sequence[str]) -> list[tuple[str, str]]:
    found = [_KEY.match(line.strip()) for line in lines]
    return [(each[1].casefold(), (each[2] or "").strip()) for each in found if each]


def _envelope(lines: Sequence[str], block: _Block, ordinal: int, characters: int) -> Envelope | Reject:
    place = Place(line=block.start + 1)
    fields = _together(block.fields)
    if fields is None:
        seen, told = excerpt(lines[block.start : block.end]), "`question` or `id` is there twice"
        return Reject(reason="key_twice", message=told, place=place, excerpt=seen, characters=characters)
    question = _unquoted(fields.pop("question"))
    standard, advanced = _answers(lines[block.body : block.end])
    reason = _refusal(question, standard, advanced)
    if reason is not None:
        seen = excerpt(lines[block.start : block.end])
        return Reject(reason=reason[0], message=reason[1], place=place, excerpt=seen, characters=characters)
    tags = [tag for name in TAGS for tag in _list(fields.pop(name, ""))]
    return Envelope(
        ordinal=ordinal,
        place=place,
        question=question,
        answer_text=standard or advanced,
        answer_standard=standard or advanced,
        answer_advanced=advanced if standard and advanced else None,
        id_token=_unquoted(fields.pop("id", ""))[:MAX_ID] or None,
        scope_tags=tuple(dict.fromkeys(tags)),
        confidence=CONFIDENCE,
        fragment=len(standard or advanced) < FRAGMENT,
        metadata={name: _list(value) if value.startswith("[") else _unquoted(value) for name, value in fields.items()},
    )


def _together(fields: Sequence[tuple[str, str]]) -> dict[str, str] | None:
    """The values by key, those of a key that is there twice joined; None where that is the question or the id."""
    found: dict[str, str] = {}
    for key, value in fields:
        if key in found and key in ("question", "id"):
            return None
        found[key] = f"[{', '.join([*_list(found[key]), *_list(value)])}]" if key in found else value
    return found


def _refusal(question: str, standard: str, advanced: str) -> tuple[str, str] | None:
    if not question:
        return "no_question", "the block's `question` is empty"
    if not standard and not advanced:
        return "no_answer", "a question without an answer"
    if len(question) > MAX_QUESTION:
        return "question_too_long", f"the question has {len(question):,} characters; the most is {MAX_QUESTION:,}"
    longest = max(len(standard), len(advanced))
    if longest > MAX_ANSWER:
        return "answer_too_long", f"the answer has {longest:,} characters; the most is {MAX_ANSWER:,}"
    return None


def _answers(lines: Sequence[str]) -> tuple[str, str]:
    """The standard and the advanced answer; text without a mark is for all."""
    parts: list[tuple[str, list[str]]] = [("ALL", [])]
    for line in lines:
        mark = _MODULE.match(line.lstrip())
        if mark:
            parts.append((mark[1].upper(), [line.lstrip()[mark.end() :]]))
        else:
            parts[-1][1].append(line)
    texts = [(module, _trimmed(part)) for module, part in parts]
    standard = "\n\n".join(text for module, text in texts if text and module != "ADVANCED")
    if not any(text and module == "ADVANCED" for module, text in texts):
        return standard, ""
    return standard, "\n\n".join(text for module, text in texts if text and module != "STANDARD")


def _list(value: str) -> list[str]:
    inner = value.removeprefix("[").removesuffix("]")
    return [text for part in inner.split(",") if (text := _unquoted(part)[:MAX_TEXT])]


def _unquoted(value: str) -> str:
    text = value.strip()
    return text[1:-1].strip() if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _trimmed(lines: Sequence[str]) -> str:
    kept = list(lines)
    while kept and (not kept[-1].strip() or _RULE.match(kept[-1].strip())):
        kept.pop()
    while kept and not kept[0].strip():
        kept.pop(0)
    return "\n".join(line.rstrip() for line in kept)


PSEUDO_YAML = PseudoYaml()
