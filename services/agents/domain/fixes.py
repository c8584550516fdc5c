"""Safe fixes of what the linter finds: candidates by rule, of which only those stay that the linter itself approves.

A fix is safe when it ends its finding and causes no new one. Fixes are patches, and go through the same surgical
application as a model's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from services.agents.domain import lint as linter
from services.agents.domain.lint import Finding, lint
from services.agents.domain.packs import HUMAN, Json, canonical, same
from services.agents.domain.patches import Tool, apply, free_id

ONE_REPLY = "Send exactly one reply a turn."
MAX_OPTIONS = 3
MAX_ROUNDS = 60
Patches = list[Json]
Candidates = Callable[[Json, Finding], Iterator[Patches]]


@dataclass(frozen=True, slots=True)
class Fixed:
    """One complete alternative: its patches, the pack after them, and what it does not fix."""

    patches: Patches
    pack: Json
    left: Sequence[Finding]


def options(pack: Json, tools: Sequence[Tool] = ()) -> list[Fixed]:
    """Up to three alternatives that differ in effect, each fixing all that can be fixed safely."""
    found: dict[bytes, Fixed] = {}
    for preferred in range(MAX_OPTIONS):
        fixed = _fix_all(pack, preferred, tools)
        if fixed.patches:
            found.setdefault(canonical(fixed.pack), fixed)
    return list(found.values())


def alternatives(pack: Json, finding: Finding, tools: Sequence[Tool] = ()) -> Iterator[Fixed]:
    """The safe fixes of one finding, the most likely first."""
    before = Counter(_what(each) for each in lint(pack))
    for patches in _CANDIDATES[finding.code](pack, finding):
        applied = apply(pack, patches, tools)
        left = lint(applied.pack)
        after = Counter(_what(each) for each in left)
        if not applied.warnings and after[_what(finding)] < before[_what(finding)] and after < before:
            yield Fixed(applied.patches, applied.pack, left)


def _fix_all(pack: Json, preferred: int, tools: Sequence[Tool]) -> Fixed:
    """Take finding after finding; where there is a choice, the `preferred`-th of it, else the last."""
    patches: Patches = []
    given_up: set[tuple[str, str]] = set()
    findings: Sequence[Finding] = lint(pack)
    for _ in range(MAX_ROUNDS):
        finding = next((each for each in findings if (each.code, each.where) not in given_up), None)
        if finding is None:
            break
        choice = [fixed for fixed, _ in zip(alternatives(pack, finding, tools), range(preferred + 1), strict=False)]
        if not choice:
            given_up.add((finding.code, finding.where))
            continue
        patches += choice[-1].patches
        pack, findings = choice[-1].pack, choice[-1].left
    return Fixed(patches, pack, findings)


def _what(finding: Finding) -> tuple[str, str]:
    """What a finding is about; its place and the titles in its sentence may change while others are fixed."""
    return (finding.code, finding.subject)


# --- candidates, a function a kind of finding ---------------------------------------------------------------------


def _none(pack: Json, finding: Finding) -> Iterator[Patches]:
    yield from ()


def _duplicate_id(pack: Json, finding: Finding) -> Iterator[Patches]:
    element = _at(pack, finding.where)
    is_action = finding.element is not None and finding.skill is not None
    if is_action or any(same(element, sibling) for sibling in _siblings(pack, finding)):
        yield [_op("remove", finding.where)]
        return
    # What differs is kept: added once more, under an id of its own, it needs a way to it.
    taken = {each.get("id") for each in _siblings(pack, finding)}
    own = free_id(str(element["id"]), taken)
    again = {"id": own} | {key: value for key, value in element.items() if key not in ("id", "vector_store")}
    anew = [_op("remove", finding.where), _op("add", finding.where, again)]
    yield anew
    for keyword in _keywords(element):
        rule = {"from": pack["skills"][0].get("id"), "when": {"body_contains": keyword}, "switch_to": own}
        yield [*anew, _op("add", "/routing_rules/-", rule)]


def _missing_id(pack: Json, finding: Finding) -> Iterator[Patches]:
    element = _at(pack, finding.where)
    again = {key: value for key, value in element.items() if key not in ("id", "vector_store")}
    yield [_op("remove", finding.where), _op("add", finding.where, again)]
    yield [_op("remove", finding.where)]


def _empty_name(pack: Json, finding: Finding) -> Iterator[Patches]:
    skill = _skill(pack, finding)
    words = (skill.get("description") or "").split(".")[0].strip()
    for name in ((skill.get("id") or "").replace("-", " ").replace("_", " ").strip().capitalize(), words[:60]):
        if name:
            yield [_op("add", finding.where, name)]


def _empty_instructions(pack: Json, finding: Finding) -> Iterator[Patches]:
    skill = _skill(pack, finding)
    about = (skill.get("description") or "").strip() or f"Help with {skill.get('name') or 'this'}."
    text = f"{about if about.endswith('.') else about + '.'} {ONE_REPLY}"
    gates = {each.get("gate") for each in skill.get("actions") or []} - {None}
    fired = "".join(f" [MILESTONE: {each}]" for each in skill.get("milestones") or [] if each in gates)
    yield [_op("add", finding.where, text)]
    yield [_op("add", finding.where, text + fired)]


def _no_single_reply(pack: Json, finding: Finding) -> Iterator[Patches]:
    yield [_op("replace", finding.where, _with_sentence(_at(pack, finding.where), ONE_REPLY))]


def _remove(pack: Json, finding: Finding) -> Iterator[Patches]:
    yield [_op("remove", finding.where)]


def _unreachable_gate(pack: Json, finding: Finding) -> Iterator[Patches]:
    skill, gate = _skill(pack, finding), finding.subject
    listed = _list_milestone(finding, skill, gate)
    for action in skill.get("actions") or []:
        name = action.get("name") or action.get("id")
        if name and action.get("gate") is None and not action.get("terminal"):
            yield [*listed, _fire_by(finding, skill, gate, name)]
    yield [*listed, _tag(finding, skill, gate)]
    for reached in sorted(linter.reachable_milestones(skill)):
        yield [_op("replace", finding.where, reached)]


def _terminal_without_gate(pack: Json, finding: Finding) -> Iterator[Patches]:
    skill = _skill(pack, finding)
    reached = sorted(linter.reachable_milestones(skill))
    for milestone in reached:
        yield [_op("add", finding.where, milestone)]
    if not reached:
        name = f"{finding.subject}-confirmed"
        yield [*_list_milestone(finding, skill, name), _tag(finding, skill, name), _op("add", finding.where, name)]
    yield [_op("add", finding.where.removesuffix("gate") + "terminal", False)]


def _unknown_action(pack: Json, finding: Finding) -> Iterator[Patches]:
    where = finding.where
    if "/slot_action_args_map/" in where:
        yield [_op("remove", f"{where}/{_escaped(finding.subject)}")]
        yield [_op("remove", where)]
        return
    for name in _closest(finding.subject, _action_names(pack, finding)):
        yield [_op("replace", where, name)]
    yield [_op("remove", where)]
    if finding.skill is None:  # a routing rule that waits for nothing would always switch
        yield [_op("remove", where.removesuffix("/when/action"))]


def _unknown_milestone(pack: Json, finding: Finding) -> Iterator[Patches]:
    yield _list_milestone(finding, _skill(pack, finding), finding.subject)
    yield [_op("remove", finding.where)]


_REASONS: Mapping[str | None, str] = {
    linter.REPLY: "completed",
    linter.ACTION: "completed",
    linter.HANDOFF: "escalated",
    linter.SWITCH: "switched",
    linter.END: "user_ended",
}


def _invalid_exit_reason(pack: Json, finding: Finding) -> Iterator[Patches]:
    completion = _skill(pack, finding).get("completion") or {}
    close = get_close_matches(finding.subject, linter.EXIT_REASONS, n=1)
    for reason in dict.fromkeys([*close, _REASONS.get(completion.get("type"), "completed")]):
        yield [_op("replace", finding.where, reason)]


def _completes_differently(pack: Json, finding: Finding) -> Iterator[Patches]:
    where = f"/skills/{finding.skill}/completion"
    skill = _skill(pack, finding)
    for action in skill.get("actions") or []:
        if action.get("terminal"):
            name = action.get("name") or action.get("id")
            yield [_op("add", f"{where}/type", linter.ACTION), _op("add", f"{where}/action", name)]
    yield [_op("add", f"{where}/type", linter.REPLY)]


def _completion_action_not_terminal(pack: Json, finding: Finding) -> Iterator[Patches]:
    yield [_op("add", finding.where, True)]
    skill = _skill(pack, finding)
    gate = finding.where.removesuffix("terminal") + "gate"
    reached = sorted(linter.reachable_milestones(skill))
    for milestone in reached:
        yield [_op("add", finding.where, True), _op("add", gate, milestone)]
    if not reached:
        name = f"{finding.subject}-confirmed"
        listed = [*_list_milestone(finding, skill, name), _tag(finding, skill, name)]
        yield [*listed, _op("add", gate, name), _op("add", finding.where, True)]
    yield from _completes_differently(pack, finding)


def _unknown_target(pack: Json, finding: Finding) -> Iterator[Patches]:
    own = _skill(pack, finding).get("id") if finding.skill is not None else None
    ids = [each["id"] for each in pack["skills"] if each.get("id") and each.get("id") != own]
    for identity in _closest(finding.subject, ids)[:1]:
        yield [_op("add", finding.where, identity)]
    yield [_op("add", finding.where, HUMAN)]
    if finding.skill is None:
        yield [_op("remove", finding.where.rsplit("/", 1)[0])]


def _unknown_route_source(pack: Json, finding: Finding) -> Iterator[Patches]:
    for identity in _closest(finding.subject, [each["id"] for each in pack["skills"] if each.get("id")])[:1]:
        yield [_op("replace", finding.where, identity)]
    yield [_op("remove", finding.where)]


def _unreachable_capability(pack: Json, finding: Finding) -> Iterator[Patches]:
    skill = _skill(pack, finding)
    first = pack["skills"][0].get("id")
    for keyword in _keywords(skill):
        rule = {"when": {"body_contains": keyword}, "switch_to": finding.subject}
        yield [_op("add", "/routing_rules/-", {"from": first, **rule})]
        yield [_op("add", "/routing_rules/-", rule)]


_CANDIDATES: Mapping[str, Candidates] = {
    "no_capabilities": _none,
    "duplicate_id": _duplicate_id,
    "missing_id": _missing_id,
    "empty_name": _empty_name,
    "empty_instructions": _empty_instructions,
    "no_single_reply": _no_single_reply,
    "duplicate_milestone": _remove,
    "unreachable_gate": _unreachable_gate,
    "terminal_without_gate": _terminal_without_gate,
    "unknown_action": _unknown_action,
    "unknown_milestone": _unknown_milestone,
    "invalid_exit_reason": _invalid_exit_reason,
    "invalid_completion_type": _completes_differently,
    "completion_action_missing": _completes_differently,
    "completion_action_not_terminal": _completion_action_not_terminal,
    "unknown_switch_target": _unknown_target,
    "unknown_route_target": _unknown_target,
    "unknown_route_source": _unknown_route_source,
    "unreachable_capability": _unreachable_capability,
}


# --- pieces -------------------------------------------------------------------------------------------------------


def _op(op: str, path: str, value: object = None) -> Json:
    return {"op": op, "path": path} if op == "remove" else {"op": op, "path": path, "value": value}


def _skill(pack: Json, finding: Finding) -> Json:
    assert finding.skill is not None  # findings of capabilities name theirs
    skill: Json = pack["skills"][finding.skill]
    return skill


def _at(pack: Json, where: str) -> Any:
    found: Any = pack
    for part in where.split("/")[1:]:
        word = part.replace("~1", "/").replace("~0", "~")
        found = found[int(word)] if isinstance(found, list) else found[word]
    return found


def _siblings(pack: Json, finding: Finding) -> Sequence[Json]:
    elements = [*_at(pack, finding.where.rsplit("/", 1)[0])]
    del elements[int(finding.where.rsplit("/", 1)[1])]
    return elements


def _list_milestone(finding: Finding, skill: Json, name: str) -> Patches:
    where = f"/skills/{finding.skill}/milestones"
    listed = skill.get("milestones")
    if listed is None:
        return [_op("add", where, [name])]
    return [] if name in listed else [_op("add", f"{where}/-", name)]


def _fire_by(finding: Finding, skill: Json, milestone: str, action: str) -> Json:
    where = f"/skills/{finding.skill}/milestone_action_map"
    if skill.get("milestone_action_map") is None:
        return _op("add", where, {milestone: action})
    return _op("add", f"{where}/{_escaped(milestone)}", action)


def _tag(finding: Finding, skill: Json, milestone: str) -> Json:
    text = _with_sentence(skill.get("instructions") or "", f"[MILESTONE: {milestone}]")
    return _op("add", f"/skills/{finding.skill}/instructions", text)


def _with_sentence(text: object, sentence: str) -> str:
    kept = str(text).rstrip()
    return f"{kept} {sentence}".strip()


def _action_names(pack: Json, finding: Finding) -> list[str]:
    skills = pack["skills"] if finding.skill is None else [_skill(pack, finding)]
    actions = [each for skill in skills for each in skill.get("actions") or []]
    return [each.get("name") or each.get("id") for each in actions if each.get("name") or each.get("id")]


def _closest(word: str, known: Sequence[str]) -> list[str]:
    """The known words that look like it, the best first; the only one there is, where none does."""
    found = get_close_matches(word, known, n=2, cutoff=0.5)
    return found or (list(known) if len(known) == 1 else [])


_COMMON = frozenset({"and", "the", "for", "with", "about", "help", "capability", "agent", "your"})


def _keywords(skill: Json) -> list[str]:
    words = re.findall(r"\w{3,}", f"{skill.get('name') or ''} {(skill.get('id') or '').replace('-', ' ')}".lower())
    return list(dict.fromkeys(word for word in words if word not in _COMMON))[:2]


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
