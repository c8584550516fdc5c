"""The two shapes of a pack: golden files written by hand from the table of the specification, and the way back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from services.agents.domain.lint import lint
from services.agents.domain.mapping import COMPLETIONS, SkillPackBuilder, SkillPackMapper
from services.agents.domain.packs import Json, MalformedPack, canonical, check_pack, copy_of, same

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> Json:
    found: Json = json.loads((GOLDEN / f"{name}.json").read_text())
    return found


def test_the_body_of_a_push_is_the_golden_one() -> None:
    assert canonical(SkillPackBuilder().build(golden("capability_pack"))) == canonical(golden("skill_pack"))


def test_the_golden_pack_is_sound() -> None:
    assert lint(golden("skill_pack")) == []


def test_the_way_back() -> None:
    pack = golden("capability_pack")
    assert canonical(SkillPackMapper(pack).map(golden("skill_pack"))) == canonical(pack)


@pytest.mark.parametrize(("public", "engine"), COMPLETIONS.items())
def test_types_of_completion(public: str, engine: str) -> None:
    pack = golden("capability_pack")
    pack["capabilities"][0]["completion"]["type"] = public
    skill_pack = SkillPackBuilder().build(pack)
    assert skill_pack["skills"][0]["completion"]["type"] == engine
    pack["capabilities"][0]["completion"]["type"] = "other"
    skill_pack["skills"][0]["completion"]["type"] = engine
    assert SkillPackMapper(pack).map(skill_pack)["capabilities"][0]["completion"]["type"] == public


def test_what_is_patched_comes_back_in_its_public_words() -> None:
    pack, skill_pack = golden("capability_pack"), golden("skill_pack")
    skill_pack["tone_of_voice"] = "formal"
    skill = skill_pack["skills"][0]
    skill["exit"]["reason"] = "failed"
    skill["kb_ids"] = ["kb-1"]
    skill["actions"][0]["gate"] = None
    skill_pack["skills"].append({"id": "new", "name": "New", "kb_ids": ["kb-2"], "exit": {"reason": "completed"}})
    skill_pack["routing_rules"][0]["switch_to"] = "new"
    expected = copy_of(pack)
    expected["profile"]["tone"] = "formal"
    expected["capabilities"][0]["completion"]["exit_reason"] = "failed"
    expected["capabilities"][0]["sources"] = [{"kb_id": "kb-1", "name": "Orders A to Z"}]
    expected["capabilities"][0]["actions"][0]["gate"] = None
    new = {"id": "new", "name": "New", "completion": {"exit_reason": "completed"}}
    expected["capabilities"].append(new | {"sources": [{"kb_id": "kb-2", "name": "Terms"}]})
    expected["routing"][0]["to"] = "new"
    assert canonical(SkillPackMapper(pack).map(skill_pack)) == canonical(expected)


def test_saving_may_make_stores_and_refining_reads_them() -> None:
    pack = golden("capability_pack")
    made = SkillPackBuilder(lambda capability: {"id": f"made-for-{capability['id']}"}).build(pack)
    assert [skill["vector_store"] for skill in made["skills"]] == [{"id": "made-for-orders"}, {"id": "made-for-person"}]
    assert pack == golden("capability_pack")


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"capabilities": {}}, "capabilities"),
        ({"capabilities": [7]}, "capabilities[0]"),
        ({"capabilities": [{"milestones": ["a", 1]}]}, "capabilities[0].milestones[1]"),
        ({"capabilities": [{"actions": [{"terminal": "yes"}]}]}, "capabilities[0].actions[0].terminal"),
        ({"capabilities": [{"sources": [{"name": "no id"}]}]}, "capabilities[0].sources[0].kb_id"),
        ({"routing": [{"when": "always"}]}, "routing[0].when"),
        ({"routing": [{"from": 3}]}, "routing[0].from"),
        ({"profile": "Desk"}, "profile"),
        ({"x": float("nan")}, ""),
        ({"x": "\ud800"}, ""),
        ({"x": "a" * 300_000}, ""),
    ],
)
def test_a_malformed_pack_is_refused_with_its_place(change: Json, where: str) -> None:
    with pytest.raises(MalformedPack) as refused:
        check_pack(golden("capability_pack") | change)
    assert refused.value.where == where


@pytest.mark.parametrize("value", [None, [], "pack", 7])
def test_a_pack_is_an_object(value: Any) -> None:
    with pytest.raises(MalformedPack, match="object"):
        check_pack(value)


def test_the_same_is_the_same_json() -> None:
    assert not same(1, True)
    assert not same(1, 1.0)
    assert not same({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert same({"a": [1.0, None]}, {"a": [1.0, None]})
