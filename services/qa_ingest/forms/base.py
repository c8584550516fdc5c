"""What a form is, whatever its format: questions, the place of each, and what may be put there."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from services.qa_ingest.documents.package import Refused

MAX_QUESTIONS = 1_000
MAX_QUESTION = 2_000
State = Literal["open", "answered", "closed", "no_place"]
"""`open` may be filled; `closed` must not be (locked, signed, for people to tick); `no_place` has nowhere to write."""
Outcome = Literal["filled", "too_long", "not_an_option"]


class Slot(BaseModel):
    """One question of a form. `place` is how people find it; `options` are all that its field takes, if it is so."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    question: str
    place: str
    state: State
    why: str = ""
    section: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    max_characters: int | None = None


class Form(BaseModel):
    """The questions of a form in reading order, and what people should know about it. `kind`: xlsx, docx, pdf, …"""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str = ""
    slots: tuple[Slot, ...]
    notices: tuple[str, ...] = ()


class FormFormat(ABC):
    """One format of forms. Both methods raise `Refused`; the same bytes always give the same slots in one order."""

    @abstractmethod
    def read(self, content: bytes) -> Form:
        """The questions of a form."""

    @abstractmethod
    def fill(self, content: bytes, answers: Mapping[int, str]) -> tuple[bytes, Mapping[int, Outcome]]:
        """The form with these answers, by the numbers of their slots, and what became of each of them.

        What does not fit its cell or field is not put there, nor a piece of it.
        """


def clean_question(text: str) -> str:
    """A question as it is searched and shown: one line, bounded."""
    return " ".join(text.split())[:MAX_QUESTION].strip()


def bounded(slots: Sequence[Slot]) -> None:
    """Raise `Refused` for more questions than are answered at once."""
    if len(slots) > MAX_QUESTIONS:
        raise Refused("too_many_questions", f"{len(slots):,} questions; at most {MAX_QUESTIONS:,} in one form")


def fitting(slot: Slot, answer: str) -> tuple[str, Outcome]:
    """What is written into a slot for an answer (itself, or the option that it begins with), and the outcome."""
    if slot.options:
        chosen = option(slot.options, answer)
        return (chosen, "filled") if chosen is not None else ("", "not_an_option")
    if slot.max_characters is not None and utf16(answer) > slot.max_characters:
        return "", "too_long"
    return answer, "filled"


def option(options: Sequence[str], answer: str) -> str | None:
    """The option that an answer is, or that its first words are ("Yes. All data is encrypted.": Yes)."""
    said = " ".join(answer.split()).casefold().lstrip("*_ ")
    for one in sorted(options, key=len, reverse=True):
        wanted = " ".join(one.split()).casefold()
        if wanted and re.match(rf"{re.escape(wanted)}(?!\w)", said):
            return one
    return None


def utf16(text: str) -> int:
    """Its length as office programs count it."""
    return len(text.encode("utf-16-le", "replace")) // 2
