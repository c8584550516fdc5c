"""Applies a model's patches (RFC 6902) to a skill pack, one by one, so that nothing else changes.

The surgical guarantee: an operation that is malformed, fails, or would change what may not change is skipped and named;
what no operation touches stays byte for byte; a change that leaves no skills is rejected whole.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import jsonpatch
import jsonpointer

from services.agents.domain.mapping import ACTION_TYPE
from services.agents.domain.packs import MAX_PACK_BYTES, Json, MalformedPack, copy_of, same, size_of
from services.agents.domain.skill_packs import check_skill_pack

MAX_OPERATIONS = 50
MAX_POINTER = 500
_WITH_VALUE = frozenset({"add", "replace", "test"})
_WITH_FROM = frozenset({"move", "copy"})
_PROTECTED = frozenset(
    {"version", "knowledge_base", "engine_version", "version_id", "id", "organization_id", "company_id"}
    | {"vendor_ai_agent_id", "lock_version"}
)
"""Keys of the pack itself: derived ones, and those of the tenant."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the organisation has."""

    id: str
    name: str
    description: str = ""
    args: Any = None


@dataclass(slots=True)
class Applied:
    """What came of patches: the pack, the operations that took effect, and what was skipped and why."""

    pack: Json
    patches: list[Json] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class _Refused(Exception):
    """An operation that may not take effect; the text says why."""


def apply(original: Json, patches: Sequence[object], tools: Sequence[Tool] = ()) -> Applied:
    """Apply patches in their order to a copy of `original`, which stays as it is."""
    applied = Applied(copy_of(original))
    by_word = _by_word(tools)
    owned = _owned_knowledge(original)
    for number, given in enumerate(patches[:MAX_OPERATIONS], start=1):
        try:
            operation = _well_formed(given)
            applied.pack = _after(applied.pack, operation, by_word, owned)
            applied.patches.append(operation)
        except _Refused as refused:
            applied.warnings.append(f"Patch {number} ({_described(given)}) was skipped: {refused}.")
    if len(patches) > MAX_OPERATIONS:
        applied.warnings.append(f"Only the first {MAX_OPERATIONS} of {len(patches)} patches were looked at.")
    if not applied.pack.get("skills"):
        return Applied(copy_of(original), [], [*applied.warnings, "The change was rejected: no skills would be left."])
    return applied


# --- one operation ------------------------------------------------------------------------------------------------


def _well_formed(given: object) -> Json:
    if not isinstance(given, dict):
        raise _Refused("a patch is an object with op and path")
    op, path = given.get("op"), given.get("path")
    if op not in ("add", "remove", "replace", "move", "copy", "test"):
        raise _Refused("op is one of add, remove, replace, move, copy and test")
    pointers = [path, given.get("from")] if op in _WITH_FROM else [path]
    for pointer in pointers:
        if not isinstance(pointer, str) or len(pointer) > MAX_POINTER or not (pointer == "" or pointer.startswith("/")):
            raise _Refused("path and from are JSON pointers such as /skills/0/instructions")
        if pointer == "":
            raise _Refused("the whole pack is never replaced")
        try:
            jsonpointer.JsonPointer(pointer)
        except jsonpointer.JsonPointerException:
            raise _Refused("a JSON pointer escapes only ~0 and ~1") from None
    if op in _WITH_VALUE and "value" not in given:
        raise _Refused(f"{op} needs a value")
    kept = ("op", "path", *(("from",) if op in _WITH_FROM else ()), *(("value",) if op in _WITH_VALUE else ()))
    return {key: given[key] for key in kept}


def _after(pack: Json, operation: Json, tools: Mapping[str, Tool], owned: frozenset[str]) -> Json:
    """The pack after one operation that may take effect; the pack before it stays as it is."""
    if operation["op"] == "test":
        return _tested(pack, operation)
    changed = copy_of(pack)
    try:
        # The value is copied: a later operation inside it must not reach back into the patch.
        changed = jsonpatch.JsonPatch([copy_of(operation)]).apply(changed, in_place=True)
        if not isinstance(changed, dict):
            raise _Refused("the pack must stay an object")
        _require_elements(changed)
        _keep_identities(pack, changed, operation, tools)
        if size_of(changed) > MAX_PACK_BYTES:
            raise _Refused(f"the pack would be larger than {MAX_PACK_BYTES // 1024} KiB")
        check_skill_pack(changed | {"skills": changed.get("skills") or []})
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        raise _Refused(f"it does not fit the pack ({type(error).__name__})") from error
    except MalformedPack as error:
        raise _Refused(str(error)) from error
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _Refused("it does not fit the pack") from error
    _keep_protected(pack, changed)
    _require_owned(changed, owned)
    return changed


def _tested(pack: Json, operation: Json) -> Json:
    try:
        found = jsonpointer.resolve_pointer(pack, operation["path"])
    except (jsonpointer.JsonPointerException, LookupError, TypeError, ValueError):
        raise _Refused("there is nothing at that path") from None
    if not same(found, operation["value"]):
        raise _Refused("the value there is another one")
    return pack


def _require_elements(pack: Json) -> None:
    for key in ("skills", "routing_rules"):
        elements = pack.get(key, [])
        if not isinstance(elements, list) or not all(isinstance(each, dict) for each in elements):
            raise _Refused(f"{key} is a list of objects")
    for skill in pack.get("skills", []):
        actions = skill.get("actions") or []
        if not isinstance(actions, list) or not all(isinstance(each, dict) for each in actions):
            raise _Refused("actions is a list of objects")


def _keep_protected(before: Json, after: Json) -> None:
    for key in _PROTECTED:
        if (key in before) != (key in after) or (key in before and not same(before[key], after[key])):
            raise _Refused(f"{key} is not changed by patches")


def _owned_knowledge(pack: Json) -> frozenset[str]:
    return frozenset(kb_id for skill in pack["skills"] for kb_id in skill.get("kb_ids") or [])


def _require_owned(pack: Json, owned: frozenset[str]) -> None:
    for skill in pack.get("skills") or []:
        for kb_id in skill.get("kb_ids") or []:
            if kb_id not in owned:
                raise _Refused(f"knowledge {kb_id[:60]!r} is not the agent's own")


# --- ids never change, and new elements get theirs ----------------------------------------------------------------


def _keep_identities(before: Json, after: Json, operation: Json, tools: Mapping[str, Tool]) -> None:
    """Refuse what changes an existing id; give new skills, rules and actions theirs."""
    target = jsonpointer.JsonPointer(operation["path"]).parts
    new = _new_elements(before["skills"], after.get("skills", []), _index_at(target, ("skills",)), "skill")
    for index in new:
        _mint_skill(after["skills"], index, tools)
    new_rules = _new_elements(
        before["routing_rules"], after.get("routing_rules", []), _index_at(target, ("routing_rules",)), "routing rule"
    )
    for index in new_rules:
        _mint(after["routing_rules"], index, "rule")
    _keep_actions(before, after, target, frozenset(new), tools)


def _keep_actions(
    before: Json, after: Json, target: Sequence[str], new: frozenset[int], tools: Mapping[str, Tool]
) -> None:
    olds: dict[Any, list[Json]] = {}
    for skill in before["skills"]:
        olds.setdefault(skill.get("id"), []).append(skill)
    for index, skill in enumerate(after.get("skills", [])):
        if index in new:
            continue
        old = olds[skill.get("id")].pop(0)
        if not _same_key(old, skill, "vector_store"):
            raise _Refused("vector_store is derived")
        hint = _index_at(target, ("skills", str(index), "actions"))
        for place in _new_elements(old.get("actions") or [], skill.get("actions") or [], hint, "action"):
            _mint_action(skill["actions"], place, tools)
        _keep_types(old, skill)


def _keep_types(old: Json, skill: Json) -> None:
    types = {action.get("id"): action.get("type") for action in old.get("actions") or []}
    for action in skill.get("actions") or []:
        if action.get("id") in types and action.get("type") != types[action.get("id")]:
            raise _Refused("the type of an action is derived")


def _new_elements(before: Sequence[Json], after: Sequence[Json], hint: int | None, what: str) -> list[int]:
    """Places of the elements of `after` that were not there. Raises where an element's id would become another."""
    old, now = Counter(_identity(each) for each in before), Counter(_identity(each) for each in after)
    added, removed = now - old, old - now
    if added and removed:
        raise _Refused(f"the id of an existing {what} never changes")
    new: list[int] = []
    order = [*([hint] if hint is not None and 0 <= hint < len(after) else []), *reversed(range(len(after)))]
    for index in dict.fromkeys(order):
        identity = _identity(after[index])
        if added[identity] > 0:
            added[identity] -= 1
            new.append(index)
    return sorted(new)


def _identity(element: Json) -> str:
    value = element.get("id")
    return f"text:{value}" if isinstance(value, str) else f"json:{value!r}"


def _index_at(target: Sequence[str], prefix: Sequence[str]) -> int | None:
    """The place in a list that a pointer adds to: `-` is its end, which is -1 here and found from behind."""
    if list(target[:-1]) != list(prefix) or not target:
        return None
    return int(target[-1]) if target[-1].isdigit() else None


def _mint_skill(skills: list[Json], index: int, tools: Mapping[str, Tool]) -> None:
    skill = skills[index]
    skill.pop("vector_store", None)
    _mint(skills, index, "skill")
    actions = skill.get("actions") or []
    for place in range(len(actions)):
        _mint_action(actions, place, tools)


def _mint(elements: list[Json], index: int, fallback: str) -> None:
    """Its own id where that is a free slug, else one made of its name."""
    element = elements[index]
    taken = {each.get("id") for place, each in enumerate(elements) if place != index}
    given = element.get("id")
    base = given if isinstance(given, str) and _SLUG.fullmatch(given) else _slug(element.get("name")) or fallback
    elements[index] = {"id": free_id(base, taken)} | {key: value for key, value in element.items() if key != "id"}


def _mint_action(actions: list[Json], index: int, tools: Mapping[str, Tool]) -> None:
    """A known tool fills in id and arguments; an unknown one keeps its word and is named as a finding."""
    action = actions[index]
    tool = tools.get(_word(action.get("id"))) or tools.get(_word(action.get("name")))
    identity = tool.id if tool else action.get("id") or _slug(action.get("name"))
    if not identity or not isinstance(identity, str):
        raise _Refused("an action needs the id or the name of a tool")
    if any(each.get("id") == identity for place, each in enumerate(actions) if place != index):
        raise _Refused("the skill has an action of that tool")
    filled: Json = {"id": identity, "name": action.get("name") or (tool.name if tool else identity)}
    filled["type"] = ACTION_TYPE
    if action.get("args") is None and tool is not None and tool.args is not None:
        filled["args"] = copy_of(tool.args)
    actions[index] = filled | {key: value for key, value in action.items() if key not in filled}


_SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def _slug(name: object) -> str:
    words = re.findall(r"[a-z0-9]+", str(name).lower()) if isinstance(name, str) else []
    return "-".join(words)[:48].strip("-")


def free_id(base: str, taken: Set[Any]) -> str:
    """`base`, or the first of `base-2`, `base-3`, … that is not taken."""
    if base not in taken:
        return base
    return next(name for number in range(2, len(taken) + 3) if (name := f"{base}-{number}") not in taken)


def _by_word(tools: Sequence[Tool]) -> dict[str, Tool]:
    words = {_word(tool.name): tool for tool in tools}
    return words | {_word(tool.id): tool for tool in tools}


def _word(value: object) -> str:
    return value.strip().lower() if isinstance(value, str) else ""


def _same_key(before: Json, after: Json, key: str) -> bool:
    if key not in before and key not in after:
        return True
    return key in before and key in after and same(before[key], after[key])


def _described(given: object) -> str:
    if not isinstance(given, dict):
        return "no object"
    words: list[str] = [str(given.get(key, "?"))[:80] for key in ("op", "path")]
    return "".join(character if character.isprintable() else "·" for character in " ".join(words))


Apply = Callable[[Json, Sequence[object], Sequence[Tool]], Applied]
