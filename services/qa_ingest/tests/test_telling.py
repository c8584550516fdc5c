"""What changes of pairs say to others: published, withdrawn, and what reviewers think of them as signals."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from uuid import UUID, uuid4

import pytest

from libs import touchpoints
from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.events.qa_ingest import QaPairArchivedV1, QaPairPublishedV1, QaPairSupersededV1, QaPairUnpublishedV1
from libs.contracts.queries.qa_ingest import GiveFeedback
from libs.service_kit.db import Database
from libs.service_kit.delivery import delivering
from libs.service_kit.testing import event_of, outbox_events
from libs.service_kit.testing.plugin import OpenDatabase
from services.qa_ingest import answers
from services.qa_ingest.domain import pair_facts
from services.qa_ingest.domain.pair_facts import Change, Home
from services.qa_ingest.store import operations
from services.qa_ingest.store.operations import Operation
from services.qa_ingest.telling import tell
from services.qa_ingest.tests.test_ingest import Library
from services.qa_ingest.tests.test_service import registered

PAIR, OTHER, WORKSPACE = uuid4(), uuid4(), uuid4()
AT = datetime(2026, 3, 1, tzinfo=UTC)
HOME = Home("support.answers", "global")
OLD = {
    "id": PAIR,
    "question_text": "How long are backups kept?",
    "answer_standard": "Backups are kept for thirty days in one region.",
    "primary_domain": "operations",
    "primary_subtopic": None,
    "provenance": "INFERRED",
    "publication_status": "published",
    "governance_review_status": None,
    "superseded_by": None,
    "sensitive": False,
}


def said(change_type: str = "edit", home: Home = HOME, by: str = "ada", **after: Any) -> list[tuple[str, Any]]:
    change = Change(PAIR, WORKSPACE, 2, change_type, "it is wrong", by, AT, OLD, {**OLD, **after})
    return [(fact.type, fact) for fact in pair_facts.said(change, home)]


def kinds(*arguments: Any, **after: Any) -> list[str]:
    return [kind for kind, _ in said(*arguments, **after)]


@pytest.mark.parametrize(
    ("after", "told"),
    [
        ({}, []),
        ({"primary_domain": "x"}, []),
        ({"question_text": "How long do you keep backups?"}, ["qa.pair.published.v1"]),
        ({"publication_status": "draft"}, ["qa.pair.unpublished.v1"]),
        ({"sensitive": True}, ["qa.pair.unpublished.v1"]),
        ({"publication_status": "archived"}, ["qa.pair.archived.v1"]),
        ({"superseded_by": OTHER}, ["qa.pair.superseded.v1"]),
        ({"superseded_by": OTHER, "publication_status": "archived"}, ["qa.pair.superseded.v1"]),
    ],
)
def test_facts_of_a_published_pair(after: dict[str, Any], told: list[str]) -> None:
    assert kinds("reclassify", **after) == told


def test_facts_of_a_pair_that_was_not_there_or_not_published() -> None:
    for before in (None, {**OLD, "publication_status": "draft"}, {**OLD, "superseded_by": OTHER}):
        change = Change(PAIR, WORKSPACE, 2, "restore", "", "ada", AT, before, OLD)
        assert [type(fact) for fact in pair_facts.said(change, HOME)] == [QaPairPublishedV1]
    draft = {**OLD, "publication_status": "draft"}
    assert pair_facts.said(Change(PAIR, WORKSPACE, 1, "initial_ingest", "", "ada", AT, None, draft), HOME) == []


def test_a_review_that_wants_changes_is_a_signal() -> None:
    ((_, signal),) = said("governance_review_action", governance_review_status="changes_requested")
    assert isinstance(signal, SignalObservedV1)
    assert (signal.signal_type, signal.actor_id, signal.actor_kind) == ("governance_finding", "ada", "human")
    assert (signal.touchpoint_id, signal.workspace_id, signal.observed_at) == ("support.answers", None, AT)
    assert signal.payload.model_dump(exclude_none=True) == {
        "category": "changes_requested",
        "reason": "it is wrong",
        "text": "How long are backups kept?",
        "domain": "operations",
    }
    again = said("governance_review_action", governance_review_status="changes_requested")[0][1]
    assert (again.signal_id, again.natural_key()) == (signal.signal_id, signal.natural_key())
    ((_, scoped),) = said(
        "governance_review_action", Home("t", "workspace"), governance_review_status="changes_requested"
    )
    assert scoped.workspace_id == WORKSPACE
    assert kinds("governance_review_action", governance_review_status="approved") == []
    assert kinds("governance_review_action", Home(), governance_review_status="changes_requested") == []
    assert kinds("source_changed", HOME, "ingest", governance_review_status="changes_requested") == []


def test_an_edit_of_what_a_model_wrote_is_a_signal() -> None:
    changed = "Backups are kept for ninety days in two regions."
    (_, signal) = said(answer_standard=changed)[1]
    assert isinstance(signal, SignalObservedV1)
    assert (signal.signal_type, signal.payload.got, signal.payload.expected) == (
        "human_edit",
        OLD["answer_standard"],
        changed,
    )
    assert (signal.payload.model_extra or {})["edit_distance"] == pytest.approx(1 - 2 * 6 / 18, abs=1e-4)
    assert "refinement.signal.observed.v1" not in kinds("merge", answer_standard=changed)
    for provenance, told in (("AMBIGUOUS", 1), ("EXTRACTED", 0)):
        before = {**OLD, "provenance": provenance, "publication_status": "draft"}
        change = Change(PAIR, WORKSPACE, 2, "edit", "", "ada", AT, before, {**before, "answer_standard": changed})
        assert len(pair_facts.said(change, HOME)) == told


@pytest.mark.parametrize(
    ("before", "after", "size"),
    [
        ("a b c d", "a b c d", 0.0),
        ("a b c d", "a  b c\nd", 0.0),
        ("a b c d", "a b x d", 0.25),
        ("a b", "c d", 1.0),
        ("w " * 5_000 + "a", "w " * 5_000 + "b", 0.05),
    ],
)
def test_the_size_of_an_edit(before: str, after: str, size: float) -> None:
    assert pair_facts.edit_distance(before, after) == size


# --- with the database ----------------------------------------------------------------------------------------------

BUNDLE = """---
question: How long are backups kept?
id: BK-1
publication_status: published
provenance: INFERRED
---
Backups are kept for thirty days.

---
question: Who signs?
id: DR-1
---
Nobody yet.

---
question: What is secret?
id: SE-1
publication_status: published
sensitive: true
---
This.
"""


async def hear(db: Database, identity: str) -> None:
    events = [event_of(registered(identity, 1))]
    with delivering("qa_ingest-test", events):
        await touchpoints.on_registered(events, db)


async def told(db: Database, *kinds: type[Any]) -> list[Any]:
    return [event.data for kind in kinds for event in await outbox_events(db, kind)]


@pytest.fixture
async def library(database: OpenDatabase, tmp_path: Path) -> Library:
    db = await database("qa_ingest")
    await hear(db, "support.answers")
    made = Library(db, tmp_path, trusted=True, touchpoint_id="support.answers")
    made.put("a.md", BUNDLE)
    await made.ingest.prepare()
    await made.ingest.look()
    return made


async def changed(library: Library, change_type: str, assignment: str, *, fails: bool = False) -> UUID:
    """A change as curation makes one: the operation is said, the pair changed, the others told, in one transaction."""
    operation = Operation("ada", change_type, "because")
    async with library.db.transaction() as tx:
        await operations.enter(tx.conn, library.bound.workspace_id)
        await operations.say(tx.conn, operation)
        pair: UUID = await tx.conn.fetchval(
            f"UPDATE q_a_pairs SET {assignment} WHERE source_id_token = 'BK-1' RETURNING id"
        )
        await tell(tx, library.bound.workspace_id, operation)
        if fails:
            raise RuntimeError("on the way")
    return pair


async def test_published_pairs_of_a_trusted_bucket_are_told(library: Library) -> None:
    (fact,) = await told(library.db, QaPairPublishedV1)
    assert (fact.question, fact.version, fact.touchpoint_id) == ("How long are backups kept?", 1, "support.answers")


async def test_each_change_is_told_with_it_or_not_at_all(library: Library) -> None:
    pair = await changed(library, "edit", "answer_standard = 'Ninety days, in two regions.'")
    await changed(library, "governance_review_action", "governance_review_status = 'changes_requested'")
    await changed(library, "archive", "publication_status = 'archived'")
    await changed(library, "restore", "publication_status = 'published'")
    await changed(library, "reclassify", "publication_status = 'in_review'")
    facts = await told(library.db, QaPairPublishedV1, QaPairArchivedV1, QaPairUnpublishedV1, QaPairSupersededV1)
    assert {(type(fact), fact.version) for fact in facts} == {
        (QaPairPublishedV1, 1),
        (QaPairPublishedV1, 2),
        (QaPairArchivedV1, 4),
        (QaPairPublishedV1, 5),
        (QaPairUnpublishedV1, 6),
    }
    signals = await told(library.db, SignalObservedV1)
    assert {(one.signal_type, one.source_key, one.actor_id) for one in signals} == {
        ("human_edit", f"library.edit:{pair}:2", "ada"),
        ("governance_finding", f"library.review:{pair}:3", "ada"),
    }
    with pytest.raises(RuntimeError, match="on the way"):
        await changed(library, "archive", "publication_status = 'archived'", fails=True)
    assert len(await told(library.db, QaPairArchivedV1)) == 1


async def test_a_touchpoint_that_is_registered_later_is_told_of_what_was_published(
    database: OpenDatabase, tmp_path: Path
) -> None:
    db = await database("qa_ingest")
    library = Library(db, tmp_path, trusted=True, touchpoint_id="support.answers")
    library.put("a.md", BUNDLE)
    await library.ingest.prepare()
    await library.ingest.look()
    assert [fact.touchpoint_id for fact in await told(db, QaPairPublishedV1)] == [None]
    await hear(db, "support.answers")
    await library.ingest.look()
    await library.ingest.look()
    facts = sorted(await told(db, QaPairPublishedV1), key=lambda fact: fact.published_at)
    assert [(fact.version, fact.touchpoint_id) for fact in facts] == [(1, None), (1, "support.answers")]


async def test_a_result_that_a_person_calls_wrong_is_a_signal_once(library: Library) -> None:
    async def give(verdict: Literal["right", "wrong"], token: str = "BK-1", by: str = "ada") -> None:
        ((pair,),) = await library.rows(f"SELECT id FROM q_a_pairs WHERE source_id_token = '{token}'")
        given = GiveFeedback(
            workspace_ids=(library.bound.workspace_id,),
            query="my phone",
            result_id=pair,
            verdict=verdict,
            comment="that is no answer",
            given_by=by,
        )
        await answers.answer_feedback(given, library.db)

    await give("right", by="ben")
    assert await told(library.db, SignalObservedV1) == []
    await give("wrong")
    await give("wrong")
    (signal,) = await told(library.db, SignalObservedV1)
    assert (signal.touchpoint_id, signal.signal_type, signal.actor_id) == ("support.answers", "flag", "ada")
    assert signal.payload.model_dump(exclude_none=True) == {
        "text": "my phone",
        "category": "wrong_result",
        "got": "How long are backups kept?",
        "reason": "that is no answer",
    }
    await give("right")
    await give("wrong")
    again = await told(library.db, SignalObservedV1)
    assert {one.signal_id for one in again} == {signal.signal_id}
    await give("wrong", "SE-1")
    secret = [one for one in await told(library.db, SignalObservedV1) if one.signal_id != signal.signal_id]
    assert [one.payload.got for one in secret] == [None]
