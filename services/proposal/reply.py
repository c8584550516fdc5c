"""What a model may answer, strictly: anything else is refused with a reason that the model can act on. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from libs.contracts.prompts import PromptPart
from libs.contracts.proposals import ExpectedImpact, Hunk
from libs.contracts.text import STORABLE
from services.proposal import hunks as hunk_rules
from services.proposal.hunks import HunkError

MAX_HUNKS = 20
MAX_ADDED_CHARS = 20_000
Passage = Annotated[str, StringConstraints(max_length=20_000), STORABLE]
Line = Annotated[str, StringConstraints(min_length=1, max_length=2_000), STORABLE]


class ReplyError(Exception):
    """The reply cannot be used. `reason` names the field or hunk and what would be right."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class WrittenHunk(_Strict):
    """One replaced passage; `signal_ids` are the pieces of evidence that argue for it."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=200), STORABLE]
    before: Annotated[str, StringConstraints(min_length=1, max_length=20_000), STORABLE]
    after: Passage
    signal_ids: tuple[UUID, ...] = Field(min_length=1, max_length=50)


class WrittenImpact(_Strict):
    """A prediction for one metric."""

    metric: Annotated[str, StringConstraints(min_length=1, max_length=200), STORABLE]
    direction: Literal["increase", "decrease"]
    magnitude: Literal["small", "medium", "large"]
    confidence: float = Field(ge=0.0, le=1.0)


class Written(_Strict):
    """A whole reply. No hunks mean that there is nothing to propose, and the rationale says why."""

    hunks: tuple[WrittenHunk, ...] = Field(max_length=MAX_HUNKS)
    rationale: Annotated[str, StringConstraints(min_length=1, max_length=20_000), STORABLE]
    expected_impact: tuple[WrittenImpact, ...] = Field(default=(), max_length=20)
    risks: tuple[Line, ...] = Field(default=(), max_length=20)
    review_guidance: Annotated[str, StringConstraints(max_length=20_000), STORABLE] = ""

    @property
    def as_hunks(self) -> tuple[Hunk, ...]:
        """The hunks as the contracts know them."""
        return tuple(Hunk.model_validate(hunk.model_dump()) for hunk in self.hunks)

    @property
    def as_impact(self) -> tuple[ExpectedImpact, ...]:
        """The predictions as the contracts know them."""
        return tuple(ExpectedImpact.model_validate(one.model_dump()) for one in self.expected_impact)


def read(text: str) -> Written:
    """The reply, or `ReplyError` naming the first field that is wrong."""
    try:
        return Written.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        field = ".".join(str(step) for step in first["loc"]) or "document"
        raise ReplyError(f"{field}: {first['msg']}"[:500]) from None


def check(hunks: Sequence[Hunk], parts: Sequence[PromptPart], evidence: Collection[UUID]) -> tuple[PromptPart, ...]:
    """The prompt with the hunks applied. Raises `ReplyError` for hunks that do not fit, cite evidence that was not
    given, add more than `MAX_ADDED_CHARS`, or bring in characters that nobody can see."""
    for number, hunk in enumerate(hunks, 1):
        if unknown := sum(one not in evidence for one in hunk.signal_ids):
            raise ReplyError(f"hunk {number}: {unknown} of its signal_ids are not among the evidence")
        if hidden := _hidden(hunk):
            raise ReplyError(f"hunk {number}: `after` adds the invisible character U+{ord(hidden):04X}; leave it out")
    if sum(len(line.text) for hunk in hunks for line in hunk_rules.added(hunk)) > MAX_ADDED_CHARS:
        raise ReplyError(f"the hunks add more than {MAX_ADDED_CHARS} characters; propose less")
    try:
        return hunk_rules.apply(parts, hunks)
    except HunkError as error:
        raise ReplyError(error.reason) from None


def _hidden(hunk: Hunk) -> str | None:
    """The first character of `after` that no reader sees and that `before` has not."""
    new = (char for char in hunk.after if char not in "\n\r\t" and char not in hunk.before)
    return next((char for char in new if unicodedata.category(char) in ("Cc", "Cf", "Co", "Cs", "Cn")), None)
