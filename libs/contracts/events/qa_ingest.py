"""Documents that came into the library, and what became of their questions and answers."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from pydantic import Field

from libs.contracts.envelope import EventData
from libs.contracts.vocabulary import AnswerText, Instant, Name, Sha256, ShortText


class QaDocumentIngestedV1(EventData):
    """A version of an object is served: its extractions are live, those of the version before are not."""

    type: ClassVar[str] = "qa.document.ingested.v1"

    document_id: UUID
    workspace_id: UUID
    bucket: Name
    object_key: ShortText
    content_sha256: Sha256
    extractor: Name
    pairs: int = Field(ge=0)
    rejects: int = Field(ge=0)
    ingested_at: Instant

    def natural_key(self) -> str:
        """The document, which is one version of one object, and when it came: the same content may come again."""
        return f"{self.document_id}|{self.ingested_at.isoformat()}"


class QaDocumentRejectedV1(EventData):
    """A version of an object gives nothing; what the one before gave is served on, marked as stale."""

    type: ClassVar[str] = "qa.document.rejected.v1"

    document_id: UUID
    workspace_id: UUID
    bucket: Name
    object_key: ShortText
    content_sha256: Sha256
    code: Name
    rejected_at: Instant

    def natural_key(self) -> str:
        """The document and when it was refused."""
        return f"{self.document_id}|{self.rejected_at.isoformat()}"


class QaDocumentDeletedV1(EventData):
    """An object is gone from its bucket: its extractions are invalidated, pairs made of them stay and are flagged."""

    type: ClassVar[str] = "qa.document.deleted.v1"

    document_id: UUID
    workspace_id: UUID
    bucket: Name
    object_key: ShortText
    deleted_at: Instant

    def natural_key(self) -> str:
        """The document that was served last, and when it went."""
        return f"{self.document_id}|{self.deleted_at.isoformat()}"


class QaPairPublishedV1(EventData):
    """A pair is published, or is published with other words: a case for whoever keeps a suite of them."""

    type: ClassVar[str] = "qa.pair.published.v1"

    pair_id: UUID
    workspace_id: UUID
    version: int = Field(ge=1)
    touchpoint_id: ShortText | None = None
    question: ShortText
    answer: AnswerText
    published_at: Instant

    def natural_key(self) -> str:
        """The pair, its version and whose case it is: the workspace may name another touchpoint later."""
        return f"{self.pair_id}|{self.version}|{self.touchpoint_id or ''}"


class QaPairArchivedV1(EventData):
    """A pair is archived: it is found no more unless it is asked for, and is no case of a suite."""

    type: ClassVar[str] = "qa.pair.archived.v1"

    pair_id: UUID
    workspace_id: UUID
    version: int = Field(ge=1)
    archived_by: Name
    at: Instant

    def natural_key(self) -> str:
        """The pair and its version."""
        return f"{self.pair_id}|{self.version}"


class QaPairSupersededV1(EventData):
    """Another pair has taken the place of this one."""

    type: ClassVar[str] = "qa.pair.superseded.v1"

    pair_id: UUID
    workspace_id: UUID
    version: int = Field(ge=1)
    superseded_by: UUID
    at: Instant

    def natural_key(self) -> str:
        """The pair and its version."""
        return f"{self.pair_id}|{self.version}"


class QaPairUnpublishedV1(EventData):
    """A pair that was published went back to a draft or a review, or may not be shown to all any more."""

    type: ClassVar[str] = "qa.pair.unpublished.v1"

    pair_id: UUID
    workspace_id: UUID
    version: int = Field(ge=1)
    at: Instant

    def natural_key(self) -> str:
        """The pair and its version."""
        return f"{self.pair_id}|{self.version}"


class QaPairCreatedV1(EventData):
    """A pair is in the library: made by a person or an agent, promoted, or of a bundle."""

    type: ClassVar[str] = "qa.pair.created.v1"

    pair_id: UUID
    workspace_id: UUID
    version: int = Field(ge=1)
    publication_status: Name
    origin_kind: Name
    operation_id: UUID
    created_by: Name
    at: Instant

    def natural_key(self) -> str:
        """The pair."""
        return str(self.pair_id)


class QaPairUpdatedV1(EventData):
    """A pair has another version: `change_type` says by what, `changed` names what of it is different now."""

    type: ClassVar[str] = "qa.pair.updated.v1"

    pair_id: UUID
    workspace_id: UUID
    version: int = Field(ge=1)
    change_type: Name
    changed: tuple[Name, ...] = ()
    operation_id: UUID
    updated_by: Name
    at: Instant

    def natural_key(self) -> str:
        """The pair and its version."""
        return f"{self.pair_id}|{self.version}"


class QaExtractionCreatedV1(EventData):
    """Extractions of a document are live, in the order of the file; a large file is told of in several parts."""

    type: ClassVar[str] = "qa.extraction.created.v1"

    document_id: UUID
    workspace_id: UUID
    extractor: Name
    extraction_ids: tuple[UUID, ...] = Field(min_length=1, max_length=1_000)
    at: Instant

    def natural_key(self) -> str:
        """The first of them: an extraction comes once."""
        return str(self.extraction_ids[0])


class QaExtractionInvalidatedV1(EventData):
    """Extractions of a document are served no more, because their file changed or is gone."""

    type: ClassVar[str] = "qa.extraction.invalidated.v1"

    document_id: UUID
    workspace_id: UUID
    reason: Name
    extraction_ids: tuple[UUID, ...] = Field(min_length=1, max_length=1_000)
    at: Instant

    def natural_key(self) -> str:
        """The first of them: an extraction is invalidated once."""
        return str(self.extraction_ids[0])
