"""The small engine: what it executes of a pack, and that a fixed pack behaves where the broken one did not."""

from __future__ import annotations

from random import Random

from services.agents.domain import fixes
from services.agents.domain.mapping import SkillPackBuilder
from services.agents.domain.packs import Json
from services.agents.engine.conversation import ToolResult, Turn, replay
from services.agents.tests.sound_packs import FAULTS, sound

BUILDER = SkillPackBuilder()


def scripts(pack: Json) -> list[list[str]]:
    """For each capability, what a customer says who wants its work done, and asks again if it is not."""
    first = pack["capabilities"][0]["id"]
    found = []
    for capability in pack["capabilities"]:
        begin = [] if capability["id"] == first else [f"I have a question about {capability['id']}."]
        asked = [f"Please {action['name'].replace('_', ' ')}" for action in capability["actions"]]
        found.append([*begin, *asked, *asked])
    return found


def kinds(turns: list[Turn]) -> list[str]:
    return [event.kind for turn in turns for event in turn.events]


def passes(pack: Json, script: list[str]) -> bool:
    """The work ends, nothing was stuck, and each turn was answered once at most."""
    turns = replay(BUILDER.build(pack) if "capabilities" in pack else pack, script)
    replies = [sum(event.kind == "replied" for event in turn.events) for turn in turns]
    told = kinds(turns)
    return "completed" in told and "stuck" not in told and max(replies) <= 1


def test_a_sound_pack_does_its_work() -> None:
    for seed in range(100):
        pack = sound(Random(seed))
        for script in scripts(pack):
            assert passes(pack, script), (seed, script)


def test_a_gate_holds_until_its_milestone() -> None:
    pack = BUILDER.build(sound(Random(3)))
    last = pack["skills"][0]["actions"][1]["name"].replace("_", " ")
    first, second = replay(pack, [f"{last}, now", "hello"])
    assert "blocked" in [event.kind for event in first.events]
    assert "executed" not in [event.kind for event in first.events]
    assert second.events


def test_a_route_by_an_answer_of_an_action() -> None:
    pack: Json = {
        "skills": [
            {"id": "orders", "instructions": "Reply once.", "actions": [{"id": "t", "name": "create_order"}]},
            {"id": "registration", "instructions": "Reply once."},
        ],
        "routing_rules": [
            {"id": "r", "when": {"action": "create_order", "body_contains": "UNKNOWN"}, "switch_to": "registration"}
        ],
    }
    results = {"create_order": ToolResult(ok=False, body="customer unknown")}
    (turn,) = replay(pack, ["create order please"], results)
    assert [(event.kind, event.subject) for event in turn.events][:2] == [
        ("failed", "create_order"),
        ("switched", "registration"),
    ]
    (other,) = replay(pack, ["create order please"])
    assert "switched" not in kinds([other])


def test_a_circle_of_switches_ends() -> None:
    pack: Json = {
        "skills": [
            {"id": "a", "instructions": "Reply once.", "completion": {"type": "skill_switch", "target": "b"}},
            {"id": "b", "instructions": "Reply once.", "completion": {"type": "skill_switch", "target": "a"}},
        ],
        "routing_rules": [],
    }
    assert len(replay(pack, ["hello"] * 40)) == 40


def test_an_accepted_fix_mends_what_a_customer_sees_and_breaks_nothing() -> None:
    seeded = mended = 0
    for seed in range(200):
        rng = Random(seed)
        pack = sound(rng)
        said = scripts(pack)
        FAULTS[rng.choice(sorted(FAULTS))][0](rng, pack)
        broken = BUILDER.build(pack)
        before = [passes(broken, script) for script in said]
        for option in fixes.options(broken):
            after = [passes(option.pack, script) for script in said]
            assert all(now for was, now in zip(before, after, strict=True) if was), (seed, option.patches)
        if not all(before):
            seeded += 1
            mended += any(all(passes(each.pack, script) for script in said) for each in fixes.options(broken))
    assert seeded >= 60
    assert mended == seeded
