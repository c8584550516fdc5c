"""Structured output: the schema as providers take it, and the data in a reply, checked against the whole schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema
from pydantic_core import from_json

from libs.contracts.text import storable

_KEPT = ("type", "enum", "const", "description", "$ref")
FORM = """

Answer with one JSON object and nothing else. It must be valid under this JSON Schema:
"""


def portable(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema in the part of JSON Schema that providers can enforce: objects with all their properties required and
    no others. Bounds and patterns are left to `data_of`. None for one that has a place for any value at all."""
    try:
        return _portable(schema)
    except _NotPortable:
        return None


def data_of(text: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The object that a reply holds; None where it is no JSON, no object, or not what the schema says."""
    try:
        found = storable(from_json(_unfenced(text), allow_inf_nan=False))
    except ValueError:
        return None
    if not isinstance(found, dict) or not jsonschema.Draft202012Validator(schema).is_valid(found):
        return None
    return found


class _NotPortable(Exception):
    pass


def _portable(schema: object) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        raise _NotPortable
    kept = {key: schema[key] for key in _KEPT if key in schema}
    for key in ("anyOf", "oneOf"):
        if key in schema:
            kept["anyOf"] = [_portable(each) for each in schema[key]]
    if schema.get("type") == "object":
        if not schema.get("properties"):
            raise _NotPortable
        kept["properties"] = {name: _portable(each) for name, each in schema["properties"].items()}
        kept["required"] = list(kept["properties"])
        kept["additionalProperties"] = False
    if schema.get("type") == "array":
        kept["items"] = _portable(schema.get("items"))
    if "$defs" in schema:
        kept["$defs"] = {name: _portable(each) for name, each in schema["$defs"].items()}
    if not kept.keys() & {"type", "enum", "const", "$ref", "anyOf"}:
        raise _NotPortable
    return kept


def _unfenced(text: str) -> str:
    """A reply without the fence that models without enforcement put around JSON."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text[text.index("\n") + 1 : -3]
    return text
