"""Text of contracts: cleaned and bounded in every field of every model, wherever it stands."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

import libs.contracts
from libs.contracts import text, vocabulary
from libs.contracts.envelope import Event, Frozen
from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.signals import SignalPayload
from libs.contracts.text import JsonObject, storable

BOUNDS = ("max_length", "pattern")
TEXT_TYPES = {
    name: kind
    for module in (vocabulary, text)
    for name, kind in vars(module).items()
    if get_args(kind)[:1] == (str,) and name[0].isupper()
}


def models() -> list[type[Frozen]]:
    for module in pkgutil.walk_packages(libs.contracts.__path__, "libs.contracts."):
        if ".tests" not in module.name:
            importlib.import_module(module.name)
    found = {one for one in _below(Frozen) if one.__module__.startswith("libs.contracts.")}
    return sorted(found, key=lambda one: one.__qualname__)


def _below(kind: type[Frozen]) -> Iterator[type[Frozen]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


def flaws(node: Any, at: str = "") -> Iterator[str]:
    """Where a core schema takes text that is not cleaned or not bounded, or anything at all."""
    if isinstance(node, list | tuple):
        for inner in node:
            yield from flaws(inner, at)
    if not isinstance(node, dict):
        return
    kind = node.get("type")
    function: Any = node.get("function")
    if kind == "function-before" and function["function"] is text._without_nul:
        if node["schema"]["type"] != "str" or not any(bound in node["schema"] for bound in BOUNDS):
            yield f"{at}: not bounded"
        return
    if kind == "function-after" and function["function"] is text.storable:
        return
    if kind in ("str", "any"):
        yield f"{at}: {kind}"
    for key, inner in node.items():
        if key not in ("metadata", "serialization", "ref", "cls", "config"):
            yield from flaws(inner, f"{at}.{key}" if kind in ("model-fields", None) else at)


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__qualname__)
def test_every_text_of_every_contract_is_cleaned_and_bounded(model: type[Frozen]) -> None:
    schema: Any = model.__pydantic_core_schema__
    assert list(flaws(schema)) == []


def test_the_walk_finds_what_is_wrong() -> None:
    class Bad(Frozen):
        plain: str
        keyed: dict[vocabulary.Name, Any]
        listed: tuple[str, ...] = ()
        good: vocabulary.Name | None = None

    schema: Any = Bad.__pydantic_core_schema__
    assert len(list(flaws(schema))) == 3
    assert len(models()) > 90


@pytest.mark.parametrize("name", sorted(TEXT_TYPES))
def test_a_text_type_leaves_nul_out_and_refuses_half_a_character(name: str) -> None:
    adapter = TypeAdapter(TEXT_TYPES[name])
    good = "a" * 64 if name == "Sha256" else "a"
    assert adapter.validate_python(f"\x00{good}\x00") == good
    assert adapter.validate_json(json.dumps(f"{good}\x00")) == good
    for half in ("\ud800", "\udfff"):
        with pytest.raises(ValidationError):
            adapter.validate_python(good + half)
        with pytest.raises(ValidationError):
            adapter.validate_json(json.dumps(good + half))


def test_there_are_text_types() -> None:
    assert {"Name", "ShortText", "LongText", "PromptText", "VersionRef", "TouchpointId"} <= set(TEXT_TYPES)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), json_values, max_size=5))
def test_any_object_becomes_storable_and_stays_what_it_was_without_nul(value: dict[str, Any]) -> None:
    clean = TypeAdapter(JsonObject).validate_python(value)
    assert not has_nul(clean)
    assert storable(clean) == clean
    if not has_nul(value):
        assert clean == value


def has_nul(value: Any) -> bool:
    """In any text or key; `\\u0000` written out in six characters is none."""
    if isinstance(value, dict):
        return any(has_nul(part) for pair in value.items() for part in pair)
    return any(map(has_nul, value)) if isinstance(value, list) else isinstance(value, str) and "\x00" in value


@pytest.mark.parametrize("half", ["\ud800", {"\udc00": 1}, [["x", {"k": "\ud83d"}]]])
def test_half_a_character_anywhere_in_an_object_is_refused(half: Any) -> None:
    with pytest.raises(ValidationError, match="lone surrogate"):
        TypeAdapter(JsonObject).validate_python({"k": half})
    with pytest.raises(ValidationError):
        SignalPayload.model_validate({"more": half})


def test_an_object_is_bounded_in_depth_and_number() -> None:
    deep: Any = 1
    for _ in range(text.MAX_DEPTH + 1):
        deep = [deep]
    for value in (deep, [0] * text.MAX_VALUES):
        with pytest.raises(ValidationError, match=r"more than|deeper than"):
            TypeAdapter(JsonObject).validate_python({"k": value})


def observed(**changes: Any) -> SignalObservedV1:
    fields: dict[str, Any] = {
        "touchpoint_id": "support.intent",
        "signal_type": "flag",
        "evidence_ref": {"source": "feed_flags", "id": "7"},
        "payload": {"text": "Where is it?"},
        "actor_id": "user-1",
        "actor_kind": "human",
        "source_key": "feed_flags:7",
        "observed_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return SignalObservedV1.model_validate({**fields, **changes})


def test_a_signal_is_clean_however_deep_the_nul_was() -> None:
    dirty = observed(
        source_key="a\x00b",
        actor_id="\x00u",
        version_ref="git:\x00c",
        payload={"te\x00xt": "smuggled", "text": "x\x00y", "mo\x00re": ["\x00", {"k\x00": "v\x00 ☕"}]},
    )
    assert (dirty.source_key, dirty.actor_id, dirty.version_ref) == ("ab", "u", "git:c")
    assert dirty.payload.model_dump(exclude_none=True) == {"text": "xy", "more": ["", {"k": "v ☕"}]}
    assert b"\\u0000" not in Event.of(dirty, source="a").encode()
    assert dirty.signal_id == observed(source_key="ab").signal_id


def test_a_key_of_nothing_but_nul_is_no_key() -> None:
    with pytest.raises(ValidationError, match="source_key"):
        observed(source_key="\x00")
