"""What people, and agents with less, do with pairs of the Q&A library. Each command is one operation with an id."""

from __future__ import annotations

from datetime import date
from typing import Annotated, ClassVar, Literal
from uuid import UUID

from pydantic import Field, StringConstraints

from libs.contracts.envelope import Frozen
from libs.contracts.library import PairDetail, Provenance
from libs.contracts.queries.base import Query, Repeatable, Reply
from libs.contracts.queries.qa_ingest import Question, Workspaces
from libs.contracts.text import STORABLE, JsonObject
from libs.contracts.vocabulary import ActorKind, Instant, Name, ShortText

Answer = Annotated[str, StringConstraints(min_length=1, max_length=50_000), STORABLE]
IdToken = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100), STORABLE]
Label = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500), STORABLE]
Labels = Annotated[tuple[Label, ...], Field(max_length=200)]
Phrasings = Annotated[tuple[Question, ...], Field(max_length=200)]
Confidence = Annotated[float, Field(ge=0.0, le=1.0)]
CadenceDays = Annotated[int, Field(ge=1, le=1_095)]
Version = Annotated[int, Field(ge=1, le=2_147_483_647)]

Clearable = Literal[
    "answer_advanced",
    "id_token",
    "primary_domain",
    "primary_subtopic",
    "secondary_domain",
    "secondary_subtopic",
    "valid_to",
    "layer",
    "next_review_date",
    "review_cadence_days",
]
OpenStatus = Literal["draft", "in_review", "published"]
Outcome = Literal["approved", "changes_requested", "reverted"]
ReviewState = Literal["due", "overdue"]
SuggestionKind = Literal["near_duplicate", "same_question", "draft_final", "proposed_edit", "source_changed"]
SuggestionState = Literal["open", "accepted", "dismissed", "outdated"]
Resolution = Literal["edit", "merge", "supersede", "note"]


class PairRef(Frozen):
    """A pair as it was read. Refused (409) when it has another version by now; the answer names that."""

    id: UUID
    version: Version


class PairChanges(Frozen):
    """What of a pair is set; what is not named stays as it is."""

    question: Question | None = None
    answer_standard: Answer | None = None
    answer_advanced: Answer | None = None
    alternate_phrasings: Phrasings | None = None
    id_token: IdToken | None = None
    scope_tags: Labels | None = None
    anti_scope_tags: Labels | None = None
    primary_domain: Label | None = None
    primary_subtopic: Label | None = None
    secondary_domain: Label | None = None
    secondary_subtopic: Label | None = None
    provenance: Provenance | None = None
    confidence: Confidence | None = None
    valid_from: Instant | None = None
    valid_to: Instant | None = None
    sensitive: bool | None = None
    layer: Label | None = None
    next_review_date: date | None = None
    review_cadence_days: CadenceDays | None = None
    metadata: JsonObject | None = None


class NewPair(PairChanges):
    """A pair to be made."""

    question: Question
    answer_standard: Answer


class ExternalAnswer(Frozen):
    """An answer that was given elsewhere, e.g. in a bid: its text, and what it is called there."""

    text: Answer
    reference: ShortText | None = None


class Part(Frozen):
    """One of the pairs that a pair is split into; what is not named is that of the whole."""

    question: Question
    answer_standard: Answer
    answer_advanced: Answer | None = None
    alternate_phrasings: Phrasings = ()
    scope_tags: Labels | None = None
    anti_scope_tags: Labels | None = None


class SuggestionView(Frozen):
    """What a person should look at, and what became of it. `detail` says what is proposed."""

    suggestion_id: UUID
    workspace_id: UUID
    kind: SuggestionKind
    state: SuggestionState
    pair_id: UUID | None = None
    other_pair_id: UUID | None = None
    extraction_id: UUID | None = None
    question: ShortText | None = None
    other_question: ShortText | None = None
    version: int | None = None
    detail: JsonObject = Field(default_factory=dict)
    created_at: Instant
    created_by: Name
    decided_at: Instant | None = None
    decided_by: Name | None = None


class DueReview(Frozen):
    """A pair that waits for a review."""

    pair_id: UUID
    workspace_id: UUID
    version: int
    question: ShortText
    publication_status: Name
    review_status: Name | None = None
    due_at: Instant
    overdue: bool
    review_cadence_days: int | None = None
    reviewer: ShortText | None = None


class CuratedPair(Reply):
    """The pair as it is now."""

    operation_id: UUID
    pair: PairDetail


class CuratedPairs(Reply):
    """Every pair that the operation changed, as it is now."""

    operation_id: UUID
    pairs: tuple[PairDetail, ...]


class PairDeleted(Reply):
    """A pair is gone, with its history."""

    operation_id: UUID
    pair_id: UUID


class SuggestionReply(Reply):
    """One suggestion."""

    suggestion: SuggestionView


class SuggestionDecided(Reply):
    """One suggestion, with the pairs that were changed by its acceptance."""

    suggestion: SuggestionView
    operation_id: UUID | None = None
    pairs: tuple[PairDetail, ...] = ()


class Suggestions(Reply):
    """Suggestions, oldest first."""

    suggestions: tuple[SuggestionView, ...]


class Reviews(Reply):
    """Reviews, the longest due first."""

    reviews: tuple[DueReview, ...]


class Curating(Repeatable):
    """Who changes something and why, and in whose libraries. A machine makes drafts and proposes, and decides nothing.

    Pairs that are sensitive are not there (404) for whoever may not see them.
    """

    workspace_ids: Workspaces
    by: Name
    by_kind: ActorKind = "human"
    sees_sensitive: bool = False
    reason: ShortText = ""


class CreatePair(Query[CuratedPair], Curating):
    """Make a pair in the one workspace that is named. Refused (409) where its id token is taken."""

    subject: ClassVar[str] = "ask.qa_ingest.pairs.create.v1"
    reply: ClassVar[type[Reply]] = CuratedPair

    pair: NewPair
    publication_status: OpenStatus = "draft"
    from_answer: ExternalAnswer | None = None


class PromoteExtraction(Query[CuratedPair], Curating):
    """Make a pair of an extraction, with everything that it carries. Refused (409) when it is one already."""

    subject: ClassVar[str] = "ask.qa_ingest.extractions.promote.v1"
    reply: ClassVar[type[Reply]] = CuratedPair

    extraction_id: UUID
    publication_status: OpenStatus = "draft"


class EditPair(Query[CuratedPair], Curating):
    """Change a pair."""

    subject: ClassVar[str] = "ask.qa_ingest.pairs.edit.v1"
    reply: ClassVar[type[Reply]] = CuratedPair

    pair: PairRef
    changes: PairChanges = PairChanges()
    clear: tuple[Clearable, ...] = Field(default=(), max_length=20)


class ProposeEdit(Query[SuggestionReply], Curating):
    """Propose a change of a pair, for a person to accept or dismiss. The same proposal again is the first one."""

    subject: ClassVar[str] = "ask.qa_ingest.pairs.propose_edit.v1"
    reply: ClassVar[type[Reply]] = SuggestionReply

    pair: PairRef
    changes: PairChanges = PairChanges()
    clear: tuple[Clearable, ...] = Field(default=(), max_length=20)


class MergePairs(Query[CuratedPairs], Curating):
    """Let pairs be taken up by one: its phrasings, tags and citations become those of all; it supersedes the others."""

    subject: ClassVar[str] = "ask.qa_ingest.pairs.merge.v1"
    reply: ClassVar[type[Reply]] = CuratedPairs

    into: PairRef
    absorbed: tuple[PairRef, ...] = Field(min_length=1, max_length=50)


class SplitPair(Query[CuratedPairs], Curating):
    """Make several pairs of one, which is archived."""

    subject: ClassVar[str] = "ask.qa_ingest.pairs.split.v1"
    reply: ClassVar[type[Reply]] = CuratedPairs

    pair: PairRef
    parts: tuple[Part, ...] = Field(min_length=2, max_length=20)


class SupersedePair(Query[CuratedPair], Curating):
    """Let another pair stand in for this one."""

    subject: ClassVar[str] = "ask.qa_ingest.pairs.supersede.v1"
    reply: ClassVar[type[Reply]] = CuratedPair

    pair: PairRef
    superseded_by: UUID


class ArchivePair(Query[CuratedPair], Curating):
    """Put a pair away."""

    subject: ClassVar[str] = "ask.qa_ingest.pairs.archive.v1"
    reply: ClassVar[type[Reply]] = CuratedPair

    pair: PairRef


class RestorePair(Query[CuratedPair], Curating):
    """Bring back, as a draft, what was archived; or let stand for itself again what was superseded."""

    subject: ClassVar[str] = "ask.qa_ingest.pairs.restore.v1"
    reply: ClassVar[type[Reply]] = CuratedPair

    pair: PairRef


class VerifyPair(Query[CuratedPair], Curating):
    """Record that a person found the answer right, today."""

    subject: ClassVar[str] = "ask.qa_ingest.pairs.verify.v1"
    reply: ClassVar[type[Reply]] = CuratedPair

    pair: PairRef


class PublishPair(Query[CuratedPair], Curating):
    """Move a pair between draft, review and published."""

    subject: ClassVar[str] = "ask.qa_ingest.pairs.publish.v1"
    reply: ClassVar[type[Reply]] = CuratedPair

    pair: PairRef
    status: OpenStatus = "published"


class ReviewPair(Query[CuratedPair], Curating):
    """Record a governance review. `reverted` brings back the words of `to_version`, else those of before the last."""

    subject: ClassVar[str] = "ask.qa_ingest.pairs.review.v1"
    reply: ClassVar[type[Reply]] = CuratedPair

    pair: PairRef
    outcome: Outcome
    to_version: Version | None = None


class DeletePair(Query[PairDeleted], Curating):
    """Remove a pair for good, with its history. Refused (409) while other pairs are superseded by it."""

    subject: ClassVar[str] = "ask.qa_ingest.pairs.delete.v1"
    reply: ClassVar[type[Reply]] = PairDeleted

    pair: PairRef


class UndoOperation(Query[CuratedPairs], Curating):
    """Bring every pair back to where an operation found it. Refused (409) when one has changed since."""

    subject: ClassVar[str] = "ask.qa_ingest.operations.undo.v1"
    reply: ClassVar[type[Reply]] = CuratedPairs

    undone_id: UUID


class ListReviews(Query[Reviews]):
    """Which pairs wait for a review."""

    subject: ClassVar[str] = "ask.qa_ingest.reviews.list.v1"
    reply: ClassVar[type[Reply]] = Reviews

    workspace_ids: Workspaces
    sees_sensitive: bool = False
    state: ReviewState = "due"
    within_days: int = Field(default=0, ge=0, le=1_095)
    limit: int = Field(default=50, ge=1, le=500)


class ListSuggestions(Query[Suggestions]):
    """What a person should look at."""

    subject: ClassVar[str] = "ask.qa_ingest.suggestions.list.v1"
    reply: ClassVar[type[Reply]] = Suggestions

    workspace_ids: Workspaces
    sees_sensitive: bool = False
    kind: SuggestionKind | None = None
    state: SuggestionState = "open"
    pair_id: UUID | None = None
    limit: int = Field(default=50, ge=1, le=200)


class AcceptSuggestion(Query[SuggestionDecided], Curating):
    """Do what is suggested: an edit is applied, a duplicate merged or superseded, anything else only noted.

    `keep` is the pair that stays, of two; the older one otherwise.
    """

    subject: ClassVar[str] = "ask.qa_ingest.suggestions.accept.v1"
    reply: ClassVar[type[Reply]] = SuggestionDecided

    suggestion_id: UUID
    version: Version | None = Field(default=None, description="of the pair that an edit is applied to, as it was read")
    resolution: Resolution | None = None
    keep: UUID | None = None


class DismissSuggestion(Query[SuggestionDecided], Curating):
    """Leave everything as it is."""

    subject: ClassVar[str] = "ask.qa_ingest.suggestions.dismiss.v1"
    reply: ClassVar[type[Reply]] = SuggestionDecided

    suggestion_id: UUID


COMMANDS = (
    CreatePair,
    PromoteExtraction,
    EditPair,
    ProposeEdit,
    MergePairs,
    SplitPair,
    SupersedePair,
    ArchivePair,
    RestorePair,
    VerifyPair,
    PublishPair,
    ReviewPair,
    DeletePair,
    UndoOperation,
    ListReviews,
    ListSuggestions,
    AcceptSuggestion,
    DismissSuggestion,
)
"""Everything that is asked of the library's curators."""
