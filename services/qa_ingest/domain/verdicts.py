"""A result that a person calls wrong is a signal of the touchpoint that the workspace names for its answers. Pure."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.queries.qa_ingest import GiveFeedback
from libs.contracts.signals import EvidenceRef, SignalPayload
from services.qa_ingest.domain.pair_facts import LONGEST, Home

SOURCE = "library.feedback"
CATEGORY = "wrong_result"


def signal(
    given: GiveFeedback, feedback_id: UUID, workspace_id: UUID, result: str | None, home: Home, at: datetime
) -> SignalObservedV1 | None:
    """The signal of a verdict; None for one that is content, and where nobody's prompt is meant.

    One verdict of a person on a result for a query is one signal, however often it is given. `result` is what the
    result says.
    """
    if given.verdict != "wrong" or home.touchpoint_id is None or home.scope is None:
        return None
    return SignalObservedV1(
        touchpoint_id=home.touchpoint_id,
        workspace_id=workspace_id if home.scope == "workspace" else None,
        signal_type="flag",
        evidence_ref=EvidenceRef(source=SOURCE, id=str(feedback_id)),
        payload=SignalPayload(
            text=given.query,
            category=CATEGORY,
            got=(result or "")[:LONGEST] or None,
            reason=given.comment[:LONGEST] or None,
        ),
        actor_id=given.given_by,
        actor_kind="human",
        source_key=f"{SOURCE}:{feedback_id}",
        observed_at=at,
    )
