"""What the normaliser decides: is an observation a signal, how severe is it, and what is to be said about it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from libs.contracts.envelope import Event, EventData
from libs.contracts.events.normaliser import SignalCreatedV1, SignalObservedV1, SignalRejectedV1
from libs.contracts.vocabulary import ActorKind, RejectReason, Scope, Severity

JudgedScope = Literal["unknown", "global", "workspace"]
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
CLOCK_SKEW = timedelta(hours=1)

# --- severity ---------------------------------------------------------------------------------------------
# For sources that give none. Each row is (at least this much, severity), the first that fits; README.md shows them.

REGRESSION_DROP: tuple[tuple[float, Severity], ...] = ((0.10, "critical"), (0.05, "high"), (0.02, "medium"))
EDIT_SIZE: tuple[tuple[float, Severity], ...] = ((0.50, "high"), (0.20, "medium"))
DOUBT: tuple[tuple[float, Severity], ...] = ((0.80, "high"), (0.65, "medium"))
FLAG_CATEGORY: Mapping[str, Severity] = {"not_relevant": "medium", "other": "low"}
GOVERNANCE_CATEGORY: Mapping[str, Severity] = {"changes_requested": "high", "pending": "low"}


def severity_of(signal: SignalObservedV1) -> Severity:
    """The source's own severity, or the one that the tables above give for its type and payload."""
    if signal.severity is not None:
        return signal.severity
    payload, category = signal.payload, signal.payload.category or ""
    match signal.signal_type:
        case "flag":
            return "high" if payload.expected is not None else FLAG_CATEGORY.get(category, "medium")
        case "governance_finding":
            return GOVERNANCE_CATEGORY.get(category, "medium")
        case "eval_regression":
            delta = signal.evidence_ref.delta
            return "medium" if delta is None else _graded(abs(delta), REGRESSION_DROP)
        case "low_confidence":
            return "low" if payload.confidence is None else _graded(1.0 - payload.confidence, DOUBT)
        case "human_edit":
            size = (payload.model_extra or {}).get("edit_distance")
            return _graded(float(size), EDIT_SIZE) if isinstance(size, int | float) else "medium"


def _graded(amount: float, table: Iterable[tuple[float, Severity]]) -> Severity:
    # Rounded, so that 1.0 - 0.35 is the 0.65 that the table means.
    return next((severity for least, severity in table if round(amount, 9) >= least), "low")


# --- judgement --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reject:
    """Why a signal does not count."""

    reason: RejectReason
    detail: str


@dataclass(frozen=True, slots=True)
class Judged:
    """One signal of a batch, its observations merged: the newest one's words, the earliest and latest time seen."""

    signal_id: UUID
    newest: Event[SignalObservedV1]
    severity: Severity
    first_seen: datetime
    last_seen: datetime
    judged_scope: JudgedScope
    reject: Reject | None = None

    @property
    def source_key(self) -> str:
        return self.newest.data.source_key


def normalise(
    events: Sequence[Event[SignalObservedV1]], known: Mapping[str, Scope], now: datetime
) -> tuple[list[Judged], list[Judged]]:
    """Judge a batch against the `known` touchpoints; each signal once, as (accepted, rejected).

    Where a batch holds valid and invalid observations of one signal, the valid ones make it.
    """
    merged: dict[UUID, Judged] = {}
    for event in events:
        one = judge(event, known.get(event.data.touchpoint_id), now)
        before = merged.get(one.signal_id)
        merged[one.signal_id] = one if before is None else _merge(before, one)
    accepted = [one for one in merged.values() if one.reject is None]
    rejected = [one for one in merged.values() if one.reject is not None]
    return accepted, rejected


def judge(event: Event[SignalObservedV1], scope: Scope | None, now: datetime) -> Judged:
    """Judge one observation; `scope` is its touchpoint's, None where the touchpoint is not known."""
    signal = event.data
    flaw = _flaw(signal, now)
    # The time of an invalid observation may be the flaw; what is certain is when it came.
    seen = now if flaw else signal.observed_at
    reject = Reject("invalid", flaw) if flaw else misfit(signal.workspace_id, scope)
    return Judged(signal.signal_id, event, severity_of(signal), seen, seen, scope or "unknown", reject)


def misfit(workspace_id: UUID | None, scope: Scope | None) -> Reject | None:
    """A workspace touchpoint's signal must carry a workspace, a global one's must not."""
    if scope is None:
        return Reject("unknown_touchpoint", "no touchpoint of this id is registered")
    if scope == "workspace" and workspace_id is None:
        return Reject("scope", "the touchpoint has scope workspace, but the signal has no workspace_id")
    if scope == "global" and workspace_id is not None:
        return Reject("scope", "the touchpoint has scope global, but the signal has a workspace_id")
    return None


def _flaw(signal: SignalObservedV1, now: datetime) -> str | None:
    if signal.observed_at > now + CLOCK_SKEW:
        return "observed_at is more than an hour in the future"
    if signal.observed_at < EARLIEST:
        return "observed_at is before 1970"
    if not _finite(signal.payload.model_extra):
        return "payload holds a number that is not finite"
    return None


def _finite(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(_finite(item) for item in value.values())
    if isinstance(value, list | tuple):
        return all(_finite(item) for item in value)
    return True


def _merge(a: Judged, b: Judged) -> Judged:
    if (a.reject is None) != (b.reject is None):
        return a if a.reject is None else b
    newest = b if b.last_seen > a.last_seen else a
    return Judged(
        a.signal_id,
        newest.newest,
        newest.severity,
        min(a.first_seen, b.first_seen),
        max(a.last_seen, b.last_seen),
        newest.judged_scope,
        newest.reject,
    )


# --- what is said -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What storing a signal came to: a fact that is to be said about it."""

    signal_id: UUID
    fact: Literal["created", "rejected"]
    first_seen: datetime
    last_seen: datetime
    actor_id: str
    actor_kind: ActorKind
    transition: int


def facts(
    judged: Iterable[Judged], outcomes: Iterable[Outcome]
) -> list[tuple[SignalCreatedV1 | SignalRejectedV1, Event[SignalObservedV1]]]:
    """The facts to say, each with the observation that caused it."""
    by_id = {one.signal_id: one for one in judged}
    return [(_fact(by_id[one.signal_id], one), by_id[one.signal_id].newest) for one in outcomes]


def _fact(judged: Judged, outcome: Outcome) -> SignalCreatedV1 | SignalRejectedV1:
    signal = judged.newest.data
    if outcome.fact == "rejected":
        assert judged.reject is not None
        return rejected(signal.touchpoint_id, judged.signal_id, judged.source_key, judged.reject, outcome.transition)
    return SignalCreatedV1(
        touchpoint_id=signal.touchpoint_id,
        workspace_id=signal.workspace_id,
        signal_type=signal.signal_type,
        evidence_ref=signal.evidence_ref,
        payload=signal.payload,
        # Who raised it first stays the actor: seeing it again must not move evidence between actors.
        actor_id=outcome.actor_id,
        actor_kind=outcome.actor_kind,
        version_ref=signal.version_ref,
        source_key=signal.source_key,
        severity=judged.severity,
        first_seen=outcome.first_seen,
        last_seen=outcome.last_seen,
    )


def rejected(touchpoint_id: str, signal_id: UUID, source_key: str, reject: Reject, transition: int) -> SignalRejectedV1:
    """The fact that a signal does not count."""
    return SignalRejectedV1(
        touchpoint_id=touchpoint_id,
        signal_id=signal_id,
        source_key=source_key,
        reason=reject.reason,
        detail=reject.detail,
        transition=max(1, transition),
    )


# --- judging again ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Misjudged:
    """A stored signal that was judged by another scope than its touchpoint has now. `row` are its columns."""

    signal_id: UUID
    row: Mapping[str, Any]
    scope: Scope


@dataclass(frozen=True, slots=True)
class Rejudged:
    """The new judgement; `counts_now` and `fails_now` say what changed by it."""

    signal_id: UUID
    judged_scope: JudgedScope
    reject: Reject | None
    counts_now: bool
    fails_now: bool


def rejudge(signal: Misjudged) -> Rejudged:
    """Judge by the scope that holds now. What is invalid stays so, whatever the touchpoint."""
    was: RejectReason | None = signal.row["rejected"]
    if was == "invalid":
        reject: Reject | None = Reject("invalid", signal.row["reject_detail"])
    else:
        reject = misfit(signal.row["workspace_id"], signal.scope)
    reason = reject.reason if reject else None
    return Rejudged(
        signal.signal_id,
        signal.scope,
        reject,
        counts_now=reason is None and was is not None,
        fails_now=reason is not None and reason != was,
    )


def fact_of_rejudged(signal: Misjudged, rejudged: Rejudged, transition: int) -> EventData | None:
    """What is to be said about a changed judgement, if it changed."""
    row = signal.row
    if rejudged.fails_now and rejudged.reject is not None:
        return rejected(row["touchpoint_id"], signal.signal_id, row["source_key"], rejudged.reject, transition)
    if rejudged.counts_now:
        return SignalCreatedV1.model_validate({name: row[name] for name in SignalCreatedV1.model_fields})
    return None
