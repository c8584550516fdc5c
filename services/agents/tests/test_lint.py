"""The linter: sound packs have no findings, each planted fault is named, and safe fixes are safe."""

from __future__ import annotations

from random import Random

import pytest

from services.agents.domain import fixes
from services.agents.domain.lint import lint, reachable_milestones
from services.agents.domain.mapping import SkillPackBuilder, SkillPackMapper
from services.agents.domain.packs import Json, canonical, check_pack
from services.agents.tests.sound_packs import FAULTS, sound

BUILDER = SkillPackBuilder()


def planted(seed: int, *names: str) -> Json:
    rng = Random(seed)
    pack = sound(rng)
    for name in names:
        FAULTS[name][0](rng, pack)
    return BUILDER.build(check_pack(pack))


def test_a_sound_pack_has_no_findings() -> None:
    for seed in range(300):
        assert lint(BUILDER.build(sound(Random(seed)))) == [], seed


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_named_and_fixed(name: str) -> None:
    for seed in range(25):
        pack = planted(seed, name)
        assert FAULTS[name][1] in {finding.code for finding in lint(pack)}, seed
        options = fixes.options(pack)
        assert options, seed
        for option in options:
            assert lint(option.pack) == [], (seed, option.patches)


def test_faults_together_are_fixed() -> None:
    done = 0
    for seed in range(200):
        names = Random(seed).sample(sorted(FAULTS), 3)
        pack = planted(seed, *names)
        options = fixes.options(pack)
        assert len(options) <= fixes.MAX_OPTIONS
        done += bool(options) and not lint(options[0].pack)
    assert done == 200


def test_alternatives_differ_in_effect() -> None:
    several = 0
    for seed in range(60):
        options = fixes.options(planted(seed, "gate"))
        assert len({canonical(option.pack) for option in options}) == len(options)
        several += len(options) >= 2
    assert several == 60, "a gate can be opened by a tag, by an action, or be another one"


def test_a_fix_survives_the_way_back_to_the_public_shape() -> None:
    for seed in range(60):
        rng = Random(seed)
        pack = sound(rng)
        FAULTS[rng.choice(sorted(FAULTS))][0](rng, pack)
        for option in fixes.options(BUILDER.build(pack)):
            assert lint(BUILDER.build(SkillPackMapper(pack).map(option.pack))) == [], seed


def test_nothing_of_a_sound_pack_is_fixed() -> None:
    assert fixes.options(BUILDER.build(sound(Random(1)))) == []


def test_a_milestone_is_reached_by_a_chain_and_not_by_a_circle() -> None:
    actions: list[Json] = [{"id": "a", "gate": None}, {"id": "b", "gate": "one"}, {"id": "c", "gate": "two"}]
    skill: Json = {
        "milestones": ["one", "two", "three"],
        "milestone_action_map": {"one": "a", "two": "b", "three": "c"},
        "actions": actions,
    }
    assert reachable_milestones(skill) == {"one", "two", "three"}
    actions[0]["gate"] = "three"
    assert reachable_milestones(skill) == frozenset()


@pytest.mark.parametrize(
    ("instructions", "fires"),
    [
        ("Say hello. [MILESTONE: greeted]", True),
        ("[MILESTONE:greeted ]", True),
        ("[milestone: greeted]", False),
        ("", False),
    ],
)
def test_a_tag_fires_a_listed_milestone(instructions: str, fires: bool) -> None:
    assert (reachable_milestones({"milestones": ["greeted"], "instructions": instructions}) == {"greeted"}) is fires
    assert reachable_milestones({"milestones": [], "instructions": instructions}) == frozenset()
