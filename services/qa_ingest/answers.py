"""What the Q&A library answers: search, pairs verbatim, documents and their reports."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from libs.contracts.library import ChunkHit, SearchHit
from libs.contracts.queries.qa_ingest import (
    BucketObjects,
    ChunkResults,
    Documents,
    EstimateExtraction,
    ExtractionEstimate,
    FeedbackReply,
    FollowedReply,
    FollowObject,
    GetIngestReport,
    GetPair,
    GiveFeedback,
    IngestReportReply,
    LibraryFilters,
    ListDocuments,
    ListObjects,
    PairReply,
    SearchChunks,
    SearchPairs,
    SearchResults,
    UploadDocument,
)
from libs.embeddings import Embedder
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from libs.service_kit.requests import Once, repeatable
from services.qa_ingest import metrics, searching
from services.qa_ingest.domain import ranking, scope, verdicts
from services.qa_ingest.domain.ranking import Ranked
from services.qa_ingest.domain.tuning import Tuning, Tunings
from services.qa_ingest.settings import fitted
from services.qa_ingest.store import documents, feedback, history, pairs
from services.qa_ingest.store.search import Filters
from services.qa_ingest.uploads import Uploads

PREVIEW = 200


async def answer_search(
    query: SearchPairs, db: Database, embedder: Embedder, tunings: Tunings | None = None
) -> SearchResults:
    """The best rows over all lanes. An empty answer is an answer."""
    tuning = (tunings or fitted()).of(embedder.model)
    filters = filters_of(query)
    asked = await searching.understood(query.query, embedder)
    with metrics.SEARCH_SECONDS.time():
        async with db.connection(workspaces=query.workspace_ids) as conn:
            found = await searching.look(conn, asked, filters)
            ranked = found.fused(tuning)
            page = ranked[query.offset : query.offset + query.limit]
            rows = await searching.shown(conn, found, page)
    metrics.SEARCHES.labels("found" if ranked else "empty").inc()
    at = query.as_of or datetime.now(UTC)
    hits = tuple(hit_of(each, rows[each.key], tuning, at) for each in page if each.key in rows)
    return SearchResults(results=hits, total=len(ranked), limit=query.limit, offset=query.offset, query=query.query)


async def answer_chunks(
    query: SearchChunks, db: Database, embedder: Embedder, tunings: Tunings | None = None
) -> ChunkResults:
    """The best passages, and with `include_qa` the published pairs among them, judged by one measure."""
    tuning = (tunings or fitted()).of(embedder.model)
    filters = Filters(
        workspace_ids=query.workspace_ids,
        publication_status=("published",),
        include_sensitive=query.include_sensitive,
        bucket=query.bucket,
    )
    asked = await searching.understood(query.query, embedder)
    async with db.connection(workspaces=query.workspace_ids) as conn:
        found = await searching.look(conn, asked, filters, pairs=query.include_qa, chunks=True)
        ranked = found.fused(tuning)
        page = ranked[query.offset : query.offset + query.limit]
        rows = await searching.shown(conn, found, page)
    at = datetime.now(UTC)
    told = [(each, rows[each.key]) for each in page if each.key in rows]
    hits = tuple(
        _chunk(each, row, tuning) if each.key[0] == "chunk" else hit_of(each, row, tuning, at) for each, row in told
    )
    return ChunkResults(results=hits, total=len(ranked), limit=query.limit, offset=query.offset, query=query.query)


def _chunk(ranked: Ranked, row: Any, tuning: Tuning) -> ChunkHit:
    return ChunkHit(
        id=row["id"],
        text=row["content"],
        section_path=tuple(row["section_path"]),
        document_id=row["document_id"],
        bucket=row["bucket"],
        object_key=row["object_key"],
        similarity=_similarity(ranked),
        rank_method=ranked.rank_method,
        match_strength=ranking.strength(ranked, tuning),
    )


@repeatable
async def answer_feedback(query: GiveFeedback, db: Database) -> FeedbackReply:
    """Keep what a person says of a result; a wrong one is a signal of the touchpoint that the workspace names."""
    once = Once[tuple[UUID, bool]](query, lambda kept: FeedbackReply(feedback_id=kept[0], changed=kept[1]))
    async with db.transaction() as tx:
        await once.begin(tx.conn)
        workspace_id = await feedback.workspace_of(tx.conn, query)
        if workspace_id is None:
            raise _none({"curated": "pair", "extracted": "extraction", "chunk": "chunk"}[query.kind], query.result_id)
        kept = await feedback.give(tx.conn, workspace_id, query)
        if kept[1]:
            words, home = await feedback.words_of(tx.conn, query), await history.home(tx.conn, workspace_id)
            signal = verdicts.signal(query, kept[0], workspace_id, words, home, datetime.now(UTC))
            tx.emit(*([] if signal is None else [signal]))
        await once.end(tx.conn, kept)
    return FeedbackReply(feedback_id=kept[0], changed=kept[1])


def _similarity(ranked: Ranked) -> float | None:
    return None if ranked.similarity is None else round(ranked.similarity, 4)


def filters_of(query: LibraryFilters) -> Filters:
    """What a row must be to be found. Raises `Refused` 422 for an expression that is none."""
    try:
        expression = scope.parse(query.scope.expression) if query.scope.expression else None
    except scope.BadExpression as error:
        raise Refused("bad_expression", f"scope.expression: {error}", status=422) from error
    return Filters(
        workspace_ids=query.workspace_ids,
        include=query.scope.include,
        exclude=query.scope.exclude,
        expression=expression,
        primary_domain=query.primary_domain,
        primary_subtopic=query.primary_subtopic,
        provenance=query.provenance,
        publication_status=query.publication_status,
        include_extractions=query.include_extractions,
        include_sensitive=query.include_sensitive,
        as_of=query.as_of,
    )


def hit_of(ranked: Ranked, row: Any, tuning: Tuning, at: datetime) -> SearchHit:
    """A row as it is told."""
    answer = " ".join(row["answer_standard"].split())
    return SearchHit(
        kind=row["kind"],
        id=row["id"],
        question=row["question_text"],
        answer_preview=answer if len(answer) <= PREVIEW else f"{answer[:PREVIEW]}…",
        scope_tags=tuple(row["scope_tag"]),
        anti_scope_tags=tuple(row["anti_scope_tag"]),
        primary_domain=row["primary_domain"],
        primary_subtopic=row["primary_subtopic"],
        similarity=_similarity(ranked),
        rank_method=ranked.rank_method,
        match_strength=ranking.strength(ranked, tuning),
        provenance=row["provenance"],
        confidence=round(row["confidence"], 4),
        valid_from=row["valid_from"],
        valid_to=row["valid_to"],
        current=row["valid_from"] <= at and (row["valid_to"] is None or row["valid_to"] > at),
        publication_status=row["publication_status"],
        review_status=row["governance_review_status"],
        source_document_id=row["source_document_id"],
    )


async def answer_pair(query: GetPair, db: Database) -> PairReply:
    """One pair or extraction; 404 where the workspaces have none."""
    async with db.connection(workspaces=query.workspace_ids) as conn:
        found = await pairs.get(
            conn,
            query.kind,
            query.id,
            citations=query.include_citations,
            history=query.include_history,
            sensitive=query.include_sensitive,
        )
    if found is None:
        raise _none("pair" if query.kind == "curated" else "extraction", query.id)
    return PairReply(pair=found)


async def answer_documents(query: ListDocuments, db: Database) -> Documents:
    """What came into the library, newest first."""
    async with db.connection(workspaces=query.workspace_ids) as conn:
        return Documents(documents=tuple(await documents.listed(conn, query.bucket, query.limit)))


async def answer_report(query: GetIngestReport, db: Database) -> IngestReportReply:
    """What became of every passage of one document; 404 where the workspaces have none."""
    async with db.connection(workspaces=query.workspace_ids) as conn:
        found = await documents.report(conn, query.document_id)
    if found is None:
        raise _none("document", query.document_id)
    return IngestReportReply(report=found)


async def answer_upload(query: UploadDocument, uploads: Uploads) -> FollowedReply:
    """Bring a file into the library; with its last piece it is read."""
    return await uploads.take(query)


async def answer_estimate(query: EstimateExtraction, uploads: Uploads) -> ExtractionEstimate:
    """What `llm_extraction` would cost on a file."""
    return await uploads.estimate(query)


async def answer_objects(query: ListObjects, uploads: Uploads) -> BucketObjects:
    """What is in buckets now."""
    return await uploads.objects(query)


async def answer_follow(query: FollowObject, uploads: Uploads) -> FollowedReply:
    """Look at one object of a bucket now."""
    return await uploads.follow(query)


def _none(what: str, identity: UUID) -> Refused:
    return Refused("not_found", f"there is no {what} {identity} in these workspaces", status=404)
