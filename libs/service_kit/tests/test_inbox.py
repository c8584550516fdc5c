"""The inbox forgets what no stream can deliver any more, and nothing else."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from pydantic import ValidationError

from libs.contracts.topology import DAY_S, STREAMS
from libs.service_kit import pruning
from libs.service_kit.db import Database
from libs.service_kit.delivery import delivering
from libs.service_kit.settings import KitSettings
from libs.service_kit.testing import Installation
from libs.service_kit.testing.plugin import OpenDatabase
from libs.service_kit.tests.support import observed
from libs.service_kit.tests.test_service import build, until

LONGEST = timedelta(seconds=max(stream.max_age_s for stream in STREAMS))
KEPT = KitSettings(database_url="postgresql://x").inbox_kept
CONSUMER = "normaliser-test"


async def remember(db: Database, age: timedelta, count: int = 1, identity: UUID | None = None) -> None:
    """`count` events whose effect was committed so long ago."""
    async with db.connection() as conn:
        await conn.execute(
            "INSERT INTO inbox (consumer, event_id, seen_at) "
            "SELECT $1, coalesce($4, gen_random_uuid()), now() - $2::interval FROM generate_series(1, $3)",
            CONSUMER,
            age,
            count,
            identity,
        )


async def remembered(db: Database) -> int:
    async with db.connection() as conn:
        return int(await conn.fetchval("SELECT count(*) FROM inbox"))


@pytest.fixture
async def db(database: OpenDatabase) -> Database:
    return await database("normaliser")


async def test_what_is_older_than_any_stream_keeps_it_goes_in_bounded_steps(db: Database) -> None:
    await remember(db, KEPT + timedelta(hours=1), 2_500)
    await remember(db, KEPT - timedelta(hours=1), 700)

    assert await pruning.prune(db, KEPT, blocks=3) == 2_500

    assert await remembered(db) == 700
    assert await pruning.prune(db, KEPT) == 0


async def test_a_step_reads_its_own_blocks_only(db: Database) -> None:
    """The plan has no sequential scan of the inbox, however large it is."""
    await remember(db, KEPT * 2, 5_000)
    async with db.connection() as conn:
        await conn.execute("ANALYZE inbox")
        lines = await conn.fetch(f"EXPLAIN {pruning._PRUNE}", (0, 0), (3, 0), KEPT)
    plan = "\n".join(line[0] for line in lines)
    assert "Tid Range Scan on inbox" in plan
    assert "Seq Scan on inbox" not in plan


@pytest.mark.parametrize("margin", [timedelta(0), timedelta(minutes=1), LONGEST / 2])
async def test_an_event_that_a_stream_can_still_deliver_is_never_forgotten(db: Database, margin: timedelta) -> None:
    event = observed()
    await remember(db, LONGEST - margin, identity=event.id)

    await pruning.prune(db, KEPT)

    with delivering(CONSUMER, [event]):
        async with db.transaction(inbox=event) as tx:
            assert tx.fresh == []


async def test_the_control_without_its_row_it_takes_effect_again(db: Database) -> None:
    event = observed()
    await remember(db, LONGEST, identity=event.id)

    await pruning.prune(db, LONGEST / 2)

    with delivering(CONSUMER, [event]):
        async with db.transaction(inbox=event) as tx:
            assert tx.fresh == [event]


async def test_the_event_of_a_dead_letter_is_never_forgotten(db: Database) -> None:
    """It can be replayed for ever, and more than once."""
    event = uuid4()
    await remember(db, KEPT * 3, identity=event)
    await remember(db, KEPT * 3)
    async with db.connection() as conn:
        await conn.execute(
            "INSERT INTO dead_letters (consumer, subject, event_id, body, error, error_class, deliveries, replayed_at) "
            "VALUES ('other', 's', $1, '', 'e', 'E', 1, now())",
            event,
        )

    assert await pruning.prune(db, KEPT) == 1

    async with db.connection() as conn:
        assert await conn.fetchval("SELECT event_id FROM inbox") == event


async def test_two_replicas_do_not_prune_at_once(db: Database) -> None:
    await remember(db, KEPT * 2, 1_000)
    removed = await asyncio.gather(*(pruning.prune(db, KEPT, blocks=1) for _ in range(3)))
    assert sum(removed) + await remembered(db) == 1_000
    assert await pruning.prune(db, KEPT) == 1_000 - sum(removed)


async def test_a_running_service_prunes_by_itself(installation: Installation, database: OpenDatabase) -> None:
    db = await database("normaliser")
    await remember(db, KEPT * 2, 30)
    service = build(installation, inbox_pruned_every_s=0.05)
    await service.start()
    try:

        async def pruned() -> bool:
            return await remembered(db) == 0

        await until(pruned)
    finally:
        await service.close()


@pytest.mark.parametrize("days", [0, 1, 29.9, LONGEST.total_seconds() / DAY_S])
def test_a_memory_shorter_than_the_streams_is_refused(days: float) -> None:
    with pytest.raises(ValidationError, match="stream DLQ keeps a message"):
        KitSettings(database_url="postgresql://x", inbox_kept_days=days)


def test_a_longer_memory_is_taken() -> None:
    settings = KitSettings(database_url="postgresql://x", inbox_kept_days=365)
    assert settings.inbox_kept == timedelta(days=365)
