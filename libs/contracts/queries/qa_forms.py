"""What the Q&A library answers about forms: questions matched with pairs, and the form filled.

A form is larger than a message: it travels in parts, which are kept until it was matched, and so does the filled one,
which is kept until it expires.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal
from uuid import UUID

from pydantic import Field, StringConstraints

from libs.contracts.envelope import Frozen
from libs.contracts.library import MatchStrength, SearchHit
from libs.contracts.queries.base import Query, Reply
from libs.contracts.queries.qa_ingest import LibraryFilters, Question, Workspaces
from libs.contracts.text import STORABLE
from libs.contracts.vocabulary import Instant, Name, Sha256, ShortText

MAX_QUESTIONS = 1_000
MAX_FORM_BYTES = 16 * 1024 * 1024
PART_BYTES = 1024 * 1024
MAX_PARTS = 32
"""A filled form is larger than it was sent."""

Base64 = Annotated[str, StringConstraints(max_length=1_400_000, pattern=r"^[A-Za-z0-9+/]*={0,2}$"), STORABLE]
FormFormat = Literal["list", "xlsx", "xlsm", "docx", "docm", "pdf"]
FormOutcome = Literal["filled", "no_match", "too_weak", "left_alone", "no_place", "too_long", "not_an_option"]


class MatchedQuestion(Frozen):
    """One question with the best pair there is, and what became of its cell or field.

    `outcome` is None in a list of questions, and where nothing was to be filled. `why` says it in words.
    """

    question: ShortText
    match: SearchHit | None = None
    place: ShortText | None = None
    section: tuple[ShortText, ...] = ()
    options: tuple[ShortText, ...] = Field(default=(), max_length=50)
    outcome: FormOutcome | None = None
    why: ShortText = ""


class FilledForm(Frozen):
    """A filled form that can be fetched until it expires."""

    form_id: UUID
    content_type: Name
    bytes: int
    sha256: Sha256
    expires_at: Instant


class MatchResults(Reply):
    """Every question, in the order of the list or the form. `form` is there where at least one answer was put in."""

    format: FormFormat
    questions: tuple[MatchedQuestion, ...]
    filled: int = 0
    form: FilledForm | None = None
    notices: tuple[ShortText, ...] = ()


class MatchQuestions(LibraryFilters, Query[MatchResults]):
    """The best pair for each of these questions."""

    subject: ClassVar[str] = "ask.qa_ingest.questions.match.v1"
    reply: ClassVar[type[Reply]] = MatchResults

    questions: tuple[Question, ...] = Field(min_length=1, max_length=MAX_QUESTIONS)


class FormPartTaken(Reply):
    """How many parts of the form are there now."""

    parts: int


class PutFormPart(Query[FormPartTaken]):
    """One part of a form that will be matched. The same part again replaces it."""

    subject: ClassVar[str] = "ask.qa_ingest.forms.put.v1"
    reply: ClassVar[type[Reply]] = FormPartTaken

    workspace_ids: Workspaces
    asked_by: ShortText
    form_id: UUID
    ordinal: int = Field(ge=0, lt=MAX_PARTS)
    content: Base64


class MatchForm(LibraryFilters, Query[MatchResults]):
    """The best pair for each question of a form whose parts were put, and the form filled; the parts are gone then.

    With `fill`, matches of `fill_from` and better are filled in.
    """

    subject: ClassVar[str] = "ask.qa_ingest.forms.match.v1"
    reply: ClassVar[type[Reply]] = MatchResults

    asked_by: ShortText
    form_id: UUID
    parts: int = Field(ge=1, le=MAX_PARTS)
    sha256: Sha256
    fill: bool = True
    fill_from: MatchStrength = "strong"


class FormPart(Reply):
    """One part of a filled form, and what the whole of it is."""

    content: Base64
    parts: int
    form: FilledForm


class GetFormPart(Query[FormPart]):
    """One part of a filled form; refused with 404 when it expired, or was filled for somebody else."""

    subject: ClassVar[str] = "ask.qa_ingest.forms.get.v1"
    reply: ClassVar[type[Reply]] = FormPart

    workspace_ids: Workspaces
    asked_by: ShortText
    form_id: UUID
    ordinal: int = Field(ge=0, lt=MAX_PARTS)
