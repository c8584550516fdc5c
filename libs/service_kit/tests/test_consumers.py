"""What becomes of a message: acknowledged, asked for again, or put with the dead letters."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from libs.contracts import topology
from libs.contracts.envelope import Event
from libs.contracts.events.normaliser import SignalCreatedV1, SignalObservedV1
from libs.provisioning.nats_config import MAX_PAYLOAD
from libs.service_kit import dead_letters
from libs.service_kit.consumers import Consumer
from libs.service_kit.db import Database
from libs.service_kit.errors import Poison
from libs.service_kit.redelivery import Redelivery
from libs.service_kit.testing import MemoryMessage, outbox_events
from libs.service_kit.testing.plugin import OpenDatabase
from libs.service_kit.tests.support import effects, make_effects_table, note, observed


@pytest.fixture
async def db(database: OpenDatabase, servers: Any, clone: str) -> Database:
    await make_effects_table(servers.admin_dsn(clone))
    return await database("normaliser")


def consumer(db: Database, handler: Any = note, **changes: Any) -> Consumer[SignalObservedV1]:
    durable = replace(topology.durable("normaliser", SignalObservedV1), **changes)
    return Consumer(durable, handler, db=db, redelivery=Redelivery((0.1, 0.2)), dependencies={"db": db})


async def letters(db: Database) -> list[Any]:
    async with db.connection() as conn:
        return await dead_letters.listed(conn, "normaliser", False, 100)


async def test_effect_and_fact_happen_once_however_often_it_is_delivered(db: Database) -> None:
    event = observed()
    messages = [MemoryMessage(event, seq=n) for n in range(1, 4)]
    for message in messages:
        await consumer(db).deliver([message])
    await consumer(db).deliver([MemoryMessage(event), MemoryMessage(event)])
    assert await effects(db) == [event.id]
    assert [e.data.source_key for e in await outbox_events(db, SignalCreatedV1)] == [event.data.source_key]
    assert all(message.outcome == "ack" for message in messages)


async def test_the_control_without_the_inbox_shows_duplicates(database: OpenDatabase, db: Database) -> None:
    """Were this test green with the inbox off, the one above would show nothing."""
    db._inbox = False
    event = observed()
    for _ in range(3):
        await consumer(db).deliver([MemoryMessage(event)])
    assert await effects(db) == [event.id] * 3


async def test_a_poison_message_does_not_take_its_neighbours_along(db: Database) -> None:
    good, bad, other = observed("a"), observed("poison"), observed("b")
    messages = [MemoryMessage(event, seq=n) for n, event in enumerate((good, bad, other), start=1)]
    await consumer(db).deliver(messages)
    assert [m.outcome for m in messages] == ["ack", ("nak", 0.1), "ack"]
    assert set(await effects(db)) == {good.id, other.id}


async def test_after_the_last_delay_it_is_a_dead_letter_with_its_reason(db: Database) -> None:
    bad = observed("poison")
    outcomes = []
    for delivery in (1, 2, 3):
        message = MemoryMessage(bad, deliveries=delivery)
        await consumer(db).deliver([message])
        outcomes.append(message.outcome)
    assert outcomes == [("nak", 0.1), ("nak", 0.2), "ack"]
    (letter,) = await letters(db)
    assert letter.event_id == bad.id
    assert letter.error == "ValueError: cannot digest this"
    assert letter.deliveries == 3


@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b'{"id": 3}', b"\xff\xfe", b'{"data": {}}', b"[" * 100_000])
async def test_what_cannot_be_parsed_is_a_dead_letter_at_once(db: Database, body: bytes) -> None:
    message = MemoryMessage(body, subject="refinement.signal.observed.v1")
    neighbour = MemoryMessage(observed(), seq=2)
    await consumer(db).deliver([message, neighbour])
    assert (message.outcome, neighbour.outcome) == ("ack", "ack")
    assert len(await letters(db)) == 1
    assert len(await effects(db)) == 1


async def test_the_reason_never_repeats_what_was_sent(db: Database) -> None:
    body = observed().encode().replace(b'"hello"', b'{"canary": "secret-canary"}')
    await consumer(db).deliver([MemoryMessage(body)])
    (letter,) = await letters(db)
    assert "canary" not in letter.error
    assert "data.payload.text" in letter.error


async def test_an_event_of_another_type_is_a_dead_letter(db: Database) -> None:
    body = observed().encode().replace(b"signal.observed", b"signal.invented")
    await consumer(db).deliver([MemoryMessage(body)])
    assert len(await letters(db)) == 1


async def test_the_same_delivery_is_buried_once(db: Database) -> None:
    for _ in range(2):
        await consumer(db).deliver([MemoryMessage(b"broken", seq=7)])
    assert len(await letters(db)) == 1


async def test_poison_says_never_again(db: Database) -> None:
    async def refuse(events: list[Event[SignalObservedV1]], db: Database) -> None:
        raise Poison("no such thing")

    message = MemoryMessage(observed())
    await consumer(db, refuse).deliver([message])
    assert message.outcome == "ack"
    assert (await letters(db))[0].error == "Poison: no such thing"


async def test_a_dependency_that_is_away_is_waited_for_without_end(db: Database) -> None:
    async def away(events: list[Event[SignalObservedV1]], db: Database) -> None:
        raise ConnectionRefusedError("the model is down")

    messages = [MemoryMessage(observed(), deliveries=150, seq=n) for n in (1, 2)]
    await consumer(db, away).deliver(messages)
    assert [m.outcome for m in messages] == [("nak", 120.0)] * 2
    assert await letters(db) == []


async def test_what_kills_the_process_each_time_is_given_up_in_the_end(db: Database) -> None:
    message = MemoryMessage(observed(), deliveries=901)
    await consumer(db).deliver([message])
    assert message.outcome == "ack"
    assert "without an outcome" in (await letters(db))[0].error


async def test_a_slow_handler_beats(db: Database) -> None:
    async def slow(events: list[Event[SignalObservedV1]], db: Database) -> None:
        while messages[0].beats < 2:
            await asyncio.sleep(0.01)

    messages = [MemoryMessage(observed())]
    await asyncio.wait_for(consumer(db, slow, ack_wait_s=0.06).deliver(messages), 5)
    assert messages[0].outcome == "ack"


async def test_without_a_place_for_the_dead_letter_nothing_is_dropped(db: Database) -> None:
    await db.close()
    message = MemoryMessage(b"broken")
    await consumer(db).deliver([message])
    assert message.outcome == ("nak", 2.0)


async def test_a_day_without_a_place_for_the_dead_letter_does_not_use_up_the_deliveries(db: Database) -> None:
    await db.close()
    hearing, waited = consumer(db), 0.0
    for delivery in range(1, hearing.durable.max_deliver):
        message = MemoryMessage(b"broken", deliveries=delivery)
        await hearing.deliver([message])
        assert isinstance(message.outcome, tuple)
        waited += message.outcome[1] or 0.0
    assert waited > 86_400


async def test_an_outage_takes_no_tries_from_a_message_that_then_fails_by_itself(db: Database) -> None:
    errors: list[Exception] = [ConnectionError()] * 6 + [ValueError("not yet")] * 3

    async def troubled(events: list[Event[SignalObservedV1]], db: Database) -> None:
        raise errors.pop(0)

    hearing, event, outcomes = consumer(db, troubled), observed(), []
    for delivery in range(1, 10):
        message = MemoryMessage(event, deliveries=delivery)
        await hearing.deliver([message])
        outcomes.append(message.outcome)
    assert outcomes[6:] == [("nak", 0.1), ("nak", 0.2), "ack"]
    assert len(await letters(db)) == 1


async def test_what_is_too_large_for_the_dlq_is_told_there_and_kept_whole_in_the_table(db: Database) -> None:
    await consumer(db).deliver([MemoryMessage(b"x" * 3_500_000)])
    async with db.connection() as conn:
        told = await conn.fetchval("SELECT body FROM outbox")
        kept = await conn.fetchval("SELECT octet_length(body) FROM dead_letters")
    assert len(told) < MAX_PAYLOAD
    assert json.loads(told)["body_bytes"] == kept == 3_500_000


async def test_nothing_in_a_message_keeps_it_from_the_dead_letters(db: Database) -> None:
    class Odd(MemoryMessage):
        headers = {"from": "caf\udce9\x00"}  # noqa: RUF012 - as the client reads a byte that is no UTF-8

    async def refuse(events: list[Event[SignalObservedV1]], db: Database) -> None:
        raise Poison("no \x00 and no \udce9")

    message = Odd(observed())
    await consumer(db, refuse).deliver([message])
    assert message.outcome == "ack"
    assert (await letters(db))[0].error == "Poison: no  and no ?"


async def test_a_rolled_back_transaction_says_nothing(db: Database) -> None:
    async def change_ones_mind() -> None:
        async with db.transaction(inbox=observed()) as tx:
            tx.emit_raw("refinement.signal.created.v1", b"{}")
            await tx.flush()
            raise RuntimeError("changed its mind")

    with pytest.raises(RuntimeError):
        await change_ones_mind()
    async with db.connection() as conn:
        assert await conn.fetchval("SELECT count(*) FROM outbox") == 0
        assert await conn.fetchval("SELECT count(*) FROM inbox") == 0


async def test_cause_and_correlation_are_passed_on(db: Database) -> None:
    event = observed()
    await consumer(db).deliver([MemoryMessage(event)])
    (fact,) = await outbox_events(db, SignalCreatedV1)
    assert fact.causationid == event.id
    assert fact.correlationid == event.correlationid
    assert fact.traceparent
    assert fact.source == "burnish/normaliser"
