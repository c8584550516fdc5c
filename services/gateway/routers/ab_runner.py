"""Suites and A/B runs, kept by the A/B runner."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from fastapi import Query as Param
from pydantic import Field

from libs.contracts.evaluations import AbReport, Case, SuiteSummary
from libs.contracts.queries.ab_runner import (
    AbReports,
    GetRun,
    ImportSuite,
    ListRuns,
    ListSuites,
    ListWaitingCases,
    Suites,
    WaitingCases,
)
from libs.contracts.vocabulary import TouchpointId
from libs.service_kit.errors import Refused
from services.gateway.api.access import CurrentCaller, require_all_workspaces, workspaces_of
from services.gateway.api.asking import GatewayDep
from services.gateway.api.body import MAX_BODY_BYTES, JsonRoute, RequestBody

router = APIRouter(route_class=JsonRoute, tags=["evaluations"])
IMPORT_TIMEOUT_S = 60.0
# What the bus carries at most, less its own headers.
MAX_QUERY_BYTES = MAX_BODY_BYTES - 4_096


class SuiteBody(RequestBody):
    """The whole suite; it takes the place of the one before."""

    cases: list[Case] = Field(min_length=1, max_length=20_000)


@router.put("/touchpoints/{touchpoint_id}/suite")
async def import_suite(
    touchpoint_id: TouchpointId, body: SuiteBody, caller: CurrentCaller, gateway: GatewayDep
) -> SuiteSummary:
    """Make these cases the touchpoint's suite; the same content again changes nothing."""
    require_all_workspaces(caller)
    await gateway.touchpoint(touchpoint_id)
    query = ImportSuite(touchpoint_id=touchpoint_id, cases=tuple(body.cases), by=caller.subject)
    if len(query.model_dump_json(exclude_none=True).encode()) > MAX_QUERY_BYTES:
        raise Refused("too_large", f"a suite is at most {MAX_QUERY_BYTES:,} bytes as JSON", status=413)
    return (await gateway.ask(query, timeout_s=IMPORT_TIMEOUT_S)).suite


@router.get("/suites")
async def suites(gateway: GatewayDep, touchpoint_id: TouchpointId | None = None) -> Suites:
    """Every touchpoint's current suite."""
    return await gateway.ask(ListSuites(touchpoint_id=touchpoint_id))


@router.get("/suites/waiting")
async def waiting(
    caller: CurrentCaller,
    gateway: GatewayDep,
    touchpoint_id: TouchpointId | None = None,
    limit: Annotated[int, Param(ge=1, le=200)] = 100,
) -> WaitingCases:
    """Published pairs of the library that wait for the next cut of their touchpoint's suite, of the token's
    workspaces."""
    return await gateway.ask(
        ListWaitingCases(touchpoint_id=touchpoint_id, workspace_ids=workspaces_of(caller), limit=limit)
    )


@router.get("/ab")
async def runs(
    caller: CurrentCaller,
    gateway: GatewayDep,
    touchpoint_id: TouchpointId | None = None,
    proposal_id: UUID | None = None,
    limit: Annotated[int, Param(ge=1, le=500)] = 50,
) -> AbReports:
    """A/B runs, newest first, of the workspaces in the token and of global touchpoints."""
    return await gateway.ask(
        ListRuns(touchpoint_id=touchpoint_id, workspace_ids=workspaces_of(caller), proposal_id=proposal_id, limit=limit)
    )


@router.get("/ab/{run_id}")
async def run(run_id: UUID, caller: CurrentCaller, gateway: GatewayDep) -> AbReport:
    """One A/B run with its report as far as it is; 404 also where the token does not reach its workspace."""
    found = (await gateway.ask(GetRun(run_id=run_id))).run
    if found.workspace_id is not None and not caller.has_workspace(found.workspace_id):
        raise Refused("not_found", f"there is no run {run_id}", status=404)
    return found
