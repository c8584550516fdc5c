"""JSON Schemas of the events, and what may change in one that has landed: only new optional fields."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from libs.contracts.envelope import SCHEMA_BASE, Event, EventData, ForeignData
from libs.contracts.topology import EVENTS

FOLDER = Path(__file__).parent / "schemas"
Schema = Mapping[str, Any]


def schema_of(event: type[EventData]) -> dict[str, Any]:
    """The JSON Schema (2020-12) of one event as it stands on the bus, envelope included where it has one."""
    model: type[BaseModel] = event if issubclass(event, ForeignData) else Event[event]  # type: ignore[valid-type]
    body = _open(model.model_json_schema(mode="validation"))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{SCHEMA_BASE}{event.type}.json",
        **body,
        "title": event.type,
        "description": event.__doc__,
    }


def _open(schema: Any) -> Any:
    """The schema with room for what a newer sender adds, also where a person's own text has none."""
    if isinstance(schema, list):
        return [_open(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _open(value) for key, value in schema.items() if (key, value) != ("additionalProperties", False)}


def generated() -> dict[str, str]:
    """File name → text, for every event."""
    return {f"{event.type}.json": json.dumps(schema_of(event), indent=1, sort_keys=True) + "\n" for event in EVENTS}


def breaks(old: Schema, new: Schema) -> list[str]:
    """What a reader or writer of `old` would stumble over in `new`; empty when the change is compatible.

    Compatible is: a new optional property, a looser bound, a new definition. Everything else needs a new class
    and a new subject.
    """
    return list(_breaks("", old, new, old, new))


def _breaks(at: str, old: Schema, new: Schema, old_root: Schema, new_root: Schema) -> Iterator[str]:
    old, new = _resolved(old, old_root), _resolved(new, new_root)
    for key in ("type", "const", "format", "pattern"):
        if old.get(key) != new.get(key):
            yield f"{at or '/'}: {key} {old.get(key)!r} became {new.get(key)!r}"
    if set(old.get("enum", ())) != set(new.get("enum", ())):
        yield f"{at or '/'}: the values {old.get('enum')} became {new.get('enum')}"
    for lower in ("minimum", "exclusiveMinimum", "minLength", "minItems"):
        if lower in new and new[lower] > old.get(lower, float("-inf")):
            yield f"{at or '/'}: {lower} rose to {new[lower]}"
    for upper in ("maximum", "exclusiveMaximum", "maxLength", "maxItems"):
        if upper in new and new[upper] < old.get(upper, float("inf")):
            yield f"{at or '/'}: {upper} fell to {new[upper]}"
    if new.get("additionalProperties") is False and old.get("additionalProperties") is not False:
        yield f"{at or '/'}: a newer sender's fields are refused now"
    for missing in sorted(set(new.get("required", ())) - set(old.get("required", ()))):
        yield f"{at}/{missing}: is required now"
    for optional in sorted(set(old.get("required", ())) - set(new.get("required", ()))):
        yield f"{at}/{optional}: is no longer always there"
    yield from _inner(at, old, new, old_root, new_root)


def _inner(at: str, old: Schema, new: Schema, old_root: Schema, new_root: Schema) -> Iterator[str]:
    for name, inner in old.get("properties", {}).items():
        if name not in new.get("properties", {}):
            yield f"{at}/{name}: is gone"
        else:
            yield from _breaks(f"{at}/{name}", inner, new["properties"][name], old_root, new_root)
    for key in ("items", "additionalProperties"):
        if isinstance(old.get(key), Mapping) and isinstance(new.get(key), Mapping):
            yield from _breaks(f"{at}/{key}", old[key], new[key], old_root, new_root)
    for key in ("anyOf", "prefixItems"):
        befores, afters = old.get(key, []), new.get(key, [])
        if len(befores) != len(afters):
            yield f"{at or '/'}: {key} has {len(afters)} branches instead of {len(befores)}"
            continue
        for position, (before, after) in enumerate(zip(befores, afters, strict=True)):
            yield from _breaks(f"{at}/{key}[{position}]", before, after, old_root, new_root)


def _resolved(schema: Schema, root: Schema) -> Schema:
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    target: Any = root
    for step in reference.removeprefix("#/").split("/"):
        target = target[step]
    resolved: Schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    return resolved
