"""Agents: their packs, versions and options, as replies carry them."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID, uuid5

from pydantic import Field, StringConstraints

from libs.contracts.envelope import EVENT_NAMESPACE, Frozen
from libs.contracts.text import STORABLE, JsonObject
from libs.contracts.vocabulary import Instant, Name, ShortText

Message = Annotated[str, StringConstraints(min_length=1, max_length=4_000), STORABLE]
LockVersion = Annotated[int, Field(ge=1, le=2**31 - 1)]
SaveAction = Literal["create", "update", "revert"]
BLOCKS = ("profile", "capabilities", "routing")
"""The blocks of a pack; a save replaces each that it gives, whole."""


class AgentSummary(Frozen):
    """One agent in a list."""

    id: UUID
    organization_id: Name
    company_id: Name
    name: ShortText = ""
    engine_version: int
    capabilities: int
    lock_version: int
    updated_at: Instant


class AgentView(Frozen):
    """One agent with its pack. `parameters` holds `engine_version`, the pack's blocks and whatever else was given."""

    id: UUID
    organization_id: Name
    company_id: Name
    parameters: JsonObject
    vendor_ai_agent_id: Name | None = None
    lock_version: int
    created_at: Instant
    updated_at: Instant


class RefineMark(Frozen):
    """Which option of which turn a save comes from."""

    turn_id: Name
    option: int = Field(ge=1, le=3)


class AgentVersionSummary(Frozen):
    """One line of an agent's history."""

    version: int
    action: SaveAction
    actor: Name
    at: Instant
    pack_sha256: Name
    refine: RefineMark | None = None


class AgentVersionView(AgentVersionSummary):
    """The same, with the parameters before and after."""

    before: JsonObject | None = None
    after: JsonObject


class AgentTool(Frozen):
    """A tool that agents of a company may use. Without a `tool_id` it is known and not yet usable."""

    tool_id: Name | None = None
    name: Name
    description: ShortText = ""
    args: JsonObject = Field(default_factory=dict)


class KnowledgeBase(Frozen):
    """Knowledge that agents of a company may refer to."""

    kb_id: Name
    name: ShortText = ""


class RefineTurn(Frozen):
    """One turn of the conversation before."""

    role: Literal["user", "assistant"]
    content: Message


class RefineOption(Frozen):
    """One complete alternative: the patches (RFC 6902, against the skill pack), and the pack after them."""

    patches: tuple[JsonObject, ...]
    updated_ai_agent: JsonObject


class ConversationEvent(Frozen):
    """One thing that happened in a turn on the engine."""

    kind: Name
    skill: ShortText = ""
    subject: ShortText = ""
    text: ShortText = ""


class ConversationTurn(Frozen):
    """A message and what followed."""

    message: Message
    events: tuple[ConversationEvent, ...] = ()


def workspace_of(organization_id: str) -> UUID:
    """The workspace that an organisation's agents belong to: its workspace is its organisation."""
    return uuid5(EVENT_NAMESPACE, f"organization|{organization_id}")
