"""Each thing that a patch may not do, and what becomes of the rest of its list."""

from __future__ import annotations

from typing import Any

import pytest

from services.agents.domain.packs import canonical, same
from services.agents.domain.patches import MAX_OPERATIONS, Tool, apply
from services.agents.tests.test_mapping import golden

TOOLS = [Tool("t-9", "refund_order", "Pays back.", {"amount": "number"})]


def op(name: str, path: str, value: Any = ..., **more: Any) -> dict[str, Any]:
    return {"op": name, "path": path} | ({} if value is ... else {"value": value}) | more


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        (op("replace", "/skills/0/id", "other"), "never changes"),
        (op("replace", "/skills/0", {"id": "other", "name": "x"}), "never changes"),
        (op("replace", "/skills/0", {"name": "x"}), "never changes"),
        (op("remove", "/skills/0/id"), "never changes"),
        (op("copy", "/skills/0/id", **{"from": "/skills/0/name"}), "never changes"),
        (op("move", "/skills/0/id", **{"from": "/skills/1/id"}), "never changes"),
        (op("replace", "/skills", [{"id": "renamed"}, {"id": "person"}]), "never changes"),
        (op("replace", "/skills/0/actions/0/id", "t-9"), "never changes"),
        (op("replace", "/skills/0/actions/0", {"id": "t-9", "name": "refund_order"}), "never changes"),
        (op("replace", "/routing_rules/0/id", "r-9"), "never changes"),
        (op("replace", "/version", "9"), "version"),
        (op("remove", "/version"), "version"),
        (op("add", "/knowledge_base/-", {"kb_id": "kb-9"}), "knowledge_base"),
        (op("add", "/engine_version", 3), "engine_version"),
        (op("add", "/organization_id", 3), "organization_id"),
        (op("replace", "/skills/0/vector_store/id", "theirs"), "vector_store"),
        (op("remove", "/skills/0/vector_store"), "vector_store"),
        (op("replace", "/skills/0/actions/0/type", "other"), "type"),
        (op("add", "/skills/0/kb_ids/-", "kb-9"), "not the agent's own"),
        (op("replace", "/skills/0/instructions", 5), "instructions"),
        (op("replace", "/skills/0/actions", "none"), "list of objects"),
        (op("replace", "/skills/0/milestones", ["a", 5]), "milestones"),
        (op("add", "/skills/0/x", float("inf")), "does not fit"),
        (op("add", "/skills/0/x", "\ud800"), "does not fit"),
        (op("add", "/skills/0/x", "a" * 300_000), "256 KiB"),
        (op("add", "/skills/9/name", "x"), "does not fit"),
        (op("add", "/skills/01/name", "x"), "does not fit"),
        (op("add", "/skills/-/name", "x"), "does not fit"),
        (op("replace", "/nothing/here", "x"), "does not fit"),
        (op("remove", "/skills/0/name/0"), "does not fit"),
        (op("test", "/x-plan/seats", 1), "another one"),
        (op("test", "/skills/0/actions/0/terminal", 0), "another one"),
        (op("test", "/nothing", None), "nothing at that path"),
        (op("replace", "", {}), "whole pack"),
        (op("add", "/a~2", 1), "escapes"),
        (op("add", "no-slash", 1), "JSON pointers"),
        (op("add", "/" + "a" * 600, 1), "JSON pointers"),
        (op("add", "/x"), "needs a value"),
        (op("move", "/x"), "JSON pointers"),
        (op("launch", "/x", 1), "op is one of"),
        ("patch", "an object"),
        (None, "an object"),
        ([], "an object"),
        (op("add", "/skills/0/actions/-", {"args": {}}), "needs the id or the name"),
        (op("add", "/skills/0/actions/-", {"id": "t-1"}), "has an action of that tool"),
    ],
)
def test_what_may_not_be_is_skipped_and_named(patch: Any, why: str) -> None:
    pack = golden("skill_pack")
    applied = apply(pack, [patch, op("replace", "/tone_of_voice", "formal")], TOOLS)
    assert len(applied.warnings) == 1
    assert why in applied.warnings[0]
    assert applied.patches == [op("replace", "/tone_of_voice", "formal")], "the rest takes effect"
    assert canonical(applied.pack | {"tone_of_voice": "friendly"}) == canonical(pack)


def test_a_known_tool_fills_in_its_id_and_arguments() -> None:
    applied = apply(golden("skill_pack"), [op("add", "/skills/0/actions/-", {"name": "refund_order"})], TOOLS)
    assert applied.pack["skills"][0]["actions"][2] == {
        "id": "t-9",
        "name": "refund_order",
        "type": "qontak_function_call",
        "args": {"amount": "number"},
    }
    assert applied.warnings == []


def test_existing_actions_stay_though_no_tool_is_known() -> None:
    applied = apply(golden("skill_pack"), [op("replace", "/skills/0/name", "Orders!")], [])
    assert len(applied.pack["skills"][0]["actions"]) == 2


def test_new_elements_get_ids_of_their_own() -> None:
    patches = [
        op("add", "/skills/-", {"name": "Gift cards"}),
        op("add", "/skills/0", {"id": "orders", "name": "Orders again"}),
        op("copy", "/skills/-", **{"from": "/skills/1"}),
        op("add", "/skills/-", {"id": "../../etc", "name": "Odd id"}),
        op("add", "/routing_rules/-", {"when": {"body_contains": "gift"}, "switch_to": "gift-cards"}),
    ]
    applied = apply(golden("skill_pack"), patches)
    assert applied.warnings == []
    ids = [skill["id"] for skill in applied.pack["skills"]]
    assert ids == ["orders-2", "orders", "person", "gift-cards", "orders-3", "odd-id"]
    assert applied.pack["routing_rules"][2]["id"] == "rule"


def test_a_stores_pointer_is_not_taken_from_a_patch() -> None:
    applied = apply(golden("skill_pack"), [op("add", "/skills/-", {"name": "New", "vector_store": {"id": "theirs"}})])
    assert "vector_store" not in applied.pack["skills"][2]


@pytest.mark.parametrize(
    "patches",
    [
        [op("replace", "/skills", [])],
        [op("remove", "/skills")],
        [op("remove", "/skills/0"), op("remove", "/skills/0")],
        [op("replace", "/tone_of_voice", "rude"), op("replace", "/skills", [])],
    ],
)
def test_a_change_that_leaves_no_skills_is_rejected_whole(patches: list[Any]) -> None:
    pack = golden("skill_pack")
    applied = apply(pack, patches)
    assert canonical(applied.pack) == canonical(pack)
    assert applied.patches == []
    assert any("no skills" in warning for warning in applied.warnings)


def test_a_list_too_long_is_cut_and_said() -> None:
    patches = [op("add", "/x-count", number) for number in range(MAX_OPERATIONS + 5)]
    applied = apply(golden("skill_pack"), patches)
    assert applied.pack["x-count"] == MAX_OPERATIONS - 1
    assert "first 50 of 55" in applied.warnings[0]


def test_a_later_operation_does_not_reach_back_into_a_patch() -> None:
    patches = [op("add", "/x-new", {"a": []}), op("add", "/x-new/a/-", 1)]
    applied = apply(golden("skill_pack"), patches)
    assert applied.pack["x-new"] == {"a": [1]}
    assert same(applied.patches[0], op("add", "/x-new", {"a": []}))


def test_warnings_show_no_control_characters() -> None:
    applied = apply(golden("skill_pack"), [op("add", "/\x1b[31m/x", 1)])
    assert applied.warnings[0].isprintable()
