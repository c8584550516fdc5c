"""How the small engine holds a conversation: by the pack's own rules, so that the same messages give the same turns.

What a language model would decide is decided by plain rules: an action is wanted when a message holds the words of
its name, and a reply fires the next `[MILESTONE: …]` tag of the instructions. Everything else is the pack's: gates,
milestones, routes and completions. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from services.agents.domain import lint
from services.agents.domain.packs import HUMAN, Json

MAX_MESSAGES = 50
MAX_SWITCHES = 5
"""In one turn; more are a circle."""

Kind = Literal["replied", "executed", "failed", "blocked", "fired", "switched", "completed", "handed_off", "stuck"]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened in a turn, in which capability, and about what: an action, a milestone, a target."""

    kind: Kind
    skill: str
    subject: str = ""
    text: str = ""


@dataclass(slots=True)
class Turn:
    """A message of the user and what followed."""

    message: str
    events: list[Event] = field(default_factory=list)

    def told(self) -> Json:
        """As JSON."""
        return {"message": self.message, "events": [asdict(event) for event in self.events]}


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answers."""

    ok: bool = True
    body: str = "done"


class Conversation:
    """A conversation with one pack. `results` are the answers of tools by name; a tool without one succeeds."""

    def __init__(self, pack: Json, results: Mapping[str, ToolResult] | None = None) -> None:
        self._pack = pack
        self._results = results or {}
        self._skill: Json = pack["skills"][0]
        self._fired: dict[str, set[str]] = {}
        self._turn = Turn("")
        self._switches = 0
        self.ended = False

    def say(self, message: str) -> Turn:
        """Take one message of the user; what follows of it."""
        self._turn = Turn(message)
        self._switches = 0
        if self.ended:
            return self._turn
        self._route(message, None)
        if not self.ended:
            self._act(message)
        if not self.ended:
            self._reply()
        if not self.ended:
            self._complete()
        return self._turn

    def _note(self, kind: Kind, subject: object = "", text: str = "") -> None:
        self._turn.events.append(Event(kind, _name(self._skill), str(subject), text))

    # --- routes -----------------------------------------------------------------------------------------------

    def _route(self, body: str, action: Json | None) -> bool:
        """Follow the first rule that matches a message, or an action's answer; whether there was one."""
        for rule in self._pack["routing_rules"]:
            when = rule.get("when") or {}
            if rule.get("from") is not None and rule["from"] != self._skill.get("id"):
                continue
            if (when.get("action") is None) != (action is None) or not _is_about(when.get("action"), action):
                continue
            wanted = when.get("body_contains")
            if wanted and wanted.casefold() in body.casefold():
                return self._switch(rule.get("switch_to"))
        return False

    def _switch(self, target: object) -> bool:
        if target == HUMAN:
            self._note("handed_off", HUMAN)
            self.ended = True
            return True
        skill = next((each for each in self._pack["skills"] if target is not None and each.get("id") == target), None)
        self._switches += 1
        if skill is None or self._switches > MAX_SWITCHES:
            self._note("stuck", target)
            return False
        if skill is self._skill:
            return False
        self._note("switched", target)
        self._skill = skill
        return True

    # --- actions ----------------------------------------------------------------------------------------------

    def _act(self, message: str) -> None:
        for action in self._skill.get("actions") or []:
            if not _is_wanted(action, message):
                continue
            name, gate = action.get("name") or action.get("id"), action.get("gate")
            if gate is not None and gate not in self._milestones():
                self._note("blocked", name, str(gate))
                continue
            result = self._results.get(str(name), ToolResult())
            self._note("executed" if result.ok else "failed", name, result.body)
            if result.ok:
                self._fire_by(action)
            if self._route(result.body, action):
                return
            if result.ok and action.get("terminal"):
                self._finish(action)
                return

    def _fire_by(self, action: Json) -> None:
        for milestone, word in (self._skill.get("milestone_action_map") or {}).items():
            if word in (action.get("id"), action.get("name")):
                self._fire(milestone)

    def _milestones(self) -> set[str]:
        return self._fired.setdefault(_name(self._skill), set())

    def _fire(self, milestone: str) -> None:
        if milestone in (self._skill.get("milestones") or []) and milestone not in self._milestones():
            self._milestones().add(milestone)
            self._note("fired", milestone)

    def _finish(self, action: Json) -> None:
        """A terminal action ends the work of its capability, whether or not completion names it."""
        completion = self._skill.get("completion") or {}
        named = completion.get("action")
        if completion.get("type") == lint.ACTION and named is not None and not _is_about(named, action):
            self._note("stuck", named)
            return
        self._end("completed")

    # --- replies and completion -------------------------------------------------------------------------------

    def _reply(self) -> None:
        instructions = (self._skill.get("instructions") or "").strip()
        if not instructions:
            self._note("stuck", "no instructions")
            return
        tone = self._pack.get("tone_of_voice")
        text = f"[{tone}] {_TAG.sub('', instructions).strip()[:200]}" if tone else instructions[:200]
        for _ in range(1 if lint.asks_for_one_reply(instructions) else 2):
            self._note("replied", _name(self._skill), text)
        waiting = [each for each in lint.milestones_fired_by_tags(instructions) if each not in self._milestones()]
        for milestone in waiting[:1]:
            self._fire(milestone)

    def _complete(self) -> None:
        completion = self._skill.get("completion") or {}
        kind = completion.get("type")
        tags = set(lint.milestones_fired_by_tags(self._skill.get("instructions")))
        if tags & set(self._skill.get("milestones") or []) - self._milestones() or self._work_waits():
            return
        if kind == lint.SWITCH:
            self._switch(completion.get("target"))
        elif kind == lint.HANDOFF:
            self._end("handed_off")
        elif kind in (lint.END, lint.REPLY):
            self._end("completed")

    def _work_waits(self) -> bool:
        """A terminal action that was not executed ends the capability, and nothing else does before it."""
        return any(action.get("terminal") for action in self._skill.get("actions") or [])

    def _end(self, kind: Literal["completed", "handed_off"]) -> None:
        reason = (self._skill.get("exit") or {}).get("reason")
        if reason is not None and reason not in lint.EXIT_REASONS:
            self._note("stuck", reason)
            return
        self._note(kind, reason or "completed")
        self.ended = True


def replay(pack: Json, messages: Sequence[str], results: Mapping[str, ToolResult] | None = None) -> list[Turn]:
    """A whole conversation, from its first message."""
    conversation = Conversation(pack, results)
    return [conversation.say(message) for message in messages[:MAX_MESSAGES]]


_TAG = re.compile(r"\[MILESTONE:[^\]]*\]")
_WORD = re.compile(r"[^\W_]+")


def _is_wanted(action: Json, message: str) -> bool:
    words = set(_WORD.findall(message.casefold()))
    name = _WORD.findall(str(action.get("name") or action.get("id") or "").casefold())
    return bool(name) and all(word in words for word in name)


def _is_about(word: Any, action: Json | None) -> bool:
    return word is None or (action is not None and word in (action.get("id"), action.get("name")))


def _name(skill: Json) -> str:
    return str(skill.get("id") or skill.get("name") or "")
