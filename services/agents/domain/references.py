"""What a pack refers to must exist before it is saved: routing targets, actions, tools, knowledge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

from services.agents.domain.packs import HUMAN, Json


def missing(pack: Json, tools: Set[str], knowledge: Set[str]) -> list[str]:
    """A sentence for each reference of a capability pack that leads nowhere, with its place."""
    capabilities = pack.get("capabilities") or []
    ids = {each.get("id") for each in capabilities}
    found: list[str] = []
    for place, capability in enumerate(capabilities):
        where = f"capabilities[{place}]"
        found += _actions(where, capability, tools)
        found += [
            f"{where}.sources[{number}].kb_id: there is no knowledge {source['kb_id']!r}"
            for number, source in enumerate(capability.get("sources") or [])
            if source["kb_id"] not in knowledge
        ]
        completion = capability.get("completion") or {}
        target = completion.get("target")
        if completion.get("type") == "switch" and target != HUMAN and target not in ids:
            found.append(f"{where}.completion.target: there is no capability {target!r}")
    for place, route in enumerate(pack.get("routing") or []):
        found += _route(f"routing[{place}]", route, capabilities)
    return found


def _actions(where: str, capability: Json, tools: Set[str]) -> Iterator[str]:
    actions = capability.get("actions") or []
    names = _names(actions)
    for number, action in enumerate(actions):
        if action.get("tool_id") not in tools:
            yield f"{where}.actions[{number}].tool_id: there is no tool {action.get('tool_id')!r}"
    for milestone, action in (capability.get("milestone_action_map") or {}).items():
        if action not in names:
            yield f"{where}.milestone_action_map[{milestone!r}]: there is no action {action!r}"
    for slot, targets in (capability.get("slot_action_args_map") or {}).items():
        for action in targets:
            if action not in names:
                yield f"{where}.slot_action_args_map[{slot!r}]: there is no action {action!r}"
    named = (capability.get("completion") or {}).get("action")
    if named is not None and named not in names:
        yield f"{where}.completion.action: there is no action {named!r}"


def _route(where: str, route: Json, capabilities: Iterable[Json]) -> Iterator[str]:
    ids = {each.get("id") for each in capabilities}
    target, source = route.get("to"), route.get("from")
    if target != HUMAN and target not in ids:
        yield f"{where}.to: there is no capability {target!r}"
    if source is not None and source not in ids:
        yield f"{where}.from: there is no capability {source!r}"
    action = (route.get("when") or {}).get("action")
    within = [each for each in capabilities if source is None or each.get("id") == source]
    if action is not None and action not in _names([a for each in within for a in each.get("actions") or []]):
        yield f"{where}.when.action: there is no action {action!r}"


def _names(actions: Iterable[Json]) -> frozenset[str]:
    return frozenset(word for each in actions for word in (each.get("tool_id"), each.get("name")) if word)
