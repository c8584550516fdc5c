"""The pack linter: what keeps a pack from doing what it says. Findings, not refusals: a broken pack can be opened.

It reads the skill pack, the shape that the engine executes, and answers in the words of the editor's form.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from services.agents.domain.packs import HUMAN, Json

EXIT_REASONS = ("completed", "escalated", "switched", "user_ended", "failed")
REPLY, ACTION, HANDOFF, SWITCH, END = (
    *("reply_done", "action_done", "human_handoff"),
    *("skill_switch", "conversation_end"),
)
COMPLETION_TYPES = (REPLY, ACTION, HANDOFF, SWITCH, END)

Code = Literal[
    "no_capabilities",
    "duplicate_id",
    "missing_id",
    "empty_name",
    "empty_instructions",
    "no_single_reply",
    "duplicate_milestone",
    "unreachable_gate",
    "terminal_without_gate",
    "unknown_action",
    "unknown_milestone",
    "invalid_exit_reason",
    "invalid_completion_type",
    "completion_action_missing",
    "completion_action_not_terminal",
    "unknown_switch_target",
    "unknown_route_target",
    "unknown_route_source",
    "unreachable_capability",
]

_TAG = re.compile(r"\[MILESTONE:\s*([^\]\[\n]{1,100}?)\s*\]")
_SINGLE_REPLY = re.compile(
    r"\b(?:one|a single|exactly one|only one|1)\s+(?:short\s+|brief\s+)?(?:reply|message|response|answer)\b"
    r"|\b(?:reply|respond|answer)\s+(?:only\s+|exactly\s+|just\s+)?once\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: where (a pointer into the skill pack), in which capability, and a sentence about it.

    `subject` is the name that it is about: a milestone, an action, a target.
    """

    code: Code
    where: str
    message: str
    skill: int | None = None
    element: int | None = None
    subject: str = ""


def lint(pack: Json) -> list[Finding]:
    """What is wrong with a skill pack, in the order of its parts. Deterministic."""
    skills: Sequence[Json] = pack["skills"]
    if not skills:
        return [Finding("no_capabilities", "/skills", "The agent has no capabilities.")]
    findings = [*_ids("/skills", skills, "capability")]
    for index, skill in enumerate(skills):
        findings += _Skill(pack, index, skill).findings()
    findings += _ids("/routing_rules", pack["routing_rules"], "routing rule")
    findings += _routing(pack)
    findings += _unreachable(pack)
    return findings


def milestones_fired_by_tags(instructions: str | None) -> list[str]:
    """The milestones that `[MILESTONE: x]` tags name, in their order, each once."""
    return list(dict.fromkeys(_TAG.findall(instructions or "")))


def reachable_milestones(skill: Json) -> frozenset[str]:
    """Milestones of a skill that can fire: the least fixpoint, so that a circle of gates reaches nothing.

    One is reachable where it is listed, and fired by a tag or by an action whose own gate is reachable (or that has
    none).
    """
    listed = set(skill.get("milestones") or [])
    reached = listed & set(milestones_fired_by_tags(skill.get("instructions")))
    gates: dict[str, list[str | None]] = {}
    for action in skill.get("actions") or []:
        for word in {action.get("id"), action.get("name")} - {None}:
            gates.setdefault(word, []).append(action.get("gate"))
    fired_by = skill.get("milestone_action_map") or {}
    while True:
        more = {
            milestone
            for milestone, action in fired_by.items()
            if milestone in listed and any(gate is None or gate in reached for gate in gates.get(action, []))
        }
        if more <= reached:
            return frozenset(reached)
        reached |= more


def asks_for_one_reply(instructions: str | None) -> bool:
    """Whether instructions ask for one reply a turn."""
    return _SINGLE_REPLY.search(instructions or "") is not None


def reachable_skills(pack: Json) -> frozenset[str]:
    """Ids of the skills that a conversation can come to: the first, and what routes and switches lead to."""
    skills: Sequence[Json] = pack["skills"]
    first = skills[0].get("id")
    reached = {first}
    leads: dict[object, set[object]] = {}
    for skill in skills:
        completion = skill.get("completion") or {}
        if completion.get("type") == SWITCH:
            leads.setdefault(skill.get("id"), set()).add(completion.get("target"))
    anywhere: set[object] = set()
    for rule in pack["routing_rules"]:
        if rule.get("from") is None:
            anywhere.add(rule.get("switch_to"))
        else:
            leads.setdefault(rule["from"], set()).add(rule.get("switch_to"))
    reached |= anywhere
    waiting = list(reached)
    while waiting:
        for target in leads.get(waiting.pop(), set()) - reached:
            reached.add(target)
            waiting.append(target)
    return frozenset(str(each) for each in reached if each is not None)


def titled(skill: Json) -> str:
    """How a capability is called in a sentence."""
    return f"“{str(skill.get('name') or skill.get('id') or 'without a name')[:80]}”"


class _Skill:
    def __init__(self, pack: Json, index: int, skill: Json) -> None:
        self._pack = pack
        self._index = index
        self._skill = skill
        self._title = titled(skill)
        self._actions: Sequence[Json] = skill.get("actions") or []
        self._words = {word for each in self._actions for word in (each.get("id"), each.get("name")) if word}

    def findings(self) -> Iterator[Finding]:
        yield from self._texts()
        yield from self._milestones()
        yield from _ids(f"/skills/{self._index}/actions", self._actions, f"action of {self._title}", self._index)
        yield from self._gates()
        yield from self._arguments()
        yield from self._completion()

    def _texts(self) -> Iterator[Finding]:
        if not (self._skill.get("name") or "").strip():
            yield self._found("empty_name", "name", f"Capability {self._index + 1} has no name.")
        instructions = (self._skill.get("instructions") or "").strip()
        if not instructions:
            yield self._found("empty_instructions", "instructions", f"{self._title} has no instructions.")
        elif not asks_for_one_reply(instructions):
            message = f"The instructions of {self._title} do not ask for one reply a turn."
            yield self._found("no_single_reply", "instructions", message)

    def _milestones(self) -> Iterator[Finding]:
        listed: Sequence[str] = self._skill.get("milestones") or []
        for name, count in Counter(listed).items():
            if count > 1:
                message = f"{self._title} lists the milestone “{name}” {count} times."
                place = len(listed) - 1 - list(reversed(listed)).index(name)
                yield self._found("duplicate_milestone", f"milestones/{place}", message, place, name)
        for name, action in (self._skill.get("milestone_action_map") or {}).items():
            key = name.replace("~", "~0").replace("/", "~1")
            if name not in listed:
                message = f"{self._title} maps the milestone “{name}”, which it does not list."
                yield self._found("unknown_milestone", f"milestone_action_map/{key}", message, subject=name)
            if action not in self._words:
                message = f"{self._title} fires “{name}” by the action “{action}”, which it does not have."
                yield self._found("unknown_action", f"milestone_action_map/{key}", message, subject=action)

    def _gates(self) -> Iterator[Finding]:
        reached = reachable_milestones(self._skill)
        for place, action in enumerate(self._actions):
            gate, name = action.get("gate"), action.get("name") or action.get("id")
            if gate is not None and gate not in reached:
                message = (
                    f"The action “{name}” of {self._title} waits for the milestone “{gate}”, which nothing reaches."
                )
                yield self._found("unreachable_gate", f"actions/{place}/gate", message, place, gate)
            if action.get("terminal") and gate is None:
                message = f"The action “{name}” of {self._title} ends the work and has no gate before it."
                yield self._found("terminal_without_gate", f"actions/{place}/gate", message, place, str(name))

    def _arguments(self) -> Iterator[Finding]:
        for slot, targets in (self._skill.get("slot_action_args_map") or {}).items():
            for action in targets:
                if action not in self._words:
                    message = f"The slot “{slot}” of {self._title} fills the action “{action}”, which is not there."
                    key = slot.replace("~", "~0").replace("/", "~1")
                    yield self._found("unknown_action", f"slot_action_args_map/{key}", message, subject=action)

    def _completion(self) -> Iterator[Finding]:
        reason = (self._skill.get("exit") or {}).get("reason")
        if reason is not None and reason not in EXIT_REASONS:
            message = f"{self._title} ends for the reason “{reason}”; reasons are {', '.join(EXIT_REASONS)}."
            yield self._found("invalid_exit_reason", "exit/reason", message, subject=reason)
        completion: Json = self._skill.get("completion") or {}
        kind = completion.get("type")
        if kind is not None and kind not in COMPLETION_TYPES:
            message = f"{self._title} is completed by “{kind}”, which is no way to complete."
            yield self._found("invalid_completion_type", "completion/type", message, subject=kind)
        if kind == ACTION:
            yield from self._completion_action(completion.get("action"))
        if kind == SWITCH and not _is_target(self._pack, completion.get("target")):
            message = f"{self._title} switches to “{completion.get('target')}”, which is no capability."
            yield self._found(
                "unknown_switch_target", "completion/target", message, subject=str(completion.get("target"))
            )

    def _completion_action(self, word: str | None) -> Iterator[Finding]:
        place = next((i for i, each in enumerate(self._actions) if word in (each.get("id"), each.get("name"))), None)
        if word is None or place is None:
            message = f"{self._title} is completed by the action “{word}”, which it does not have."
            yield self._found("completion_action_missing", "completion/action", message, subject=str(word))
        elif not self._actions[place].get("terminal"):
            message = f"{self._title} is completed by the action “{word}”, which is not terminal."
            yield self._found("completion_action_not_terminal", f"actions/{place}/terminal", message, place, str(word))

    def _found(self, code: Code, where: str, message: str, element: int | None = None, subject: str = "") -> Finding:
        return Finding(code, f"/skills/{self._index}/{where}", message, self._index, element, subject)


def _ids(where: str, elements: Sequence[Json], what: str, skill: int | None = None) -> Iterator[Finding]:
    seen: set[str] = set()
    for place, element in enumerate(elements):
        identity = element.get("id")
        if not identity:
            yield Finding("missing_id", f"{where}/{place}", f"A {what} has no id.", skill, place)
        elif identity in seen:
            message = f"More than one {what} has the id “{identity}”."
            yield Finding("duplicate_id", f"{where}/{place}", message, skill, place, identity)
        else:
            seen.add(identity)


def _routing(pack: Json) -> Iterator[Finding]:
    by_id = {skill.get("id"): skill for skill in pack["skills"]}
    for place, rule in enumerate(pack["routing_rules"]):
        where, source, target = f"/routing_rules/{place}", rule.get("from"), rule.get("switch_to")
        named = f"The routing rule “{rule.get('id') or place + 1}”"
        if not _is_target(pack, target):
            message = f"{named} leads to “{target}”, which is no capability."
            yield Finding("unknown_route_target", f"{where}/switch_to", message, None, place, str(target))
        if source is not None and source not in by_id:
            message = f"{named} starts at “{source}”, which is no capability."
            yield Finding("unknown_route_source", f"{where}/from", message, None, place, source)
        action = (rule.get("when") or {}).get("action")
        within = [by_id[source]] if source in by_id else pack["skills"]
        words = {
            word
            for skill in within
            for each in skill.get("actions") or []
            for word in (each.get("id"), each.get("name"))
        }
        if action is not None and action not in words:
            message = f"{named} waits for the action “{action}”, which is not there."
            yield Finding("unknown_action", f"{where}/when/action", message, None, place, action)


def _unreachable(pack: Json) -> Iterator[Finding]:
    reached = reachable_skills(pack)
    for index, skill in enumerate(pack["skills"]):
        identity = skill.get("id")
        if identity and index and identity not in reached:
            message = f"No route and no switch leads to {titled(skill)}."
            yield Finding("unreachable_capability", f"/skills/{index}", message, index, None, identity)


def _is_target(pack: Json, target: object) -> bool:
    return target == HUMAN or any(skill.get("id") == target for skill in pack["skills"] if target is not None)
