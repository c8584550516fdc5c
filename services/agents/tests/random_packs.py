"""Random packs and patches: every field filled, unknown keys at every level, names that escape badly."""

from __future__ import annotations

from random import Random
from typing import Any

from services.agents.domain.packs import Json

NAMES = (
    *("a/b", "m~n", "~1", "", "Überweisung", "名前", "emoji 🎁", "with space"),
    *("1.0", "-", "0", '"quoted"', "line\nbreak"),
)
SCALARS: tuple[Any, ...] = (
    *(1.0, 1, True, False, None, 0, -0.5, 10**18, 1e-7),
    *("text", "", "é", "e\u0301", [], {}, [1.0, [2]]),
)


def word(rng: Random) -> str:
    """A text, often a hostile one."""
    return rng.choice(NAMES) if rng.random() < 0.3 else f"w{rng.randrange(10**6)}"


def value(rng: Random, depth: int = 0) -> Any:
    """Any JSON."""
    if depth < 2 and rng.random() < 0.3:
        if rng.random() < 0.5:
            return [value(rng, depth + 1) for _ in range(rng.randrange(3))]
        return {word(rng): value(rng, depth + 1) for _ in range(rng.randrange(3))}
    return rng.choice(SCALARS)


def shuffled(rng: Random, given: Json) -> Json:
    """The same keys in another order, now and then without some of them, and with unknown ones."""
    keys = [key for key in given if rng.random() > 0.05 or key in ("id", "tool_id", "kb_id")]
    found = {key: given[key] for key in keys}
    for _ in range(rng.randrange(3)):
        found[f"x-{word(rng)}"] = value(rng)
    order = list(found)
    rng.shuffle(order)
    return {key: found[key] for key in order}


def action(rng: Random, number: int, milestones: list[str]) -> Json:
    return shuffled(
        rng,
        {
            "tool_id": f"tool-{number}",
            "name": f"act_{number}",
            "args": value(rng),
            "gate": rng.choice([None, *milestones]),
            "terminal": rng.random() < 0.3,
        },
    )


def capability(rng: Random, number: int) -> Json:
    milestones = [f"m{number}_{each}" for each in range(rng.randrange(4))]
    actions = [action(rng, 10 * number + each, milestones) for each in range(rng.randrange(4))]
    return shuffled(
        rng,
        {
            "id": f"cap-{number}",
            "name": word(rng),
            "description": word(rng),
            "instructions": f"{word(rng)} [MILESTONE: {milestones[0] if milestones else 'none'}] one reply a turn",
            "milestones": milestones,
            "milestone_action_map": dict.fromkeys(milestones[1:], f"act_{10 * number}"),
            "actions": actions,
            "slot_action_args_map": {word(rng): {f"act_{10 * number}": word(rng)}},
            "completion": shuffled(
                rng,
                {
                    "type": rng.choice(["answer", "action", "handoff", "switch", "close", "odd", "reply_done"]),
                    "action": f"act_{10 * number}",
                    "target": "cap-0",
                    "exit_reason": rng.choice(["completed", "odd", None]),
                },
            ),
            "sources": [
                shuffled(rng, {"kb_id": f"kb-{rng.randrange(5)}", "name": word(rng)}) for _ in range(rng.randrange(3))
            ],
            "vector_store": rng.choice([None, {"id": f"vs-{number}", "kb_ids": ["kb-1"]}]),
        },
    )


def route(rng: Random, number: int) -> Json:
    when = shuffled(rng, {"action": f"act_{number}", "body_contains": word(rng)})
    return shuffled(rng, {"id": f"r-{number}", "from": "cap-0", "when": when, "to": f"cap-{number}"})


def pack(rng: Random) -> Json:
    """A capability pack of one to four capabilities."""
    profile = {
        "name": word(rng),
        "description": word(rng),
        "tone": rng.choice(["formal", {"x": 1.0}]),
        "goals": word(rng),
    }
    count = rng.randrange(1, 5)
    found = {
        "profile": shuffled(rng, profile),
        "capabilities": [capability(rng, number) for number in range(count)],
        "routing": [route(rng, number) for number in range(rng.randrange(3))],
    } | {f"x-{word(rng)}": value(rng) for _ in range(rng.randrange(3))}
    order = list(found)
    rng.shuffle(order)
    return {key: found[key] for key in order}


def pointer(*parts: object) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def patch(rng: Random, skill_pack: Json) -> object:
    """One operation, about a third of them bad in some way."""
    skills = len(skill_pack["skills"])
    at = rng.randrange(skills + 1) if rng.random() < 0.1 else rng.randrange(skills)
    good: list[Json] = [
        {"op": "replace", "path": pointer("skills", at, "instructions"), "value": word(rng) + " one reply"},
        {"op": "add", "path": "/tone_of_voice", "value": word(rng)},
        {"op": "add", "path": pointer("skills", at, "milestones"), "value": [word(rng)]},
        {"op": "add", "path": pointer("skills", at, "actions"), "value": []},
        {"op": "add", "path": pointer("skills", at, f"x-{word(rng)}"), "value": value(rng)},
        {"op": "add", "path": pointer("skills", at, "slot_action_args_map"), "value": {word(rng): {"act_0": "x"}}},
        {"op": "add", "path": "/skills/-", "value": {"name": f"New {word(rng)}", "instructions": "one reply"}},
        {"op": "add", "path": f"/skills/{at}", "value": {"id": "cap-new", "name": "N"}},
        {
            "op": "add",
            "path": "/routing_rules/-",
            "value": {"when": {"body_contains": word(rng)}, "switch_to": "cap-0"},
        },
        {"op": "copy", "from": f"/skills/{at}", "path": "/skills/-"},
        {"op": "move", "from": f"/skills/{at}", "path": "/skills/0"},
        {"op": "test", "path": "/version", "value": "1.0"},
        {"op": "remove", "path": "/routing_rules/0"},
        {"op": "remove", "path": f"/skills/{at}"},
    ]
    bad: list[object] = [
        {"op": "replace", "path": f"/skills/{at}/id", "value": "other"},
        {"op": "replace", "path": f"/skills/{at}", "value": {"id": "other", "name": "x"}},
        {"op": "copy", "from": f"/skills/{at}/name", "path": f"/skills/{at}/id"},
        {"op": "remove", "path": f"/skills/{at}/id"},
        {"op": "replace", "path": "/version", "value": "2"},
        {"op": "add", "path": "/knowledge_base/-", "value": {"kb_id": "kb-9"}},
        {"op": "add", "path": f"/skills/{at}/vector_store", "value": {"id": "theirs"}},
        {"op": "add", "path": f"/skills/{at}/kb_ids", "value": ["kb-stolen"]},
        {"op": "add", "path": "/company_id", "value": "c"},
        {"op": "add", "path": f"/skills/{at}/instructions", "value": 5},
        {"op": "replace", "path": "/skills/01/name", "value": "x"},
        {"op": "replace", "path": "", "value": {}},
        {"op": "replace", "path": "/skills", "value": "none"},
        {"op": "add", "path": "/skills/99/name", "value": "x"},
        {"op": "test", "path": "/version", "value": 1.0},
        {"op": "launch", "path": "/skills"},
        {"op": "add", "path": "skills"},
        {"op": "add", "path": "/a~2b", "value": 1},
        "no patch",
        None,
    ]
    return rng.choice(bad) if rng.random() < 0.35 else rng.choice(good)
