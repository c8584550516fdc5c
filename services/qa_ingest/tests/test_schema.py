"""The library's tables by themselves: what the database alone holds, whoever writes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from libs.service_kit.db import Connection, Database

A, B = UUID(int=1), UUID(int=2)
VECTOR = "[1" + ",0" * 1023 + "]"
OTHER = "[0,1" + ",0" * 1022 + "]"


@pytest.fixture
async def conn(database: Any) -> AsyncIterator[Connection]:
    db: Database = await database("qa_ingest")
    async with db.transaction() as tx:
        await name(tx.conn, A, B)
        for workspace in (A, B):
            await tx.conn.execute("INSERT INTO workspaces (id, name) VALUES ($1, $2)", workspace, f"w{workspace.int}")
        yield tx.conn


async def name(conn: Connection, *workspaces: UUID) -> None:
    await conn.execute("SELECT set_config('burnish.workspaces', $1, true)", ",".join(map(str, workspaces)))


async def say(conn: Connection, **what: str) -> None:
    for key, value in what.items():
        await conn.execute("SELECT set_config('burnish.' || $1, $2, true)", key, value)


async def pair(conn: Connection, question: str = "Why?", workspace: UUID = A, **columns: Any) -> UUID:
    values: dict[str, Any] = {
        "workspace_id": workspace,
        "question_text": question,
        "answer_standard": "Because.",
        "origin_kind": "curated_explicit",
        "created_by": "kim",
        "updated_by": "kim",
        **columns,
    }
    places = ", ".join(f"${n}" for n in range(1, len(values) + 1))
    inserted = await conn.fetchval(
        f"INSERT INTO q_a_pairs ({', '.join(values)}) VALUES ({places}) RETURNING id", *values.values()
    )
    assert isinstance(inserted, UUID)
    return inserted


async def change(conn: Connection, pair_id: UUID, **columns: Any) -> None:
    settings = ", ".join(f"{column} = ${n}" for n, column in enumerate(columns, start=2))
    await conn.execute(f"UPDATE q_a_pairs SET {settings} WHERE id = $1", pair_id, *columns.values())


async def refused(conn: Connection, awaitable: Any, error: type[asyncpg.PostgresError]) -> None:
    with pytest.raises(error):
        async with conn.transaction():
            await awaitable


async def history(conn: Connection, pair_id: UUID) -> list[tuple[int, str, str, str]]:
    rows = await conn.fetch(
        "SELECT version_number, change_type, changed_by, snapshot FROM q_a_pair_history WHERE pair_id = $1 ORDER BY 1",
        pair_id,
    )
    return [(row[0], row[1], row[2], row["snapshot"]["question_text"]) for row in rows]


async def test_every_update_is_a_version_with_its_reason_and_author(conn: Connection) -> None:
    one = await pair(conn)
    operation = str(uuid4())
    await say(conn, change_type="merge", changed_by="ada", change_reason="two of a kind", operation_id=operation)
    await change(conn, one, question_text="How?")
    assert await history(conn, one) == [(1, "initial_ingest", "kim", "Why?"), (2, "merge", "ada", "How?")]
    row = await conn.fetchrow("SELECT * FROM q_a_pair_history WHERE version_number = 2")
    assert row is not None
    assert (row["change_reason"], str(row["operation_id"])) == ("two of a kind", operation)


async def test_history_is_not_written_otherwise(conn: Connection) -> None:
    one = await pair(conn)
    denied = asyncpg.InsufficientPrivilegeError
    await refused(conn, conn.execute("UPDATE q_a_pair_history SET changed_by = 'x'"), denied)
    await refused(conn, conn.execute("DELETE FROM q_a_pair_history"), denied)
    forged = (
        "INSERT INTO q_a_pair_history SELECT pair_id, 9, workspace_id, snapshot, 'edit', '', 'x', now(), $1"
        " FROM q_a_pair_history"
    )
    await refused(conn, conn.execute(forged, uuid4()), denied)
    await conn.execute("DELETE FROM q_a_pairs WHERE id = $1", one)
    assert await history(conn, one) == []


async def test_archived_and_its_time_go_together(conn: Connection) -> None:
    one = await pair(conn)
    await change(conn, one, publication_status="archived")
    row = await conn.fetchrow("SELECT archived_at IS NOT NULL AS at, archived_by FROM q_a_pairs")
    assert row is not None
    assert tuple(row) == (True, "kim")
    await change(conn, one, publication_status="draft")
    assert await conn.fetchval("SELECT archived_at FROM q_a_pairs") is None


async def test_pairs_do_not_supersede_in_a_circle_or_across_workspaces(conn: Connection) -> None:
    one, two, three = [await pair(conn, question) for question in ("One?", "Two?", "Three?")]
    await change(conn, one, superseded_by=two)
    await change(conn, two, superseded_by=three)
    await refused(conn, change(conn, three, superseded_by=one), asyncpg.CheckViolationError)
    await refused(conn, change(conn, three, superseded_by=three), asyncpg.CheckViolationError)
    elsewhere = await pair(conn, workspace=B)
    await refused(conn, change(conn, three, superseded_by=elsewhere), asyncpg.CheckViolationError)
    await refused(conn, change(conn, three, workspace_id=B), asyncpg.CheckViolationError)


async def test_a_vector_goes_with_its_text(conn: Connection) -> None:
    one = await pair(conn, alternate_question_phrasings=["How come?"])
    await conn.execute("UPDATE question_variants SET embedding = $1::text::vector, embedding_model = 'm'", VECTOR)
    await change(conn, one, question_text="What for?", alternate_question_phrasings=["How come?", "Why?"])
    rows = await conn.fetch("SELECT question, embedding IS NOT NULL AS kept FROM question_variants ORDER BY ordinal")
    assert [tuple(row) for row in rows] == [("What for?", False), ("How come?", True), ("Why?", True)]
    await change(conn, one, answer_standard="Other.")
    assert await conn.fetchval("SELECT count(*) FROM question_variants WHERE embedding IS NOT NULL") == 2


async def test_a_vector_without_length_is_refused(conn: Connection) -> None:
    await pair(conn)
    zero = "[0" + ",0" * 1023 + "]"
    update = "UPDATE question_variants SET embedding = $1::text::vector, embedding_model = 'm'"
    await refused(conn, conn.execute(update, zero), asyncpg.CheckViolationError)


@pytest.mark.parametrize(
    "columns",
    [
        {"confidence": 1.5},
        {"confidence": float("nan")},
        {"question_text": "  "},
        {"question_text": "x" * 2001},
        {"answer_standard": ""},
        {"provenance": "GUESSED"},
        {"review_cadence_days": 0},
        {"publication_status": "live"},
    ],
)
async def test_values_that_mean_nothing_are_refused(conn: Connection, columns: dict[str, Any]) -> None:
    await refused(conn, pair(conn, **columns), asyncpg.CheckViolationError)


async def extraction(conn: Connection, ordinal: int = 0) -> UUID:
    document = await conn.fetchval(
        "INSERT INTO documents (workspace_id, bucket, object_key, object_version, content_sha256, bytes, state)"
        " VALUES ($1, 'b', 'k', 'v', $2, 1, 'live') ON CONFLICT (workspace_id, bucket, object_key, object_version)"
        " DO UPDATE SET bytes = 1 RETURNING id",
        A,
        "0" * 64,
    )
    found = await conn.fetchval(
        "INSERT INTO q_a_extractions (workspace_id, document_id, object_key, object_version, extractor_kind,"
        " extractor_version, ordinal, content_sha256, question_text, answer_text)"
        " VALUES ($1, $2, 'k', 'v', 'x', '1', $3, 'h', 'Why?', 'So.') RETURNING id",
        A,
        document,
        ordinal,
    )
    assert isinstance(found, UUID)
    return found


async def test_an_extraction_is_found_once_and_stays_as_found(conn: Connection) -> None:
    one = await extraction(conn)
    await refused(conn, extraction(conn), asyncpg.UniqueViolationError)
    await refused(conn, conn.execute("UPDATE q_a_extractions SET answer_text = 'x'"), asyncpg.CheckViolationError)
    await conn.execute("UPDATE q_a_extractions SET invalidated_at = now(), invalidation_reason = 'gone'")
    again = await extraction(conn)
    assert again != one
    revive = "UPDATE q_a_extractions SET invalidated_at = NULL, invalidation_reason = NULL WHERE id = $1"
    await refused(conn, conn.execute(revive, one), asyncpg.CheckViolationError)
    await conn.execute(
        "UPDATE q_a_extractions SET embedding = $2::text::vector, embedding_model = 'm' WHERE id = $1", again, OTHER
    )


async def test_each_workspace_by_itself(conn: Connection) -> None:
    await pair(conn)
    await pair(conn, workspace=B)
    for named, seen in (((A,), 1), ((B,), 1), ((A, B), 2), ((UUID(int=3),), 0)):
        await name(conn, *named)
        for table in ("q_a_pairs", "question_variants", "q_a_pair_history"):
            assert await conn.fetchval(f"SELECT count(*) FROM {table}") == seen, table
    await conn.execute("SELECT set_config('burnish.workspaces', '*', true)")
    assert await conn.fetchval("SELECT count(*) FROM q_a_pairs") == 0
    await refused(conn, pair(conn), asyncpg.InsufficientPrivilegeError)


async def test_a_workspace_with_pairs_cannot_be_deleted(conn: Connection) -> None:
    await pair(conn)
    await refused(
        conn, conn.execute("DELETE FROM workspaces WHERE id = $1", A), asyncpg.IntegrityConstraintViolationError
    )


async def test_words_that_english_drops_are_found(conn: Connection) -> None:
    await pair(conn, "Is the service up?", metadata=json.loads("{}"))
    found = "SELECT count(*) FROM q_a_pairs WHERE words @@ to_tsquery('simple', 'up')"
    assert await conn.fetchval(found) == 1
    assert await conn.fetchval("SELECT normalised FROM q_a_pairs") == "is the service up"
