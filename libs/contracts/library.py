"""The Q&A library: pairs, extractions and documents as replies carry them."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, StringConstraints, model_validator

from libs.contracts.envelope import Frozen
from libs.contracts.text import STORABLE, JsonObject
from libs.contracts.vocabulary import AnswerText, Instant, Name, Sha256, ShortText

Provenance = Literal["EXTRACTED", "INFERRED", "AMBIGUOUS"]
PublicationStatus = Literal["draft", "in_review", "published", "archived"]
MatchStrength = Literal["exact", "strong", "fair", "weak"]
PairKind = Literal["curated", "extracted"]
ResultKind = Literal["curated", "extracted", "chunk"]
RankMethod = Literal["exact", "vector", "fulltext", "trigram", "hybrid"]
Verdict = Literal["right", "wrong"]


class DocumentSummary(Frozen):
    """One version of an object in a bucket, and what it came to."""

    document_id: UUID
    bucket: Name
    object_key: ShortText
    object_version: ShortText
    content_sha256: Sha256
    state: Name
    extractor: Name | None = None
    code: Name | None = None
    pairs: int = 0
    rejects: int = 0
    received_at: Instant
    ended_at: Instant | None = None


class IngestReport(Frozen):
    """What one run over a document found, left out and refused; `losses` accounts for every character."""

    run_id: UUID
    document: DocumentSummary
    outcome: Name
    problems: tuple[JsonObject, ...] = ()
    notices: tuple[JsonObject, ...] = ()
    rejects: tuple[JsonObject, ...] = ()
    losses: JsonObject | None = None
    finished_at: Instant


class SearchHit(Frozen):
    """One row of a search: enough to choose by. `similarity` is None where the row has no vector."""

    kind: PairKind
    id: UUID
    question: ShortText
    answer_preview: ShortText
    scope_tags: tuple[ShortText, ...] = ()
    anti_scope_tags: tuple[ShortText, ...] = ()
    primary_domain: ShortText | None = None
    primary_subtopic: ShortText | None = None
    similarity: float | None = None
    rank_method: RankMethod
    match_strength: MatchStrength
    provenance: Provenance
    confidence: float
    valid_from: Instant | None = None
    valid_to: Instant | None = None
    current: bool
    publication_status: PublicationStatus
    review_status: Name | None = None
    source_document_id: UUID | None = None


class ChunkHit(Frozen):
    """A passage of a document, whole. `section_path` are the headings above it."""

    kind: Literal["chunk"] = "chunk"
    id: UUID
    text: AnswerText
    section_path: tuple[ShortText, ...] = ()
    document_id: UUID
    bucket: Name
    object_key: ShortText
    similarity: float | None = None
    rank_method: RankMethod
    match_strength: MatchStrength


class PairVersion(Frozen):
    """One line of a pair's history."""

    version: int
    change_type: Name
    change_reason: ShortText = ""
    changed_by: Name
    changed_at: Instant
    operation_id: UUID


class Citation(Frozen):
    """Where a pair is cited, or what it is made of (`citation_kind` is then `source`)."""

    id: UUID
    citing_entity: Name
    citing_id: ShortText
    citation_kind: Name
    confidence: float
    created_at: Instant
    invalidated_at: Instant | None = None


class PairDetail(Frozen):
    """A pair or an extraction, verbatim."""

    kind: PairKind
    id: UUID
    workspace_id: UUID
    version: int = 1
    question: ShortText
    alternate_phrasings: tuple[ShortText, ...] = ()
    answer_standard: AnswerText
    answer_advanced: AnswerText | None = None
    id_token: Name | None = None
    scope_tags: tuple[ShortText, ...] = ()
    anti_scope_tags: tuple[ShortText, ...] = ()
    primary_domain: ShortText | None = None
    primary_subtopic: ShortText | None = None
    secondary_domain: ShortText | None = None
    secondary_subtopic: ShortText | None = None
    provenance: Provenance
    confidence: float
    valid_from: Instant | None = None
    valid_to: Instant | None = None
    publication_status: PublicationStatus
    sensitive: bool = False
    verified_at: Instant | None = None
    verified_by: ShortText | None = None
    review_status: Name | None = None
    origin_kind: Name | None = None
    extractor: Name | None = None
    source_document_id: UUID | None = None
    source_file: ShortText | None = None
    superseded_by: UUID | None = None
    metadata: JsonObject = Field(default_factory=dict)
    citations: tuple[Citation, ...] = ()
    history: tuple[PairVersion, ...] = ()


class PairSource(Frozen):
    """Where an author says that a pair comes from."""

    file: ShortText
    table_index: int | None = None
    row_index: int | None = None


class ExportedPair(Frozen):
    """A pair with every key that a bundle has, under the bundle's names; `file` is the object that it came from."""

    pair_id: UUID
    version: int
    file: ShortText | None = None
    question: ShortText
    answer_standard: AnswerText
    answer_advanced: AnswerText | None = None
    id: Name | None = None
    alternate_phrasings: tuple[ShortText, ...] = ()
    scope_tags: tuple[ShortText, ...] = ()
    anti_scope_tags: tuple[ShortText, ...] = ()
    primary_domain: ShortText | None = None
    primary_subtopic: ShortText | None = None
    secondary_domain: ShortText | None = None
    secondary_subtopic: ShortText | None = None
    confidence: float = 1.0
    provenance: Provenance = "EXTRACTED"
    publication_status: PublicationStatus = "draft"
    valid_from: Instant
    valid_to: Instant | None = None
    sources: tuple[PairSource, ...] = ()
    verified_at: Instant | None = None
    verified_by: ShortText | None = None
    layer: ShortText | None = None
    next_review_date: date | None = None
    review_cadence_days: int | None = None
    sensitive: bool = False
    metadata: JsonObject = Field(default_factory=dict)


ReviewStatus = Literal["pending", "approved", "reverted", "changes_requested", "review_overdue"]
LegacyQuestion = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2_000), STORABLE]
LegacyAnswer = Annotated[str, StringConstraints(min_length=1, max_length=50_000), STORABLE]


class LegacyPair(Frozen):
    """A pair of an older platform with the id, status and review fields that it had; `line` is where its row stood."""

    line: int = Field(ge=1)
    id: UUID
    workspace_id: UUID
    question: LegacyQuestion
    answer_standard: LegacyAnswer
    answer_advanced: LegacyAnswer | None = None
    scope_tags: tuple[Name, ...] = Field(default=(), max_length=200)
    sources: tuple[PairSource, ...] = Field(default=(), max_length=10)
    primary_domain: ShortText | None = None
    primary_subtopic: ShortText | None = None
    secondary_domain: ShortText | None = None
    secondary_subtopic: ShortText | None = None
    classification_confidence: float | None = Field(default=None, ge=0, le=1)
    publication_status: PublicationStatus = "draft"
    governance_review_status: ReviewStatus | None = None
    governance_review_due: Instant | None = None
    governance_reviewer: Name | None = None
    next_review_date: date | None = None
    review_cadence_days: int | None = Field(default=None, ge=1, le=1_095)
    verified_at: Instant | None = None
    verified_by: ShortText | None = None
    layer: ShortText | None = None
    valid_to: Instant | None = None
    superseded_by: UUID | None = None
    created_at: Instant
    created_by: Name | None = None
    updated_by: Name | None = None
    archived_at: Instant | None = None
    archived_by: Name | None = None
    archive_reason: ShortText | None = None
    ingest_source: Name | None = None
    metadata: JsonObject = Field(default_factory=dict)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> LegacyPair:
        if (self.archived_at is not None) != (self.publication_status == "archived"):
            raise ValueError("archived_at and the publication_status `archived` go together")
        if self.valid_to is not None and self.valid_to <= self.created_at:
            raise ValueError("valid_to must be later than created_at, from when on the pair is valid")
        if self.superseded_by == self.id:
            raise ValueError("superseded_by is the pair itself")
        return self


class ScopeFilter(Frozen):
    """Which tags rows must have and must not have. `expression` joins tags with AND, OR, NOT and parentheses."""

    include: tuple[Name, ...] = Field(default=(), max_length=50)
    exclude: tuple[Name, ...] = Field(default=(), max_length=50)
    expression: ShortText | None = None
