"""Sound packs, generated, and faults planted in them: one for each invariant of the linter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from services.agents.domain.packs import Json

TOPICS = ("orders", "refunds", "deliveries", "accounts", "vouchers", "repairs", "visits", "contracts")
VERBS = ("lookup", "cancel", "change", "confirm", "book", "send", "pay", "close")


def sound(rng: Random) -> Json:
    """A capability pack without findings: two to four capabilities, gates that open, routes that lead somewhere."""
    topics = rng.sample(TOPICS, rng.randrange(2, 5))
    capabilities = [_capability(rng, topic) for topic in topics]
    routing = [
        {"id": f"to-{topic}", "from": topics[0], "when": {"body_contains": topic}, "to": topic} for topic in topics[1:]
    ]
    profile = {"name": "Desk", "description": "A desk.", "tone": rng.choice(["friendly", "formal"]), "goals": "Help."}
    return {"profile": profile, "capabilities": capabilities, "routing": routing}


def _capability(rng: Random, topic: str) -> Json:
    first, last = rng.sample(VERBS, 2)
    by_tag = rng.random() < 0.5
    known = f"{topic} known"
    tag = f" [MILESTONE: {known}]" if by_tag else ""
    return {
        "id": topic,
        "name": topic.capitalize(),
        "description": f"Everything about {topic}.",
        "instructions": f"Ask what the customer wants to do about {topic}. Send one reply a turn.{tag}",
        "milestones": [known],
        "milestone_action_map": {} if by_tag else {known: f"{first}_{topic}"},
        "actions": [
            {"tool_id": f"t-{first}-{topic}", "name": f"{first}_{topic}", "args": {}, "gate": None, "terminal": False},
            {"tool_id": f"t-{last}-{topic}", "name": f"{last}_{topic}", "args": {}, "gate": known, "terminal": True},
        ],
        "slot_action_args_map": {"number": {f"{first}_{topic}": "number"}},
        "completion": {"type": "action", "action": f"{last}_{topic}", "exit_reason": "completed"},
        "sources": [],
        "vector_store": None,
    }


def _one(rng: Random, pack: Json) -> Json:
    found: Json = rng.choice(pack["capabilities"])
    return found


def _gate(rng: Random, pack: Json) -> None:
    _one(rng, pack)["actions"][1]["gate"] = "never said"


def _gate_in_a_circle(rng: Random, pack: Json) -> None:
    capability = _one(rng, pack)
    first, last = capability["actions"]
    capability["instructions"] = "Send one reply a turn."
    capability["milestones"] = ["a", "b"]
    capability["milestone_action_map"] = {"a": first["name"], "b": last["name"]}
    first["gate"], last["gate"] = "b", "a"


def _unlisted(rng: Random, pack: Json) -> None:
    _one(rng, pack)["milestones"] = []


def _ungated(rng: Random, pack: Json) -> None:
    _one(rng, pack)["actions"][1]["gate"] = None


def _exit(rng: Random, pack: Json) -> None:
    _one(rng, pack)["completion"]["exit_reason"] = rng.choice(["done", "complete", "escalate", ""])


def _replies(rng: Random, pack: Json) -> None:
    capability = _one(rng, pack)
    capability["instructions"] = capability["instructions"].replace("Send one reply a turn.", "Be kind.")


def _not_terminal(rng: Random, pack: Json) -> None:
    _one(rng, pack)["actions"][1]["terminal"] = False


def _no_completion_action(rng: Random, pack: Json) -> None:
    _one(rng, pack)["completion"]["action"] = "vanished"


def _switch(rng: Random, pack: Json) -> None:
    _one(rng, pack)["completion"] = {"type": "switch", "target": "nowhere", "exit_reason": "switched"}


def _completion_type(rng: Random, pack: Json) -> None:
    _one(rng, pack)["completion"]["type"] = "whenever"


def _unreachable(rng: Random, pack: Json) -> None:
    pack["routing"].pop(rng.randrange(len(pack["routing"])))


def _route_target(rng: Random, pack: Json) -> None:
    # The one that it led to is led to by another, so that this is the only fault.
    route = rng.choice(pack["routing"])
    pack["routing"].append({**route, "id": "another"})
    route["to"] += "s-of-old"


def _route_source(rng: Random, pack: Json) -> None:
    route = rng.choice(pack["routing"])
    pack["routing"].append({**route, "id": "another"})
    route["from"] = "gone"


def _route_action(rng: Random, pack: Json) -> None:
    route = rng.choice(pack["routing"])
    pack["routing"].append({**route, "id": "another", "when": {"action": "no_such", "body_contains": "x"}})


def _twins(rng: Random, pack: Json) -> None:
    one = _one(rng, pack)
    pack["capabilities"].append({**one, "name": "Twin"})


def _route_twins(rng: Random, pack: Json) -> None:
    pack["routing"].append({**rng.choice(pack["routing"]), "when": {"body_contains": "twin"}})


def _no_instructions(rng: Random, pack: Json) -> None:
    capability = _one(rng, pack)
    first = capability["actions"][0]["name"]
    capability["milestone_action_map"] = dict.fromkeys(capability["milestones"], first)
    capability["instructions"] = "  "


def _no_name(rng: Random, pack: Json) -> None:
    _one(rng, pack)["name"] = ""


def _mapped_to_nothing(rng: Random, pack: Json) -> None:
    capability = _one(rng, pack)
    capability["milestones"].append("more")
    capability["milestone_action_map"]["more"] = "lookup_nothing"


def _mapped_unlisted(rng: Random, pack: Json) -> None:
    capability = _one(rng, pack)
    capability["milestone_action_map"]["unlisted"] = capability["actions"][0]["name"]


def _slot(rng: Random, pack: Json) -> None:
    _one(rng, pack)["slot_action_args_map"]["a/b~c"] = {"vanished": "x"}


def _milestone_twice(rng: Random, pack: Json) -> None:
    capability = _one(rng, pack)
    capability["milestones"] = [*capability["milestones"], "twice", "twice"]


FAULTS: Mapping[str, tuple[Callable[[Random, Json], None], str]] = {
    "gate": (_gate, "unreachable_gate"),
    "circle": (_gate_in_a_circle, "unreachable_gate"),
    "unlisted": (_unlisted, "unreachable_gate"),
    "ungated": (_ungated, "terminal_without_gate"),
    "exit": (_exit, "invalid_exit_reason"),
    "replies": (_replies, "no_single_reply"),
    "not terminal": (_not_terminal, "completion_action_not_terminal"),
    "no completion action": (_no_completion_action, "completion_action_missing"),
    "switch": (_switch, "unknown_switch_target"),
    "completion type": (_completion_type, "invalid_completion_type"),
    "unreachable": (_unreachable, "unreachable_capability"),
    "route target": (_route_target, "unknown_route_target"),
    "route source": (_route_source, "unknown_route_source"),
    "route action": (_route_action, "unknown_action"),
    "twins": (_twins, "duplicate_id"),
    "route twins": (_route_twins, "duplicate_id"),
    "no instructions": (_no_instructions, "empty_instructions"),
    "no name": (_no_name, "empty_name"),
    "mapped to nothing": (_mapped_to_nothing, "unknown_action"),
    "mapped unlisted": (_mapped_unlisted, "unknown_milestone"),
    "slot": (_slot, "unknown_action"),
    "milestone twice": (_milestone_twice, "duplicate_milestone"),
}
"""Each fault by name: how it is planted, and the code of the finding that must name it."""
