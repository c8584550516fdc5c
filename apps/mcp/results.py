"""What the tools give: the words of the library in the names of the tools. Pure."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from burnish_sdk import models
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field


class Result(BaseModel):
    """What a tool gives. Every field is always there."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class Found(Result):
    """One row of a search: enough to choose by."""

    kind: Literal["curated", "extracted"]
    q_a_pair_id: UUID | None = Field(description="of a curated pair, for `q_a_get`")
    q_a_extraction_id: UUID | None = Field(description="of what was only extracted, for `q_a_get`")
    question_text: str
    answer_preview: str = Field(description="how the answer begins; `q_a_get` gives all of it")
    match_strength: Literal["exact", "strong", "fair", "weak"]
    similarity: float | None = Field(description="of the meanings, up to 1; null where it is not known")
    rank_method: str = Field(description="which way of searching put it there")
    scope_tags: tuple[str, ...]
    anti_scope_tags: tuple[str, ...]
    primary_domain: str | None
    primary_subtopic: str | None
    provenance: Literal["EXTRACTED", "INFERRED", "AMBIGUOUS"]
    confidence: float
    valid_from: AwareDatetime | None
    valid_to: AwareDatetime | None
    current: bool
    publication_status: Literal["draft", "in_review", "published", "archived"]
    review_status: str | None
    source_document_id: UUID | None


class SearchResult(Result):
    """What a search found, best first; nothing is an answer, too."""

    results: tuple[Found, ...]
    total: int
    limit: int
    offset: int
    query: str


class Cited(Result):
    """Where a pair is cited, or what it is made of."""

    citation_id: UUID
    citing_entity: str
    citing_entity_id: str
    citation_kind: str
    confidence: float
    created_at: AwareDatetime
    invalidated_at: AwareDatetime | None


class Version(Result):
    """One line of a pair's history."""

    version_number: int
    change_type: str
    change_reason: str
    changed_at: AwareDatetime
    changed_by: str


class Verbatim(Result):
    """A pair or an extraction, word for word."""

    id: UUID
    kind: Literal["curated", "extracted"]
    workspace_id: UUID
    version_number: int = Field(description="name it when you propose an edit")
    question_text: str
    alternate_question_phrasings: tuple[str, ...]
    answer_standard: str
    answer_advanced: str | None
    scope_tag: tuple[str, ...]
    anti_scope_tag: tuple[str, ...]
    primary_domain: str | None
    primary_subtopic: str | None
    secondary_domain: str | None
    secondary_subtopic: str | None
    provenance: Literal["EXTRACTED", "INFERRED", "AMBIGUOUS"]
    confidence: float
    valid_from: AwareDatetime | None
    valid_to: AwareDatetime | None
    publication_status: Literal["draft", "in_review", "published", "archived"]
    source_document_id: UUID | None
    source_file_basename: str | None
    origin_kind: str | None
    extractor_kind: str | None
    verified_at: AwareDatetime | None
    verified_by: str | None
    governance_review_status: str | None
    superseded_by_id: UUID | None
    citations: tuple[Cited, ...] | None = Field(description="null where they were not asked for")
    history: tuple[Version, ...] | None = Field(description="newest first; null where it was not asked for")


class Created(Result):
    """The draft that was made."""

    q_a_pair_id: UUID
    workspace_id: UUID
    publication_status: str
    version_number: int
    operation_id: UUID


class Proposed(Result):
    """The edit that a person will decide on."""

    suggestion_id: UUID
    q_a_pair_id: UUID | None
    state: str
    created_at: AwareDatetime


def found(hits: models.SearchResults) -> SearchResult:
    """The hits of the library."""
    rows = tuple(_found(hit) for hit in hits.results)
    return SearchResult(results=rows, total=hits.total, limit=hits.limit, offset=hits.offset, query=hits.query)


def _found(hit: models.SearchHit) -> Found:
    curated = hit.kind == "curated"
    return Found(
        q_a_pair_id=hit.id if curated else None,
        q_a_extraction_id=None if curated else hit.id,
        question_text=hit.question,
        **hit.model_dump(include=set(Found.model_fields) & set(models.SearchHit.model_fields)),
    )


def verbatim(pair: models.Pair, *, citations: bool, history: bool) -> Verbatim:
    """One pair of the library, with what was asked for."""
    same = set(Verbatim.model_fields) & set(models.Pair.model_fields) - {"citations", "history"}
    return Verbatim(
        version_number=pair.version,
        question_text=pair.question,
        alternate_question_phrasings=pair.alternate_phrasings,
        scope_tag=pair.scope_tags,
        anti_scope_tag=pair.anti_scope_tags,
        source_file_basename=pair.source_file,
        extractor_kind=pair.extractor,
        governance_review_status=pair.review_status,
        superseded_by_id=pair.superseded_by,
        citations=tuple(map(_cited, pair.citations)) if citations else None,
        history=tuple(map(_version, pair.history)) if history else None,
        **pair.model_dump(include=same),
    )


def _cited(citation: models.Citation) -> Cited:
    same = set(Cited.model_fields) & set(models.Citation.model_fields)
    return Cited(citation_id=citation.id, citing_entity_id=citation.citing_id, **citation.model_dump(include=same))


def _version(version: models.PairVersion) -> Version:
    same = set(Version.model_fields) & set(models.PairVersion.model_fields)
    return Version(version_number=version.version, **version.model_dump(include=same))


def created(made: models.CuratedPair) -> Created:
    """The pair that was made."""
    return Created(
        q_a_pair_id=made.pair.id,
        workspace_id=made.pair.workspace_id,
        publication_status=made.pair.publication_status,
        version_number=made.pair.version,
        operation_id=made.operation_id,
    )


def proposed(suggestion: models.Suggestion) -> Proposed:
    """The edit that was proposed."""
    return Proposed(
        suggestion_id=suggestion.suggestion_id,
        q_a_pair_id=suggestion.pair_id,
        state=suggestion.state,
        created_at=suggestion.created_at,
    )
