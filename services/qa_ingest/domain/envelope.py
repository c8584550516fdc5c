"""What stands between every extractor and the writer: what was found in one file, and what became of all its text."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, NonNegativeInt, StringConstraints, model_validator

MAX_QUESTION = 2_000
MAX_ANSWER = 50_000
MAX_ID = 100
MAX_TEXT = 500
MAX_ITEMS = 200
MAX_CADENCE_DAYS = 1_095
MAX_EXCERPT = 300
FRAGMENT = 20
"""Answers of fewer characters are flagged: they are taken, and a person should look at them."""

Provenance = Literal["EXTRACTED", "INFERRED", "AMBIGUOUS"]
PublicationStatus = Literal["draft", "in_review", "published", "archived"]

Question = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_QUESTION)]
Answer = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ANSWER)]
IdToken = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_ID)]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_TEXT)]
Excerpt = Annotated[str, StringConstraints(max_length=MAX_EXCERPT)]
Code = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,59}$")]


class Strict(BaseModel):
    """A value that never changes and has no field by accident."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Source(Strict):
    """Where an author says that a pair comes from."""

    file: Text
    table_index: int | None = Field(default=None, ge=0)
    row_index: int | None = Field(default=None, ge=0)


class Place(Strict):
    """Where in the file something stands; what does not apply is None. Tables, rows and sheets count from 0."""

    line: int | None = Field(default=None, ge=1, description="from 1, in a text file")
    section_path: tuple[Text, ...] = ()
    sheet: Text | None = None
    table_index: int | None = Field(default=None, ge=0)
    row_index: int | None = Field(default=None, ge=0)


class Variant(Strict):
    """Another way to ask, with what its context adds to the answer, where the file says so."""

    question: Question
    source: Text | None = None
    detail: Answer | None = None


class Envelope(Strict):
    """One question with its answer, as an extractor found it. Every key of a bundle has its field here.

    `answer_text` is the whole answer as it is searched; `answer_standard` and `answer_advanced` are its two tiers.
    `revised` where tracked changes were resolved in it; `fragment` where the answer is too short to be one.
    """

    ordinal: int = Field(ge=0, description="its place among the pairs of the file, from 0")
    extractor: Code | None = Field(default=None, description="which layout, where the file's extractor knows several")
    place: Place = Place()
    question: Question
    answer_text: Answer
    answer_standard: Answer
    answer_advanced: Answer | None = None
    id_token: IdToken | None = None
    variants: tuple[Variant, ...] = ()
    scope_tags: tuple[Text, ...] = ()
    anti_scope_tags: tuple[Text, ...] = ()
    primary_domain: Text | None = None
    primary_subtopic: Text | None = None
    secondary_domain: Text | None = None
    secondary_subtopic: Text | None = None
    provenance: Provenance = "EXTRACTED"
    confidence: float = Field(default=1.0, ge=0.0, le=1.0)
    publication_status: PublicationStatus = "draft"
    valid_from: AwareDatetime | None = None
    valid_to: AwareDatetime | None = None
    sources: tuple[Source, ...] = ()
    verified_at: AwareDatetime | None = None
    verified_by: Text | None = None
    layer: Text | None = None
    next_review_date: date | None = None
    review_cadence_days: int | None = Field(default=None, ge=1, le=MAX_CADENCE_DAYS)
    sensitive: bool = False
    revised: bool = False
    fragment: bool = False
    citations: tuple[Text, ...] = ()
    duplicates: tuple[IdToken, ...] = Field(default=(), description="ids that the file itself calls duplicates of this")
    metadata: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        if self.valid_from is not None and self.valid_to is not None and self.valid_to <= self.valid_from:
            raise ValueError("`valid_to` must be later than `valid_from`")
        return self


class Reject(Strict):
    """A passage that looks like a pair, or part of one, and is none: what, where and why."""

    reason: Code
    message: Text
    place: Place = Place()
    excerpt: Excerpt = ""
    characters: int = Field(ge=0, description="how much of the source it stands for")


class Notice(Strict):
    """What an author should know of a file that was taken."""

    message: Text
    place: Place = Place()


class Losses(Strict):
    """The loss ledger: every character of the source is in a pair, a named reject, or what a named rule leaves out."""

    total: int = Field(ge=0)
    pairs: int = Field(ge=0)
    rejects: int = Field(ge=0)
    rules: dict[Code, NonNegativeInt] = Field(default_factory=dict)

    @property
    def unaccounted(self) -> int:
        """What the three do not add up to; 0 is right."""
        return self.total - self.pairs - self.rejects - sum(self.rules.values())

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if self.unaccounted:
            raise ValueError(f"the loss ledger is {self.unaccounted} characters off")
        return self


class Extracted(Strict):
    """Everything that one file came to."""

    extractor: Code
    extractor_version: Text
    pairs: tuple[Envelope, ...]
    rejects: tuple[Reject, ...] = ()
    notices: tuple[Notice, ...] = ()
    losses: Losses


class Tally:
    """Counts characters by what became of them, for the loss ledger of one file."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._pairs = 0
        self._rejects = 0
        self._rules: dict[str, int] = {}

    def pair(self, characters: int) -> None:
        """Characters that are in a pair."""
        self._pairs += characters

    def reject(self, characters: int) -> None:
        """Characters that a named reject stands for."""
        self._rejects += characters

    def rule(self, name: str, characters: int) -> None:
        """Characters that a named rule leaves out."""
        if characters:
            self._rules[name] = self._rules.get(name, 0) + characters

    def losses(self) -> Losses:
        """The ledger. Raises ValidationError when it does not add up."""
        return Losses(total=self._total, pairs=self._pairs, rejects=self._rejects, rules=self._rules)


def excerpt(texts: Iterable[str]) -> str:
    """The beginning of a passage, on one line."""
    return " ".join(" ".join(texts).split())[:MAX_EXCERPT]
