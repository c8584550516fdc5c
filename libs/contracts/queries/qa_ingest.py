"""What the Q&A library answers."""

from __future__ import annotations

from typing import Annotated, ClassVar
from uuid import UUID

from pydantic import Field, StringConstraints

from libs.contracts.library import (
    DocumentSummary,
    ExportedPair,
    IngestReport,
    PairDetail,
    PairKind,
    Provenance,
    PublicationStatus,
    ScopeFilter,
    SearchHit,
)
from libs.contracts.queries.base import Query, Reply
from libs.contracts.text import STORABLE
from libs.contracts.vocabulary import Instant, Name, ShortText

Question = Annotated[str, StringConstraints(min_length=1, max_length=2_000), STORABLE]
Workspaces = Annotated[tuple[UUID, ...], Field(max_length=1_000)]
"""More than a token can name."""


class SearchResults(Reply):
    """Hits, best first; `total` counts the candidates of every lane."""

    results: tuple[SearchHit, ...]
    total: int
    limit: int
    offset: int
    query: ShortText


class SearchPairs(Query[SearchResults]):
    """Find pairs, and with `include_extractions` what was only extracted, in these workspaces."""

    subject: ClassVar[str] = "ask.qa_ingest.pairs.search.v1"
    reply: ClassVar[type[Reply]] = SearchResults

    workspace_ids: Workspaces
    query: Question
    scope: ScopeFilter = ScopeFilter()
    primary_domain: ShortText | None = None
    primary_subtopic: ShortText | None = None
    provenance: tuple[Provenance, ...] = ()
    publication_status: tuple[PublicationStatus, ...] = ("published",)
    include_extractions: bool = False
    include_sensitive: bool = False
    as_of: Instant | None = None
    limit: int = Field(default=10, ge=1, le=50)
    offset: int = Field(default=0, ge=0, le=1_000)


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
