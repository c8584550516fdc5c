"""The projection in every schema that has it, and what is carried over from the tables of before."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import permutations
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from libs import touchpoints
from libs.contracts import topology
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.touchpoints import SignalSource, Storage, Thresholds, Touchpoint
from libs.provisioning.migrations import migrate
from libs.service_kit.db import Database, Transaction
from libs.service_kit.delivery import delivering
from libs.service_kit.testing import event_of
from libs.service_kit.testing.plugin import OpenDatabase
from libs.service_kit.testing.servers import MIGRATIONS, Servers

HEARING = sorted(
    entry.name for entry in topology.SERVICES if any(d.event is TouchpointRegisteredV1 for d in entry.hears)
)


def registered(revision: int, identity: str = "a", **changes: Any) -> TouchpointRegisteredV1:
    storage = Storage(adapter="feed_prompts", initial_text="the text of a prompt")
    touchpoint = Touchpoint(**{"id": identity, "scope": "workspace", "storage": storage, **changes})
    return TouchpointRegisteredV1(touchpoint=touchpoint, revision=revision, registered_by="admin")


async def hear(db: Database, *said: TouchpointRegisteredV1, follow_up: touchpoints.FollowUp | None = None) -> None:
    events = [event_of(one) for one in said]
    with delivering("touchpoints-test", events):
        await touchpoints.on_registered(events, db, follow_up)


async def known(db: Database, identity: str = "a") -> touchpoints.KnownTouchpoint | None:
    async with db.connection() as conn:
        return await touchpoints.get(conn, identity)


async def test_every_service_that_hears_has_the_table_and_no_other_service(servers: Servers, clone: str) -> None:
    conn = await asyncpg.connect(servers.admin_dsn(clone))
    rows = await conn.fetch("SELECT schemaname FROM pg_tables WHERE tablename = 'known_touchpoints'")
    await conn.close()
    assert sorted(row["schemaname"] for row in rows) == HEARING
    assert len(HEARING) >= 6


@pytest.mark.parametrize("service", HEARING)
async def test_the_newest_revision_is_kept_in_every_schema(database: OpenDatabase, service: str) -> None:
    db = await database(service)
    await hear(db, registered(2, description="two"), registered(1, "b"))
    await hear(db, registered(1, description="one"), registered(3, "b", active=False))
    first, second = await known(db), await known(db, "b")
    assert first is not None
    assert second is not None
    assert (first.revision, first.description, first.scope) == (2, "two", "workspace")
    assert (second.revision, second.active) == (3, False)
    assert await known(db, "never.registered") is None
    async with db.connection() as conn:
        assert await touchpoints.scopes(conn, {"a", "never.registered"}) == {"a": "workspace"}
        assert "the text of a prompt" not in str(await conn.fetch("SELECT * FROM known_touchpoints"))


async def test_in_any_order_within_a_batch_or_over_several(database: OpenDatabase) -> None:
    db = await database("scanner")
    for number, order in enumerate(permutations((1, 2, 3))):
        together, apart = f"together.{number}", f"apart.{number}"
        await hear(db, *(registered(revision, together) for revision in order))
        for revision in order:
            await hear(db, registered(revision, apart))
        for identity in (together, apart):
            found = await known(db, identity)
            assert found is not None
            assert found.revision == 3


async def test_what_follows_gets_only_what_is_new_in_the_same_transaction(database: OpenDatabase) -> None:
    db = await database("scanner")
    told: list[tuple[str, str]] = []

    async def follow_up(tx: Transaction[TouchpointRegisteredV1], newer: Sequence[Touchpoint]) -> None:
        told.extend((one.id, one.description) for one in newer)
        assert await touchpoints.get(tx.conn, newer[0].id) is not None

    async def fail(tx: Transaction[TouchpointRegisteredV1], newer: Sequence[Touchpoint]) -> None:
        raise RuntimeError

    await hear(db, registered(2, description="two"), follow_up=follow_up)
    await hear(db, registered(1, description="one"), registered(1, "b"), follow_up=follow_up)
    await hear(db, registered(2, description="two"), follow_up=follow_up)
    assert told == [("a", "two"), ("b", "")]
    with pytest.raises(RuntimeError):
        await hear(db, registered(1, "c"), follow_up=fail)
    assert await known(db, "c") is None


async def test_a_key_that_newer_code_wrote_is_left_out(database: OpenDatabase) -> None:
    db = await database("proposal")
    await hear(db, registered(1))
    async with db.connection() as conn:
        await conn.execute(
            "UPDATE known_touchpoints SET config = config || $1",
            {"coming": 1, "approvals": {"required": 2, "coming": True}},
        )
    found = await known(db)
    assert found is not None
    assert found.approvals.required == 2


# --- installations of before ------------------------------------------------------------------------------

Before = tuple[str, dict[str, Any]]
GATES = Thresholds(min_evidence=7)
CONFIG = registered(4, thresholds=GATES).touchpoint.model_dump(mode="json")
SCOPED: Before = ("INSERT INTO touchpoints (touchpoint_id, scope, revision) VALUES ($1, 'workspace', $2)", {})
WHOLE: Before = ("INSERT INTO touchpoints (touchpoint_id, config, revision) VALUES ($1, $3, $2)", CONFIG)
GATED: Before = (
    "INSERT INTO thresholds SELECT $1, $2, t.*, true FROM jsonb_to_record($3::jsonb -> 'thresholds') AS t"
    " (min_evidence int, single_actor_evidence int, min_actors int, auto_human_actors int, auto_machine_cases int,"
    " max_open_patterns int)",
    CONFIG,
)
BEFORE = {
    "normaliser": SCOPED,
    "qa_ingest": SCOPED,
    "proposal": WHOLE,
    "ab_runner": WHOLE,
    "scanner": WHOLE,
    "pattern_detector": GATED,
}


LATER = ("agents", "touchpoints")
"""What the first release did not have."""


@pytest_asyncio.fixture
async def earlier(servers: Servers, tmp_path: Path) -> AsyncIterator[str]:
    """A database as the first release left it; its name."""
    shutil.copytree(MIGRATIONS, tmp_path / "db")
    for file in (tmp_path / "db").glob("*/*.sql"):
        if not file.name.startswith("0001_") or file.parent.name in LATER:
            file.unlink()
    name = f"earlier_{tmp_path.name}"
    await migrate(servers.admin_dsn(name), tmp_path / "db", servers.role_passwords)
    yield name
    await servers.drop(name)


async def test_what_the_tables_of_before_knew_is_carried_over(servers: Servers, earlier: str) -> None:
    for service in BEFORE:
        async with opened(servers, service, earlier) as db:
            await write_as_before(db, "a", 4)
    await migrate(servers.admin_dsn(earlier), MIGRATIONS, servers.role_passwords, phase="pre")
    for service in BEFORE:
        async with opened(servers, service, earlier) as db:
            check_carried_over(service, await known(db))
            await write_as_before(db, "b", 1)  # the code of before still runs
            assert await known(db, "b") is not None, service
            await hear(db, registered(5, description="five"))
            found = await known(db)
            assert found is not None
            assert (found.revision, found.scope, found.description) == (5, "workspace", "five"), service


def check_carried_over(service: str, found: touchpoints.KnownTouchpoint | None) -> None:
    assert found is not None, service
    assert found.revision == 4
    assert found.scope == (None if service == "pattern_detector" else "workspace")
    assert found.thresholds == (Thresholds() if BEFORE[service] is SCOPED else GATES)
    if service == "pattern_detector":
        assert found.signals == (SignalSource(scanner="carried_over"),)


async def write_as_before(db: Database, identity: str, revision: int) -> None:
    statement, config = BEFORE[db.service]
    async with db.connection() as conn:
        await conn.execute(statement, identity, revision, *([{**config, "id": identity}] if config else []))


@asynccontextmanager
async def opened(servers: Servers, service: str, database: str) -> AsyncIterator[Database]:
    db = Database(service, servers.role_dsn(service, database), pool_size=1)
    await db.open()
    try:
        yield db
    finally:
        await db.close()
