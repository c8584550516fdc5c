"""Builders for the normaliser's tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from libs.contracts.envelope import Event
from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.signals import EvidenceRef, SignalPayload
from libs.contracts.touchpoints import Storage, Touchpoint
from libs.contracts.vocabulary import Scope
from libs.service_kit.testing import event_of

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)
WORKSPACE = UUID("6b8e1c52-7a5c-4d5e-9a90-3c0e6a6e2f11")


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def observed(key: str = "feed_flags:1", minutes: float = 0, **changes: Any) -> Event[SignalObservedV1]:
    """A user's flag on `support.intent`, seen some minutes after noon."""
    payload = changes.pop("payload", {"text": "where is my refund", "expected": "refund_status", "got": "card_charge"})
    fields: dict[str, Any] = {
        "touchpoint_id": "support.intent",
        "signal_type": "flag",
        "evidence_ref": EvidenceRef(source="feed_flags", id=key.split(":")[-1]),
        "payload": SignalPayload(**payload),
        "actor_id": "user-1",
        "actor_kind": "human",
        "source_key": key,
        "observed_at": at(minutes),
    }
    return event_of(SignalObservedV1(**{**fields, **changes}))


def registered(
    touchpoint_id: str = "support.intent", scope: Scope = "global", revision: int = 1
) -> Event[TouchpointRegisteredV1]:
    touchpoint = Touchpoint(id=touchpoint_id, scope=scope, storage=Storage(adapter="feed_prompts", initial_text="x"))
    return event_of(TouchpointRegisteredV1(touchpoint=touchpoint, revision=revision, registered_by="admin"))
