"""Whole runs on a real database: what is written and said, once, and by whom it can be disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from libs.contracts.envelope import Event
from libs.contracts.events.normaliser import SignalRejectedV1
from libs.contracts.events.pattern_detector import (
    DetectRequestedV1,
    PatternChangedV1,
    PatternDetectedV1,
    SignalProcessedV1,
)
from libs.contracts.events.proposal import ProposalRejectedV1
from libs.contracts.queries.pattern_detector import GetDetectorStatus, GetPattern, ListPatterns
from libs.contracts.queries.scanner import EvidenceStates, ResolveEvidence
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from libs.service_kit.testing import event_of, outbox_events
from services.pattern_detector import answers, handlers
from services.pattern_detector.tests.support import TOUCHPOINT, WORKSPACE, Bench, Clock, Scanner, created

OpenDatabase = Callable[[str], Awaitable[Database]]


@pytest.fixture
async def bench(database: OpenDatabase) -> Bench:
    bench = Bench(await database("pattern_detector"))
    await bench.register()
    return bench


def request() -> Event[DetectRequestedV1]:
    return event_of(DetectRequestedV1(request_id=uuid4(), touchpoint_id=TOUCHPOINT, requested_by="admin"))


async def requested(bench: Bench) -> None:
    await handlers.on_detect_requested(request(), bench.detector)


async def top(bench: Bench, **query: Any) -> list[Any]:
    return list((await answers.answer_list_patterns(ListPatterns(**query), bench.db)).patterns)


async def test_a_run_surfaces_a_confusion_and_says_all_there_is_to_say(bench: Bench) -> None:
    await bench.hear(*(created(n) for n in range(8)))
    await requested(bench)
    [pattern] = await top(bench, touchpoint_id=TOUCHPOINT)
    assert pattern.title == "refund_status answered as card_charge"
    assert (pattern.evidence_count, pattern.actors, pattern.state, pattern.automatic) == (8, 4, "new", True)
    [detected] = await outbox_events(bench.db, PatternDetectedV1)
    assert detected.data.pattern.pattern_id == pattern.pattern_id
    assert len(detected.data.pattern.evidence) == 8
    [processed] = await outbox_events(bench.db, SignalProcessedV1)
    assert set(processed.data.signal_ids) == {created(n).data.signal_id for n in range(8)}


async def test_a_request_is_answered_once_however_often_it_is_delivered(bench: Bench) -> None:
    await bench.hear(*(created(n) for n in range(8)))
    event = request()
    for _ in range(3):
        await handlers.on_detect_requested(event, bench.detector)
    status = await answers.answer_get_detector_status(GetDetectorStatus(touchpoint_id=TOUCHPOINT), bench.db)
    assert status.last_request_id == event.data.request_id
    assert (status.signals, status.unprocessed, status.patterns) == (8, 0, 1)
    async with bench.db.connection() as conn:
        assert await conn.fetchval("SELECT count(*) FROM runs") == 1


async def test_two_runs_at_once_do_the_work_of_one_after_the_other(bench: Bench) -> None:
    await bench.hear(*(created(n) for n in range(8)))
    await asyncio.gather(requested(bench), requested(bench), bench.detector.run(TOUCHPOINT, "arrivals"))
    assert len(await outbox_events(bench.db, PatternDetectedV1)) == 1
    assert len(await outbox_events(bench.db, SignalProcessedV1)) == 1


async def test_seeing_a_signal_again_moves_its_time_and_adds_no_evidence(bench: Bench) -> None:
    await bench.hear(*(created(n, days_ago=10) for n in range(8)))
    await requested(bench)
    [before] = await top(bench)
    await bench.hear(*(created(n) for n in range(8)))
    await requested(bench)
    [after] = await top(bench)
    assert (after.pattern_id, after.evidence_count) == (before.pattern_id, 8)
    assert after.last_seen > before.last_seen
    assert after.state == "new"
    assert not await outbox_events(bench.db, PatternChangedV1)


async def test_a_pattern_grows_resolves_and_comes_back_under_its_own_id(bench: Bench) -> None:
    await bench.hear(*(created(n) for n in range(6)))
    await requested(bench)
    await bench.hear(created(6))
    await requested(bench)
    bench.clock.forward(days=200)
    await requested(bench)
    assert not await top(bench)
    [gone] = await top(bench, include_resolved=True)
    assert (gone.state, gone.score, gone.evidence_count) == ("resolved", 0, 0)
    await bench.hear(*(created(n, days_ago=-199) for n in range(10, 16)))
    await requested(bench)
    [back] = await top(bench)
    assert (back.pattern_id, back.state) == (gone.pattern_id, "reopened")
    changes = [(e.data.from_state, e.data.to_state) for e in await outbox_events(bench.db, PatternChangedV1)]
    assert changes == [("new", "growing"), ("growing", "resolved")]
    assert [e.data.occurrence for e in await outbox_events(bench.db, PatternDetectedV1)] == [1, 2]


async def test_a_pattern_is_told_again_when_it_becomes_strong_enough_for_a_proposal(bench: Bench) -> None:
    await bench.hear(*(created(n, actor_id=f"user-{n % 2}") for n in range(6)))
    await requested(bench)
    await bench.hear(*(created(n) for n in (6, 7, 10, 11)))
    await requested(bench)
    await requested(bench)
    told = [(e.data.occurrence, e.data.pattern.automatic) for e in await outbox_events(bench.db, PatternDetectedV1)]
    assert told == [(1, False), (2, True)]


async def test_below_the_gates_nothing_surfaces_until_there_is_enough(bench: Bench) -> None:
    await bench.hear(*(created(n, actor_id="user-1") for n in range(4)))
    await requested(bench)
    assert not await top(bench)
    await bench.hear(created(4, actor_id="user-1"))
    await requested(bench)
    [pattern] = await top(bench)
    assert pattern.single_actor
    assert not pattern.automatic


async def test_workspaces_are_never_mixed(bench: Bench) -> None:
    other = UUID(int=WORKSPACE.int + 1)
    await bench.hear(*(created(n, workspace_id=WORKSPACE) for n in range(6)))
    await bench.hear(*(created(n, workspace_id=other) for n in range(2)))
    await requested(bench)
    [pattern] = await top(bench)
    assert (pattern.workspace_id, pattern.evidence_count) == (WORKSPACE, 6)
    assert not await top(bench, workspace_ids=(other,))
    assert len(await top(bench, workspace_ids=(WORKSPACE, other))) == 1


async def test_evidence_that_is_gone_is_left_out_told_once_and_counts_again(bench: Bench) -> None:
    await bench.hear(*(created(n) for n in range(8)))
    bench.scanner.gone = {"row-0", "row-1"}
    await requested(bench)
    await requested(bench)
    [pattern] = await top(bench)
    assert pattern.evidence_count == 6
    assert sorted(e.data.transition for e in await outbox_events(bench.db, SignalRejectedV1)) == [1, 1]
    bench.scanner.gone = {"row-1"}
    await requested(bench)
    [pattern] = await top(bench)
    assert pattern.evidence_count == 7
    bench.scanner.gone = {"row-0", "row-1"}
    await requested(bench)
    assert sorted(e.data.transition for e in await outbox_events(bench.db, SignalRejectedV1)) == [1, 1, 2]
    processed = [i for e in await outbox_events(bench.db, SignalProcessedV1) for i in e.data.signal_ids]
    assert created(0).data.signal_id in processed
    assert created(1).data.signal_id not in processed


async def test_a_scanner_that_does_not_answer_costs_no_evidence(bench: Bench) -> None:
    await bench.hear(*(created(n) for n in range(8)))
    bench.scanner.away = True
    await requested(bench)
    [pattern] = await top(bench)
    assert pattern.evidence_count == 8
    assert len(bench.scanner.asked) == 1


async def test_a_touchpoint_without_scanners_is_not_asked_after(database: OpenDatabase) -> None:
    bench = Bench(await database("pattern_detector"))
    await bench.register(scanners=())
    await bench.hear(*(created(n) for n in range(8)))
    await requested(bench)
    assert bench.scanner.asked == []


async def test_signals_called_bad_while_a_run_is_on_are_left_to_the_next_run(bench: Bench) -> None:
    await bench.hear(*(created(n) for n in range(8)))
    await requested(bench)
    [before] = await top(bench)
    bad = tuple(created(n).data.signal_id for n in (0, 4))
    rejected = event_of(
        ProposalRejectedV1(
            proposal_id=uuid4(),
            touchpoint_id=TOUCHPOINT,
            pattern_id=before.pattern_id,
            bad_signals=True,
            signal_ids=bad,
            reason="not read",
            rejected_by="admin",
        )
    )

    class Meanwhile(Scanner):
        async def ask(self, query: ResolveEvidence, /, *, timeout_s: float) -> EvidenceStates:
            slow_clock = Clock(bench.clock.now - timedelta(seconds=1))
            await handlers.on_proposals_rejected([rejected], bench.db, slow_clock)
            return await super().ask(query, timeout_s=timeout_s)

    bench.scanner = Meanwhile()
    await requested(bench)
    bench.scanner = Scanner()
    [run] = await bench.detector.run_due()
    assert run.trigger == "refresh"
    [after] = await top(bench)
    assert after.evidence_count == 6
    assert await bench.detector.run_due() == []


async def test_bad_signals_leave_the_pool_and_cost_their_actors_trust(bench: Bench) -> None:
    await bench.hear(*(created(n) for n in range(8)))
    await requested(bench)
    [before] = await top(bench)
    bad = tuple(created(n).data.signal_id for n in (0, 4))
    rejected = event_of(
        ProposalRejectedV1(
            proposal_id=uuid4(),
            touchpoint_id=TOUCHPOINT,
            pattern_id=before.pattern_id,
            bad_signals=True,
            signal_ids=bad,
            reason="not read",
            rejected_by="admin",
        )
    )
    for _ in range(2):
        await handlers.on_proposals_rejected([rejected], bench.db, bench.clock)
    assert {e.data.signal_id for e in await outbox_events(bench.db, SignalRejectedV1)} == set(bad)
    bench.clock.forward(seconds=1)
    [run] = await bench.detector.run_due()
    assert run.trigger == "refresh"
    [after] = await top(bench)
    assert (after.pattern_id, after.evidence_count, after.state) == (before.pattern_id, 6, "receding")
    await bench.hear(created(40, actor_id="user-0"))
    await requested(bench)
    detail = (await answers.answer_get_pattern(GetPattern(pattern_id=after.pattern_id), bench.db)).pattern
    weights = {item.signal_id: item.weight for item in detail.evidence}
    assert weights[created(40).data.signal_id] == pytest.approx(2 / 4)
    assert weights[created(1).data.signal_id] == 1.0


async def test_runs_begin_by_themselves_when_it_has_been_quiet(bench: Bench) -> None:
    await bench.hear(*(created(n) for n in range(8)))
    assert not await bench.detector.run_due()
    bench.clock.forward(seconds=1)
    await bench.hear(created(8))
    bench.clock.forward(seconds=1.5)
    assert not await bench.detector.run_due()
    bench.clock.forward(seconds=1)
    assert [run.processed for run in await bench.detector.run_due()] == [9]
    assert not await bench.detector.run_due()


async def test_a_steady_stream_does_not_put_a_run_off_for_ever(bench: Bench) -> None:
    for n in range(40):
        await bench.hear(created(n))
        bench.clock.forward(seconds=1)
        if await bench.detector.run_due():
            break
    assert 29 <= n <= 30


async def test_open_patterns_are_judged_again_as_time_passes(bench: Bench) -> None:
    await bench.hear(*(created(n) for n in range(8)))
    await requested(bench)
    bench.clock.forward(days=31)
    assert [run.trigger for run in await bench.detector.run_due()] == ["refresh"]
    [pattern] = await top(bench)
    assert pattern.state == "receding"
    detail = (await answers.answer_get_pattern(GetPattern(pattern_id=pattern.pattern_id), bench.db)).pattern
    assert {item.weight for item in detail.evidence} == {0.5}


async def test_a_pattern_that_is_not_there_is_refused(bench: Bench) -> None:
    with pytest.raises(Refused) as refused:
        await answers.answer_get_pattern(GetPattern(pattern_id=uuid4()), bench.db)
    assert refused.value.status == 404


async def test_vectors_of_another_model_are_made_anew_by_a_run(bench: Bench) -> None:
    await bench.hear(*(created(n) for n in range(8)))
    async with bench.db.transaction() as tx:
        await tx.conn.execute("UPDATE signals SET model = 'another'")
    await requested(bench)
    async with bench.db.connection() as conn:
        assert await conn.fetchval("SELECT array_agg(DISTINCT model) FROM signals") == [bench.embedder.model]
