"""Refining by rule: the linter's safe fixes as they come, and simple requests for tone, wording, a route or a gate."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

Json = dict[str, Any]
Patches = list[Json]

MAX_OPTIONS = 3
BY_RULE = "This was worked out by rule, without a language model."
CANNOT = (
    "By rule I can fix what the configuration check finds, change the tone, replace a wording, add a routing keyword "
    "or a capability, and put a gate before an action. For more than that, set up a language model."
)


class RefineInput(BaseModel):
    """`ModelRequest.input` of the task `refine`, as JSON. `safe_fixes` are patch lists that end the findings."""

    model_config = ConfigDict(frozen=True)

    user_message: str
    skill_pack: Json
    findings: tuple[str, ...] = ()
    safe_fixes: tuple[tuple[Json, ...], ...] = ()
    chat_history: tuple[Json, ...] = ()
    available_tools: tuple[Json, ...] = ()


class RefineDraft(BaseModel):
    """The data of the task `refine`: a reply, and complete alternatives as patches."""

    reply: str = Field(min_length=1, max_length=4_000)
    options: list[Option] = Field(default_factory=list, max_length=MAX_OPTIONS)


class Option(BaseModel):
    """One alternative."""

    patches: list[Json]


def write_refinement(asked: RefineInput) -> RefineDraft:
    """What the rules make of a message. A request that no rule knows gets the safe fixes, where there are any."""
    pack, message = asked.skill_pack, asked.user_message
    for rule in _RULES:
        options = [patches for patches in rule(pack, message) if patches][:MAX_OPTIONS]
        if options:
            return _draft(f"{_DONE[rule]} {BY_RULE}", options, asked.findings)
    if asked.safe_fixes:
        reply = f"I checked the configuration and can fix what is wrong with it. {BY_RULE}"
        return _draft(reply, [list(fix) for fix in asked.safe_fixes], asked.findings)
    if asked.findings:
        return _draft(f"The configuration has faults that need a person. {BY_RULE}", [], asked.findings)
    if _AUDIT.search(message):
        return _draft(f"I checked the configuration and found no problems. {BY_RULE}", [], ())
    return _draft(f"I did not change anything. {CANNOT}", [], ())


def _draft(reply: str, options: Sequence[Patches], findings: Sequence[str]) -> RefineDraft:
    listed = "".join(f"\n- {finding}" for finding in findings)
    text = f"{reply}\n\nThe configuration check says:{listed}" if findings else reply
    return RefineDraft(reply=text[:4_000], options=[Option(patches=each) for each in options[:MAX_OPTIONS]])


_AUDIT = re.compile(r"\b(review|check|audit|problems?|issues?|errors?|faults?|wrong|broken|configuration)\b", re.I)

# --- tone ---------------------------------------------------------------------------------------------------------

_TONES = (
    "formal",
    "informal",
    "friendly",
    "casual",
    "polite",
    "warm",
    "professional",
    "concise",
    "brief",
    "empathetic",
)
_TONE = re.compile(rf"\b({'|'.join(_TONES)}|friendlier|warmer|politer|shorter)\b", re.I)
_TONE_WORDS = re.compile(r"\b(tone|sound|voice|speak|talk|style|more|less|be|friendlier|warmer|politer)\b", re.I)
_PLAIN = {"friendlier": "friendly", "warmer": "warm", "politer": "polite", "shorter": "concise"}
_NOT = re.compile(r"\b(less|not|stop being|isn't|too)\s+(?:\w+\s+)?$", re.I)
_OPPOSITE = {"formal": "casual", "casual": "formal", "informal": "formal", "friendly": "neutral", "warm": "neutral"}


def _tone(pack: Json, message: str) -> Iterator[Patches]:
    found = _TONE.search(message)
    if not found or not _TONE_WORDS.search(message) or _QUOTED.search(message):
        return
    word = found[1].lower()
    word = _PLAIN.get(word, word)
    if _NOT.search(message[: found.start()]):
        word = _OPPOSITE.get(word, "neutral")
    if pack.get("tone_of_voice") != word:
        yield [_add("/tone_of_voice", word)]


# --- wording ------------------------------------------------------------------------------------------------------

_QUOTED = re.compile(r"[\"“”'‘]([^\"“”'’‘]{1,400})[\"“”'’]")
_INSTEAD = re.compile(r"\binstead of\b", re.I)
_REPLACE = re.compile(r"\b(replace|change|rename|reword|swap|say|write|call|use)\b", re.I)


def _wording(pack: Json, message: str) -> Iterator[Patches]:
    quoted = _QUOTED.findall(message)
    if len(quoted) != 2 or not _REPLACE.search(message):
        return
    old, new = reversed(quoted) if _INSTEAD.search(message) else quoted
    places = [
        (path, text.replace(old, new)) for path, text in _texts(pack) if old in text and text.replace(old, new) != text
    ]
    if places:
        yield [{"op": "replace", "path": path, "value": text} for path, text in places]


def _texts(pack: Json) -> Iterator[tuple[str, str]]:
    for key in ("description", "tone_of_voice", "guidance"):
        if isinstance(pack.get(key), str):
            yield f"/{key}", pack[key]
    for place, skill in enumerate(pack.get("skills", [])):
        for key in ("name", "description", "instructions"):
            if isinstance(skill.get(key), str):
                yield f"/skills/{place}/{key}", skill[key]


# --- routing ------------------------------------------------------------------------------------------------------

_ROUTE = re.compile(r"\b(route|routes|routing|switch|send|transfer|hand|escalate|escalation|forward|go|goes)\b", re.I)
_HUMAN = re.compile(r"\b(human|person|people|staff|colleague|escalat\w*|representative|human agent|live agent)\b", re.I)


def _route(pack: Json, message: str) -> Iterator[Patches]:
    if not _ROUTE.search(message):
        return
    quoted = _QUOTED.findall(message)
    rest = _QUOTED.sub(" ", message)
    targets = _named(pack, rest)
    to_human = _HUMAN.search(rest) is not None
    keywords = [quoted[0].strip()] if quoted else (["human", "agent", "person"] if to_human and not targets else [])
    target = targets[0] if targets else "human" if to_human else None
    if target is None:
        return
    for keyword in keywords:
        if keyword and not _routes(pack, keyword, target):
            yield [_add("/routing_rules/-", {"when": {"body_contains": keyword}, "switch_to": target})]


def _routes(pack: Json, keyword: str, target: str) -> bool:
    return any(
        (rule.get("when") or {}).get("body_contains") == keyword and rule.get("switch_to") == target
        for rule in pack.get("routing_rules", [])
    )


def _named(pack: Json, text: str) -> list[str]:
    """Ids of the skills that a text names by name or id, the longest name first."""
    words = f" {_plain(text)} "
    found = []
    for skill in pack.get("skills", []):
        for name in (skill.get("name"), skill.get("id")):
            plain = _plain(str(name or ""))
            if plain and skill.get("id") and f" {plain} " in words:
                found.append((len(plain), skill["id"]))
    return [identity for _, identity in sorted(found, key=lambda each: -each[0])]


# --- a capability, a gate -----------------------------------------------------------------------------------------

_ADD = re.compile(r"\badd\s+(?:an?\s+|the\s+)?(?:new\s+)?([\w\s-]{3,60}?)\s+(?:capability|skill)\b", re.I)


def _capability(pack: Json, message: str) -> Iterator[Patches]:
    found = _ADD.search(message)
    if not found:
        return
    name = found[1].strip()
    identity = "-".join(re.findall(r"[a-z0-9]+", name.lower()))
    if not identity or any(skill.get("id") == identity for skill in pack.get("skills", [])):
        return
    skill = {
        "id": identity,
        "name": name[:1].upper() + name[1:],
        "description": f"Helps with {name.lower()}.",
        "instructions": f"Help the customer with {name.lower()}. Send exactly one reply a turn.",
        "completion": {"type": "reply_done"},
        "exit": {"reason": "completed"},
    }
    for keyword in dict.fromkeys([name.lower(), name.lower().split()[0]]):
        rule = {"when": {"body_contains": keyword}, "switch_to": identity}
        yield [_add("/skills/-", skill), _add("/routing_rules/-", rule)]


_GATE = re.compile(r"\b(only after|not before|before|require|requires|gate|wait|waits|until|unless|once)\b", re.I)


def _gate(pack: Json, message: str) -> Iterator[Patches]:
    if not _GATE.search(message):
        return
    words = f" {_plain(message)} "
    for at, skill in enumerate(pack.get("skills", [])):
        milestones = [each for each in skill.get("milestones") or [] if f" {_plain(each)} " in words]
        for place, action in enumerate(skill.get("actions") or []):
            name = _plain(action.get("name") or action.get("id") or "")
            if not name or f" {name} " not in words:
                continue
            for milestone in milestones or (skill.get("milestones") or []):
                if action.get("gate") != milestone:
                    yield [_add(f"/skills/{at}/actions/{place}/gate", milestone)]


def _plain(name: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", name.lower()))


def _add(path: str, value: Any) -> Json:
    return {"op": "add", "path": path, "value": value}


Rule = Callable[[Json, str], Iterator[Patches]]
_RULES: Sequence[Rule] = (_wording, _capability, _gate, _route, _tone)
_DONE: dict[Rule, str] = {
    _wording: "I replaced that wording wherever it stands.",
    _capability: "I added that capability with a first instruction and a route to it.",
    _gate: "I put a gate before that action.",
    _route: "I added a routing rule for that keyword.",
    _tone: "I changed the tone of voice.",
}
