"""What the agents service answers."""

from __future__ import annotations

from typing import Annotated, ClassVar
from uuid import UUID

from pydantic import Field

from libs.contracts.agents import (
    AgentSummary,
    AgentTool,
    AgentVersionSummary,
    AgentVersionView,
    AgentView,
    ConversationTurn,
    KnowledgeBase,
    LockVersion,
    Message,
    RefineMark,
    RefineOption,
    RefineTurn,
)
from libs.contracts.queries.base import Query, Repeatable, Reply
from libs.contracts.queries.spending import Spending, SpendingQuery
from libs.contracts.text import JsonObject
from libs.contracts.vocabulary import Name, ShortText


class AgentReply(Reply):
    """One agent."""

    agent: AgentView


class Agents(Reply):
    """Agents by name; `total` counts all of them."""

    agents: tuple[AgentSummary, ...]
    total: int


class AgentVersions(Reply):
    """An agent's history, newest first."""

    versions: tuple[AgentVersionSummary, ...]


class AgentVersionReply(Reply):
    """One version with what it changed."""

    version: AgentVersionView


class AgentCatalog(Reply):
    """The tools and the knowledge that a company's agents may use."""

    company_id: Name
    tools: tuple[AgentTool, ...]
    knowledge: tuple[KnowledgeBase, ...]


class Flag(Reply):
    """A feature's switch; one that nobody set is off."""

    code: Name
    enabled: bool


class Refined(Reply):
    """A reply that is always there, up to three options, and what the safeguards did."""

    reply: Message
    options: tuple[RefineOption, ...] = ()
    warnings: tuple[ShortText, ...] = ()


class Conversation(Reply):
    """A conversation on the engine, turn by turn."""

    turns: tuple[ConversationTurn, ...]


class ListAgents(Query[Agents]):
    """The agents of an organisation."""

    subject: ClassVar[str] = "ask.agents.agents.list.v1"
    reply: ClassVar[type[Reply]] = Agents

    organization_id: Name
    company_id: Name | None = None
    limit: int = Field(default=50, ge=1, le=500)
    offset: int = Field(default=0, ge=0, le=100_000)


class GetAgent(Query[AgentReply]):
    """One agent; refused with 404 where the organisation has none."""

    subject: ClassVar[str] = "ask.agents.agents.get.v1"
    reply: ClassVar[type[Reply]] = AgentReply

    organization_id: Name
    agent_id: UUID


class CreateAgent(Query[AgentReply], Repeatable):
    """A new agent: validated, pushed to the engine, and there as version 1."""

    subject: ClassVar[str] = "ask.agents.agents.create.v1"
    reply: ClassVar[type[Reply]] = AgentReply

    organization_id: Name
    company_id: Name
    actor: Name
    blocks: JsonObject
    engine_version: int = Field(default=2, ge=1, le=2)


class UpdateAgent(Query[AgentReply], Repeatable):
    """A save: each block that is given replaces the stored one whole. A stale `lock_version` is refused with 409."""

    subject: ClassVar[str] = "ask.agents.agents.update.v1"
    reply: ClassVar[type[Reply]] = AgentReply

    organization_id: Name
    agent_id: UUID
    actor: Name
    lock_version: LockVersion
    blocks: JsonObject
    refine: RefineMark | None = None


class RevertAgent(Query[AgentReply], Repeatable):
    """The pack of an earlier version, saved again: the same validation, push and a new version."""

    subject: ClassVar[str] = "ask.agents.agents.revert.v1"
    reply: ClassVar[type[Reply]] = AgentReply

    organization_id: Name
    agent_id: UUID
    actor: Name
    lock_version: LockVersion
    to_version: LockVersion


class ListAgentVersions(Query[AgentVersions]):
    """An agent's history."""

    subject: ClassVar[str] = "ask.agents.versions.list.v1"
    reply: ClassVar[type[Reply]] = AgentVersions

    organization_id: Name
    agent_id: UUID
    limit: int = Field(default=50, ge=1, le=500)


class GetAgentVersion(Query[AgentVersionReply]):
    """One version with what it changed."""

    subject: ClassVar[str] = "ask.agents.versions.get.v1"
    reply: ClassVar[type[Reply]] = AgentVersionReply

    organization_id: Name
    agent_id: UUID
    version: LockVersion


class GetAgentCatalog(Query[AgentCatalog]):
    """What a company's agents may use."""

    subject: ClassVar[str] = "ask.agents.catalog.get.v1"
    reply: ClassVar[type[Reply]] = AgentCatalog

    organization_id: Name
    company_id: Name


class ApplyAgentCatalog(Query[AgentCatalog], Repeatable):
    """Say what a company's agents may use from now on; what is not in it is no longer known."""

    subject: ClassVar[str] = "ask.agents.catalog.apply.v1"
    reply: ClassVar[type[Reply]] = AgentCatalog

    organization_id: Name
    company_id: Name
    tools: Annotated[tuple[AgentTool, ...], Field(max_length=1_000)] = ()
    knowledge: Annotated[tuple[KnowledgeBase, ...], Field(max_length=1_000)] = ()


class GetFlag(Query[Flag]):
    """Whether a feature is on."""

    subject: ClassVar[str] = "ask.agents.flags.get.v1"
    reply: ClassVar[type[Reply]] = Flag

    code: Name


class SetFlag(Query[Flag], Repeatable):
    """Switch a feature."""

    subject: ClassVar[str] = "ask.agents.flags.set.v1"
    reply: ClassVar[type[Reply]] = Flag

    code: Name
    enabled: bool
    actor: Name


class RefineAgent(Query[Refined]):
    """What would mend the pack in the request, in options. Nothing is written."""

    subject: ClassVar[str] = "ask.agents.agents.refine.v1"
    reply: ClassVar[type[Reply]] = Refined

    organization_id: Name
    agent_id: UUID
    user_message: Message
    chat_history: Annotated[tuple[RefineTurn, ...], Field(max_length=10)] = ()
    ai_agent: JsonObject


class PreviewAgent(Query[Conversation]):
    """A conversation with a pack that may not be saved, or with the stored one. Nothing is written."""

    subject: ClassVar[str] = "ask.agents.agents.preview.v1"
    reply: ClassVar[type[Reply]] = Conversation

    organization_id: Name
    agent_id: UUID
    messages: Annotated[tuple[Message, ...], Field(min_length=1, max_length=50)]
    ai_agent: JsonObject | None = None
    tool_results: JsonObject = Field(default_factory=dict)


class GetRefineSpending(SpendingQuery):
    """What refine turns cost."""

    subject: ClassVar[str] = "ask.agents.spending.get.v1"
    reply: ClassVar[type[Reply]] = Spending
