"""Agents: their packs, versions, what they may use, and how they are refined. In the shape of `/v2`."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Request, Response
from fastapi import Query as Param
from pydantic import Field, ValidationError

from libs.contracts.agents import (
    BLOCKS,
    AgentTool,
    AgentView,
    KnowledgeBase,
    LockVersion,
    Message,
    RefineMark,
    RefineTurn,
)
from libs.contracts.queries.agents import (
    ApplyAgentCatalog,
    CreateAgent,
    Flag,
    GetAgent,
    GetAgentCatalog,
    GetAgentVersion,
    GetFlag,
    ListAgents,
    ListAgentVersions,
    PreviewAgent,
    RefineAgent,
    RevertAgent,
    SetFlag,
    UpdateAgent,
)
from libs.contracts.text import JsonObject
from libs.contracts.vocabulary import Name
from libs.service_kit import logging
from services.gateway import metrics, store
from services.gateway.api.access import require_all_workspaces
from services.gateway.api.asking import Gateway, GatewayDep, OnceDep
from services.gateway.api.body import RequestBody
from services.gateway.api.errors import ServiceDown
from services.gateway.api.v2 import DENIED, Failure, Member, V2Route, described, exact, read_body, retry_after
from services.gateway.domain import Limit

router = APIRouter(route_class=V2Route, tags=["agents"])
log = logging.get(__name__)

REFINE_FLAG = "rollout/ai_agent_refine"
REFINES = Limit("refine", most=10)
REFINE_S = 60.0
NO_ANSWER = "Failed to refine AI Agent"
SAVE_S = 30.0
NO_STORE = {"Cache-Control": "no-store"}


class PackBody(RequestBody):
    """The blocks of a pack; each that is given replaces the stored one whole."""

    profile: JsonObject | None = None
    capabilities: list[JsonObject] | None = None
    routing: list[JsonObject] | None = None

    def blocks(self) -> dict[str, Any]:
        """Those that are given."""
        return {block: getattr(self, block) for block in BLOCKS if block in self.model_fields_set}


class CreateBody(PackBody):
    """A new agent of a company."""

    company_id: Name
    engine_version: int = Field(default=2, ge=1, le=2)


class SaveBody(PackBody):
    """A save. The version that the pack was read at stands here or in `If-Match`."""

    lock_version: LockVersion | None = None
    refine: RefineMark | None = None


class RevertBody(RequestBody):
    """Which version's pack comes back."""

    version: LockVersion
    lock_version: LockVersion | None = None


class RefineBody(RequestBody):
    """What a person wants, the turns before, and the pack as it is in the editor."""

    user_message: Message
    chat_history: Annotated[list[RefineTurn], Field(max_length=10)] = Field(default_factory=list)
    ai_agent: JsonObject


class PreviewBody(RequestBody):
    """Messages to the pack in the editor, or without one to the stored pack."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=50)]
    ai_agent: JsonObject | None = None
    tool_results: JsonObject = Field(default_factory=dict)


class CatalogBody(RequestBody):
    """The tools and the knowledge that a company's agents may use from now on."""

    company_id: Name
    tools: Annotated[list[AgentTool], Field(max_length=1_000)] = Field(default_factory=list)
    knowledge: Annotated[list[KnowledgeBase], Field(max_length=1_000)] = Field(default_factory=list)


class FlagBody(RequestBody):
    """On or off."""

    enabled: bool


@router.get("/ai_agents")
async def agents(
    caller: Member,
    gateway: GatewayDep,
    company_id: Name | None = None,
    limit: Annotated[int, Param(ge=1, le=500)] = 50,
    offset: Annotated[int, Param(ge=0, le=100_000)] = 0,
) -> Response:
    """The organisation's agents by name."""
    query = ListAgents(organization_id=caller.organization, company_id=company_id, limit=limit, offset=offset)
    reply = await gateway.ask(query)
    return exact({"data": [each.model_dump(mode="json") for each in reply.agents], "total": reply.total})


@router.post("/ai_agents", status_code=201, openapi_extra=described(CreateBody))
async def create(request: Request, caller: Member, gateway: GatewayDep, once: OnceDep) -> Response:
    """A new agent; it is there once the engine has it."""
    body = await read_body(request, CreateBody)
    query = CreateAgent(
        organization_id=caller.organization,
        company_id=body.company_id,
        actor=caller.subject,
        blocks=body.blocks(),
        engine_version=body.engine_version,
    )
    return _shown((await gateway.ask_once(once, query, timeout_s=SAVE_S)).agent, 201)


@router.get("/ai_agents/{agent_id}")
async def agent(agent_id: UUID, caller: Member, gateway: GatewayDep) -> Response:
    """One agent with its pack; the ETag is its version."""
    reply = await gateway.ask(GetAgent(organization_id=caller.organization, agent_id=agent_id))
    return _shown(reply.agent)


@router.patch("/ai_agents/{agent_id}", openapi_extra=described(SaveBody))
async def save(
    request: Request,
    agent_id: UUID,
    caller: Member,
    gateway: GatewayDep,
    once: OnceDep,
    if_match: Annotated[str | None, Header(max_length=100)] = None,
) -> Response:
    """Save blocks of the pack. Without a version 428, with a stale one 409 and what changed since."""
    body = await read_body(request, SaveBody)
    query = UpdateAgent(
        organization_id=caller.organization,
        agent_id=agent_id,
        actor=caller.subject,
        lock_version=_version(body.lock_version, if_match),
        blocks=body.blocks(),
        refine=body.refine,
    )
    return _shown((await gateway.ask_once(once, query, timeout_s=SAVE_S)).agent)


@router.get("/ai_agents/{agent_id}/versions")
async def versions(
    agent_id: UUID, caller: Member, gateway: GatewayDep, limit: Annotated[int, Param(ge=1, le=500)] = 50
) -> Response:
    """An agent's history, newest first."""
    query = ListAgentVersions(organization_id=caller.organization, agent_id=agent_id, limit=limit)
    reply = await gateway.ask(query)
    return exact({"data": [each.model_dump(mode="json") for each in reply.versions]})


@router.get("/ai_agents/{agent_id}/versions/{version}")
async def version(agent_id: UUID, version: LockVersion, caller: Member, gateway: GatewayDep) -> Response:
    """One version with what it changed."""
    query = GetAgentVersion(organization_id=caller.organization, agent_id=agent_id, version=version)
    return exact({"data": (await gateway.ask(query)).version.model_dump(mode="json")})


@router.post("/ai_agents/{agent_id}/revert", openapi_extra=described(RevertBody))
async def revert(
    request: Request,
    agent_id: UUID,
    caller: Member,
    gateway: GatewayDep,
    once: OnceDep,
    if_match: Annotated[str | None, Header(max_length=100)] = None,
) -> Response:
    """The pack of an earlier version, saved again."""
    body = await read_body(request, RevertBody)
    query = RevertAgent(
        organization_id=caller.organization,
        agent_id=agent_id,
        actor=caller.subject,
        lock_version=_version(body.lock_version, if_match),
        to_version=body.version,
    )
    return _shown((await gateway.ask_once(once, query, timeout_s=SAVE_S)).agent)


@router.post("/ai_agents/{agent_id}/refine", openapi_extra=described(RefineBody))
async def refine(request: Request, agent_id: str, caller: Member, gateway: GatewayDep) -> Response:
    """What would mend the pack in the request. Nothing is written, and nothing of it is stored on the way."""
    if not (await gateway.ask(GetFlag(code=REFINE_FLAG))).enabled:
        raise Failure(403, DENIED)
    await _admit(gateway, caller.organization)
    body = await read_body(request, RefineBody)
    try:
        query = RefineAgent(
            organization_id=caller.organization,
            agent_id=UUID(agent_id),
            user_message=body.user_message,
            chat_history=tuple(body.chat_history),
            ai_agent=body.ai_agent,
        )
    except ValidationError as error:
        raise Failure(400, "the request is not right") from error
    except ValueError as error:
        raise Failure(404, "AI Agent not found") from error
    log.info("refine.requested", agent_id=agent_id, history=len(body.chat_history), message=len(body.user_message))
    try:
        reply = await gateway.ask(query, timeout_s=REFINE_S)
    except ServiceDown as error:
        log.warning("refine.failed", agent_id=agent_id, reason="unreachable")
        raise Failure(422, NO_ANSWER) from error
    log.info("refine.succeeded", agent_id=agent_id, options=len(reply.options), warnings=len(reply.warnings))
    return exact({"data": reply.model_dump(mode="json")}, headers=NO_STORE)


@router.post("/ai_agents/{agent_id}/preview", openapi_extra=described(PreviewBody))
async def preview(request: Request, agent_id: UUID, caller: Member, gateway: GatewayDep) -> Response:
    """A conversation on the engine, which keeps nothing of it."""
    body = await read_body(request, PreviewBody)
    query = PreviewAgent(
        organization_id=caller.organization,
        agent_id=agent_id,
        messages=tuple(body.messages),
        ai_agent=body.ai_agent,
        tool_results=body.tool_results,
    )
    reply = await gateway.ask(query, timeout_s=SAVE_S)
    return exact({"data": reply.model_dump(mode="json")}, headers=NO_STORE)


@router.get("/ai_agent_catalog")
async def catalog(caller: Member, gateway: GatewayDep, company_id: Name) -> Response:
    """What a company's agents may use."""
    reply = await gateway.ask(GetAgentCatalog(organization_id=caller.organization, company_id=company_id))
    return exact({"data": reply.model_dump(mode="json")})


@router.put("/ai_agent_catalog", openapi_extra=described(CatalogBody))
async def put_catalog(request: Request, caller: Member, gateway: GatewayDep, once: OnceDep) -> Response:
    """Say what a company's agents may use from now on."""
    body = await read_body(request, CatalogBody)
    query = ApplyAgentCatalog(
        organization_id=caller.organization,
        company_id=body.company_id,
        tools=tuple(body.tools),
        knowledge=tuple(body.knowledge),
    )
    return exact({"data": (await gateway.ask_once(once, query)).model_dump(mode="json")})


@router.get("/flags/{group}/{code}")
async def flag(group: Name, code: Name, caller: Member, gateway: GatewayDep) -> Flag:
    """Whether a feature is on."""
    return await gateway.ask(GetFlag(code=f"{group}/{code}"))


@router.put("/flags/{group}/{code}", openapi_extra=described(FlagBody))
async def set_flag(
    request: Request, group: Name, code: Name, caller: Member, gateway: GatewayDep, once: OnceDep
) -> Flag:
    """Switch a feature, in every replica at once. It is shared, so it needs a token for all workspaces."""
    require_all_workspaces(caller)
    body = await read_body(request, FlagBody)
    return await gateway.ask_once(once, SetFlag(code=f"{group}/{code}", enabled=body.enabled, actor=caller.subject))


async def _admit(gateway: Gateway, organization: str) -> None:
    async with gateway.db.transaction() as tx:
        wait_s = await store.admit(tx.conn, REFINES, organization)
    if wait_s is not None:
        metrics.LIMITED.labels(REFINES.kind).inc()
        told = f"At most {REFINES.most} refines a minute for an organisation"
        raise Failure(429, told, headers=retry_after(wait_s))


def _version(in_body: int | None, if_match: str | None) -> int:
    """The version that somebody saved against, from the body or the header."""
    if if_match is None:
        if in_body is None:
            raise Failure(428, "lock_version or If-Match is required: the version that the pack was read at")
        return in_body
    text = if_match.strip().removeprefix("W/").strip('"')
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) < 2**31:
        raise Failure(400, "If-Match: the ETag of the agent as it was read")
    if in_body is not None and in_body != int(text):
        raise Failure(400, "lock_version and If-Match name different versions")
    return int(text)


def _shown(agent: AgentView, status: int = 200) -> Response:
    return exact({"data": agent.model_dump(mode="json")}, status, {"ETag": f'"{agent.lock_version}"'})
