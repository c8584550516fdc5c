"""Builders for the detector's tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from libs import touchpoints
from libs.contracts.envelope import Event
from libs.contracts.events.normaliser import SignalCreatedV1
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.queries.scanner import EvidenceStates, ResolveEvidence
from libs.contracts.signals import EvidenceRef, SignalPayload
from libs.contracts.touchpoints import SignalSource, Storage, Thresholds, Touchpoint
from libs.embeddings import StaticEmbedder
from libs.service_kit.db import Database
from libs.service_kit.errors import Unavailable
from libs.service_kit.testing import event_of
from services.pattern_detector import handlers
from services.pattern_detector.analysis import Scope
from services.pattern_detector.detection import Detector, Limits
from services.pattern_detector.domain import Signal

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)
SPACE = UUID("5d1f0b52-3f6e-4a43-8a53-0c6b9e7f1a11")
RUN = UUID("00000000-0000-4000-8000-000000000001")
WORKSPACE = UUID("6b8e1c52-7a5c-4d5e-9a90-3c0e6a6e2f11")
TOUCHPOINT = "support.intent"

WORDS = (
    "where is my refund",
    "my refund has not arrived yet",
    "when will the refund be paid",
    "the refund is still missing",
    "still waiting for a refund",
    "refund not received",
    "no refund in my account",
    "is my refund on its way",
)


def signal(key: str | int, **changes: Any) -> Signal:
    """A user's flag, last seen at noon."""
    fields: dict[str, Any] = {
        "signal_id": uuid5(SPACE, str(key)),
        "signal_type": "flag",
        "severity": "medium",
        "actor_id": f"user-{key}",
        "actor_kind": "human",
        "item": f"item-{key}",
        "first_seen": NOON,
        "last_seen": NOON,
    }
    return Signal(**{**fields, **changes})


def scope(now: datetime = NOON, **changes: Any) -> Scope:
    fields: dict[str, Any] = {
        "touchpoint_id": TOUCHPOINT,
        "workspace_id": None,
        "run_id": RUN,
        "thresholds": Thresholds(),
        "now": now,
    }
    return Scope(**{**fields, **changes})


def created(key: str | int, *, days_ago: float = 0, **changes: Any) -> Event[SignalCreatedV1]:
    """A user's flag on `support.intent`: a refund question answered as a card charge."""
    n = int(key) if str(key).isdigit() else len(str(key))
    payload = {"text": WORDS[n % len(WORDS)], "expected": "refund_status", "got": "card_charge"}
    payload |= changes.pop("payload", {})
    fields: dict[str, Any] = {
        "touchpoint_id": TOUCHPOINT,
        "signal_type": "flag",
        "severity": "medium",
        "evidence_ref": EvidenceRef(source="feed_flags", id=f"row-{key}"),
        "payload": SignalPayload(**payload),
        "actor_id": f"user-{n % 4}",
        "actor_kind": "human",
        "source_key": f"feed_flags:{key}",
        "first_seen": NOON - timedelta(days=days_ago),
        "last_seen": NOON - timedelta(days=days_ago),
    }
    return event_of(SignalCreatedV1(**{**fields, **changes}))


def registered(
    revision: int = 1, scanners: Sequence[str] = ("si_flag",), **gates: Any
) -> Event[TouchpointRegisteredV1]:
    touchpoint = Touchpoint(
        id=TOUCHPOINT,
        scope="global",
        storage=Storage(adapter="feed_prompts", initial_text="x"),
        signals=tuple(SignalSource.model_validate({"scanner": name}) for name in scanners),
        thresholds=Thresholds(**gates),
    )
    return event_of(TouchpointRegisteredV1(touchpoint=touchpoint, revision=revision, registered_by="admin"))


@dataclass
class Scanner:
    """Answers for the scanner: what is `gone` does not resolve; away, it does not answer."""

    gone: set[str] = field(default_factory=set)
    away: bool = False
    asked: list[int] = field(default_factory=list)

    async def ask(self, query: ResolveEvidence, /, *, timeout_s: float) -> EvidenceStates:
        self.asked.append(len(query.refs))
        if self.away:
            raise Unavailable("nobody answers")
        return EvidenceStates(states=tuple("unresolvable" if ref.id in self.gone else "resolved" for ref in query.refs))


@dataclass
class Clock:
    """A clock that a test sets."""

    now: datetime = NOON

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **by: float) -> None:
        self.now += timedelta(**by)


@dataclass
class Bench:
    """A detector on a test's database."""

    db: Database
    clock: Clock = field(default_factory=Clock)
    scanner: Scanner = field(default_factory=Scanner)
    embedder: StaticEmbedder = field(default_factory=StaticEmbedder)

    @property
    def detector(self) -> Detector:
        return Detector(self.db, self.embedder, self.scanner, self.clock, Limits())

    async def hear(self, *events: Event[SignalCreatedV1]) -> None:
        await handlers.on_signals_created(list(events), self.db, self.embedder, self.clock)

    async def register(self, **gates: Any) -> None:
        await touchpoints.on_registered([registered(**gates)], self.db)
