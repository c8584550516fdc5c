"""The surgical guarantee over random packs: what no operation touches stays byte for byte, in both shapes."""

from __future__ import annotations

from random import Random

import pytest

from services.agents.domain.mapping import SkillPackBuilder, SkillPackMapper
from services.agents.domain.packs import Json, canonical, check_pack, copy_of
from services.agents.domain.patches import apply
from services.agents.domain.skill_packs import check_skill_pack
from services.agents.tests import random_packs

PACKS = 10_000
SHARDS = 5


def touched_keys(patches: list[Json], what: str) -> set[str]:
    """Keys below an element of a list that any operation names; `*` for a whole element or the whole list."""
    keys: set[str] = set()
    for patch in patches:
        for pointer in (patch["path"], patch.get("from", "")) if patch["op"] != "test" else ():
            parts = pointer.split("/")[1:]
            if parts[:1] == [what]:
                keys.add(parts[2].replace("~1", "/").replace("~0", "~") if len(parts) > 2 else "*")
    return keys


def by_id(elements: list[Json]) -> dict[str, Json]:
    return {each["id"]: each for each in elements}


@pytest.mark.parametrize("shard", range(SHARDS))
def test_what_no_operation_touches_stays_byte_for_byte(shard: int) -> None:
    changed = 0
    for seed in range(shard, PACKS, SHARDS):
        rng = Random(seed)
        pack = check_pack(random_packs.pack(rng))
        before_bytes = canonical(pack)
        builder = SkillPackBuilder()
        skill_pack = builder.build(pack)
        check_skill_pack(skill_pack)
        original = canonical(skill_pack)
        applied = apply(skill_pack, [random_packs.patch(rng, skill_pack) for _ in range(rng.randrange(1, 7))])
        assert canonical(pack) == before_bytes, "the input is never written to"
        assert canonical(skill_pack) == original
        mapped = SkillPackMapper(pack).map(applied.pack)
        check_pack(copy_of(mapped))
        if canonical(applied.pack) == original:
            assert canonical(mapped) == before_bytes, seed
            continue
        changed += 1
        require_untouched(pack, skill_pack, applied.pack, applied.patches, mapped, seed)
        assert canonical(without_derived(builder.build(mapped))) == canonical(without_derived(applied.pack)), seed
    assert changed >= PACKS / SHARDS / 2, "half of them change something"


def without_derived(skill_pack: Json) -> Json:
    """Without what is computed anew, and with sorted keys: a key that is added again comes last in one shape only."""
    kept = {key: value for key, value in skill_pack.items() if key != "knowledge_base"}
    return sorted_keys(kept)


def sorted_keys(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: sorted_keys(value[key]) for key in sorted(value)}
    return [sorted_keys(each) for each in value] if isinstance(value, list) else value


def require_untouched(pack: Json, before: Json, after: Json, patches: list[Json], mapped: Json, seed: int) -> None:
    for ours, theirs in (("skills", "capabilities"), ("routing_rules", "routing")):
        touched = touched_keys(patches, ours)
        old, new = by_id(before[ours]), by_id(after[ours])
        public_old, public_new = by_id(pack[theirs]), by_id(mapped[theirs])
        for identity in old.keys() & new.keys():
            for key in old[identity].keys() - touched:
                assert canonical(new[identity][key]) == canonical(old[identity][key]), (seed, identity, key)
            for key in public_old[identity].keys() - touched:
                assert canonical(public_new[identity][key]) == canonical(public_old[identity][key]), (seed, key)
        if not touched:
            assert canonical(pack[theirs]) == canonical(mapped[theirs]), seed
    for key in pack.keys() - {"capabilities", "routing", "profile"}:
        assert canonical(pack[key]) == canonical(mapped[key]), seed
    profile_touched = any(patch["path"].startswith("/tone_of_voice") for patch in patches)
    if not profile_touched:
        assert canonical(pack["profile"]) == canonical(mapped["profile"]), seed


def test_no_patches_give_back_the_very_bytes() -> None:
    for seed in range(500):
        pack = random_packs.pack(Random(seed))
        applied = apply(SkillPackBuilder().build(pack), [])
        assert canonical(SkillPackMapper(pack).map(applied.pack)) == canonical(pack)
