"""What the Q&A library answers."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, ClassVar, Literal
from uuid import UUID

from pydantic import Base64Bytes, Field, StringConstraints

from libs.contracts.envelope import Frozen
from libs.contracts.library import (
    ChunkHit,
    DocumentSummary,
    ExportedPair,
    IngestReport,
    LegacyPair,
    PairDetail,
    PairKind,
    Provenance,
    PublicationStatus,
    ResultKind,
    ScopeFilter,
    SearchHit,
    Verdict,
)
from libs.contracts.queries.base import Query, Repeatable, Reply
from libs.contracts.text import STORABLE
from libs.contracts.vocabulary import Instant, Name, ShortText

Question = Annotated[str, StringConstraints(min_length=1, max_length=2_000), STORABLE]
Comment = Annotated[str, StringConstraints(max_length=2_000), STORABLE]
Workspaces = Annotated[tuple[UUID, ...], Field(max_length=1_000)]
"""More than a token can name."""


class SearchResults(Reply):
    """Hits, best first; `total` counts the candidates of every lane."""

    results: tuple[SearchHit, ...]
    total: int
    limit: int
    offset: int
    query: ShortText


class LibraryFilters(Frozen):
    """Which pairs are looked at, and with `include_extractions` what was only extracted, in these workspaces."""

    workspace_ids: Workspaces
    scope: ScopeFilter = ScopeFilter()
    primary_domain: ShortText | None = None
    primary_subtopic: ShortText | None = None
    provenance: tuple[Provenance, ...] = ()
    publication_status: tuple[PublicationStatus, ...] = ("published",)
    include_extractions: bool = False
    include_sensitive: bool = False
    as_of: Instant | None = None


class SearchPairs(LibraryFilters, Query[SearchResults]):
    """Find pairs, and with `include_extractions` what was only extracted, in these workspaces."""

    subject: ClassVar[str] = "ask.qa_ingest.pairs.search.v1"
    reply: ClassVar[type[Reply]] = SearchResults

    query: Question
    limit: int = Field(default=10, ge=1, le=50)
    offset: int = Field(default=0, ge=0, le=1_000)


class ChunkResults(Reply):
    """Passages, and with `include_qa` pairs among them, best first; `total` counts the candidates of every lane."""

    results: tuple[Annotated[ChunkHit | SearchHit, Field(discriminator="kind")], ...]
    total: int
    limit: int
    offset: int
    query: ShortText


class SearchChunks(Query[ChunkResults]):
    """Find passages of the documents of these workspaces, and with `include_qa` published pairs in the same list."""

    subject: ClassVar[str] = "ask.qa_ingest.chunks.search.v1"
    reply: ClassVar[type[Reply]] = ChunkResults

    workspace_ids: Workspaces
    query: Question
    include_qa: bool = False
    include_sensitive: bool = False
    bucket: Name | None = None
    limit: int = Field(default=10, ge=1, le=50)
    offset: int = Field(default=0, ge=0, le=1_000)


class FeedbackReply(Reply):
    """The verdict that is kept; `changed` where it is new, or another than before."""

    feedback_id: UUID
    changed: bool


class GiveFeedback(Query[FeedbackReply], Repeatable):
    """A person says that a result is right or wrong for a query. Refused with 404 where there is no such result."""

    subject: ClassVar[str] = "ask.qa_ingest.search.feedback.v1"
    reply: ClassVar[type[Reply]] = FeedbackReply

    workspace_ids: Workspaces
    query: Question
    kind: ResultKind = "curated"
    result_id: UUID
    verdict: Verdict
    comment: Comment = ""
    given_by: Name


class PairReply(Reply):
    """One pair or extraction."""

    pair: PairDetail


class GetPair(Query[PairReply]):
    """One pair or extraction, verbatim; refused with 404 when there is none in these workspaces."""

    subject: ClassVar[str] = "ask.qa_ingest.pairs.get.v1"
    reply: ClassVar[type[Reply]] = PairReply

    workspace_ids: Workspaces
    kind: PairKind = "curated"
    id: UUID
    include_citations: bool = False
    include_history: bool = False
    include_sensitive: bool = False


class Documents(Reply):
    """Documents, newest first."""

    documents: tuple[DocumentSummary, ...]


class ListDocuments(Query[Documents]):
    """What came into the library, in these workspaces."""

    subject: ClassVar[str] = "ask.qa_ingest.documents.list.v1"
    reply: ClassVar[type[Reply]] = Documents

    workspace_ids: Workspaces
    bucket: Name | None = None
    limit: int = Field(default=50, ge=1, le=500)


class IngestReportReply(Reply):
    """The newest run over one document."""

    report: IngestReport


class GetIngestReport(Query[IngestReportReply]):
    """What became of every passage of one document; refused with 404 when there is none."""

    subject: ClassVar[str] = "ask.qa_ingest.documents.report.v1"
    reply: ClassVar[type[Reply]] = IngestReportReply

    workspace_ids: Workspaces
    document_id: UUID


class ExportedPairs(Reply):
    """A page of pairs, those of one file together and in its order; `next` is where the next page begins.

    `superseded` and `sensitive` count what the workspace has besides and no page has: pairs that others took the place
    of, and, where they were not asked for, pairs that not everybody may read.
    """

    pairs: tuple[ExportedPair, ...]
    next: ShortText | None = None
    superseded: int = 0
    sensitive: int = 0


class ExportPairs(Query[ExportedPairs]):
    """The pairs of a workspace, to be written as bundles. A page ends at `limit`, or where the answer is full."""

    subject: ClassVar[str] = "ask.qa_ingest.pairs.export.v1"
    reply: ClassVar[type[Reply]] = ExportedPairs

    workspace_id: UUID
    after: ShortText | None = None
    include_sensitive: bool = False
    limit: int = Field(default=200, ge=1, le=500)


MAX_PART_BYTES = 2 * 1024 * 1024
MAX_PARTS = 25
Usd = Annotated[Decimal, Field(ge=0, le=100_000, max_digits=20, allow_inf_nan=False)]
ObjectKey = Annotated[str, StringConstraints(min_length=1, max_length=1_000), STORABLE]
FollowOutcome = Literal["ingested", "unchanged", "rejected", "deleted", "passed_by", "waiting"]


class Followed(Frozen):
    """An object that was looked at, and what came of it. `waiting`: it is still being read, or waits for others."""

    workspace_id: UUID
    bucket: Name
    object_key: ObjectKey
    outcome: FollowOutcome
    document_id: UUID | None = None


class FollowedReply(Reply):
    """What came of it; None while pieces are missing."""

    followed: Followed | None = None


class UploadDocument(Query[FollowedReply]):
    """Bring a file into a workspace's library, in pieces of at most 2 MiB; with the last one it is read.

    It goes into the bucket that is named, else among the workspace's uploads. The same file again changes nothing.
    """

    subject: ClassVar[str] = "ask.qa_ingest.documents.upload.v1"
    reply: ClassVar[type[Reply]] = FollowedReply

    workspace_id: UUID
    object_key: ObjectKey
    bucket: Name | None = None
    extractor: Name | None = None
    upload_id: UUID
    part: int = Field(default=0, ge=0, lt=MAX_PARTS)
    parts: int = Field(default=1, ge=1, le=MAX_PARTS)
    content: Base64Bytes = Field(max_length=MAX_PART_BYTES * 3 // 2)  # of the text in base64
    max_usd: Usd | None = Field(default=None, description="what `llm_extraction` may cost; no other extractor asks")


class ExtractionEstimate(Reply):
    """What reading a file with `llm_extraction` would take: so many `calls` of a `model`, at most `most_usd` in all.

    `answered_before` are parts of the file that the workspace has had an answer to: they are not asked about again.
    """

    model: ShortText
    characters: int
    calls: int
    answered_before: int
    most_usd: Decimal


class EstimateExtraction(Query[ExtractionEstimate]):
    """What `llm_extraction` would cost on a file of prose. Nothing is kept, and no model is asked."""

    subject: ClassVar[str] = "ask.qa_ingest.documents.estimate.v1"
    reply: ClassVar[type[Reply]] = ExtractionEstimate

    workspace_id: UUID
    object_key: ObjectKey
    content: Base64Bytes = Field(max_length=MAX_PART_BYTES * 3 // 2)  # of the text in base64


class BucketObject(Frozen):
    """An object of a bucket that feeds the library."""

    workspace_id: UUID
    bucket: Name
    object_key: ObjectKey


class BucketObjects(Reply):
    """Objects, in the order of their keys; `more` when there are others."""

    objects: tuple[BucketObject, ...]
    more: bool = False


class ListObjects(Query[BucketObjects]):
    """What is in buckets now, by the name that they have here, or that an S3 store gives them."""

    subject: ClassVar[str] = "ask.qa_ingest.objects.list.v1"
    reply: ClassVar[type[Reply]] = BucketObjects

    workspace_ids: Workspaces | None = Field(default=None, description="None for all")
    bucket: Name | None = None
    s3_bucket: Name | None = None
    prefix: Annotated[str, StringConstraints(max_length=1_000), STORABLE] = ""
    limit: int = Field(default=1_000, ge=1, le=10_000)


class FollowObject(Query[FollowedReply]):
    """Look at one object of a bucket now."""

    subject: ClassVar[str] = "ask.qa_ingest.objects.follow.v1"
    reply: ClassVar[type[Reply]] = FollowedReply

    workspace_ids: Workspaces | None = Field(default=None, description="None for all")
    bucket: Name
    object_key: ObjectKey


class LegacyImported(Reply):
    """How many pairs were made, and how many were there. All of them carry the operation in their history."""

    imported: int
    there_already: int
    operation_id: UUID


class ImportLegacyPairs(Query[LegacyImported]):
    """Make pairs of these rows of an older platform, all or none. A pair whose id is there is left as it is."""

    subject: ClassVar[str] = "ask.qa_ingest.pairs.import_legacy.v1"
    reply: ClassVar[type[Reply]] = LegacyImported

    pairs: tuple[LegacyPair, ...] = Field(min_length=1, max_length=20_000)
    file: Name
    by: Name
