"""A refine turn: one model call, its patches applied surgically, and what the safeguards did. Writes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic import Field as Bounded

from libs.contracts.agents import AgentTool, RefineOption
from libs.contracts.queries.agents import RefineAgent, Refined
from libs.contracts.touchpoints import ModelSettings
from libs.llm import ModelPool
from libs.llm.account import Account
from libs.llm.base import ModelError, ModelRequest
from libs.service_kit import logging
from services.agents import metrics
from services.agents.domain import fixes, references
from services.agents.domain.lint import Finding, lint
from services.agents.domain.mapping import ACTION_TYPE, SkillPackBuilder, SkillPackMapper
from services.agents.domain.packs import Json, canonical, same
from services.agents.domain.patches import Tool, apply

log = logging.get(__name__)
PROMPT = files("services.agents").joinpath("prompts/refine.md").read_text(encoding="utf-8")
FALLBACK = "I could not work out a change just now. Your agent is unchanged; please try again."
MAX_OPTIONS = 3
MAX_REPLY = 4_000
MAX_WARNINGS = 50
MAX_OUTPUT_TOKENS = 8_192

SCHEMA: Json = {
    "type": "object",
    "additionalProperties": False,
    "required": ["reply", "options"],
    "properties": {
        "reply": {"type": "string"},
        "options": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["patches"],
                "properties": {"patches": {"type": "array", "items": {"type": "object"}}},
            },
        },
    },
}


class _Option(BaseModel):
    model_config = ConfigDict(extra="ignore")

    patches: list[Any] = Bounded(default_factory=list)


class _Draft(BaseModel):
    model_config = ConfigDict(extra="ignore")

    reply: str = Bounded(min_length=1)
    options: list[_Option] = Bounded(default_factory=list)


@dataclass(slots=True)
class Turn:
    """What a turn works with: the request's pack in both shapes, what is wrong with it, and the tools there are."""

    origin: Json
    skill_pack: Json
    tools: Sequence[Tool]
    knowledge: frozenset[str]
    findings: Sequence[Finding]
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, pack: Json, tools: Sequence[AgentTool], knowledge: frozenset[str]) -> Turn:
        """Of a checked capability pack."""
        skill_pack = SkillPackBuilder().build(pack)
        usable = [Tool(each.tool_id, each.name, each.description, each.args) for each in tools if each.tool_id]
        return cls(pack, skill_pack, usable, knowledge, lint(skill_pack))


class Refiner:
    """Asks the model of the refine setting."""

    def __init__(self, pool: ModelPool, model: ModelSettings) -> None:
        self._pool = pool
        self._model = model

    async def refine(self, query: RefineAgent, turn: Turn, account: Account) -> Refined:
        """A reply and up to three options. A model that fails gives a fallback reply and no options."""
        request = await asyncio.to_thread(_request, query, turn)
        try:
            with metrics.REFINE_SECONDS.labels("model").time():
                answer = await self._pool.complete(self._model, request, account)
            draft = _Draft.model_validate(answer.data if answer.data is not None else json.loads(answer.text))
        except (ModelError, ValidationError, ValueError) as error:
            reason = error.reason if isinstance(error, ModelError) else "unusable output"
            log.warning("agents.refine.failed", agent_id=str(query.agent_id), reason=reason)
            metrics.REFINES.labels("failed", "model").inc()
            return Refined(reply=FALLBACK, warnings=("The model gave no usable answer.",))
        refined = await asyncio.to_thread(options_of, turn, draft)
        metrics.REFINES.labels("succeeded", "").inc()
        return refined


def _request(query: RefineAgent, turn: Turn) -> ModelRequest:
    """One call, with everything in it that the model needs; all of it but the prompt is data."""
    asked = {
        "user_message": query.user_message,
        "chat_history": [each.model_dump(mode="json") for each in query.chat_history],
        "skill_pack": turn.skill_pack,
        "available_tools": [
            {"id": tool.id, "name": tool.name, "description": tool.description, "type": ACTION_TYPE, "args": tool.args}
            for tool in turn.tools
        ],
        "findings": [finding.message for finding in turn.findings],
        "safe_fixes": [fixed.patches for fixed in fixes.options(turn.skill_pack, turn.tools)] if turn.findings else [],
    }
    return ModelRequest(
        task="refine",
        system=PROMPT,
        input=json.dumps(asked, ensure_ascii=False),
        output_schema=SCHEMA,
        max_output_tokens=MAX_OUTPUT_TOKENS,
    )


def options_of(turn: Turn, draft: _Draft) -> Refined:
    """Each option applied to the pack; those without effect, and those with the same effect as another, are dropped."""
    options: dict[bytes, RefineOption] = {}
    warnings: list[str] = []
    if len(draft.options) > MAX_OPTIONS:
        warnings.append(f"Only the first {MAX_OPTIONS} of {len(draft.options)} options were looked at.")
    for number, option in enumerate(draft.options[:MAX_OPTIONS], start=1):
        applied = apply(turn.skill_pack, option.patches, turn.tools)
        told = [f"Option {number}: {warning}" for warning in applied.warnings]
        if same(applied.pack, turn.skill_pack):
            if option.patches:
                told.append(f"Option {number} would change nothing and was dropped.")
            warnings += told
            continue
        updated = SkillPackMapper(turn.origin).map(applied.pack)
        warnings += told + [f"Option {number}: {message}" for message in _new_faults(turn, applied.pack, updated)]
        options.setdefault(canonical(updated), RefineOption(patches=tuple(applied.patches), updated_ai_agent=updated))
    reply = draft.reply.strip()[:MAX_REPLY] or FALLBACK
    return Refined(
        reply=reply, options=tuple(options.values()), warnings=tuple(w[:500] for w in warnings[:MAX_WARNINGS])
    )


def _new_faults(turn: Turn, skill_pack: Json, updated: Json) -> list[str]:
    """What an option would break, in the linter's words, and what it refers to that is not there."""
    before = {finding.message for finding in turn.findings}
    found = [finding.message for finding in lint(skill_pack) if finding.message not in before]
    tools = {tool.id for tool in turn.tools}
    known = set(references.missing(turn.origin, tools, turn.knowledge))
    return found + [each for each in references.missing(updated, tools, turn.knowledge) if each not in known]
