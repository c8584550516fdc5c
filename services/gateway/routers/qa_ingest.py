"""The Q&A library: search, pairs verbatim, documents and their reports."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Annotated
from uuid import UUID, uuid4, uuid5

from fastapi import APIRouter
from fastapi import Query as Param
from pydantic import Field

from libs.auth.claims import Caller
from libs.contracts.envelope import EVENT_NAMESPACE
from libs.contracts.library import (
    IngestReport,
    LegacyPair,
    PairDetail,
    PairKind,
    Provenance,
    PublicationStatus,
    ResultKind,
    ScopeFilter,
    Verdict,
)
from libs.contracts.queries.qa_ingest import (
    MAX_PART_BYTES,
    MAX_PARTS,
    BucketObjects,
    ChunkResults,
    Comment,
    Documents,
    EstimateExtraction,
    ExportedPairs,
    ExportPairs,
    ExtractionEstimate,
    FeedbackReply,
    FollowedReply,
    FollowObject,
    GetIngestReport,
    GetPair,
    GiveFeedback,
    ImportLegacyPairs,
    LegacyImported,
    ListDocuments,
    ListObjects,
    ObjectKey,
    Question,
    SearchChunks,
    SearchPairs,
    SearchResults,
    UploadDocument,
    Usd,
)
from libs.contracts.text import STORABLE
from libs.contracts.vocabulary import Instant, Name, ShortText
from libs.service_kit.errors import Refused
from services.gateway.api.access import (
    ADMIN,
    CurrentCaller,
    require_change,
    require_scope,
    require_workspace,
    workspaces_of,
)
from services.gateway.api.asking import GatewayDep, OnceDep
from services.gateway.api.body import MAX_BODY_BYTES, JsonRoute, RequestBody
from services.gateway.api.errors import Forbidden

router = APIRouter(route_class=JsonRoute, tags=["library"])
DEFAULT_WORKSPACE = uuid5(EVENT_NAMESPACE, "workspace|default")
"""Whose library is meant where the token is for all workspaces and none is named."""

READING_S = 60.0
"""How long an object may take to be read before the answer says that it waits."""
IMPORT_TIMEOUT_S = 60.0
# What the bus carries at most, less its own headers.
MAX_QUERY_BYTES = MAX_BODY_BYTES - 4_096
Texts = Annotated[list[Name] | None, Param(max_length=50)]


@router.get("/search")
async def search(
    caller: CurrentCaller,
    gateway: GatewayDep,
    query: Question,
    workspace_id: UUID | None = None,
    include: Texts = None,
    exclude: Texts = None,
    expression: ShortText | None = None,
    primary_domain: ShortText | None = None,
    primary_subtopic: ShortText | None = None,
    provenance: Annotated[list[Provenance] | None, Param(max_length=3)] = None,
    status: Annotated[list[PublicationStatus] | None, Param(max_length=4)] = None,
    include_extractions: bool = False,
    as_of: Instant | None = None,
    limit: Annotated[int, Param(ge=1, le=50)] = 10,
    offset: Annotated[int, Param(ge=0, le=1_000)] = 0,
) -> SearchResults:
    """The pairs that answer a question, best first, each with how good a match it is. Nothing is an answer too."""
    return await gateway.ask(
        SearchPairs(
            workspace_ids=libraries(caller, workspace_id),
            query=query,
            scope=ScopeFilter(include=tuple(include or ()), exclude=tuple(exclude or ()), expression=expression),
            primary_domain=primary_domain,
            primary_subtopic=primary_subtopic,
            provenance=tuple(provenance or ()),
            publication_status=tuple(status or ["published"]),
            include_extractions=include_extractions,
            as_of=as_of,
            limit=limit,
            offset=offset,
        )
    )


@router.get("/chunks")
async def chunks(
    caller: CurrentCaller,
    gateway: GatewayDep,
    query: Question,
    workspace_id: UUID | None = None,
    include_qa: bool = False,
    bucket: Name | None = None,
    limit: Annotated[int, Param(ge=1, le=50)] = 10,
    offset: Annotated[int, Param(ge=0, le=1_000)] = 0,
) -> ChunkResults:
    """The passages of documents that have to do with a question, and with `include_qa` published pairs among them."""
    workspaces = libraries(caller, workspace_id)
    return await gateway.ask(
        SearchChunks(
            workspace_ids=workspaces, query=query, include_qa=include_qa, bucket=bucket, limit=limit, offset=offset
        )
    )


class FeedbackBody(RequestBody):
    """A verdict on one result of a search."""

    query: Question
    result_id: UUID
    kind: ResultKind = "curated"
    verdict: Verdict
    comment: Comment = ""
    workspace_id: UUID | None = None


@router.post("/search/feedback")
async def feedback(body: FeedbackBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep) -> FeedbackReply:
    """Say that a result is right or wrong for a query. The last word of a person on it counts."""
    given = GiveFeedback(
        workspace_ids=libraries(caller, body.workspace_id),
        query=body.query,
        kind=body.kind,
        result_id=body.result_id,
        verdict=body.verdict,
        comment=body.comment,
        given_by=caller.subject,
    )
    return await gateway.ask_once(once, given)


@router.get("/pairs/{pair_id}")
async def pair(
    pair_id: UUID,
    caller: CurrentCaller,
    gateway: GatewayDep,
    workspace_id: UUID | None = None,
    kind: PairKind = "curated",
    include_citations: bool = False,
    include_history: bool = False,
) -> PairDetail:
    """One pair, or with `kind=extracted` one extraction, verbatim."""
    workspaces = libraries(caller, workspace_id)
    query = GetPair(
        workspace_ids=workspaces,
        kind=kind,
        id=pair_id,
        include_citations=include_citations,
        include_history=include_history,
    )
    return (await gateway.ask(query)).pair


@router.get("/documents")
async def documents(
    caller: CurrentCaller,
    gateway: GatewayDep,
    workspace_id: UUID | None = None,
    bucket: Name | None = None,
    limit: Annotated[int, Param(ge=1, le=500)] = 50,
) -> Documents:
    """What came into the library, newest first."""
    return await gateway.ask(ListDocuments(workspace_ids=libraries(caller, workspace_id), bucket=bucket, limit=limit))


@router.get("/documents/{document_id}/report")
async def report(
    document_id: UUID, caller: CurrentCaller, gateway: GatewayDep, workspace_id: UUID | None = None
) -> IngestReport:
    """What became of every passage of a document: pairs, named rejects, and a count of every character."""
    query = GetIngestReport(workspace_ids=libraries(caller, workspace_id), document_id=document_id)
    return (await gateway.ask(query)).report


@router.get("/export")
async def export(
    caller: CurrentCaller,
    gateway: GatewayDep,
    workspace_id: UUID | None = None,
    after: ShortText | None = None,
    include_sensitive: bool = False,
    limit: Annotated[int, Param(ge=1, le=500)] = 200,
) -> ExportedPairs:
    """The pairs of one workspace with every key of a bundle, page by page; sensitive ones need a scope of the token."""
    if include_sensitive:
        require_scope(caller, "pairs:sensitive")
    named = libraries(caller, workspace_id)
    if len(named) != 1:
        raise Refused("which_workspace", "workspace_id: the token is for several; name one", status=422)
    query = ExportPairs(workspace_id=named[0], after=after, include_sensitive=include_sensitive, limit=limit)
    return await gateway.ask(query)


class LegacyBody(RequestBody):
    """Rows of an older platform, and the name of the file that they were in."""

    pairs: list[LegacyPair] = Field(min_length=1, max_length=20_000)
    file: Name


@router.post("/legacy")
async def import_legacy(body: LegacyBody, caller: CurrentCaller, gateway: GatewayDep) -> LegacyImported:
    """Make pairs of an older platform's rows, with their ids, all or none; the same again changes nothing. Admins."""
    if not caller.has_role({ADMIN}) or "pairs:draft" in caller.scopes:
        raise Forbidden  # rows bring their status along
    for workspace_id in {pair.workspace_id for pair in body.pairs}:
        require_workspace(caller, workspace_id)
    query = ImportLegacyPairs(pairs=tuple(body.pairs), file=body.file, by=caller.subject)
    if len(query.model_dump_json(exclude_none=True).encode()) > MAX_QUERY_BYTES:
        raise Refused("too_large", f"rows are at most {MAX_QUERY_BYTES:,} bytes as JSON", status=413)
    return await gateway.ask(query, timeout_s=IMPORT_TIMEOUT_S)


class Upload(RequestBody):
    """A file, or a piece of one. Pieces share an `upload_id`; the answer to the last has what came of the file."""

    object_key: ObjectKey
    workspace_id: UUID | None = None
    bucket: Name | None = None
    extractor: Name | None = None
    upload_id: UUID | None = None
    part: int = Field(default=0, ge=0, lt=MAX_PARTS)
    parts: int = Field(default=1, ge=1, le=MAX_PARTS)
    max_usd: Usd | None = None
    content_base64: str = Field(max_length=MAX_PART_BYTES * 4 // 3 + 4)


@router.post("/documents")
async def upload(body: Upload, caller: CurrentCaller, gateway: GatewayDep) -> FollowedReply:
    """Bring a file into the library, whole or in pieces of at most 2 MiB, and wait until it is read.

    It goes into the bucket that is named, else among the workspace's own uploads. The same again changes nothing.
    """
    workspace_id = body.workspace_id or libraries(caller, None)[0]
    require_change(caller, workspace_id)
    content = _decoded(body.content_base64)
    return await gateway.ask(
        UploadDocument(
            workspace_id=workspace_id,
            object_key=body.object_key,
            bucket=body.bucket,
            extractor=body.extractor,
            upload_id=body.upload_id or uuid4(),
            part=body.part,
            parts=body.parts,
            content=b64encode(content),
            max_usd=body.max_usd,
        ),
        timeout_s=READING_S,
    )


class Prospect(RequestBody):
    """A file that a model may read, whole."""

    object_key: ObjectKey
    workspace_id: UUID | None = None
    content_base64: str = Field(max_length=MAX_PART_BYTES * 4 // 3 + 4)


@router.post("/documents/estimate")
async def estimate(body: Prospect, caller: CurrentCaller, gateway: GatewayDep) -> ExtractionEstimate:
    """What reading a file with `llm_extraction` would cost at most. Nothing is kept, and no model is asked."""
    workspace_id = body.workspace_id or libraries(caller, None)[0]
    require_change(caller, workspace_id)
    content = b64encode(_decoded(body.content_base64))
    query = EstimateExtraction(workspace_id=workspace_id, object_key=body.object_key, content=content)
    return await gateway.ask(query)


def _decoded(content_base64: str) -> bytes:
    try:
        return b64decode(content_base64, validate=True)
    except ValueError as error:
        raise Refused("bad_content", "content_base64: it is not base64", status=422) from error


@router.get("/objects")
async def objects(
    caller: CurrentCaller,
    gateway: GatewayDep,
    workspace_id: UUID | None = None,
    bucket: Name | None = None,
    s3_bucket: Name | None = None,
    prefix: Annotated[str, Param(max_length=1_000), STORABLE] = "",
    limit: Annotated[int, Param(ge=1, le=10_000)] = 1_000,
) -> BucketObjects:
    """What is in a bucket now: by the name that it has here, or that its S3 store gives it."""
    query = ListObjects(
        workspace_ids=_of(caller, workspace_id), bucket=bucket, s3_bucket=s3_bucket, prefix=prefix, limit=limit
    )
    return await gateway.ask(query, timeout_s=READING_S)


class Look(RequestBody):
    """An object of a bucket."""

    bucket: Name
    object_key: ObjectKey
    workspace_id: UUID | None = None


@router.post("/objects/follow")
async def follow(body: Look, caller: CurrentCaller, gateway: GatewayDep) -> FollowedReply:
    """Look at one object of a bucket now, and wait until it is read."""
    query = FollowObject(workspace_ids=_of(caller, body.workspace_id), bucket=body.bucket, object_key=body.object_key)
    return await gateway.ask(query, timeout_s=READING_S)


def _of(caller: Caller, workspace_id: UUID | None) -> tuple[UUID, ...] | None:
    """The workspaces whose buckets are meant; None for all."""
    require_workspace(caller, workspace_id)
    return workspaces_of(caller) if workspace_id is None else (workspace_id,)


def libraries(caller: Caller, workspace_id: UUID | None) -> tuple[UUID, ...]:
    """The workspaces whose library is meant; an argument can only narrow what the token allows."""
    require_workspace(caller, workspace_id)
    if workspace_id is not None:
        return (workspace_id,)
    named = workspaces_of(caller)
    return (DEFAULT_WORKSPACE,) if named is None else named
