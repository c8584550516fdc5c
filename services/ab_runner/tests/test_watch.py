"""A run whose shard is lost ends with its reason, by itself; what comes afterwards does no harm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import nats
import pytest

from libs.contracts.envelope import Event
from libs.contracts.events.ab_runner import AbExecutedV1, AbRequestedV1, EvalRequestedV1, ShardRequestedV1
from libs.contracts.queries.dead_letters import DeadLetter, ListDeadLetters, ReplayDeadLetter
from libs.contracts.topology import dead_letter_list_subject, dead_letter_replay_subject, durable
from libs.llm import ModelReply, ModelRequest
from libs.service_kit import dead_letters
from libs.service_kit.db import Database
from libs.service_kit.testing import Installation, outbox_events
from libs.service_kit.testing.plugin import OpenDatabase
from services.ab_runner import handlers
from services.ab_runner.tests.support import (
    GOOD,
    RuleModel,
    ab,
    evaluation,
    models,
    outage,
    prepare,
    report,
    shards_of,
    work_through,
)
from services.ab_runner.tests.test_service import Gateway, on_the_stream, registered, running
from services.ab_runner.watch import Watch

PATIENCE = timedelta(seconds=0.3)
QUICK: dict[str, Any] = {"runs_watched_every_s": 0.1, "shard_cases": 10}


@pytest.fixture
async def db(database: OpenDatabase) -> Database:
    opened = await database("ab_runner")
    await prepare(opened)
    return opened


@pytest.fixture
async def gateway(installation: Installation) -> AsyncIterator[Gateway]:
    client = await nats.connect(
        installation.servers.nats_url, user="gateway", password=installation.servers.nats_password("gateway")
    )
    bus = await installation.bus_admin()
    yield Gateway(client, bus)
    await bus.close()
    await client.close()


async def present() -> None:
    """A bus that is there."""


def watch(db: Database, patience: timedelta = PATIENCE, bus: Callable[[], Awaitable[object]] = present) -> Watch:
    return Watch(db, bus, patience, every_s=0.05)


async def watched(watch: Watch, seconds: float = 1.0) -> None:
    """Turn after turn for so long."""
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        await watch.turn()
        await asyncio.sleep(0.05)


async def begun(db: Database, event: Event[AbRequestedV1] | None = None) -> Event[AbRequestedV1]:
    """A run that was asked for and dealt; nobody has worked on it."""
    event = event or ab()
    await handlers.on_ab_requested(event, db, models(RuleModel()), 10)
    return event


async def bury(db: Database, event: Event[Any]) -> None:
    """What the kit does with a message that it gives up."""
    letter = dead_letters.Buried(
        consumer=durable("ab_runner", type(event.data)).name,
        subject=event.type,
        event_id=event.id,
        body=event.encode(),
        headers={},
        deliveries=5,
        stream_seq=1,
    )
    await dead_letters.bury(db, letter, RuntimeError("no such device"))


# --- one after the other, on a real Postgres ------------------------------------------------------------------


async def test_a_run_whose_shard_never_comes_ends(db: Database) -> None:
    event = await begun(db)
    await watched(watch(db))
    ended = await report(db, event.data.run_id)
    assert ended.status == "failed"
    assert (ended.error or "").startswith("no progress for 0.005 min: shard 0, 1, 2, 3, 4, 5, 6, 7 of 8 was lost")
    (fact,) = await outbox_events(db, AbExecutedV1)
    assert (fact.data.status, fact.data.reason) == ("failed", ended.error)


async def test_a_shard_that_comes_after_the_end_does_no_harm(db: Database) -> None:
    event = await begun(db)
    await watched(watch(db))
    before = await report(db, event.data.run_id)
    model = RuleModel()
    await work_through(db, event.data.run_id, models(model))
    await watched(watch(db), 0.2)
    assert await report(db, event.data.run_id) == before
    assert model.answered == []
    assert len(await outbox_events(db, AbExecutedV1)) == 1


async def test_a_run_with_one_lost_shard_among_many_ends_and_keeps_what_was_paid_for(db: Database) -> None:
    event = await begun(db)
    model = RuleModel()
    for shard in (await shards_of(db, event.data.run_id))[:7]:
        await handlers.on_shard_requested(shard, db, models(model))
    await watched(watch(db))
    ended = await report(db, event.data.run_id)
    assert (ended.status, ended.cases_done) == ("failed", 70)
    assert "shard 7 of 8 was lost" in (ended.error or "")
    again = await begun(db)
    await work_through(db, again.data.run_id, models(model))
    assert (await report(db, again.data.run_id)).model_calls == 10


async def test_nothing_ends_that_nobody_could_watch(db: Database) -> None:
    """The service was away for longer than its patience; what waits for it is not lost."""
    event = await begun(db)
    async with db.connection() as conn:
        await conn.execute("UPDATE shards SET dealt_at = now() - interval '3 days'")
    await watch(db, timedelta(hours=1)).turn()
    assert (await report(db, event.data.run_id)).status == "queued"


async def test_while_the_bus_is_away_nothing_is_lost(db: Database) -> None:
    away = True

    async def bus() -> None:
        if away:
            raise ConnectionError("not connected")

    event = await begun(db)
    watching = watch(db, bus=bus)
    for _ in range(10):
        with pytest.raises(ConnectionError):
            await watching.turn()
        await asyncio.sleep(0.05)
    away = False
    await watching.turn()
    assert (await report(db, event.data.run_id)).status == "queued"
    await watched(watching)
    assert (await report(db, event.data.run_id)).status == "failed"


async def test_a_model_that_is_away_is_waited_for(db: Database) -> None:
    """Each try moves the run, however long the outage lasts."""
    event = await begun(db)
    watching, shards = watch(db), await shards_of(db, event.data.run_id)
    for _ in range(12):
        for shard in shards:
            with pytest.raises(Exception, match="rate limited"):
                await handlers.on_shard_requested(shard, db, models(RuleModel(errors=[outage()] * 100)))
        await watching.turn()
    await work_through(db, event.data.run_id, models(RuleModel()))
    await watching.turn()
    assert (await report(db, event.data.run_id)).status == "completed"


async def test_a_run_behind_an_older_one_waits_its_turn(db: Database) -> None:
    first, second = await begun(db), await begun(db, ab(b=f"{GOOD}x: card\n"))
    watching = watch(db, timedelta(seconds=0.5))
    for shard in await shards_of(db, first.data.run_id):
        await handlers.on_shard_requested(shard, db, models(RuleModel()))
        await watched(watching, 0.2)
    assert (await report(db, first.data.run_id)).status == "completed"
    assert (await report(db, second.data.run_id)).status == "queued"
    await watched(watching, 1.0)
    assert (await report(db, second.data.run_id)).status == "failed"


async def test_a_run_that_younger_ones_have_passed_is_not_kept_by_an_older_one(db: Database) -> None:
    older, lost, younger = [await begun(db, ab(b=f"{GOOD}x{i}: card\n")) for i in range(3)]
    await work_through(db, younger.data.run_id, models(RuleModel()))
    watching = watch(db, timedelta(seconds=0.5))
    for shard in await shards_of(db, older.data.run_id):
        await watched(watching, 0.2)
        await handlers.on_shard_requested(shard, db, models(RuleModel()))
    assert (await report(db, lost.data.run_id)).status == "failed"
    assert (await report(db, older.data.run_id)).status == "completed"


async def test_a_run_ends_at_once_when_a_shard_of_it_is_a_dead_letter(db: Database) -> None:
    event, other = await begun(db), await begun(db, ab(b=f"{GOOD}x: card\n"))
    shards = await shards_of(db, event.data.run_id)
    await bury(db, shards[5])
    await watch(db, timedelta(hours=1)).turn()
    ended = await report(db, event.data.run_id)
    assert ended.error == ("shard 5 could not be handled and is with the dead letters: RuntimeError: no such device")
    assert (await report(db, other.data.run_id)).status == "queued"


@pytest.mark.parametrize("kind", [AbRequestedV1, EvalRequestedV1])
async def test_a_request_that_is_a_dead_letter_is_a_failed_run(db: Database, kind: type[Any]) -> None:
    event: Any = ab() if kind is AbRequestedV1 else evaluation(GOOD)
    await bury(db, event)
    await watch(db).turn()
    await watch(db).turn()
    ended = await report(db, event.data.run_id)
    assert ended.status == "failed"
    assert (ended.error or "").startswith("the request could not be handled and is with the dead letters: ")
    assert len(await outbox_events(db, AbExecutedV1)) == (1 if kind is AbRequestedV1 else 0)
    replay: Any = handlers.on_ab_requested if kind is AbRequestedV1 else handlers.on_eval_requested
    await replay(event, db, models(RuleModel()), 10)
    assert await report(db, event.data.run_id) == ended
    assert await outbox_events(db, ShardRequestedV1) == []


# --- the service on a real bus --------------------------------------------------------------------------------


class Broken(RuleModel):
    """Fails in a way that nobody foresaw."""

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Never an answer."""
        raise ZeroDivisionError("the model's own bug")


class Slow(RuleModel):
    """A model that takes its time."""

    async def complete(self, request: ModelRequest) -> ModelReply:
        """The rule model's answer, later."""
        await asyncio.sleep(0.2)
        return await super().complete(request)


async def test_a_buried_shard_ends_its_run_for_everybody_and_its_replay_does_no_harm(
    installation: Installation, gateway: Gateway
) -> None:
    model = Broken()
    async with running(installation, model, **QUICK):
        await registered(gateway)
        await gateway.emit(event := ab())
        ended = await gateway.ended(event.data.run_id)
        assert ended.status == "failed"
        assert "with the dead letters" in (ended.error or "")
        async with asyncio.timeout(30):  # a shard that was in work when its run ended may be buried later
            while letters := await dead_shards(gateway):
                for letter in letters:
                    await gateway.asker.ask(
                        ReplayDeadLetter(dead_letter_id=letter.dead_letter_id),
                        subject=dead_letter_replay_subject("ab_runner"),
                    )
        after = await gateway.run(event.data.run_id)
        assert (after.status, after.error, after.finished_at) == ("failed", ended.error, ended.finished_at)
    assert model.answered == []
    assert await on_the_stream(installation, AbExecutedV1) == 1


async def test_the_control_without_the_watch_it_stays_running(installation: Installation, gateway: Gateway) -> None:
    async with running(installation, Broken(), shard_cases=10, runs_watched_every_s=3_600):
        await registered(gateway)
        await gateway.emit(event := ab())
        async with asyncio.timeout(30):
            while len(await dead_shards(gateway)) < 8:
                await asyncio.sleep(0.1)
        assert (await gateway.run(event.data.run_id)).finished_at is None


async def test_a_worker_that_hangs_ends_its_run_and_nothing_else(installation: Installation, gateway: Gateway) -> None:
    model = RuleModel(hold_after=15)
    async with running(installation, model, run_stalled_after_s=1.0, **QUICK):
        await registered(gateway)
        await gateway.emit(event := ab())
        ended = await gateway.ended(event.data.run_id)
        assert (ended.error or "").startswith("no progress for ")
        model.release()
        await gateway.emit(again := ab())
        assert (await gateway.ended(again.data.run_id)).status == "completed"
        assert (await gateway.run(event.data.run_id)).status == "failed"
    assert await on_the_stream(installation, AbExecutedV1) == 2


async def test_a_slow_run_that_moves_is_left_alone(installation: Installation, gateway: Gateway) -> None:
    async with running(installation, Slow(), run_stalled_after_s=1.5, **QUICK):
        await registered(gateway)
        await gateway.emit(event := ab())
        ended = await gateway.ended(event.data.run_id)
    assert ended.status == "completed"
    assert ended.finished_at is not None
    assert ended.finished_at - ended.requested_at > timedelta(seconds=3)


async def dead_shards(gateway: Gateway) -> list[DeadLetter]:
    found = await gateway.asker.ask(ListDeadLetters(limit=100), subject=dead_letter_list_subject("ab_runner"))
    return [one for one in found.dead_letters if one.consumer == durable("ab_runner", ShardRequestedV1).name]
