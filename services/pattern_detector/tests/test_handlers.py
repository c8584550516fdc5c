"""Handlers and store on a real database: the projection, thresholds, versions and exposures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest

from libs import touchpoints
from libs.contracts.events.gateway import ExposureRecordedV1
from libs.contracts.events.proposal import ProposalRejectedV1
from libs.contracts.events.registry import VersionActivatedV1, VersionRolledBackV1
from libs.contracts.queries.pattern_detector import GetDetectorStatus, ListPatterns
from libs.contracts.signals import EvidenceRef, SignalPayload
from libs.embeddings import EmbedderError, StaticEmbedder, Vectors
from libs.service_kit.db import Database
from libs.service_kit.testing import event_of, outbox_events
from services.pattern_detector import answers, handlers
from services.pattern_detector.store import signals
from services.pattern_detector.tests.support import NOON, TOUCHPOINT, Bench, created, registered

OpenDatabase = Callable[[str], Awaitable[Database]]


@pytest.fixture
async def bench(database: OpenDatabase) -> Bench:
    return Bench(await database("pattern_detector"))


class Silent(StaticEmbedder):
    """An embedder that does not answer."""

    async def embed(self, texts: object) -> Vectors:
        raise EmbedderError("away", retryable=True)


async def rows(bench: Bench, query: str, *values: object) -> list[Any]:
    async with bench.db.connection() as conn:
        return list(await conn.fetch(query, *values))


async def test_signals_are_projected_once_whatever_comes_twice(bench: Bench) -> None:
    events = [created(n) for n in range(5)]
    await bench.hear(*events, *events, created(0, days_ago=3), created(0, days_ago=-3))
    await bench.hear(*events)
    [count] = await rows(bench, "SELECT count(*) AS n FROM signals")
    assert count["n"] == 5
    status = await answers.answer_get_detector_status(GetDetectorStatus(touchpoint_id=TOUCHPOINT), bench.db)
    assert (status.signals, status.heard) == (5, 7)
    [seen] = await rows(bench, "SELECT * FROM signals WHERE signal_id = $1", created(0).data.signal_id)
    assert (seen["first_seen"], seen["last_seen"]) == (NOON - timedelta(days=3), NOON + timedelta(days=3))


async def test_the_vector_is_stored_padded_with_its_model_and_read_back_as_it_was(bench: Bench) -> None:
    await bench.hear(created(0, payload={"reason": "wrong topic"}))
    [row] = await rows(bench, "SELECT model, vector_dims(embedding) AS dims FROM signals")
    assert (row["model"], row["dims"]) == (bench.embedder.model, 1024)
    signal_id = created(0).data.signal_id
    async with bench.db.connection() as conn:
        read = await signals.vectors(conn, [signal_id], bench.embedder.model, bench.embedder.dimensions)
    text = created(0).data.payload.text
    np.testing.assert_array_equal(read[signal_id], bench.embedder.embed_now([f"{text}\nwrong topic"])[0])


async def test_while_the_embedder_is_away_signals_are_kept_and_embedded_by_a_later_run(bench: Bench) -> None:
    await handlers.on_signals_created([created(n) for n in range(4)], bench.db, Silent(), bench.clock)
    assert len(await rows(bench, "SELECT FROM signals WHERE embedding IS NULL")) == 4
    await bench.detector.run(TOUCHPOINT, "arrivals")
    assert not await rows(bench, "SELECT FROM signals WHERE embedding IS NULL")


async def test_odd_payloads_are_taken_as_far_as_they_make_sense(bench: Bench) -> None:
    odd = SignalPayload.model_validate(
        {"text": "a\x00b", "expected": "  ", "domain": ["x"], "subtopic": 7, "entity_type": True, "category": "fees"}
    )
    await bench.hear(created("odd", payload=odd.model_dump(), actor_id="x\x00y"))
    [row] = await rows(bench, "SELECT * FROM signals")
    assert (row["text"], row["expected"], row["actor_id"]) == ("ab", None, "xy")
    assert row["fields"] == {"category": "fees", "subtopic": "7"}


async def test_the_item_of_an_evaluation_is_its_case(bench: Bench) -> None:
    ref = EvidenceRef(source="eval", suite="s", case_id="case-9", metric="accuracy")
    await bench.hear(created("eval", evidence_ref=ref))
    [row] = await rows(bench, "SELECT item, fields FROM signals")
    assert (row["item"], row["fields"]) == ("case-9", {"case_id": "case-9"})


async def test_an_older_revision_of_a_touchpoint_changes_nothing(bench: Bench) -> None:
    newer, older = registered(revision=2, min_evidence=7), registered(revision=1, min_evidence=4, scanners=())
    await touchpoints.on_registered([newer, older], bench.db)
    async with bench.db.connection() as conn:
        known = await touchpoints.get(conn, TOUCHPOINT)
        assert await touchpoints.get(conn, "not.there") is None
    assert known is not None
    assert (known.thresholds.min_evidence, bool(known.signals)) == (7, True)


async def test_versions_and_exposures_are_remembered_once(bench: Bench) -> None:
    common = {"touchpoint_id": TOUCHPOINT, "adapter": "feed_prompts", "content_sha256": "0" * 64}
    activated = event_of(
        VersionActivatedV1(
            activation_id=uuid4(), version_ref="v2", previous_ref="v1", activated_by="a", activated_at=NOON, **common
        )
    )
    rolled_back = event_of(
        VersionRolledBackV1(
            activation_id=uuid4(),
            from_version="v2",
            to_version="v1",
            reason="worse",
            rolled_back_by="a",
            rolled_back_at=NOON,
            **common,
        )
    )
    exposed = event_of(
        ExposureRecordedV1(
            exposure_id=uuid4(),
            touchpoint_id=TOUCHPOINT,
            version_ref="v2",
            count=5,
            window_start=NOON,
            window_end=NOON + timedelta(minutes=1),
        )
    )
    for _ in range(2):
        await handlers.on_versions_activated([activated], bench.db)
        await handlers.on_versions_rolled_back([rolled_back], bench.db)
        await handlers.on_exposures_recorded([exposed], bench.db)
    kept = await rows(bench, "SELECT kind, version_ref, previous_ref FROM activations ORDER BY kind")
    assert [tuple(row) for row in kept] == [("activated", "v2", "v1"), ("rolled_back", "v1", "v2")]
    assert [row["count"] for row in await rows(bench, "SELECT count FROM exposures")] == [5]


async def test_a_plain_rejection_leaves_the_pool_and_a_bad_one_reaches_no_other_touchpoint(bench: Bench) -> None:
    await bench.hear(*(created(n) for n in range(3)))
    ids = tuple(created(n).data.signal_id for n in range(3))

    def rejected(touchpoint_id: str, bad: bool, workspace_id: UUID | None = None) -> Any:
        return event_of(
            ProposalRejectedV1(
                proposal_id=uuid4(),
                touchpoint_id=touchpoint_id,
                workspace_id=workspace_id,
                bad_signals=bad,
                signal_ids=ids,
                reason="no",
                rejected_by="admin",
            )
        )

    events = [rejected(TOUCHPOINT, False), rejected("another.one", True), rejected(TOUCHPOINT, True, uuid4())]
    await handlers.on_proposals_rejected(events, bench.db, bench.clock)
    assert not await rows(bench, "SELECT FROM signals WHERE left_out IS NOT NULL")
    assert not await outbox_events(bench.db)


async def test_answers_before_there_is_anything(bench: Bench) -> None:
    assert (await answers.answer_list_patterns(ListPatterns(since=NOON.replace(tzinfo=None)), bench.db)).patterns == ()
    status = await answers.answer_get_detector_status(GetDetectorStatus(), bench.db)
    assert (status.signals, status.last_run_id) == (0, None)


async def test_the_list_is_by_score_and_since_leaves_out_what_was_not_seen(bench: Bench) -> None:
    await bench.register(scanners=())
    await bench.hear(*(created(n, days_ago=40) for n in range(6)))
    other = {"text": "the atm kept my card", "expected": "card_swallowed", "got": "card_lost"}
    await bench.hear(*(created(n, payload=other) for n in range(10, 22)))
    await bench.detector.run(TOUCHPOINT, "arrivals")
    found = (await answers.answer_list_patterns(ListPatterns(), bench.db)).patterns
    assert [p.expected for p in found] == ["card_swallowed", "refund_status"]
    assert found[0].score > found[1].score
    recent = (await answers.answer_list_patterns(ListPatterns(since=NOON - timedelta(days=30)), bench.db)).patterns
    assert [p.expected for p in recent] == ["card_swallowed"]
