"""The two shapes of a pack: the public capability pack, and the skill pack of the engine and the refiner.

`SkillPackBuilder` is a function of the capability pack. `SkillPackMapper` is its inverse with a memory: whatever the
skill pack cannot carry, and whatever nobody changed, is taken from the capability pack that it came from, so that
an unchanged skill pack gives back the very same JSON (the laws of a lens: Foster et al. 2007, "Combinators for
bidirectional tree transformations").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.agents.domain.packs import Json, same

VERSION = "1.0"
ACTION_TYPE = "qontak_function_call"

COMPLETIONS: Mapping[str, str] = {
    "answer": "reply_done",
    "action": "action_done",
    "handoff": "human_handoff",
    "switch": "skill_switch",
    "close": "conversation_end",
}
"""Types of completion: the public word, and the engine's."""
_PUBLIC_COMPLETIONS = {engine: public for public, engine in COMPLETIONS.items()}

_PROFILE = {"description": "description", "tone": "tone_of_voice", "goals": "guidance"}
_SAME_IN_SKILL = ("id", "name", "description", "instructions", "milestones", "milestone_action_map")
_SKILL_KEYS = (*_SAME_IN_SKILL, "actions", "slot_action_args_map", "completion", "exit", "kb_ids", "vector_store")
_CAPABILITY_KEYS = (*_SAME_IN_SKILL, "actions", "slot_action_args_map", "completion", "sources", "vector_store")
_PACK_KEYS = ("version", "description", "tone_of_voice", "guidance", "skills", "routing_rules", "knowledge_base")
_PUBLIC_KEYS = ("profile", "capabilities", "routing")

Resolver = Callable[[Json], Any]
"""Gives the vector store of a capability. Saving uses one that may create stores, refining one that only reads."""


def stored_vector_store(capability: Json) -> Any:
    """The store that the capability already has; makes none."""
    return capability.get("vector_store")


@dataclass(frozen=True, slots=True)
class SkillPackBuilder:
    """Capability pack to skill pack."""

    resolve: Resolver = stored_vector_store

    def build(self, pack: Json) -> Json:
        """The engine's shape of `pack`, which is not changed. Lists that are absent are empty there."""
        profile = pack.get("profile") or {}
        capabilities = pack.get("capabilities") or []
        skill_pack: Json = {"version": VERSION}
        skill_pack |= {theirs: profile[ours] for ours, theirs in _PROFILE.items() if ours in profile}
        skill_pack["skills"] = [self._skill(each) for each in capabilities]
        skill_pack["routing_rules"] = [_rule(each) for each in pack.get("routing") or []]
        skill_pack["knowledge_base"] = knowledge_of(capabilities)
        return skill_pack | _unknown(pack, (*_PUBLIC_KEYS, *_PACK_KEYS))

    def _skill(self, capability: Json) -> Json:
        skill = {key: capability[key] for key in _SAME_IN_SKILL if key in capability}
        if "actions" in capability:
            actions = capability["actions"]
            skill["actions"] = None if actions is None else [_action(each) for each in actions]
        if "slot_action_args_map" in capability:
            skill["slot_action_args_map"] = capability["slot_action_args_map"]
        if "completion" in capability:
            skill["completion"] = _completion(capability["completion"])
            if "exit_reason" in (capability["completion"] or {}):
                skill["exit"] = {"reason": capability["completion"]["exit_reason"]}
        if "sources" in capability:
            skill["kb_ids"] = [source["kb_id"] for source in capability["sources"] or []]
        if (store := self.resolve(capability)) is not None or "vector_store" in capability:
            skill["vector_store"] = store
        return skill | _unknown(capability, (*_CAPABILITY_KEYS, *_SKILL_KEYS))


class SkillPackMapper:
    """Skill pack back to the capability pack that it came from."""

    def __init__(self, origin: Json, builder: SkillPackBuilder | None = None) -> None:
        self._origin = origin
        self._before = (builder or SkillPackBuilder()).build(origin)
        self._names = {each["kb_id"]: each for each in self._before["knowledge_base"]}

    def map(self, skill_pack: Json) -> Json:
        """The capability pack with what `skill_pack` changed of its origin's, and nothing else."""
        pack = dict(self._origin)
        self._map_profile(pack, skill_pack)
        before, after = self._before["skills"], skill_pack["skills"]
        if not same(before, after):
            origins = list(zip(before, self._origin.get("capabilities") or [], strict=True))
            pack["capabilities"] = _by_id(origins, after, "id", self._capability)
        before, after = self._before["routing_rules"], skill_pack["routing_rules"]
        if not same(before, after):
            origins = list(zip(before, self._origin.get("routing") or [], strict=True))
            pack["routing"] = _by_id(origins, after, "id", _route)
        _put_unknown(pack, self._before, skill_pack, (*_PACK_KEYS, *_PUBLIC_KEYS))
        return pack

    def _map_profile(self, pack: Json, skill_pack: Json) -> None:
        profile = dict(pack.get("profile") or {})
        for ours, theirs in _PROFILE.items():
            _put(profile, ours, self._before, skill_pack, theirs)
        if not same(profile, pack.get("profile") or {}):
            pack["profile"] = profile

    def _capability(self, origin: Json | None, before: Json, after: Json) -> Json:
        capability = dict(origin or {})
        for key in (*_SAME_IN_SKILL, "slot_action_args_map", "vector_store"):
            _put(capability, key, before, after, key)
        if not _same_at(before, after, "actions"):
            old = list(zip(before.get("actions") or [], capability.get("actions") or [], strict=True))
            _set(capability, "actions", after, lambda actions: _by_id(old, actions, "id", _public_action))
        _put_completion(capability, before, after)
        if not _same_at(before, after, "kb_ids"):
            _set(capability, "sources", after, lambda kb_ids: self._sources(origin, kb_ids), key="kb_ids")
        _put_unknown(capability, before, after, (*_SKILL_KEYS, *_CAPABILITY_KEYS))
        return capability

    def _sources(self, origin: Json | None, kb_ids: Sequence[str]) -> list[Json]:
        known = {source["kb_id"]: source for source in (origin or {}).get("sources") or []}
        return [known.get(kb_id) or self._names.get(kb_id) or {"kb_id": kb_id} for kb_id in kb_ids]


def knowledge_of(capabilities: Iterable[Json]) -> list[Json]:
    """`{kb_id, name}` of every source once, in the order in which they come first."""
    found: dict[str, Json] = {}
    for capability in capabilities:
        for source in capability.get("sources") or []:
            named = {"kb_id": source["kb_id"]} | ({"name": source["name"]} if "name" in source else {})
            found.setdefault(source["kb_id"], named)
    return list(found.values())


# --- capability to skill ------------------------------------------------------------------------------------------


def _action(action: Json) -> Json:
    built: Json = {"id": action["tool_id"]} if "tool_id" in action else {}
    built |= {"name": action["name"]} if "name" in action else {}
    built["type"] = ACTION_TYPE
    built |= {key: action[key] for key in ("args", "gate", "terminal") if key in action}
    return built | _unknown(action, ("tool_id", "id", "name", "type", "args", "gate", "terminal"))


def _completion(completion: Json | None) -> Json | None:
    if completion is None:
        return None
    built = {key: value for key, value in completion.items() if key != "exit_reason"}
    if isinstance(built.get("type"), str):
        built["type"] = COMPLETIONS.get(built["type"], built["type"])
    return built


def _rule(route: Json) -> Json:
    built: Json = {key: route[key] for key in ("id", "from", "when") if key in route}
    built |= {"switch_to": route["to"]} if "to" in route else {}
    return built | _unknown(route, ("id", "from", "when", "to", "switch_to"))


# --- skill to capability ------------------------------------------------------------------------------------------


def _public_action(origin: Json | None, before: Json, after: Json) -> Json:
    action = dict(origin or {})
    _put(action, "tool_id", before, after, "id")
    for key in ("name", "args", "gate", "terminal"):
        _put(action, key, before, after, key)
    _put_unknown(action, before, after, ("tool_id", "id", "name", "type", "args", "gate", "terminal"))
    return action


def _put_completion(capability: Json, before: Json, after: Json) -> None:
    if _same_at(before, after, "completion") and _same_at(before, after, "exit"):
        return
    old, new = before.get("completion"), after.get("completion")
    reason = (after.get("exit") or {}).get("reason")
    if new is None and reason is None:
        _set(capability, "completion", after, lambda _: None)
        return
    completion = dict(capability.get("completion") or {})
    _put(completion, "type", old or {}, new or {}, "type", lambda word: _PUBLIC_COMPLETIONS.get(word, word))
    for key in {**(old or {}), **(new or {})}:
        if key != "type":
            _put(completion, key, old or {}, new or {}, key)
    _put(completion, "exit_reason", before.get("exit") or {}, after.get("exit") or {}, "reason")
    capability["completion"] = completion


def _route(origin: Json | None, before: Json, after: Json) -> Json:
    route = dict(origin or {})
    for key in ("id", "from", "when"):
        _put(route, key, before, after, key)
    _put(route, "to", before, after, "switch_to")
    _put_unknown(route, before, after, ("id", "from", "when", "to", "switch_to"))
    return route


# --- taking over what changed -------------------------------------------------------------------------------------


def _by_id(
    origins: Sequence[tuple[Json, Json]],
    after: Sequence[Json] | None,
    key: str,
    put: Callable[[Json | None, Json, Json], Json],
) -> list[Json] | None:
    """Elements in their new order, each with what changed of the one with its id; equal ids in the order they come."""
    if after is None:
        return None
    waiting: dict[Any, list[tuple[Json, Json]]] = {}
    for pair in origins:
        waiting.setdefault(pair[0].get(key), []).append(pair)
    mapped = []
    for element in after:
        found = waiting.get(element.get(key), [])
        found.sort(key=lambda pair: not same(pair[0], element))  # of equal ids, the one that stayed as it was
        origin: Json | None = None
        before: Json = {}
        if found:
            before, origin = found.pop(0)
        mapped.append(origin if origin is not None and same(before, element) else put(origin, before, element))
    return mapped


def _put(
    target: Json, ours: str, before: Json, after: Json, theirs: str, word: Callable[[Any], Any] = lambda value: value
) -> None:
    if _same_at(before, after, theirs):
        return
    if theirs in after:
        target[ours] = word(after[theirs])
    else:
        target.pop(ours, None)


def _set(target: Json, ours: str, after: Json, value: Callable[[Any], Any], *, key: str | None = None) -> None:
    if (key or ours) in after:
        target[ours] = value(after[key or ours])
    else:
        target.pop(ours, None)


def _put_unknown(target: Json, before: Json, after: Json, known: Sequence[str]) -> None:
    for key in {**before, **after}:
        if key not in known:
            _put(target, key, before, after, key)


def _same_at(before: Json, after: Json, key: str) -> bool:
    if (key in before) != (key in after):
        return False
    return key not in before or same(before[key], after[key])


def _unknown(value: Json, known: Sequence[str]) -> Json:
    return {key: item for key, item in value.items() if key not in known}
