"""A whole service on real servers: hears, says, answers, buries, replays, is healthy, stops."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import urlparse
from uuid import uuid4

import httpx
import nats
import pytest
from nats.aio.client import Client

from libs.contracts import topology
from libs.contracts.envelope import Event
from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.events.pattern_detector import SignalProcessedV1
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.queries.dead_letters import ListDeadLetters, ReplayDeadLetter
from libs.contracts.queries.normaliser import CountSignals, SignalCounts, TouchpointCounts
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused, Unavailable
from libs.service_kit.queries import Asker
from libs.service_kit.service import Service
from libs.service_kit.settings import KitSettings
from libs.service_kit.testing import Installation
from libs.service_kit.tests.support import effects, make_effects_table, note, observed


async def ignore_processed(events: list[Event[SignalProcessedV1]], db: Database) -> None:
    async with db.transaction(inbox=events):
        pass


async def ignore_registered(events: list[Event[TouchpointRegisteredV1]], db: Database) -> None:
    async with db.transaction(inbox=events):
        pass


async def count(query: CountSignals) -> SignalCounts:
    if query.touchpoint_id == "unknown":
        raise Refused("not_found", "no touchpoint 'unknown'", status=404)
    return SignalCounts(counts=(TouchpointCounts(touchpoint_id="t", stored=1, unprocessed=0, rejected=0),))


def build(
    installation: Installation,
    on_observed: Callable[[list[Event[SignalObservedV1]], Database], Awaitable[None]] = note,
    on_count: Callable[[CountSignals], Awaitable[SignalCounts]] = count,
    **changes: Any,
) -> Service:
    service = Service("normaliser", KitSettings(**{**installation.settings("normaliser"), **changes}))

    async def observe(events: list[Event[SignalObservedV1]], db: Database) -> None:
        await on_observed(events, db)

    async def answer(query: CountSignals) -> SignalCounts:
        return await on_count(query)

    service.consume_batch(SignalObservedV1, observe, db=service.db)
    service.consume_batch(SignalProcessedV1, ignore_processed, db=service.db)
    service.consume_batch(TouchpointRegisteredV1, ignore_registered, db=service.db)
    service.answer(CountSignals, answer)
    return service


@pytest.fixture
async def service(installation: Installation) -> AsyncIterator[Service]:
    await make_effects_table(installation.admin_dsn)
    running = build(installation)
    await running.start()
    yield running
    await running.close()


async def push(installation: Installation, events: list[Event[SignalObservedV1] | bytes]) -> None:
    client = await nats.connect(
        installation.servers.nats_url, user="scanner", password=installation.servers.nats_password("scanner")
    )
    js = client.jetstream(prefix="bus")
    for event in events:
        body = event if isinstance(event, bytes) else event.encode()
        await js.publish("refinement.signal.observed.v1", body, stream="REFINEMENT", timeout=5)
    await client.close()


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 15) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.02)


async def registry_asker(installation: Installation) -> tuple[Client, Asker]:
    client = await nats.connect(
        installation.servers.nats_url, user="gateway", password=installation.servers.nats_password("gateway")
    )
    return client, Asker(lambda: client)


async def test_an_answer_is_sent_without_delay(service: Service) -> None:
    """Head and body leave in two writes: the second must not wait for the acknowledgement of the first."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.http_port)
    waits = []
    for _ in range(10):
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        headed = asyncio.get_running_loop().time()
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        await reader.readexactly(length)
        waits.append(asyncio.get_running_loop().time() - headed)
    writer.close()
    assert sorted(waits)[len(waits) // 2] < 0.02


async def test_what_is_heard_takes_effect_and_is_said_on(installation: Installation, service: Service) -> None:
    events = [observed(key=f"k{n}") for n in range(250)]
    await push(installation, [*events, *events[:50]])

    async def all_said() -> bool:
        admin = await installation.bus_admin()
        info = await admin.jetstream().stream_info("REFINEMENT", subjects_filter="refinement.signal.created.v1")
        await admin.close()
        return int((info.state.subjects or {}).get("refinement.signal.created.v1", 0)) >= 250

    await until(all_said)
    assert sorted(await effects(service.db)) == sorted(event.id for event in events)


async def test_a_poison_message_is_listed_and_replayed(installation: Installation) -> None:
    await make_effects_table(installation.admin_dsn)
    handle = note

    async def observe(events: list[Event[SignalObservedV1]], db: Database) -> None:
        await handle(events, db)

    service = build(installation, observe)
    await service.start()
    bad, good = observed("poison"), observed("fine")
    await push(installation, [bad, b"not json", good])
    client, asker = await registry_asker(installation)
    list_subject = topology.dead_letter_list_subject("normaliser")
    replay_subject = topology.dead_letter_replay_subject("normaliser")

    async def both_buried() -> bool:
        return len((await asker.ask(ListDeadLetters(), subject=list_subject)).dead_letters) == 2

    await until(both_buried)
    assert await effects(service.db) == [good.id]
    letters = (await asker.ask(ListDeadLetters(), subject=list_subject)).dead_letters
    by_event = {letter.event_id: letter for letter in letters}
    replay = ReplayDeadLetter(dead_letter_id=by_event[bad.id].dead_letter_id)
    still_bad = await asker.ask(replay, subject=replay_subject)
    assert still_bad.outcome == "failed"

    async def fixed(events: list[Event[SignalObservedV1]], db: Database) -> None:
        async with db.transaction(inbox=events) as tx:
            for event in tx.fresh:
                await tx.conn.execute("INSERT INTO effects (event_id) VALUES ($1)", event.id)

    handle = fixed
    for _ in range(2):
        done = await asker.ask(replay, subject=replay_subject)
        assert done.outcome == "handled"
    assert await effects(service.db) == [good.id, bad.id]
    with pytest.raises(Refused, match="no dead letter"):
        await asker.ask(ReplayDeadLetter(dead_letter_id=uuid4()), subject=replay_subject)
    admin = await installation.bus_admin()
    stream = await admin.jetstream().stream_info("DLQ")
    assert stream.state.messages == 2
    await admin.close()
    await client.close()
    await service.close()


async def test_questions_are_answered_refused_and_missed(installation: Installation, service: Service) -> None:
    client, asker = await registry_asker(installation)
    assert (await asker.ask(CountSignals())).counts[0].stored == 1
    with pytest.raises(Refused) as no:
        await asker.ask(CountSignals(touchpoint_id="unknown"))
    assert (no.value.status, no.value.code) == (404, "not_found")
    malformed = await client.request(CountSignals.subject, b'{"touchpoint_id": 7}', timeout=2)
    assert json.loads(malformed.data)["refused"]["status"] == 422
    from libs.contracts.queries.pattern_detector import ListPatterns

    with pytest.raises(Unavailable):
        await asker.ask(ListPatterns(), timeout_s=1)
    await client.close()


async def test_a_question_that_is_too_large_is_refused_and_no_outage(
    installation: Installation, service: Service
) -> None:
    client, asker = await registry_asker(installation)
    with pytest.raises(Refused) as no:
        await asker.ask(CountSignals.model_construct(touchpoint_id="t" * 5_000_000))
    assert no.value.status == 413
    await client.close()


async def test_a_service_that_stops_answers_what_it_was_asked_and_nothing_new(installation: Installation) -> None:
    await make_effects_table(installation.admin_dsn)
    asked, go_on, stopping = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slowly(query: CountSignals) -> SignalCounts:
        asked.set()
        await go_on.wait()
        return SignalCounts(counts=())

    async def note_stop() -> None:
        stopping.set()

    service = build(installation, on_count=slowly)
    service.on_stop(note_stop)
    await service.start()
    client, asker = await registry_asker(installation)
    first = asyncio.create_task(asker.ask(CountSignals()))
    await asked.wait()
    closing = asyncio.create_task(service.close())

    async def deaf() -> bool:
        try:
            await asker.ask(ListDeadLetters(), subject=topology.dead_letter_list_subject("normaliser"))
        except Unavailable:
            return True
        return False

    await until(deaf, 4)
    assert not stopping.is_set(), "the connections are still open: whatever is asked now is sent to another replica"
    go_on.set()
    assert (await first).counts == ()
    await closing
    await client.close()


async def test_health_tells_what_is_wrong(installation: Installation, service: Service) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{service.http_port}") as http:
        assert (await http.get("/health/live")).status_code == 200
        ready = await http.get("/health/ready")
        assert ready.status_code == 200, ready.text
        assert "burnish_messages_total" in (await http.get("/metrics")).text
        admin = await installation.bus_admin()
        durable = "normaliser-refinement_signal_processed_v1"
        await admin.jetstream().delete_consumer("REFINEMENT", durable)
        await admin.close()
        unready = await http.get("/health/ready")
        assert unready.status_code == 503
        assert unready.json()["checks"][durable] != "ok"
        assert unready.json()["checks"]["database"] == "ok"
        assert (await http.get("/health/live")).status_code == 200


async def test_a_service_without_a_handler_for_a_durable_does_not_start(installation: Installation) -> None:
    service = Service("normaliser", KitSettings(**installation.settings("normaliser")))
    with pytest.raises(RuntimeError, match=r"hears .*refinement\.signal\.observed\.v1"):
        await service.start()


async def test_a_taken_port_is_named(installation: Installation, service: Service) -> None:
    other = build(installation, http_port=service.http_port)
    with pytest.raises(OSError, match=f"{service.http_port}.*BURNISH_HTTP_PORT"):
        await other.start()
    await other.close()


async def test_two_replicas_relay_and_consume_without_doubling(installation: Installation, service: Service) -> None:
    second = build(installation)
    await second.start()
    events = [observed(key=f"k{n}") for n in range(300)]
    await push(installation, list(events))

    async def all_there() -> bool:
        return len(await effects(service.db)) >= 300

    await until(all_there)
    await second.close()
    assert len(await effects(service.db)) == 300


async def test_stop_leaves_no_task_behind(installation: Installation) -> None:
    await make_effects_table(installation.admin_dsn)
    before = asyncio.all_tasks()
    service = build(installation)
    await service.start()
    await service.close()
    await asyncio.sleep(0)
    assert {task for task in asyncio.all_tasks() if not task.done()} <= before


async def test_a_part_that_ends_unasked_ends_the_service_with_an_error(installation: Installation) -> None:
    await make_effects_table(installation.admin_dsn)
    service = build(installation)

    async def cut_for_good() -> None:
        await service.started.wait()
        await service.bus.client.close()

    cutting = asyncio.create_task(cut_for_good())
    with pytest.raises(RuntimeError, match="its part 'bus' did"):
        await asyncio.wait_for(service.run(), 15)
    await cutting


async def test_a_bus_that_is_away_is_not_called_well(installation: Installation, service: Service) -> None:
    await service.bus.ping()
    client = service.bus.client
    client._server_pool[0].uri = urlparse("nats://127.0.0.1:1")
    await client.force_reconnect()

    async def away() -> bool:
        return not client.is_connected

    await until(away)
    with pytest.raises(ConnectionError):
        await service.bus.ping()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # nats-py leaves the refused one open
async def test_a_server_that_refuses_for_a_while_is_come_back_to(installation: Installation, service: Service) -> None:
    """FastStream's callback would raise inside the client's reconnecting and end it, with the connection half open."""
    client = service.bus.client
    refused = asyncio.Event()
    tell = client._error_cb

    async def note(error: Exception) -> None:
        if "authorization" in str(error).lower():
            refused.set()
        await tell(error)

    client._error_cb = note
    password, client.options["password"] = client.options["password"], "wrong"
    await client.force_reconnect()
    await asyncio.wait_for(refused.wait(), 15)
    client.options["password"] = password

    async def back() -> bool:
        return client.is_connected

    await until(back)
    await service.bus.ping()
    other, asker = await registry_asker(installation)
    assert (await asker.ask(CountSignals())).counts[0].stored == 1
    await other.close()
