"""The contracts: envelope, ids, the topology table, schemas that have landed, generated documents."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from libs.contracts import asyncapi, generate, schemas, topology, vocabulary
from libs.contracts.envelope import Event, EventData
from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.prompts import PromptPart, content_sha256
from libs.contracts.signals import EvidenceRef, SignalPayload
from libs.contracts.touchpoints import Touchpoint


def signal(**changes: Any) -> SignalObservedV1:
    fields: dict[str, Any] = {
        "touchpoint_id": "support.intent",
        "signal_type": "flag",
        "evidence_ref": EvidenceRef(source="feed_flags", id="7"),
        "payload": SignalPayload(text="Where is it?"),
        "actor_id": "user-1",
        "actor_kind": "human",
        "source_key": "feed_flags:7",
        "observed_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return SignalObservedV1(**{**fields, **changes})


def test_the_same_fact_has_the_same_id_and_another_fact_has_not() -> None:
    first, again = (Event.of(signal(), source="a"), Event.of(signal(), source="b"))
    later = Event.of(signal(observed_at=datetime(2026, 1, 2, tzinfo=UTC)), source="a")
    assert first.id == again.id != later.id
    assert first.data.signal_id == later.data.signal_id
    assert signal(workspace_id=uuid4()).signal_id != signal().signal_id


def test_an_event_survives_the_wire_and_ignores_what_a_newer_sender_adds() -> None:
    event = Event.of(signal(), source="burnish/scanner")
    document = json.loads(event.encode())
    document["data"]["invented_later"] = 1
    document["extension"] = "x"
    read = Event[SignalObservedV1].model_validate_json(json.dumps(document))
    assert read == event
    assert read.subject == "support.intent"


def test_cause_gives_correlation() -> None:
    cause = Event.of(signal(), source="a", traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01")
    effect = Event.of(signal(source_key="other"), source="b", cause=cause)
    assert (effect.correlationid, effect.causationid) == (cause.correlationid, cause.id)
    assert effect.traceparent == cause.traceparent


def test_what_is_too_large_is_refused_where_it_enters() -> None:
    with pytest.raises(ValidationError, match=r"payload is .* bytes, the limit is 65536"):
        SignalPayload.model_validate({"text": "short", "extra": "x" * 70_000})
    with pytest.raises(ValidationError):
        SignalPayload(text="x" * 20_001)


@pytest.mark.parametrize("value", ["", "UPPER", "a b", "a/b", "-x", "x" * 121, "a\n"])
def test_a_touchpoint_id_is_a_plain_word(value: str) -> None:
    with pytest.raises(ValidationError):
        signal(touchpoint_id=value)


def test_a_misspelt_key_of_a_touchpoint_is_a_mistake() -> None:
    with pytest.raises(ValidationError, match="tresholds"):
        Touchpoint.model_validate(
            {"id": "a", "scope": "global", "storage": {"adapter": "feed_prompts"}, "tresholds": {}}
        )


# --- the topology table -------------------------------------------------------------------------------------


def test_whoever_hears_hears_something_that_is_said() -> None:
    said = {event for each in topology.SPEAKERS for event in each.says}
    heard = {durable.event for entry in topology.SERVICES for durable in entry.hears}
    assert heard | {event for entry in topology.SERVICES for event in entry.overhears} <= said


def test_whoever_asks_asks_something_that_is_answered_by_exactly_one() -> None:
    answered = [query for entry in topology.SERVICES for query in entry.answers]
    asked = {query for entry in topology.SERVICES for query in entry.asks}
    assert len(answered) == len(set(answered))
    assert asked <= set(answered)
    for entry in topology.SERVICES:
        assert all(query.subject.startswith(f"ask.{entry.name}.") for query in entry.answers)


def test_names_follow_the_grammar() -> None:
    for event in topology.EVENTS:
        head, *_, version = event.type.split(".")
        foreign = any(event in outsider.says for outsider in topology.OUTSIDERS)
        assert head in (("bucket",) if foreign else ("refinement", "qa", "work"))
        assert re.fullmatch(r"v[1-9]", version) and event.__name__.endswith(version.upper())
        assert event.__doc__
    names = [durable.name for entry in topology.SERVICES for durable in entry.hears]
    assert len(names) == len(set(names))
    for entry in topology.SERVICES:
        heard = {durable.event.type for durable in entry.hears}
        heard |= {event.type for event in entry.overhears}
        assert "refinement.touchpoint.registered.v1" in heard or entry.name == "registry"


# --- schemas ------------------------------------------------------------------------------------------------


def test_schemas_asyncapi_and_catalogue_are_those_of_the_code() -> None:
    """Run `make generate` when this fails."""
    for name, text in schemas.generated().items():
        assert (schemas.FOLDER / name).read_text() == text, f"{name} is stale"
    assert generate.ASYNCAPI.read_text() == asyncapi.asyncapi()
    assert generate.CATALOGUE.read_text() == asyncapi.catalogue()
    assert {path.name for path in schemas.FOLDER.glob("*.json")} == set(schemas.generated())


def test_no_landed_schema_has_changed_incompatibly() -> None:
    """Every version of a schema in git's history is still kept to by the code."""
    fresh = schemas.generated()
    for path in sorted(schemas.FOLDER.glob("*.json")):
        for text in landed(path):
            assert schemas.breaks(json.loads(text), json.loads(fresh[path.name])) == [], path.name


def landed(path: Path) -> list[str]:
    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=path.parent, capture_output=True, text=True, check=False)
        return done.stdout

    commits = git("log", "--format=%H", "--", path.name).split()
    return [text for commit in commits if (text := git("show", f"{commit}:./{path.name}"))]


def _schema() -> dict[str, Any]:
    return schemas.schema_of(SignalObservedV1)


def _data(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schema["$defs"]["SignalObservedV1"]
    return found


def test_a_new_optional_field_is_compatible() -> None:
    new = copy.deepcopy(_schema())
    _data(new)["properties"]["mood"] = {"type": "string"}
    assert schemas.breaks(_schema(), new) == []


@pytest.mark.parametrize("event", topology.EVENTS, ids=lambda event: event.type)
def test_no_event_refuses_what_a_newer_sender_adds(event: type[EventData]) -> None:
    assert '"additionalProperties": false' not in json.dumps(schemas.schema_of(event))


def test_a_registration_by_a_newer_sender_is_read_without_what_is_not_known() -> None:
    storage = {"adapter": "feed_prompts", "initial_text": "x"}
    source, suite = {"scanner": "si_flag", "options": {"threshold": 1}}, {"margin": 0.02}
    fields: dict[str, Any] = {"id": "support.intent", "scope": "global"}
    known = {**fields, "storage": storage, "suite": suite, "signals": [source]}
    new = {"colour": "blue"}
    newer = {**fields, **new, "storage": storage | new, "suite": suite | new, "signals": [source | new]}
    body = json.dumps({"touchpoint": newer, "revision": 1, "registered_by": "ada"})
    read = TouchpointRegisteredV1.model_validate_json(body)
    assert read.touchpoint == Touchpoint.model_validate(known)
    assert TouchpointRegisteredV1(touchpoint=read.touchpoint, revision=1, registered_by="ada") == read
    with pytest.raises(ValidationError, match="colour"):
        Touchpoint.model_validate(newer)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d["properties"].pop("actor_id"), "actor_id: is gone"),
        (lambda d: d["required"].append("version_ref"), "version_ref: is required now"),
        (lambda d: d["required"].remove("actor_id"), "actor_id: is no longer always there"),
        (lambda d: d["properties"]["actor_kind"]["enum"].append("robot"), "values"),
        (lambda d: d["properties"]["actor_kind"]["enum"].pop(), "values"),
        (lambda d: d["properties"]["actor_id"].update(type="integer"), "type"),
        (lambda d: d["properties"]["actor_id"].update(maxLength=10), "maxLength fell"),
        (lambda d: d["properties"]["touchpoint_id"].update(pattern="x"), "pattern"),
        (lambda d: d["properties"]["workspace_id"]["anyOf"].pop(), "branches"),
        (lambda d: d.update(additionalProperties=False), "refused now"),
    ],
)
def test_everything_else_is_not(change: Any, told: str) -> None:
    new = copy.deepcopy(_schema())
    change(_data(new))
    assert any(told in line for line in schemas.breaks(_schema(), new))


def test_the_catalogue_names_every_event_and_query() -> None:
    page = asyncapi.catalogue()
    for event in topology.EVENTS:
        assert f"## `{event.type}`" in page
    for entry in topology.SERVICES:
        for query in entry.answers:
            assert f"`{query.subject}`" in page


# --- the hash of a prompt -----------------------------------------------------------------------------------


def test_the_hash_of_one_part_is_that_of_its_bytes() -> None:
    assert content_sha256([PromptPart(path="a", text="")]) == (
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )


parts = st.lists(
    st.builds(
        PromptPart,
        path=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=5),
        text=st.text(max_size=8),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda part: part.path,
)


@given(parts, parts)
def test_two_prompts_share_a_hash_only_when_they_are_the_same(a: list[PromptPart], b: list[PromptPart]) -> None:
    same = sorted((p.path, p.text) for p in a) == sorted((p.path, p.text) for p in b)
    if len(a) == len(b) == 1:
        same = a[0].text == b[0].text
    assert (content_sha256(a) == content_sha256(b)) == same
    assert content_sha256(a) == content_sha256(list(reversed(a)))


# --- bounded types ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_an_instant_that_no_service_can_store_is_refused_where_it_is_read(text: str) -> None:
    instants = TypeAdapter(vocabulary.Instant)
    with pytest.raises(ValidationError, match="outside the years"):
        instants.validate_python(text)
    with pytest.raises(ValidationError):
        signal(observed_at=text)
    assert instants.validate_python("0001-01-01T00:00:00Z").year == 1


def test_no_contract_has_an_unbounded_instant() -> None:
    for event in topology.EVENTS:
        assert "AwareDatetime" not in Path(sys.modules[event.__module__].__file__ or "").read_text()
