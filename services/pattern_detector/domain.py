"""What makes a pattern: weights, gates, score and states. Pure; times are given, never read from a clock."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from libs.contracts.events.normaliser import SignalCreatedV1
from libs.contracts.patterns import ScoreParts
from libs.contracts.touchpoints import Thresholds
from libs.contracts.vocabulary import ActorKind, PatternState, Severity, SignalType, Strategy

Vector = NDArray[np.float32]

HALF_FROM = timedelta(days=30)
QUARTER_FROM = timedelta(days=90)
LIVE_FOR = timedelta(days=180)
"""Evidence not seen for this long is history: it no longer counts, and a pattern without other evidence resolves."""

STEADY_AFTER = timedelta(days=7)
"""A pattern without new evidence for this long is no longer called growing."""

ACTOR_CAP = 3.0
"""No actor adds more than this to a score, however many signals they send."""

TRUSTED_FROM = 0.5
"""Actors below this trust are not counted towards an automatic proposal."""

FIELDS = ("case_id", "subtopic", "entity_type", "category", "domain")
"""Payload fields that are grouped by, the most specific first: it takes its evidence first."""

SEVERITY: Mapping[Severity, float] = {"low": 0.5, "medium": 1.0, "high": 2.0, "critical": 4.0}


@dataclass(frozen=True)
class Signal:
    """One signal as the strategies see it. `item` is the distinct case or item that the evidence is about."""

    signal_id: UUID
    signal_type: SignalType
    severity: Severity
    actor_id: str
    actor_kind: ActorKind
    item: str
    first_seen: datetime
    last_seen: datetime
    text: str = ""
    reason: str = ""
    expected: str | None = None
    got: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    vector: Vector | None = None

    @property
    def words(self) -> str:
        """The text that is embedded."""
        return embedded_text(self.text, self.reason)

    @property
    def pair(self) -> tuple[str, str] | None:
        """(expected, got) where both are known and differ."""
        if self.expected is None or self.got is None or self.expected == self.got:
            return None
        return self.expected, self.got


@dataclass(frozen=True)
class Projected:
    """A signal as it was said, with what is read out of it once. `item` and `fields` as in `Signal`."""

    signal_id: UUID
    touchpoint_id: str
    workspace_id: UUID | None
    signal_type: SignalType
    severity: Severity
    evidence_ref: Mapping[str, Any]
    item: str
    text: str
    reason: str
    expected: str | None
    got: str | None
    fields: Mapping[str, str]
    actor_id: str
    actor_kind: ActorKind
    version_ref: str | None
    source_key: str
    first_seen: datetime
    last_seen: datetime

    @classmethod
    def of(cls, said: SignalCreatedV1) -> Projected:
        """Read what was said."""
        payload = said.payload
        return cls(
            signal_id=said.signal_id,
            touchpoint_id=said.touchpoint_id,
            workspace_id=said.workspace_id,
            signal_type=said.signal_type,
            severity=said.severity,
            evidence_ref=said.evidence_ref.model_dump(mode="json", exclude_none=True),
            item=item_of(said),
            text=payload.text or "",
            reason=payload.reason or "",
            expected=_label(payload.expected),
            got=_label(payload.got),
            fields=fields_of(said),
            actor_id=said.actor_id,
            actor_kind=said.actor_kind,
            version_ref=_label(said.version_ref),
            source_key=said.source_key,
            first_seen=said.first_seen,
            last_seen=said.last_seen,
        )

    @property
    def words(self) -> str:
        """The text that is embedded."""
        return embedded_text(self.text, self.reason)


def item_of(said: SignalCreatedV1) -> str:
    """The case or item that the evidence is about: two findings about one item are one case."""
    ref = said.evidence_ref
    return said.payload.case_id or ref.case_id or (f"{ref.source}:{ref.id}" if ref.id else said.source_key)


def fields_of(said: SignalCreatedV1) -> dict[str, str]:
    """The payload fields that are grouped by, as text; anything but text and numbers is no category."""
    extra = said.payload.model_extra or {}
    known = {"category": said.payload.category, "case_id": said.payload.case_id or said.evidence_ref.case_id}
    found = {name: known.get(name, extra.get(name)) for name in FIELDS}
    return {
        name: text
        for name, value in found.items()
        if isinstance(value, str | int | float) and not isinstance(value, bool) and (text := str(value).strip())
    }


def _label(text: str | None) -> str | None:
    """A label without space around it; nothing is no label."""
    return text.strip() or None if text is not None else None


def embedded_text(text: str, reason: str) -> str:
    """The text that is embedded for a signal: the input and, on a line of its own, the reason, where there are any."""
    parts = (part.strip() for part in (text, reason))
    return "\n".join(part for part in parts if part)


# --- weights ----------------------------------------------------------------------------------------------


def decay(last_seen: datetime, now: datetime) -> float:
    """1 up to 30 days since it was last seen, 0.5 from 30 days, 0.25 from 90."""
    age = now - last_seen
    if age >= QUARTER_FROM:
        return 0.25
    return 0.5 if age >= HALF_FROM else 1.0


def trust(kept: int, bad: int) -> float:
    """How far an actor is trusted, in (0, 1]: (1 + kept) / (1 + kept + bad) of the actor's signals.

    `bad` are those that a reviewer called bad, `kept` all others of the touchpoint. One bad signal of a busy
    reporter costs little; an actor known only for bad ones is left with next to nothing.
    """
    return (1 + kept) / (1 + kept + bad)


def saturated(total: float) -> float:
    """An actor's whole contribution: linear at first, and never more than `ACTOR_CAP`."""
    return ACTOR_CAP * -math.expm1(-total / ACTOR_CAP)


# --- gates ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counts:
    """Undecayed counts of a pattern's live evidence. `beyond` is the evidence of the human actors that remain
    when the `auto_human_actors` − 1 most prolific are set aside; `largest` that of the most prolific."""

    evidence: int
    actors: int
    human_actors: int
    trusted_humans: int
    machine_cases: int
    largest: int
    beyond: int

    @property
    def single_actor(self) -> bool:
        """All evidence comes from one actor."""
        return self.actors == 1


def count(signals: Sequence[Signal], trusted: Mapping[str, float], thresholds: Thresholds) -> Counts:
    """The counts that the gates look at; `trusted` is each actor's trust, 1 where nothing is known."""
    humans = Counter(signal.actor_id for signal in signals if signal.actor_kind == "human")
    by_trusted = sorted((n for actor, n in humans.items() if trusted.get(actor, 1.0) >= TRUSTED_FROM), reverse=True)
    return Counts(
        evidence=len({signal.signal_id for signal in signals}),
        actors=len({signal.actor_id for signal in signals}),
        human_actors=len(humans),
        trusted_humans=len(by_trusted),
        machine_cases=len({signal.item for signal in signals if signal.actor_kind == "machine"}),
        largest=by_trusted[0] if by_trusted else 0,
        beyond=sum(by_trusted[thresholds.auto_human_actors - 1 :]),
    )


def surfaces(counts: Counts, thresholds: Thresholds) -> bool:
    """The evidence gate and the actor gate, both of which must pass."""
    if counts.evidence < max(2, thresholds.min_evidence):
        return False
    if counts.actors < thresholds.min_actors:
        return counts.evidence >= thresholds.single_actor_evidence
    return True


def is_automatic(counts: Counts, thresholds: Thresholds) -> bool:
    """Strong enough that a proposal is made without being asked for.

    By people: `auto_human_actors` (k) distinct trusted ones. What is left of the evidence without the k − 1 most
    prolific must be at least the binary logarithm of the largest share, so that k − 1 colluders who flood a
    fault are not completed by one honest coincidence. By machines: distinct cases or items.
    """
    if not surfaces(counts, thresholds):
        return False
    if counts.machine_cases >= thresholds.auto_machine_cases:
        return True
    needed = max(1, counts.largest.bit_length() - 1)
    return counts.trusted_humans >= thresholds.auto_human_actors and counts.beyond >= needed


# --- score ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Weighed:
    """One piece of evidence with its weight (decay × trust) and its strength, by which examples are chosen."""

    signal: Signal
    weight: float
    strength: float


def weigh(signals: Sequence[Signal], trusted: Mapping[str, float], now: datetime) -> list[tuple[Signal, float]]:
    """Each signal with its weight, in the order given."""
    return [(s, decay(s.last_seen, now) * trusted.get(s.actor_id, 1.0)) for s in signals]


def score_parts(weighed: Sequence[tuple[Signal, float]], trusted: Mapping[str, float], now: datetime) -> ScoreParts:
    """The four factors of the score (README, "Score").

    With W = Σ over actors of saturated(Σ their weights), S the same with each weight times its severity, and
    A = Σ over actors of their trust:  weight = log2(1 + W),  actors = log2(1 + A),  severity = log2(1 + S) / weight,
    recency = ½ + ½ · 2^(−days since last seen / 30). More evidence, weight, severity or actors never lowers the
    product, and it grows with the number of actors no faster than log².
    """
    if not weighed:
        return ScoreParts(weight=0.0, actors=0.0, recency=0.0, severity=0.0)
    plain: dict[str, float] = {}
    severe: dict[str, float] = {}
    for signal, weight in weighed:
        plain[signal.actor_id] = plain.get(signal.actor_id, 0.0) + weight
        severe[signal.actor_id] = severe.get(signal.actor_id, 0.0) + weight * SEVERITY[signal.severity]
    weight = math.log2(1 + math.fsum(map(saturated, plain.values())))
    age_days = max(0.0, (now - max(signal.last_seen for signal, _ in weighed)) / timedelta(days=1))
    return ScoreParts(
        weight=weight,
        actors=math.log2(1 + math.fsum(trusted.get(actor, 1.0) for actor in plain)),
        recency=0.5 + 0.5 * 2 ** (-age_days / 30),
        severity=math.log2(1 + math.fsum(map(saturated, severe.values()))) / weight if weight else 1.0,
    )


def score(parts: ScoreParts) -> float:
    """The product of the parts, to six digits so that it is the same on every machine."""
    return round(parts.weight * parts.actors * parts.recency * parts.severity, 6)


# --- states -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """How a pattern stood when it was last judged. No state: it has not surfaced yet."""

    state: PatternState | None = None
    judged_count: int = 0
    judged_at: datetime | None = None


def next_state(standing: Standing, counts: Counts, passes: bool, last_seen: datetime, now: datetime) -> Standing:
    """The state after this run, with the count and time at which evidence last changed.

    not surfaced → new when the gates pass → growing with new evidence → steady after `STEADY_AFTER` without →
    receding when evidence was lost or none was seen for 30 days → resolved when what is live no longer passes
    the gates → reopened when it passes them again.
    """
    if not passes:
        resolved: PatternState | None = "resolved" if standing.state else None
        return Standing(resolved, counts.evidence, now)
    if standing.state in (None, "resolved"):
        return Standing("new" if standing.state is None else "reopened", counts.evidence, now)
    if counts.evidence > standing.judged_count:
        return Standing("growing", counts.evidence, now)
    if counts.evidence < standing.judged_count:
        return Standing("receding", counts.evidence, now)
    judged_at = standing.judged_at or now
    if now - last_seen >= HALF_FROM:
        return Standing("receding", counts.evidence, judged_at)
    if now - judged_at >= STEADY_AFTER:
        return Standing("steady", counts.evidence, judged_at)
    return Standing(standing.state, counts.evidence, judged_at)


# --- patterns ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cluster:
    """What a strategy found: a group of signals, and what it is recognised by."""

    strategy: Strategy
    signal_ids: frozenset[UUID]
    key: str | None = None
    field: str | None = None
    value: str | None = None
    expected: str | None = None
    got: str | None = None


@dataclass(frozen=True)
class Known:
    """A pattern of an earlier run. `evidence` includes signals that no longer count."""

    pattern_id: UUID
    strategy: Strategy
    key: str | None
    title: str
    expected: str | None
    got: str | None
    standing: Standing
    occurrence: int
    automatic: bool
    evidence: frozenset[UUID]
    first_seen: datetime
    last_seen: datetime
    centroid: Vector | None = None


@dataclass(frozen=True)
class Pattern:
    """A pattern as this run leaves it. `announced`: `pattern.detected` is due; `before`: its state until now."""

    pattern_id: UUID
    strategy: Strategy
    key: str | None
    title: str
    expected: str | None
    got: str | None
    standing: Standing
    before: PatternState | None
    occurrence: int
    automatic: bool
    announced: bool
    counts: Counts
    parts: ScoreParts
    score: float
    first_seen: datetime
    last_seen: datetime
    evidence: tuple[Weighed, ...]
    centroid: Vector | None


def actor_trust(counted: Iterable[tuple[str, int, int]]) -> dict[str, float]:
    """Trust by actor from (actor, kept, bad) rows; actors without bad signals are left out, they have 1."""
    return {actor: trust(kept, bad) for actor, kept, bad in counted if bad}
