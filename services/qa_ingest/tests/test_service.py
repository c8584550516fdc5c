from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID, uuid4

import asyncpg
import pytest

from libs import touchpoints
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.touchpoints import Storage, Touchpoint
from libs.contracts.vocabulary import Scope
from libs.service_kit.db import Connection, Database
from libs.service_kit.delivery import delivering
from libs.service_kit.testing import Installation, MemoryMessage, event_of
from services.qa_ingest.app import build
from services.qa_ingest.settings import Settings

OpenDatabase = Callable[[str], Awaitable[Database]]
A, B = uuid4(), uuid4()


def registered(identity: str, revision: int, scope: Scope = "global") -> TouchpointRegisteredV1:
    touchpoint = Touchpoint(id=identity, scope=scope, storage=Storage(adapter="feed_prompts", initial_text="x"))
    return TouchpointRegisteredV1(touchpoint=touchpoint, revision=revision, registered_by="admin")


async def deliver(db: Database, *data: TouchpointRegisteredV1) -> None:
    events = [event_of(one) for one in data]
    with delivering("qa_ingest-test", events):
        await touchpoints.on_registered(events, db)


async def kept(db: Database) -> dict[str, tuple[str, int]]:
    async with db.connection() as conn:
        rows = await conn.fetch("SELECT * FROM known_touchpoints")
    return {row["touchpoint_id"]: (row["scope"], row["revision"]) for row in rows}


async def test_an_older_revision_changes_nothing(database: OpenDatabase) -> None:
    db = await database("qa_ingest")
    await deliver(db, registered("a", 2, "workspace"), registered("b", 1))
    await deliver(db, registered("a", 1))
    await deliver(db, registered("b", 3, "workspace"))
    assert await kept(db) == {"a": ("workspace", 2), "b": ("workspace", 3)}


async def test_delivered_again_takes_effect_once(database: OpenDatabase) -> None:
    db = await database("qa_ingest")
    await deliver(db, registered("a", 1))
    await deliver(db, registered("a", 1))
    async with db.connection() as conn:
        assert await conn.fetchval("SELECT count(*) FROM inbox") == 1


async def test_a_running_service_hears_touchpoints(installation: Installation) -> None:
    service = build(Settings(**installation.settings("qa_ingest")))
    await service.start()
    try:
        consumer = next(iter(service._consumers.values()))
        message = MemoryMessage(event_of(registered("a", 1)))
        await consumer.deliver([message])
        assert message.outcome == "ack"
        assert await kept(service.db) == {"a": ("global", 1)}
    finally:
        await service.close()


async def make_document(conn: Connection, workspace: UUID, version: str = "1", state: str = "live") -> None:
    await conn.execute("SELECT set_config('burnish.workspaces', $1, true)", str(workspace))
    await conn.execute(
        "INSERT INTO workspaces (id, name) VALUES ($1, $2) ON CONFLICT DO NOTHING", workspace, f"w {workspace}"
    )
    await conn.execute(
        """
        INSERT INTO documents (workspace_id, bucket, object_key, object_version, content_sha256, bytes, state)
        VALUES ($1, 'b', 'k', $2, repeat('0', 64), 1, $3)
        """,
        workspace,
        version,
        state,
    )


async def test_a_workspace_is_not_seen_from_another_or_from_none(database: OpenDatabase) -> None:
    db = await database("qa_ingest")
    async with db.connection() as conn:
        for workspace in (A, B):
            async with conn.transaction():
                await make_document(conn, workspace)
    async with db.connection() as conn:
        assert await conn.fetchval("SELECT count(*) FROM documents") == 0
        assert await conn.fetchval("SELECT count(*) FROM workspaces") == 0
        async with conn.transaction():
            await conn.execute("SELECT set_config('burnish.workspaces', $1, true)", str(A))
            assert [row["workspace_id"] for row in await conn.fetch("SELECT * FROM documents")] == [A]
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
                await conn.execute("UPDATE documents SET workspace_id = $1", B)


async def test_one_version_of_an_object_is_served(database: OpenDatabase) -> None:
    db = await database("qa_ingest")
    async with db.connection() as conn, conn.transaction():
        await make_document(conn, A)
        with pytest.raises(asyncpg.UniqueViolationError, match="documents_one_served"):
            async with conn.transaction():
                await make_document(conn, A, version="2", state="stale")
        await make_document(conn, A, version="2", state="received")


async def test_a_workspace_with_documents_cannot_be_deleted(database: OpenDatabase) -> None:
    db = await database("qa_ingest")
    async with db.connection() as conn, conn.transaction():
        await make_document(conn, A)
        with pytest.raises((asyncpg.ForeignKeyViolationError, asyncpg.RestrictViolationError)):
            async with conn.transaction():
                await conn.execute("DELETE FROM workspaces WHERE id = $1", A)
