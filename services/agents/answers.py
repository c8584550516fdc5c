"""What the agents service answers: agents and their versions, saves, refine turns, and conversations on the engine."""

from __future__ import annotations

import asyncio
from uuid import UUID

from libs.contracts.agents import AgentView, ConversationEvent, ConversationTurn, workspace_of
from libs.contracts.queries.agents import (
    AgentCatalog,
    AgentReply,
    Agents,
    AgentVersionReply,
    AgentVersions,
    ApplyAgentCatalog,
    Conversation,
    CreateAgent,
    Flag,
    GetAgent,
    GetAgentCatalog,
    GetAgentVersion,
    GetFlag,
    GetRefineSpending,
    ListAgents,
    ListAgentVersions,
    PreviewAgent,
    RefineAgent,
    Refined,
    RevertAgent,
    SetFlag,
    UpdateAgent,
)
from libs.contracts.queries.spending import Spending
from libs.llm import Budget
from libs.llm.budget import standing
from libs.llm.spending import few_enough
from libs.service_kit import requests
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from services.agents import metrics, store
from services.agents.account import RefineAccount
from services.agents.domain.mapping import SkillPackBuilder
from services.agents.domain.packs import Json, MalformedPack, check_pack
from services.agents.push import Engine, EngineError
from services.agents.refining import Refiner, Turn
from services.agents.saving import Saving, pack_of

AUTONOMOUS = 2
"""The engine version that executes packs."""


async def answer_list(query: ListAgents, db: Database) -> Agents:
    """One page of an organisation's agents."""
    workspace_id = workspace_of(query.organization_id)
    async with db.connection(workspaces=[workspace_id]) as conn:
        agents, total = await store.listed(conn, workspace_id, query.company_id, query.limit, query.offset)
    return Agents(agents=tuple(agents), total=total)


async def answer_get(query: GetAgent, db: Database) -> AgentReply:
    """One agent with its pack."""
    return AgentReply(agent=await _agent(db, query.organization_id, query.agent_id))


@requests.repeatable
async def answer_create(query: CreateAgent, saving: Saving) -> AgentReply:
    """A new agent."""
    return AgentReply(agent=await saving.create(query))


@requests.repeatable
async def answer_update(query: UpdateAgent, saving: Saving) -> AgentReply:
    """A save."""
    return AgentReply(agent=await saving.update(query))


@requests.repeatable
async def answer_revert(query: RevertAgent, saving: Saving) -> AgentReply:
    """An earlier version, saved again."""
    return AgentReply(agent=await saving.revert(query))


async def answer_versions(query: ListAgentVersions, db: Database) -> AgentVersions:
    """An agent's history."""
    agent = await _agent(db, query.organization_id, query.agent_id)
    async with db.connection(workspaces=[workspace_of(query.organization_id)]) as conn:
        return AgentVersions(versions=tuple(await store.versions(conn, agent.id, query.limit)))


async def answer_version(query: GetAgentVersion, db: Database) -> AgentVersionReply:
    """One version with what it changed."""
    async with db.connection(workspaces=[workspace_of(query.organization_id)]) as conn:
        found = await store.version(conn, query.agent_id, query.version)
    if found is None:
        raise Refused("not_found", f"the agent has no version {query.version}", status=404)
    return AgentVersionReply(version=found)


async def answer_catalog(query: GetAgentCatalog, db: Database) -> AgentCatalog:
    """What a company's agents may use."""
    return await _catalog(db, query.organization_id, query.company_id)


@requests.repeatable
async def answer_apply_catalog(query: ApplyAgentCatalog, db: Database) -> AgentCatalog:
    """Replace what a company's agents may use."""
    _require_unique([tool.name for tool in query.tools], "tools", "name")
    _require_unique([tool.tool_id for tool in query.tools if tool.tool_id], "tools", "tool_id")
    _require_unique([each.kb_id for each in query.knowledge], "knowledge", "kb_id")
    once = requests.Once[AgentCatalog](query, lambda catalog: catalog)
    workspace_id = workspace_of(query.organization_id)
    async with db.transaction() as tx:
        await once.begin(tx.conn)
        await store.put_catalog(tx.conn, workspace_id, query.company_id, query.tools, query.knowledge)
        catalog = AgentCatalog(company_id=query.company_id, tools=query.tools, knowledge=query.knowledge)
        await once.end(tx.conn, catalog)
    return catalog


async def answer_flag(query: GetFlag, db: Database) -> Flag:
    """Whether a feature is on."""
    async with db.connection() as conn:
        return Flag(code=query.code, enabled=await store.flag(conn, query.code))


@requests.repeatable
async def answer_set_flag(query: SetFlag, db: Database) -> Flag:
    """Switch a feature."""
    once = requests.Once[Flag](query, lambda flag: flag)
    async with db.transaction() as tx:
        await once.begin(tx.conn)
        await store.set_flag(tx.conn, query.code, query.enabled, query.actor)
        flag = Flag(code=query.code, enabled=query.enabled)
        await once.end(tx.conn, flag)
    return flag


async def answer_refine(query: RefineAgent, db: Database, refiner: Refiner) -> Refined:
    """Options that would mend the pack in the request. Nothing is written."""
    pack = _checked(query.ai_agent)
    agent = await _agent(db, query.organization_id, query.agent_id)
    if agent.parameters.get("engine_version") != AUTONOMOUS:
        raise Refused("not_autonomous_agent", "not_autonomous_agent", status=422)
    catalog = await _catalog(db, agent.organization_id, agent.company_id)
    knowledge = frozenset(each.kb_id for each in catalog.knowledge)
    with metrics.REFINES_IN_FLIGHT.track_inprogress(), metrics.REFINE_SECONDS.labels("whole").time():
        turn = await asyncio.to_thread(Turn.of, pack, catalog.tools, knowledge)
        account = RefineAccount(db, agent.id, workspace_of(agent.organization_id))
        return await refiner.refine(query, turn, account)


async def answer_spending(query: GetRefineSpending, db: Database, budget: Budget) -> Spending:
    """What refine turns cost in the last days, and what is left of today's budget."""
    async with db.connection() as conn:
        spent = await store.spent(conn, query.touchpoint_id or "", budget.in_flight_s)
        return Spending(
            budget=standing(store.CALLER, budget, spent),
            days=few_enough(await store.spent_by_day(conn, query.touchpoint_id, query.days)),
            calls=await store.latest_calls(conn, query.touchpoint_id, query.calls),
        )


async def answer_preview(query: PreviewAgent, db: Database, engine: Engine) -> Conversation:
    """A conversation on the engine, with a pack that may not be saved or with the stored one."""
    agent = await _agent(db, query.organization_id, query.agent_id)
    pack = pack_of(agent.parameters) if query.ai_agent is None else _checked(query.ai_agent)
    try:
        turns = await engine.converse(SkillPackBuilder().build(pack), query.messages, query.tool_results)
    except EngineError as error:
        raise Refused(
            "engine_failed", f"The agent engine could not hold the conversation: {error}", status=422
        ) from error
    return Conversation(turns=tuple(_turn(each) for each in turns))


def _turn(turn: Json) -> ConversationTurn:
    events = [
        ConversationEvent(**{name: str(event.get(name, ""))[:2_000] for name in ConversationEvent.model_fields})
        for event in turn.get("events", [])
    ]
    return ConversationTurn(message=str(turn["message"])[:4_000], events=tuple(events))


async def _agent(db: Database, organization_id: str, agent_id: UUID) -> AgentView:
    workspace_id = workspace_of(organization_id)
    async with db.connection(workspaces=[workspace_id]) as conn:
        agent = await store.get(conn, workspace_id, agent_id)
    if agent is None:
        raise Refused("not_found", "AI Agent not found", status=404)
    return agent


async def _catalog(db: Database, organization_id: str, company_id: str) -> AgentCatalog:
    workspace_id = workspace_of(organization_id)
    async with db.connection(workspaces=[workspace_id]) as conn:
        tools = await store.tools(conn, workspace_id, company_id)
        knowledge = await store.knowledge(conn, workspace_id, company_id)
    return AgentCatalog(company_id=company_id, tools=tuple(tools), knowledge=tuple(knowledge))


def _checked(pack: Json) -> Json:
    try:
        return check_pack(pack)
    except MalformedPack as error:
        raise Refused("malformed_pack", f"ai_agent: {error}", status=400) from error


def _require_unique(values: list[str], what: str, key: str) -> None:
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        raise Refused("twice", f"{what}: {key} {twice!r} stands there twice", status=400)
