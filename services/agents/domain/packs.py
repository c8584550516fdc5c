"""The capability pack: the public shape of an agent's configuration, as editors read and write it.

A pack is JSON. Keys that the shape does not know are kept as they are, at every level and in their order; only the
types of the known ones are checked. Whether a pack makes sense is for `lint`, so that a broken one can be opened.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from libs.contracts.text import storable

Json = dict[str, Any]

MAX_PACK_BYTES = 256 * 1024
HUMAN = "human"
"""The target of a route or a switch that hands the conversation to a person."""


class MalformedPack(Exception):
    """A pack that has not the shape of one: where, and what would be right."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.where = where


class _Known(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Profile(_Known):
    name: str | None = None
    description: str | None = None
    tone: Any = None  # never coerced, so of any type
    goals: str | None = None


class _Action(_Known):
    tool_id: str | None = None
    name: str | None = None
    args: Any = None
    gate: str | None = None
    terminal: bool | None = None


class _Completion(_Known):
    type: str | None = None
    action: str | None = None
    target: str | None = None
    exit_reason: str | None = None


class _Source(_Known):
    kb_id: str
    name: str | None = None


class _Capability(_Known):
    id: str | None = None
    name: str | None = None
    description: str | None = None
    instructions: str | None = None
    milestones: list[str] | None = None
    milestone_action_map: dict[str, str] | None = None
    actions: list[_Action] | None = None
    slot_action_args_map: dict[str, dict[str, str]] | None = None
    completion: _Completion | None = None
    sources: list[_Source] | None = None
    vector_store: Json | None = None


class _When(_Known):
    action: str | None = None
    body_contains: str | None = None


class _Route(_Known):
    id: str | None = None
    from_: str | None = Field(default=None, alias="from")
    when: _When | None = None
    to: str | None = None


class _CapabilityPack(_Known):
    profile: _Profile | None = None
    capabilities: list[_Capability] | None = None
    routing: list[_Route] | None = None


_SHAPE = TypeAdapter(_CapabilityPack)


def check_pack(value: object) -> Json:
    """The same object, once its known keys have their types. Raises `MalformedPack`."""
    if not isinstance(value, dict):
        raise MalformedPack("", "a pack is an object with profile, capabilities and routing")
    try:
        storable(value)
    except ValueError as error:
        raise MalformedPack("", str(error)) from error
    if size_of(value) > MAX_PACK_BYTES:
        raise MalformedPack("", f"a pack has at most {MAX_PACK_BYTES // 1024} KiB")
    require(_SHAPE, value)
    return value


def require(shape: TypeAdapter[Any], value: Json) -> None:
    """Check the types of known keys. Raises `MalformedPack` for the first that is wrong."""
    try:
        shape.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise MalformedPack(_where(first["loc"]), first["msg"][:200]) from error


def canonical(value: object) -> bytes:
    """JSON as UTF-8 bytes, keys in their order: equal bytes are the same text to whoever reads the pack."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def same(one: object, other: object) -> bool:
    """Whether two values are the same JSON: `1`, `1.0` and `true` differ, and so do two orders of keys."""
    return one is other or canonical(one) == canonical(other)


def size_of(value: object) -> int:
    """Bytes of a value as JSON. Raises `MalformedPack` for a number that JSON has not."""
    try:
        return len(canonical(value))
    except ValueError as error:
        raise MalformedPack("", "a number in it is not finite") from error


def copy_of(value: Any) -> Any:
    """A deep copy; faster than `copy.deepcopy` for JSON, and as exact."""
    return json.loads(canonical(value))


def _where(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
