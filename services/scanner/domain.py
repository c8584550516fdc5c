"""What the scanner decides: which sources a touchpoint has, how severe a find is, where to read on. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from libs.contracts.envelope import Event
from libs.contracts.events.ab_runner import EvalRegressedV1
from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.signals import MAX_PAYLOAD_BYTES, EvidenceRef, SignalPayload
from libs.contracts.touchpoints import Touchpoint
from libs.contracts.vocabulary import ActorKind, Scope, Severity, SignalType

PLATFORM_DSN = "BURNISH_PLATFORM_DSN"
EVAL_REGRESSION = "eval_regression"
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)

# --- severity ---------------------------------------------------------------------------------------------
# README.md shows these tables.

FLAG_WITH_EXPECTED: Severity = "high"
FLAG_CATEGORY: Mapping[str, Severity] = {"wrong_label": "medium", "not_relevant": "medium", "other": "low"}
# (at most this share of the threshold, severity): half a threshold means the same doubt whatever the threshold is.
CONFIDENCE_SHARE: tuple[tuple[float, Severity], ...] = ((0.4, "high"), (0.7, "medium"))


def severity_of_flag(category: str, expected: str | None) -> Severity:
    """A person who names the right answer is the best evidence there is."""
    return FLAG_WITH_EXPECTED if expected else FLAG_CATEGORY.get(category, "medium")


def severity_of_confidence(confidence: float, threshold: float) -> Severity:
    """How far below the threshold the confidence lies."""
    share = round(confidence / threshold, 9)
    return next((severity for most, severity in CONFIDENCE_SHARE if share <= most), "low")


# --- sources ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """One scanner of one touchpoint. `name` is the scanner's, with `#2` and so on for the same scanner again."""

    touchpoint_id: str
    name: str
    scanner: str
    scope: Scope
    options: Mapping[str, Any] = field(default_factory=dict)
    every_s: float = 60.0


def sources_of(touchpoint: Touchpoint, heard: Collection[str]) -> list[Source]:
    """The sources that are to be read on a schedule; none for a touchpoint that is not active.

    `heard`: the scanners that hear events instead of reading tables, which are never due.
    """
    if not touchpoint.active:
        return []
    seen: Counter[str] = Counter()
    sources = []
    for configured in touchpoint.signals:
        seen[configured.scanner] += 1
        count = seen[configured.scanner]
        name = configured.scanner if count == 1 else f"{configured.scanner}#{count}"
        source = Source(
            touchpoint.id, name, configured.scanner, touchpoint.scope, configured.options, configured.every_s
        )
        sources.append(source)
    return [source for source in sources if source.scanner not in heard]


def backoff_s(every_s: float, failures: int, most_s: float) -> float:
    """The wait after so many failures in a row: 5 s (`every_s`, if less), doubled each time, up to `most_s`."""
    return min(most_s, min(every_s, 5.0) * 2.0 ** min(failures - 1, 30))


# --- where to read on -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Watermark:
    """A place in rows ordered by (time of change, id): everything up to and including it has been read."""

    at: datetime = BEGINNING
    row_id: str = ""


def resume_at(read_to: Watermark, started_at: datetime, overlap: timedelta) -> Watermark:
    """Where the next run begins: after the last row read, but never nearer than `overlap` to when this run began.

    `started_at` is the platform's clock. A transaction that was open then may still commit rows that it stamped up
    to `overlap` earlier; they lie behind the last row read, so that stretch is read again.
    """
    horizon = Watermark(started_at - overlap)
    return read_to if read_to.at < horizon.at else horizon


# --- finds ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Finding:
    """One row that is evidence, before it is tied to a touchpoint. Changed again, it is seen again."""

    table: str
    row_id: str
    changed_at: datetime
    signal_type: SignalType
    severity: Severity
    actor_id: str
    actor_kind: ActorKind
    payload: Mapping[str, Any]
    workspace_id: UUID | None = None
    version_ref: str | None = None

    @property
    def place(self) -> Watermark:
        """Where the row stands in the order of reading."""
        return Watermark(self.changed_at, self.row_id)

    @property
    def source_key(self) -> str:
        """`<table>:<id>`."""
        return f"{self.table}:{self.row_id}"


@dataclass(frozen=True, slots=True)
class Unusable:
    """A row that cannot be a signal, and what is wrong with it, without its text."""

    source_key: str
    why: str


def observed(touchpoint_id: str, findings: Iterable[Finding]) -> tuple[list[SignalObservedV1], list[Unusable]]:
    """The signals of these finds, and the rows that cannot be signals. One bad row never holds up the others."""
    signals: list[SignalObservedV1] = []
    unusable: list[Unusable] = []
    for finding in findings:
        try:
            signals.append(_signal(touchpoint_id, finding))
        except ValidationError as error:
            what = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['type']}" for e in error.errors(include_input=False))
            unusable.append(Unusable(finding.source_key, what[:500]))
    return signals, unusable


def _signal(touchpoint_id: str, finding: Finding) -> SignalObservedV1:
    return SignalObservedV1(
        touchpoint_id=touchpoint_id,
        workspace_id=finding.workspace_id,
        signal_type=finding.signal_type,
        severity=finding.severity,
        evidence_ref=EvidenceRef(source=finding.table, id=finding.row_id),
        payload=bounded(finding.payload),
        actor_id=finding.actor_id[:200] or "unknown",
        actor_kind=finding.actor_kind,
        version_ref=(finding.version_ref or "")[:200] or None,
        source_key=finding.source_key,
        observed_at=finding.changed_at,
    )


# The contract's limits in characters; texts of the platform that are longer are cut, and say so.
LONGEST = {"text": 20_000, "reason": 2_000, "expected": 2_000, "got": 2_000, "category": 200}
CUT_MARK = "cut"


def bounded(payload: Mapping[str, Any]) -> SignalPayload:
    """The payload within the contract's limits: its longest texts are cut, which `cut` then names."""
    fields = {key: value for key, value in payload.items() if value is not None and value != ""}
    cut: set[str] = set()
    for key, most in LONGEST.items():
        if isinstance(fields.get(key), str) and len(fields[key]) > most:
            fields[key] = fields[key][:most]
            cut.add(key)
    while _size(fields) > MAX_PAYLOAD_BYTES - 1024:
        longest = max(fields, key=lambda key: _size(fields[key]))
        fields[longest] = _shorter(fields[longest])
        cut.add(longest)
    if cut:
        fields[CUT_MARK] = sorted(cut)
    return SignalPayload(**fields)


def _shorter(value: Any) -> Any:
    return value[: len(value) * 3 // 4] if isinstance(value, str | list) else None


def _size(value: Any) -> int:
    return len(json.dumps(value, default=str))


# --- regressions ------------------------------------------------------------------------------------------


def regression(event: Event[EvalRegressedV1]) -> SignalObservedV1:
    """The signal of a metric that fell below its baseline: one a run and metric."""
    fell = event.data
    return SignalObservedV1(
        touchpoint_id=fell.touchpoint_id,
        workspace_id=fell.workspace_id,
        signal_type="eval_regression",
        severity=fell.severity,
        evidence_ref=EvidenceRef(source="eval", suite=fell.touchpoint_id, metric=fell.metric, delta=fell.delta),
        payload=bounded(
            {
                "reason": f"{fell.metric} fell from {fell.baseline:.4g} to {fell.value:.4g}",
                "metric": fell.metric,
                "baseline": fell.baseline,
                "value": fell.value,
                "run_id": str(fell.run_id),
                "failing_case_ids": list(fell.failing_case_ids),
            }
        ),
        actor_id=f"scanner:{EVAL_REGRESSION}",
        actor_kind="machine",
        version_ref=fell.version_ref,
        source_key=f"eval:{fell.run_id}:{fell.metric}",
        # The envelope's time is the same on every delivery, and so is the event id made from it.
        observed_at=event.time,
    )
