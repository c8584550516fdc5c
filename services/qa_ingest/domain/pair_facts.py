"""What a change of a pair says to other services: facts about the pair, and what its reviewers say as signals. Pure.

A change is two versions of a pair's history. Everything here follows from them alone, so that saying it twice is
saying it once.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from libs.contracts.envelope import EventData
from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.events.qa_ingest import (
    QaPairArchivedV1,
    QaPairCreatedV1,
    QaPairPublishedV1,
    QaPairSupersededV1,
    QaPairUnpublishedV1,
    QaPairUpdatedV1,
)
from libs.contracts.signals import EvidenceRef, SignalPayload
from libs.contracts.vocabulary import Scope, SignalType

SOURCE = "library.pair"
"""What the evidence of a signal names: a pair, by its id. No scanner reads it, so it resolves to itself."""
MACHINES = frozenset({"ingest"})
"""Who changes pairs and is no person."""
AI_MADE = frozenset({"INFERRED", "AMBIGUOUS"})
"""Provenances of what a model wrote."""
TRIVIAL = 0.05
"""An edit of less than this share of the words is none: a typo, a comma."""
MOST_WORDS = 2_000
"""Of each side are compared; what is behind counts as equal or different as a whole."""
LONGEST = 2_000

BOOKKEEPING = frozenset({"version", "updated_at", "updated_by"})
"""What every version of a pair has of its own."""

Snapshot = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Home:
    """The touchpoint that a workspace names for its answers, and its scope; None where there is none."""

    touchpoint_id: str | None = None
    scope: Scope | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A version of a pair and the one before it, as the history has them; `before` is None of a new pair."""

    pair_id: UUID
    workspace_id: UUID
    version: int
    change_type: str
    reason: str
    by: str
    at: datetime
    before: Snapshot | None
    after: Snapshot


def said(change: Change, home: Home) -> list[EventData]:
    """The facts and signals of a change; none where nothing changed that others need to know."""
    found = [_fact(change, home), _review(change, home), _edit(change, home)]
    return [one for one in found if one is not None]


# --- facts ------------------------------------------------------------------------------------------------------


def is_served(pair: Snapshot | None) -> bool:
    """Whether everybody finds the pair: published, with nothing in its place, and not sensitive."""
    return (
        pair is not None
        and pair["publication_status"] == "published"
        and pair["superseded_by"] is None
        and not pair["sensitive"]
    )


def published(pair: Snapshot, workspace_id: UUID, version: int, at: datetime, home: Home) -> QaPairPublishedV1:
    """The fact that this version of a pair is published."""
    return QaPairPublishedV1(
        pair_id=pair["id"],
        workspace_id=workspace_id,
        version=version,
        touchpoint_id=home.touchpoint_id,
        question=pair["question_text"],
        answer=pair["answer_standard"],
        published_at=at,
    )


def created(pair: Snapshot, workspace_id: UUID, operation_id: UUID, by: str, at: datetime) -> QaPairCreatedV1:
    """The fact that there is a new pair."""
    return QaPairCreatedV1(
        pair_id=pair["id"],
        workspace_id=workspace_id,
        version=1,
        publication_status=pair["publication_status"],
        origin_kind=pair["origin_kind"],
        operation_id=operation_id,
        created_by=by,
        at=at,
    )


def removed(pair: Snapshot, by: str, at: datetime) -> list[EventData]:
    """What the end of a pair says: for others it is what archiving is. Nothing, where it is archived already."""
    if pair["publication_status"] == "archived":
        return []
    version = pair["version"] + 1
    place = {"pair_id": pair["id"], "workspace_id": pair["workspace_id"], "version": version}
    return [QaPairArchivedV1(**place, archived_by=by, at=at)]


def version(change: Change, operation_id: UUID) -> EventData:
    """The fact that there is a new pair, or another version of one."""
    before, after = change.before, change.after
    if before is None:
        return created(after, change.workspace_id, operation_id, change.by, change.at)
    return QaPairUpdatedV1(
        pair_id=change.pair_id,
        workspace_id=change.workspace_id,
        version=change.version,
        change_type=change.change_type,
        changed=tuple(sorted(name for name in after if name not in BOOKKEEPING and after[name] != before.get(name))),
        operation_id=operation_id,
        updated_by=change.by,
        at=change.at,
    )


def _fact(change: Change, home: Home) -> EventData | None:
    before, after = change.before, change.after
    place = {
        "pair_id": change.pair_id,
        "workspace_id": change.workspace_id,
        "version": change.version,
        "at": change.at,
    }
    if is_served(after):
        if is_served(before) and before is not None and _words(before) == _words(after):
            return None
        return published(after, change.workspace_id, change.version, change.at, home)
    if after["superseded_by"] is not None and (before is None or before["superseded_by"] != after["superseded_by"]):
        return QaPairSupersededV1(**place, superseded_by=after["superseded_by"])
    if after["publication_status"] == "archived" and (before is None or before["publication_status"] != "archived"):
        return QaPairArchivedV1(**place, archived_by=change.by)
    return QaPairUnpublishedV1(**place) if is_served(before) else None


def _words(pair: Snapshot) -> tuple[str, str]:
    return pair["question_text"], pair["answer_standard"]


# --- signals ----------------------------------------------------------------------------------------------------


def _review(change: Change, home: Home) -> SignalObservedV1 | None:
    """A reviewer wants it changed."""
    wanted = "changes_requested"
    before = change.before["governance_review_status"] if change.before else None
    if change.after["governance_review_status"] != wanted or before == wanted:
        return None
    payload = {"category": wanted, "reason": change.reason[:LONGEST] or None}
    return _signal(change, home, "governance_finding", "review", payload)


def _edit(change: Change, home: Home) -> SignalObservedV1 | None:
    """A person wrote what a model had written anew."""
    before, after = change.before, change.after
    if change.change_type != "edit" or before is None or before["provenance"] not in AI_MADE:
        return None
    size = edit_distance(before["answer_standard"], after["answer_standard"])
    if size < TRIVIAL:
        return None
    payload = {
        "got": before["answer_standard"][:LONGEST],
        "expected": after["answer_standard"][:LONGEST],
        "edit_distance": size,
        "reason": change.reason[:LONGEST] or None,
    }
    return _signal(change, home, "human_edit", "edit", payload)


def _signal(
    change: Change, home: Home, kind: SignalType, what: str, payload: Mapping[str, Any]
) -> SignalObservedV1 | None:
    if home.touchpoint_id is None or home.scope is None or change.by in MACHINES:
        return None
    pair = change.after
    told = {
        "text": pair["question_text"],
        "domain": pair["primary_domain"],
        "subtopic": pair["primary_subtopic"],
        **payload,
    }
    return SignalObservedV1(
        touchpoint_id=home.touchpoint_id,
        workspace_id=change.workspace_id if home.scope == "workspace" else None,
        signal_type=kind,
        evidence_ref=EvidenceRef(source=SOURCE, id=str(change.pair_id)),
        payload=SignalPayload.model_validate({name: value for name, value in told.items() if value is not None}),
        actor_id=change.by,
        actor_kind="human",
        source_key=f"library.{what}:{change.pair_id}:{change.version}",
        observed_at=change.at,
    )


def edit_distance(before: str, after: str) -> float:
    """How much of the words is another now: 0 is nothing, 1 is all."""
    if before == after:
        return 0.0
    a, b = before.split(), after.split()
    kept = difflib.SequenceMatcher(None, a[:MOST_WORDS], b[:MOST_WORDS], autojunk=False).ratio()
    behind = 0.0 if a[MOST_WORDS:] == b[MOST_WORDS:] else TRIVIAL
    return round(max(1.0 - kept, behind), 4)
