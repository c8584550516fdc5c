"""The parts of the gateway's answers about agents that the verbs rely on."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from burnish.answers import Document


class AgentRow(TypedDict):
    """One agent in a list."""

    id: str
    name: str
    company_id: str
    capabilities: int
    lock_version: int
    updated_at: str


class AgentRows(TypedDict):
    """A page of them."""

    data: list[AgentRow]


class WholeAgent(TypedDict):
    """One agent with its pack."""

    id: str
    company_id: str
    lock_version: int
    parameters: Document


class AgentAnswer(TypedDict):
    """One agent, read or saved."""

    data: WholeAgent


class Mark(TypedDict):
    """Which option of which turn a save comes from."""

    turn_id: str
    option: int


class Version(TypedDict):
    """One line of an agent's history."""

    version: int
    action: str
    actor: str
    at: str
    pack_sha256: str
    refine: NotRequired[Mark | None]


class Versions(TypedDict):
    """An agent's history."""

    data: list[Version]


class Option(TypedDict):
    """One alternative."""

    updated_ai_agent: Document


class Refined(TypedDict):
    """A turn's reply, options and warnings."""

    reply: str
    options: list[Option]
    warnings: list[str]


class RefinedAnswer(TypedDict):
    """The same, as it comes."""

    data: Refined


class TurnEvent(TypedDict):
    """One thing that happened."""

    kind: str
    skill: str
    subject: str
    text: str


class Turn(TypedDict):
    """A message and what followed."""

    message: str
    events: list[TurnEvent]


class Turns(TypedDict):
    """A conversation."""

    turns: list[Turn]


class Talk(TypedDict):
    """The same, as it comes."""

    data: Turns


class Tool(TypedDict):
    """A tool that agents may use."""

    tool_id: str | None
    name: str
    description: str


class Knowledge(TypedDict):
    """Knowledge that agents may refer to."""

    kb_id: str


class Catalog(TypedDict):
    """What a company's agents may use."""

    tools: list[Tool]
    knowledge: list[Knowledge]


class CatalogAnswer(TypedDict):
    """The same, as it comes."""

    data: Catalog


class Flag(TypedDict):
    """A feature's switch."""

    enabled: bool
