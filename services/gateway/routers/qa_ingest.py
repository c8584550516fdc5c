"""The Q&A library: search, pairs verbatim, documents and their reports."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID, uuid5

from fastapi import APIRouter
from fastapi import Query as Param

from libs.auth.claims import Caller
from libs.contracts.envelope import EVENT_NAMESPACE
from libs.contracts.library import IngestReport, PairDetail, PairKind, Provenance, PublicationStatus, ScopeFilter
from libs.contracts.queries.qa_ingest import (
    Documents,
    ExportedPairs,
    ExportPairs,
    GetIngestReport,
    GetPair,
    ListDocuments,
    Question,
    SearchPairs,
    SearchResults,
)
from libs.contracts.vocabulary import Instant, Name, ShortText
from libs.service_kit.errors import Refused
from services.gateway.api.access import CurrentCaller, require_scope, require_workspace, workspaces_of
from services.gateway.api.asking import GatewayDep
from services.gateway.api.body import JsonRoute

router = APIRouter(route_class=JsonRoute, tags=["library"])
DEFAULT_WORKSPACE = uuid5(EVENT_NAMESPACE, "workspace|default")
"""Whose library is meant where the token is for all workspaces and none is named."""

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
            workspace_ids=_libraries(caller, workspace_id),
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
    workspaces = _libraries(caller, workspace_id)
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
    return await gateway.ask(ListDocuments(workspace_ids=_libraries(caller, workspace_id), bucket=bucket, limit=limit))


@router.get("/documents/{document_id}/report")
async def report(
    document_id: UUID, caller: CurrentCaller, gateway: GatewayDep, workspace_id: UUID | None = None
) -> IngestReport:
    """What became of every passage of a document: pairs, named rejects, and a count of every character."""
    query = GetIngestReport(workspace_ids=_libraries(caller, workspace_id), document_id=document_id)
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
    libraries = _libraries(caller, workspace_id)
    if len(libraries) != 1:
        raise Refused("which_workspace", "workspace_id: the token is for several; name one", status=422)
    query = ExportPairs(workspace_id=libraries[0], after=after, include_sensitive=include_sensitive, limit=limit)
    return await gateway.ask(query)


def _libraries(caller: Caller, workspace_id: UUID | None) -> tuple[UUID, ...]:
    """The workspaces whose library is meant; an argument can only narrow what the token allows."""
    require_workspace(caller, workspace_id)
    if workspace_id is not None:
        return (workspace_id,)
    named = workspaces_of(caller)
    return (DEFAULT_WORKSPACE,) if named is None else named
