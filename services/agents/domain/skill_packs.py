"""The skill pack's own shape: what a patched one must still be."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from services.agents.domain.packs import Json, require


class _Known(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Action(_Known):
    id: str | None = None
    name: str | None = None
    type: str | None = None
    args: Any = None
    gate: str | None = None
    terminal: bool | None = None


class _Completion(_Known):
    type: str | None = None
    action: str | None = None
    target: str | None = None


class _Exit(_Known):
    reason: str | None = None


class _Skill(_Known):
    id: str | None = None
    name: str | None = None
    description: str | None = None
    instructions: str | None = None
    milestones: list[str] | None = None
    milestone_action_map: dict[str, str] | None = None
    actions: list[_Action] | None = None
    slot_action_args_map: dict[str, dict[str, str]] | None = None
    completion: _Completion | None = None
    exit: _Exit | None = None
    kb_ids: list[str] | None = None
    vector_store: Json | None = None


class _When(_Known):
    action: str | None = None
    body_contains: str | None = None


class _Rule(_Known):
    id: str | None = None
    from_: str | None = Field(default=None, alias="from")
    when: _When | None = None
    switch_to: str | None = None


class _SkillPack(_Known):
    version: str
    description: str | None = None
    tone_of_voice: Any = None
    guidance: str | None = None
    skills: list[_Skill]
    routing_rules: list[_Rule]
    knowledge_base: list[Json]


_SHAPE = TypeAdapter(_SkillPack)


def check_skill_pack(pack: Json) -> None:
    """Raises `MalformedPack` for the first known key whose type is wrong."""
    require(_SHAPE, pack)
