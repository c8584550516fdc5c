"""What an option changes, in the words of the editor's form: profile fields, and capabilities and routes by id."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from services.agents.domain.packs import Json, same

LABELS = {
    "name": "Name",
    "description": "Description",
    "tone": "Tone of voice",
    "goals": "Goals",
    "instructions": "Instructions",
    "milestones": "Milestones",
    "milestone_action_map": "Milestones by action",
    "actions": "Actions",
    "slot_action_args_map": "Slots",
    "completion": "Completion",
    "sources": "Knowledge",
    "when": "When",
    "from": "From",
    "to": "To",
}


@dataclass(frozen=True, slots=True)
class ProposedChange:
    """One field of the form: `current` and `new` are what stands in it, None where there is no field."""

    type: Literal["update", "add", "remove"]
    field: str
    label: str
    current: str | None = None
    new: str | None = None


def changes(current: Mapping[str, Any], updated: Mapping[str, Any]) -> list[ProposedChange]:
    """The changes from one capability pack to another, in the order of the form."""
    found = [*_fields("profile", "Profile", current.get("profile") or {}, updated.get("profile") or {})]
    found += _elements("capabilities", "Capability", current, updated)
    found += _elements("routing", "Route", current, updated)
    return found


def _elements(
    block: str, what: str, current: Mapping[str, Any], updated: Mapping[str, Any]
) -> Iterator[ProposedChange]:
    old, new = _by_id(current.get(block) or []), _by_id(updated.get(block) or [])
    for identity in {**old, **new}:
        before, after = old.get(identity), new.get(identity)
        field = f"{block}[{identity}]"
        title = f"{what} {(after or before or {}).get('name') or identity}"
        if before is None:
            yield ProposedChange("add", field, title, None, _shown(after))
        elif after is None:
            yield ProposedChange("remove", field, title, _shown(before), None)
        else:
            yield from _fields(field, title, before, after)
    if list(old) != list(new) and old.keys() == new.keys():
        yield ProposedChange("update", block, f"{what}: order", ", ".join(old), ", ".join(new))


def _fields(field: str, title: str, before: Json, after: Json) -> Iterator[ProposedChange]:
    for key in {**before, **after}:
        if key == "vector_store" or ((key in before) == (key in after) and same(before[key], after[key])):
            continue
        label = f"{title}: {LABELS.get(key, key)}"
        kind: Literal["update", "add", "remove"] = "update" if key in before and key in after else "add"
        kind = "remove" if key not in after else kind
        yield ProposedChange(kind, f"{field}.{key}", label, _at(before, key), _at(after, key))


def _by_id(elements: Sequence[Json]) -> dict[str, Json]:
    """By id; a second one of the same id by its place, too."""
    found: dict[str, Json] = {}
    for place, element in enumerate(elements):
        identity = str(element.get("id"))
        found[identity if identity not in found else f"{identity} ({place + 1})"] = element
    return found


def _at(element: Json, key: str) -> str | None:
    return _shown(element[key]) if key in element else None


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
