from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libs import touchpoints
from libs.contracts import topology
from libs.contracts.envelope import Event
from libs.contracts.events.normaliser import SignalCreatedV1, SignalObservedV1, SignalRejectedV1
from libs.contracts.events.pattern_detector import SignalProcessedV1
from libs.contracts.queries.normaliser import CountSignals, ListSignals
from libs.service_kit.consumers import Consumer
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from libs.service_kit.redelivery import Redelivery
from libs.service_kit.testing import MemoryMessage, event_of, outbox_events
from services.normaliser import answers, handlers
from services.normaliser.tests.support import WORKSPACE, at, observed, registered

OpenDatabase = Callable[[str], Awaitable[Database]]


@pytest.fixture
async def db(database: OpenDatabase) -> Database:
    return await database("normaliser")


def consumer(db: Database) -> Consumer[SignalObservedV1]:
    durable = topology.durable("normaliser", SignalObservedV1)
    return Consumer(
        durable, handlers.on_signals_observed, db=db, redelivery=Redelivery((0.1,)), dependencies={"db": db}
    )


async def test_a_batch_becomes_rows_and_facts_and_is_acknowledged(db: Database) -> None:
    await touchpoints.on_registered([registered()], db)
    first = observed("a:1")
    messages = [MemoryMessage(one) for one in (first, observed("a:2"), observed("a:3", workspace_id=WORKSPACE))]
    await consumer(db).deliver(messages)
    assert [message.outcome for message in messages] == ["ack"] * 3
    created, rejected = await outbox_events(db, SignalCreatedV1), await outbox_events(db, SignalRejectedV1)
    assert {event.data.source_key for event in created} == {"a:1", "a:2"}
    assert first.id in {event.causationid for event in created}
    assert [(event.data.source_key, event.data.reason) for event in rejected] == [("a:3", "scope")]


async def test_delivered_twice_it_takes_effect_once(db: Database) -> None:
    await touchpoints.on_registered([registered()], db)
    event = observed()
    for _ in range(2):
        await consumer(db).deliver([MemoryMessage(event, deliveries=2)])
    assert len(await outbox_events(db)) == 1


async def test_an_unreadable_message_does_not_hold_up_its_neighbours(db: Database) -> None:
    await touchpoints.on_registered([registered()], db)
    messages = [MemoryMessage(b"{", seq=1), MemoryMessage(observed(), seq=2)]
    await consumer(db).deliver(messages)
    assert [message.outcome for message in messages] == ["ack", "ack"]
    assert len(await outbox_events(db, SignalCreatedV1)) == 1


async def test_signals_that_came_before_their_touchpoint_count_once_it_is_registered(db: Database) -> None:
    batch = [observed(f"a:{n}") for n in range(3)]
    await handlers.on_signals_observed(batch, db)
    assert {event.data.reason for event in await outbox_events(db, SignalRejectedV1)} == {"unknown_touchpoint"}
    await handlers.rejudge(db)
    assert await outbox_events(db, SignalCreatedV1) == []
    await touchpoints.on_registered([registered()], db)
    await handlers.rejudge(db)
    await handlers.rejudge(db)
    created = await outbox_events(db, SignalCreatedV1)
    assert {event.data.signal_id for event in created} == {event.data.signal_id for event in batch}
    assert created[0].data.payload == batch[0].data.payload
    [count] = (await answers.answer_count(CountSignals(), db)).counts
    assert (count.stored, count.rejected) == (3, 0)


async def test_judging_again_goes_on_over_many_batches(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "REJUDGE_BATCH", 2)
    await handlers.on_signals_observed([observed(f"a:{n}") for n in range(5)], db)
    await touchpoints.on_registered([registered()], db)
    await handlers.rejudge(db)
    assert len(await outbox_events(db, SignalCreatedV1)) == 5


async def test_a_touchpoint_that_changes_its_scope_has_its_signals_judged_again(db: Database) -> None:
    await touchpoints.on_registered([registered()], db)
    await handlers.on_signals_observed([observed("a:1"), observed("a:2", workspace_id=WORKSPACE)], db)
    await touchpoints.on_registered([registered(scope="workspace", revision=2)], db)
    await handlers.rejudge(db)
    page = await answers.answer_list(ListSignals(), db)
    assert {one.source_key: one.rejected for one in page.signals} == {"a:1": "scope", "a:2": None}
    assert [event.data.source_key for event in await outbox_events(db, SignalRejectedV1)] == ["a:2", "a:1"]


async def test_processed_is_marked(db: Database) -> None:
    await touchpoints.on_registered([registered()], db)
    event = observed()
    await handlers.on_signals_observed([event], db)
    processed = SignalProcessedV1(
        touchpoint_id="support.intent", run_id=uuid4(), signal_ids=(event.data.signal_id,), processed_at=at(1)
    )
    await handlers.on_signals_processed([event_of(processed)], db)
    page = await answers.answer_list(ListSignals(unprocessed=False), db)
    assert [one.processed_at for one in page.signals] == [at(1)]


async def test_pages_by_cursor(db: Database) -> None:
    await touchpoints.on_registered([registered()], db)
    await handlers.on_signals_observed([observed(f"a:{n}") for n in range(5)], db)
    keys, cursor = [], None
    while True:
        page = await answers.answer_list(ListSignals(limit=2, cursor=cursor), db)
        keys += [one.source_key for one in page.signals]
        if (cursor := page.next) is None:
            break
    assert sorted(keys) == [f"a:{n}" for n in range(5)]
    with pytest.raises(Refused, match="cursor") as refused:
        await answers.answer_list(ListSignals(cursor="elsewhere"), db)
    assert refused.value.status == 422


async def test_two_replicas_with_overlapping_batches_store_each_signal_once(database: OpenDatabase) -> None:
    replicas = [await database("normaliser"), await database("normaliser")]
    await touchpoints.on_registered([registered()], replicas[0])
    batches = [[observed(f"a:{n % 20}", minutes=n) for n in range(start, start + 40)] for start in range(0, 160, 20)]
    work = (handlers.on_signals_observed(batch, replicas[n % 2]) for n, batch in enumerate(batches))
    await asyncio.gather(*work)
    page = await answers.answer_list(ListSignals(limit=500), replicas[0])
    assert {one.source_key: one.last_seen for one in page.signals} == {f"a:{n}": at(160 + n) for n in range(20)}
    created = await outbox_events(replicas[0], SignalCreatedV1)
    newest = {event.data.source_key: event.data.last_seen for event in created}
    for event in created:
        newest[event.data.source_key] = max(newest[event.data.source_key], event.data.last_seen)
    assert newest == {f"a:{n}": at(160 + n) for n in range(20)}


deliveries = st.lists(
    st.lists(
        st.builds(observed, key=st.sampled_from(["k:1", "k:2", "k:3"]), minutes=st.integers(0, 5)),
        min_size=1,
        max_size=5,
    ),
    min_size=1,
    max_size=6,
)


@given(deliveries)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_however_it_is_delivered_the_rows_come_out_the_same(
    db: Database, batches: list[list[Event[SignalObservedV1]]]
) -> None:
    async with db.connection() as conn:
        for table in ("prompt_quality_signals", "inbox", "outbox", "touchpoints"):
            await conn.execute(f"DELETE FROM {table}")
    await touchpoints.on_registered([registered()], db)
    for batch in [*batches, *batches]:
        await handlers.on_signals_observed(batch, db)
    flat = [event.data for batch in batches for event in batch]
    expected = {
        key: (
            min(one.observed_at for one in flat if one.source_key == key),
            max(one.observed_at for one in flat if one.source_key == key),
        )
        for key in {one.source_key for one in flat}
    }
    page = await answers.answer_list(ListSignals(), db)
    assert {one.source_key: (one.first_seen, one.last_seen) for one in page.signals} == expected
    ids = [event.id for event in await outbox_events(db, SignalCreatedV1)]
    assert len(ids) == len(set(ids))


async def test_no_text_of_a_signal_reaches_the_log(db: Database, capsys: pytest.CaptureFixture[str]) -> None:
    canary = "canary-5b1f"
    event = observed(payload={"text": canary, "reason": canary, "got": canary}, touchpoint_id="no.such")
    await handlers.on_signals_observed([event], db)
    out = capsys.readouterr()
    assert "refinement.signal.rejected" in out.out + out.err
    assert canary not in out.out + out.err


async def test_each_observation_is_counted_once_however_often_it_comes(db: Database) -> None:
    events = [observed(f"row-{n}") for n in range(3)]
    for _ in range(3):
        await handlers.on_signals_observed(events, db)
    (counts,) = (await answers.answer_count(CountSignals(), db)).counts
    assert counts.observed == 3


async def test_how_often_signals_were_seen_is_told_to_those_who_see_every_workspace(db: Database) -> None:
    await handlers.on_signals_observed([observed("shared"), observed("theirs", workspace_id=WORKSPACE)], db)
    for workspaces in ((), (uuid4(),), (WORKSPACE,)):
        (counts,) = (await answers.answer_count(CountSignals(workspace_ids=workspaces), db)).counts
        assert counts.observed == 0
