"""The live prompt: what applications ask for all the time, served from memory."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Header, Response

from libs.contracts.queries.registry import GetPrompt
from libs.contracts.versions import LivePrompt
from libs.contracts.vocabulary import Instant, TouchpointId
from libs.service_kit.errors import Unavailable
from services.gateway import domain
from services.gateway.api.access import CurrentCaller, require_workspace
from services.gateway.api.asking import GatewayDep
from services.gateway.api.body import JsonRoute
from services.gateway.api.errors import ServiceDown
from services.gateway.domain import Target

router = APIRouter(route_class=JsonRoute, tags=["versions"])


@router.get(
    "/touchpoints/{touchpoint_id}/live",
    response_model=LivePrompt,
    responses={304: {"description": "The ETag still holds."}},
)
async def live(
    touchpoint_id: TouchpointId,
    caller: CurrentCaller,
    gateway: GatewayDep,
    at: Instant | None = None,
    workspace_id: UUID | None = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> LivePrompt | Response:
    """The live prompt, or with `at` what was live then. The ETag changes with every activation."""
    require_workspace(caller, workspace_id)
    if at is not None:
        query = GetPrompt(touchpoint_id=touchpoint_id, workspace_id=workspace_id, at=at)
        return (await gateway.ask(query)).prompt
    try:
        known = await gateway.live.get(Target(touchpoint_id, workspace_id))
    except Unavailable as error:
        raise ServiceDown("registry") from error
    if domain.matches(known.etag, if_none_match):
        return Response(status_code=304, headers={"ETag": known.etag})
    headers = {"ETag": known.etag, "Cache-Control": "private, no-cache"}
    return Response(known.body, media_type="application/json", headers=headers)
