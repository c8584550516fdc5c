"""Row-level security as the catalogue has it: every table of every service, and what a reader sees through it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio

from libs.contracts.topology import SERVICES
from libs.provisioning.migrations import migrate, role_of
from libs.service_kit.db import Connection, Database
from libs.service_kit.testing.plugin import OpenDatabase
from libs.service_kit.testing.servers import MIGRATIONS, Servers

NAMES = [entry.name for entry in SERVICES]
A, B = uuid4(), uuid4()
KEYS: dict[UUID | None, UUID] = {A: uuid4(), B: uuid4(), None: uuid4()}
"""The id of the rows of each workspace, and of none, in every table: by it a row is its parent's."""

LIBRARY = (
    *("documents", "chunks", "ingest_runs", "ingest_rejects", "q_a_extractions", "q_a_pairs", "q_a_pair_history"),
    *("question_variants", "citations", "suggestions", "embedding_cache", "uploads", "upload_parts"),
    *("compared_pairs", "operations", "postings", "search_feedback"),
)
ONLY_FOR_SOMEBODY = {("qa_ingest", "workspaces"): "id", **{("qa_ingest", name): "workspace_id" for name in LIBRARY}}
"""Tables whose rows are never read but for a workspace: the service itself sees none. With the column."""

OF_NO_WORKSPACE = {
    # of every service
    *{(name, table) for name in NAMES for table in ("inbox", "outbox", "dead_letters", "requests")},
    # what is said of a touchpoint as a whole: configuration, counts, suites and the answers that were paid for
    *{(name, table) for name in NAMES for table in ("known_touchpoints", "touchpoints")},
    *{("normaliser", "intake"), ("pattern_detector", "intake"), ("pattern_detector", "thresholds")},
    *{("pattern_detector", "runs"), ("pattern_detector", "reruns")},
    *{("ab_runner", "suites"), ("ab_runner", "cases"), ("ab_runner", "results"), ("ab_runner", "model_spend")},
    *{("scanner", table) for table in ("sources", "watermarks", "recent_rows", "scan_runs")},
    # one row for the whole ledger; keys of callers
    *{("registry", "ledger_head"), ("registry", "idempotency_keys"), ("gateway", "idempotency_keys")},
    # when somebody asked for what is limited; switches that hold for everybody
    *{("gateway", "recent_requests"), ("agents", "flags")},
}

_TABLES = """
SELECT n.nspname AS service, c.relname AS name, c.relrowsecurity AND c.relforcerowsecurity AS forced,
       pg_get_userbyid(c.relowner) AS owner,
       ARRAY(SELECT polname::text FROM pg_policy WHERE polrelid = c.oid AND polpermissive) AS policies,
       EXISTS (SELECT FROM pg_attribute a
               WHERE a.attrelid = c.oid AND a.attname = 'workspace_id' AND NOT a.attisdropped) AS has_workspace
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname = ANY($1::text[])
ORDER BY service, name
"""


@pytest_asyncio.fixture
async def admin(servers: Servers, clone: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    conn = await asyncpg.connect(servers.admin_dsn(clone))
    yield conn
    await conn.close()


async def test_every_table_is_separated_or_belongs_to_no_workspace(admin: asyncpg.Connection[asyncpg.Record]) -> None:
    tables = await admin.fetch(_TABLES, NAMES)
    assert len(tables) > 40
    wrong = []
    for table in tables:
        key = (table["service"], table["name"])
        exempt = key in OF_NO_WORKSPACE and not table["has_workspace"]
        separated = table["forced"] and table["policies"] == ["workspaces_named"]
        if not (exempt or separated):
            wrong.append(key)
    assert wrong == []


async def test_no_service_owns_a_table_or_may_pass_the_policies_by(admin: asyncpg.Connection[asyncpg.Record]) -> None:
    roles = [role_of(name) for name in NAMES]
    assert not {table["owner"] for table in await admin.fetch(_TABLES, NAMES)} & set(roles)
    may = "SELECT rolname FROM pg_roles WHERE rolname = ANY($1::text[]) AND (rolsuper OR rolbypassrls)"
    assert await admin.fetch(may, roles) == []


@pytest.mark.parametrize("service", NAMES)
async def test_a_reader_sees_the_workspaces_named_and_what_has_none(
    admin: asyncpg.Connection[asyncpg.Record], database: OpenDatabase, service: str
) -> None:
    scoped = [table["name"] for table in await admin.fetch(_TABLES, [service]) if table["forced"]]
    owned = await _fill(admin, service, scoped)
    db = await database(service)
    for table in scoped:
        strict = (service, table) in ONLY_FOR_SOMEBODY
        shared: set[UUID | None] = set() if table in owned else {None}
        assert await _seen(db, table, (A,)) == shared | {A}, table
        assert await _seen(db, table, (A, B)) == shared | {A, B}, table
        assert await _seen(db, table, ()) == shared, table
        assert await _seen(db, table, (uuid4(),)) == shared, table
        assert await _seen(db, table, None) == (set() if strict else shared | {A, B}), table
        async with db.connection() as conn, conn.transaction():
            await conn.execute("SELECT set_config('burnish.workspaces', '', true)")
            assert await _whose(conn, table) == set(), table


async def test_what_a_reader_may_not_see_it_cannot_change(database: OpenDatabase) -> None:
    db = await database("proposal")
    insert = "INSERT INTO patterns VALUES ($1, 't', $2, 'title', 1, true)"
    async with db.connection() as conn:
        await conn.execute(insert, uuid4(), B)
        async with conn.transaction():
            await conn.execute("SELECT set_config('burnish.workspaces', $1, true)", str(A))
            assert await conn.execute("UPDATE patterns SET title = 'x'") == "UPDATE 0"
            assert await conn.execute("DELETE FROM patterns") == "DELETE 0"
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                async with conn.transaction():
                    await conn.execute(insert, uuid4(), B)
        async with conn.transaction():
            await conn.execute("SELECT set_config('burnish.workspaces', '', true)")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                async with conn.transaction():
                    await conn.execute(insert, uuid4(), None)
        assert await conn.fetchval("SELECT title FROM patterns") == "title"


async def test_a_limit_ends_with_its_connection(database: OpenDatabase) -> None:
    db = await database("proposal")
    async with db.connection() as conn:
        await conn.execute("INSERT INTO patterns VALUES ($1, 't', $2, 'title', 1, true)", uuid4(), B)
    for _ in range(8):  # more often than the pool has connections
        assert await _seen(db, "patterns", (A,)) == set()
        assert await _seen(db, "patterns", None) == {B}
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            async with db.connection(workspaces=(A,)) as conn:
                await conn.execute("DELETE FROM patterns")


async def test_the_list_of_a_limited_reader_comes_from_its_index(
    admin: asyncpg.Connection[asyncpg.Record], database: OpenDatabase
) -> None:
    await admin.execute("SET search_path = normaliser; SET session_replication_role = replica")
    await admin.execute(
        """
        INSERT INTO prompt_quality_signals (id, touchpoint_id, signal_type, severity, evidence_ref, payload,
            workspace_id, created_at, first_seen, last_seen, actor_id, actor_kind, source_key, judged_scope)
        SELECT gen_random_uuid(), 't', 'flag', 'low', '{"source": "s"}', '{}', (ARRAY[$1, $2]::uuid[])[1 + n % 2],
            now() + n * interval '1 s', now(), now(), 'a', 'human', n::text, 'workspace'
        FROM generate_series(1, 20000) AS n
        """,
        A,
        B,
    )
    await admin.execute("ANALYZE prompt_quality_signals")
    db = await database("normaliser")
    for workspaces in (None, (A,)):
        async with db.connection(workspaces=workspaces) as conn:
            plan = await conn.fetch(
                "EXPLAIN SELECT * FROM prompt_quality_signals ORDER BY created_at DESC, id DESC LIMIT 50"
            )
        assert "Index Scan using idx_quality_signals_newest" in "\n".join(row[0] for row in plan)


async def test_the_code_of_before_sees_everything_until_the_clean_up(servers: Servers) -> None:
    name = f"rolled_out_{uuid4().hex[:8]}"
    await migrate(servers.admin_dsn(name), MIGRATIONS, servers.role_passwords, phase="pre")
    try:
        assert await _as_before(servers, name) == 1
        await migrate(servers.admin_dsn(name), MIGRATIONS, servers.role_passwords, phase="post")
        assert await _as_before(servers, name) == 0
    finally:
        await servers.drop(name)


async def _as_before(servers: Servers, name: str) -> int:
    """How many rows a connection sees that names no workspaces, after it has tried to add one."""
    conn = await asyncpg.connect(servers.role_dsn("proposal", name))
    try:
        await conn.execute("INSERT INTO patterns VALUES ($1, 't', $2, 'title', 1, true)", uuid4(), A)
    except asyncpg.InsufficientPrivilegeError:
        pass
    found: int = await conn.fetchval("SELECT count(*) FROM patterns")
    await conn.close()
    return found


# --- filling and reading any table ------------------------------------------------------------------------

_CONSTRAINTS = """
SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) FROM pg_constraint
WHERE connamespace = $1::text::regnamespace AND contype IN ('c', 'f')
"""
_COLUMNS = """
SELECT attname AS name, format_type(atttypid, atttypmod) AS kind FROM pg_attribute
WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attidentity = '' AND attgenerated = ''
"""
_NEVER_NULL = "SELECT attnotnull FROM pg_attribute WHERE attrelid = $1::text::regclass AND attname = $2"
_SOME = {
    "json": "'{}'",
    "bytea": "''",
    "numeric": "1",
    "double precision": "1",
    "real": "1",
    "integer": "(random() * 1e9)::int",
    "bigint": "(random() * 1e9)::bigint",
    "boolean": "false",
    "jsonb": "'{}'",
    "timestamp with time zone": "now()",
    "vector(1024)": "array_fill(1, ARRAY[1024])::vector",
    "date": "now()",
    "uuid[]": "'{}'",
    "text[]": "'{}'",
    "text": "md5(random()::text)",
}


async def _fill(admin: asyncpg.Connection[asyncpg.Record], service: str, tables: list[str]) -> set[str]:
    """A row of A, of B and of no workspace in each table; the tables whose every row belongs to a workspace.

    Constraints go first: the rows need not make sense.
    """
    owned = set()
    await admin.execute(f'SET search_path = "{service}", extensions; SET session_replication_role = replica')
    for statement in await admin.fetch(_CONSTRAINTS, service):
        await admin.execute(statement[0])
    for table in tables:
        scope_column = ONLY_FOR_SOMEBODY.get((service, table), "workspace_id")
        if (service, table) in ONLY_FOR_SOMEBODY or await admin.fetchval(_NEVER_NULL, table, scope_column):
            owned.add(table)
        for workspace, key in KEYS.items():
            if workspace is not None or table not in owned:
                await _insert(admin, table, key, {scope_column: workspace})
    return owned


async def _insert(
    admin: asyncpg.Connection[asyncpg.Record], table: str, key: UUID, given: Mapping[str, UUID | None]
) -> None:
    values = {}
    for name, kind in await admin.fetch(_COLUMNS, table):
        if name in given:
            values[name] = f"'{given[name]}'" if given[name] else "NULL"
        else:
            values[name] = f"'{key}'" if kind == "uuid" else _SOME.get(kind, "1")
    names = ", ".join(f'"{name}"' for name in values)
    await admin.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join(values.values())})")


async def _seen(db: Database, table: str, workspaces: tuple[UUID, ...] | None) -> set[UUID | None]:
    async with db.connection(workspaces=workspaces) as conn:
        return await _whose(conn, table)


async def _whose(conn: Connection, table: str) -> set[UUID | None]:
    """The workspaces whose rows are seen, told by the ids in them."""
    rows = await conn.fetch(f"SELECT * FROM {table}")
    values = {value for row in rows for value in row.values() if isinstance(value, UUID)}
    return {workspace for workspace, key in KEYS.items() if key in values or (workspace and workspace in values)}
