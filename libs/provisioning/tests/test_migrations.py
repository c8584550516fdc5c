"""Migrations on a real Postgres: order, locks, failures, and what a service's role may not do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.embedded import EmbeddedPostgres
from libs.provisioning import migrations
from libs.provisioning.migrations import (
    Applied,
    MigrationError,
    migrate,
    role_of,
    split,
    status,
)

KIT = Path(__file__).parents[3] / "db" / "migrations" / "kit"
KIT_FILES = sorted(file.name for file in KIT.glob("*.sql"))
ROLES = {"alpha": "a" * 12, "beta": "b" * 12}
FILES = 2 * len(KIT_FILES) + 3
"""How many are applied in all: the kit's to each service, and those of the two services."""

Write = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(tmp_path_factory.mktemp("postgres"), settings={"fsync": "off"})
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


@pytest.fixture
def database() -> str:
    """A name nobody has used: `migrate` makes the database."""
    return f"test_{os.urandom(6).hex()}"


@pytest.fixture
def dsn(postgres: EmbeddedPostgres, database: str) -> str:
    return postgres.admin_dsn(database)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Migrations with the real kit, a table in each service, and a `post` file."""
    (tmp_path / "kit").mkdir()
    for file in KIT.glob("*.sql"):
        (tmp_path / "kit" / file.name).write_bytes(file.read_bytes())
    for service in ROLES:
        (tmp_path / service).mkdir()
        (tmp_path / service / "0001_pre_first.sql").write_text(
            "CREATE TABLE things (id bigserial PRIMARY KEY, name text, near vector(3));"
        )
    (tmp_path / "alpha" / "0002_post_tidy.sql").write_text("ALTER TABLE things DROP COLUMN name;")
    return tmp_path


@pytest.fixture
def write(folder: Path) -> Write:
    def written(name: str, sql: str) -> Path:
        (folder / name).write_text(sql)
        return folder / name

    return written


@pytest.fixture
async def admin(dsn: str, folder: Path) -> AsyncIterator[asyncpg.Connection]:
    """The admin's connection to a database that has been migrated."""
    await migrate(dsn, folder, ROLES)
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


@pytest.fixture
async def alpha(
    admin: asyncpg.Connection, postgres: EmbeddedPostgres, database: str
) -> AsyncIterator[asyncpg.Connection]:
    """The connection of the service alpha."""
    connection = await asyncpg.connect(postgres.dsn(database, role_of("alpha"), ROLES["alpha"]))
    yield connection
    await connection.close()


def files(applied: list[Applied]) -> list[tuple[str, str]]:
    return [(each.service, each.file) for each in applied]


# --- order and repetition


async def test_the_kit_comes_first_and_numbers_decide(dsn: str, folder: Path) -> None:
    told: list[str] = []
    applied = await migrate(dsn, folder, ROLES, on_progress=told.append)
    kit = [f"kit/{name}" for name in KIT_FILES]
    assert files(applied) == [
        *(("alpha", file) for file in kit),
        ("alpha", "alpha/0001_pre_first.sql"),
        ("alpha", "alpha/0002_post_tidy.sql"),
        *(("beta", file) for file in kit),
        ("beta", "beta/0001_pre_first.sql"),
    ]
    assert told[0] == "alpha: kit/0001_pre_kit.sql"


async def test_twice_is_once(dsn: str, folder: Path) -> None:
    assert await migrate(dsn, folder, ROLES)
    assert await migrate(dsn, folder, ROLES) == []


async def test_two_at_once_apply_each_file_once(dsn: str, folder: Path) -> None:
    one, other = await asyncio.gather(migrate(dsn, folder, ROLES), migrate(dsn, folder, ROLES))
    assert len(one) + len(other) == FILES
    assert not (one and other)


async def test_two_databases_of_a_cluster_share_roles_without_a_clash(
    postgres: EmbeddedPostgres, folder: Path, database: str
) -> None:
    names = [f"{database}_{number}" for number in range(3)]
    done = await asyncio.gather(*(migrate(postgres.admin_dsn(name), folder, ROLES) for name in names))
    assert [len(each) for each in done] == [FILES] * 3


async def test_phases(dsn: str, folder: Path) -> None:
    before = await migrate(dsn, folder, ROLES, phase="pre")
    assert ("alpha", "alpha/0002_post_tidy.sql") not in files(before)
    pending = [each for each in await status(dsn, folder, ROLES) if each.state == "pending"]
    assert [each.file for each in pending] == ["alpha/0002_post_tidy.sql"]
    assert files(await migrate(dsn, folder, ROLES, phase="post")) == [("alpha", "alpha/0002_post_tidy.sql")]


async def test_status_without_a_database_is_all_pending(dsn: str, folder: Path) -> None:
    assert {each.state for each in await status(dsn, folder, ROLES)} == {"pending"}


async def test_status_tells_changed_and_missing(dsn: str, folder: Path, write: Write) -> None:
    await migrate(dsn, folder, ROLES)
    write("beta/0001_pre_first.sql", "SELECT 1;")
    (folder / "alpha" / "0002_post_tidy.sql").unlink()
    odd = {each.file: each.state for each in await status(dsn, folder, ROLES) if each.state != "applied"}
    assert odd == {
        "beta/0001_pre_first.sql": "changed",
        "alpha/0002_post_tidy.sql": "missing",
    }


# --- refusals


async def test_a_changed_file_is_named(dsn: str, folder: Path, write: Write) -> None:
    await migrate(dsn, folder, ROLES)
    write("beta/0001_pre_first.sql", "SELECT 1;")
    write("beta/0002_pre_more.sql", "CREATE TABLE more ();")
    with pytest.raises(
        MigrationError,
        match=r"beta/0001_pre_first\.sql has changed since it was applied to beta",
    ):
        await migrate(dsn, folder, ROLES)
    states = {each.file: each.state for each in await status(dsn, folder, ROLES)}
    assert states["beta/0002_pre_more.sql"] == "pending"


@pytest.mark.parametrize(
    ("broken", "line"),
    [
        ("SELECT 1 / 0;", 4),
        ("SELECT\n  'ü',\n  nonsense;", 6),
        ("SELECT (1;", 4),
        ("/* a\n /* nested; */ b */ DO $body$ BEGIN;\nEND $body$;", 5),
    ],
)
async def test_a_failing_file_is_named_with_its_line_and_not_kept(
    dsn: str, folder: Path, write: Write, broken: str, line: int
) -> None:
    write(
        "alpha/0003_pre_broken.sql",
        f"-- a comment; with a semicolon\n\nCREATE TABLE half ();\n{broken}\n",
    )
    with pytest.raises(MigrationError, match=rf"alpha/0003_pre_broken\.sql, line {line}, for alpha: "):
        await migrate(dsn, folder, ROLES)
    connection = await asyncpg.connect(dsn)
    assert await connection.fetchval("SELECT to_regclass('alpha.half')") is None
    assert await connection.fetchval("SELECT to_regclass('alpha.things')") is not None
    await connection.close()


@pytest.mark.parametrize(
    "name",
    [
        "1_pre_x.sql",
        "0003_during_x.sql",
        "0003_pre_X.sql",
        "notes.txt",
        "0003_pre_x.sql~",
    ],
)
async def test_a_bad_name_is_refused_before_anything_is_done(dsn: str, folder: Path, write: Write, name: str) -> None:
    write(f"beta/{name}", "SELECT 1;")
    with pytest.raises(MigrationError, match="is not the name of a migration"):
        await migrate(dsn, folder, ROLES)
    assert {each.state for each in await _status_without(folder / "beta" / name, dsn, folder)} == {"pending"}


async def _status_without(file: Path, dsn: str, folder: Path) -> list[migrations.FileStatus]:
    file.unlink()
    return await status(dsn, folder, ROLES)


async def test_a_number_used_twice_is_refused(dsn: str, folder: Path, write: Write) -> None:
    write("alpha/0001_pre_other.sql", "SELECT 1;")
    with pytest.raises(MigrationError, match="have the same number"):
        await migrate(dsn, folder, ROLES)


async def test_a_file_cannot_end_its_transaction(dsn: str, folder: Path, write: Write) -> None:
    write("alpha/0003_pre_x.sql", "CREATE TABLE x ();\ncommit;")
    with pytest.raises(MigrationError, match=r"0003_pre_x\.sql, line 2: COMMIT"):
        await migrate(dsn, folder, ROLES)


@pytest.mark.parametrize("service", ["public", "kit", "pg_x", "A", "a-b", 'a"; DROP'])
async def test_a_service_needs_a_plain_name(dsn: str, folder: Path, service: str) -> None:
    with pytest.raises(MigrationError, match="cannot be the name of a service"):
        await migrate(dsn, folder, {service: "x"})


async def test_a_role_that_may_more_is_refused(dsn: str, folder: Path, postgres: EmbeddedPostgres) -> None:
    connection = await asyncpg.connect(postgres.admin_dsn())
    await connection.execute("CREATE ROLE burnish_strong CREATEROLE")
    await connection.close()
    with pytest.raises(MigrationError, match="may do more than a service may"):
        await migrate(dsn, folder, {"strong": "x"})


async def test_a_wrong_admin_is_told_without_the_password(postgres: EmbeddedPostgres, folder: Path) -> None:
    with pytest.raises(MigrationError, match="cannot be reached as admin") as caught:
        await migrate(postgres.dsn("burnish", password="canary"), folder, ROLES)
    assert "canary" not in str(caught.value)


# --- files without a transaction, and locks


async def test_an_index_is_made_concurrently_while_another_migration_waits(
    dsn: str, folder: Path, write: Write
) -> None:
    write(
        "alpha/0003_post_index.sql",
        f"{migrations.NO_TRANSACTION}\n"
        "CREATE INDEX CONCURRENTLY IF NOT EXISTS things_id ON things (id);\n"
        "CREATE INDEX CONCURRENTLY IF NOT EXISTS things_id_2 ON things (id DESC);\n",
    )
    async with asyncio.timeout(30):
        one, other = await asyncio.gather(migrate(dsn, folder, ROLES), migrate(dsn, folder, ROLES))
    assert ("alpha", "alpha/0003_post_index.sql") in files(one + other)


async def test_a_failing_file_without_a_transaction_says_what_was_kept(dsn: str, folder: Path, write: Write) -> None:
    file = write(
        "alpha/0003_post_x.sql",
        f"{migrations.NO_TRANSACTION}\nCREATE TABLE IF NOT EXISTS x ();\nSELECT nonsense;",
    )
    with pytest.raises(MigrationError, match=r"line 3, for alpha: .*\n.*above this line was kept"):
        await migrate(dsn, folder, ROLES)
    file.write_text(f"{migrations.NO_TRANSACTION}\nCREATE TABLE IF NOT EXISTS x ();")
    assert files(await migrate(dsn, folder, ROLES))[0] == (
        "alpha",
        "alpha/0003_post_x.sql",
    )


async def test_a_table_in_use_does_not_queue_up_readers(
    dsn: str,
    folder: Path,
    write: Write,
    admin: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(migrations, "DDL_LOCK_TIMEOUT", "20ms")
    monkeypatch.setattr(migrations, "DDL_PAUSE_S", 0.01)
    monkeypatch.setattr(migrations, "DDL_ATTEMPTS", 3)
    write(
        "alpha/0003_pre_column.sql",
        "CREATE TABLE other ();\nALTER TABLE things ADD COLUMN more int;",
    )
    busy = admin.transaction()
    await busy.start()
    await admin.execute("SELECT * FROM alpha.things")
    with pytest.raises(MigrationError, match=r"line 2, for alpha: .*lock timeout"):
        await migrate(dsn, folder, ROLES)
    monkeypatch.setattr(migrations, "DDL_ATTEMPTS", 10_000)
    waiting = asyncio.create_task(migrate(dsn, folder, ROLES))
    await busy.rollback()
    assert files(await waiting) == [("alpha", "alpha/0003_pre_column.sql")]


async def test_settings_of_one_file_do_not_reach_the_next(dsn: str, folder: Path, write: Write) -> None:
    write(
        "alpha/0003_pre_a.sql",
        "SET search_path = public; SET statement_timeout = '1h';",
    )
    write(
        "alpha/0004_pre_b.sql",
        "CREATE TABLE seen AS SELECT current_setting('statement_timeout') AS value;",
    )
    await migrate(dsn, folder, ROLES)
    connection = await asyncpg.connect(dsn)
    assert await connection.fetchval("SELECT value FROM alpha.seen") == "0"
    await connection.close()


# --- rights


async def test_a_service_works_in_its_own_schema(alpha: asyncpg.Connection) -> None:
    await alpha.execute("INSERT INTO things (near) VALUES ('[1,2,3]')")
    await alpha.execute("UPDATE things SET near = '[3,2,1]'")
    assert await alpha.fetchval("SELECT near <=> '[3,2,1]' FROM things") == 0
    assert await alpha.fetchval("SELECT similarity('one', 'one')") == 1
    await alpha.execute("DELETE FROM things")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM beta.things",
        "INSERT INTO beta.outbox (subject, body) VALUES ('x', '')",
        "SELECT * FROM migrations.applied",
        "CREATE TABLE public.mine ()",
        "CREATE TABLE alpha.mine ()",
        "DROP TABLE alpha.things",
        "TRUNCATE alpha.things",
        "CREATE SCHEMA mine",
        "CREATE DATABASE mine",
        "SET ROLE burnish_beta",
        "ALTER TABLE alpha.things DISABLE ROW LEVEL SECURITY",
    ],
)
async def test_a_service_may_nothing_else(alpha: asyncpg.Connection, sql: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await alpha.execute(sql)


async def test_a_right_that_a_file_takes_away_stays_away(
    alpha: asyncpg.Connection, dsn: str, folder: Path, write: Write
) -> None:
    write(
        "alpha/0003_pre_append_only.sql",
        "REVOKE UPDATE, DELETE ON things FROM burnish_alpha;",
    )
    await migrate(dsn, folder, ROLES)
    await migrate(dsn, folder, ROLES)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await alpha.execute("DELETE FROM things")


async def test_a_clone_keeps_schema_rights_and_search_path(
    alpha: asyncpg.Connection,
    admin: asyncpg.Connection,
    postgres: EmbeddedPostgres,
    database: str,
) -> None:
    await alpha.close()
    await admin.close()
    root = await asyncpg.connect(postgres.admin_dsn())
    await root.execute(f"CREATE DATABASE {database}_clone TEMPLATE {database}")
    await root.close()
    clone = await asyncpg.connect(postgres.dsn(f"{database}_clone", role_of("alpha"), ROLES["alpha"]))
    await clone.execute("INSERT INTO things (near) VALUES ('[1,2,3]')")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await clone.execute("SELECT * FROM beta.things")
    await clone.close()


async def test_a_new_password_takes_the_place_of_the_old(
    admin: asyncpg.Connection,
    postgres: EmbeddedPostgres,
    dsn: str,
    folder: Path,
    database: str,
) -> None:
    await migrate(dsn, folder, {"gamma": "old-password"})
    await migrate(dsn, folder, {"gamma": "new password: $"})
    connection = await asyncpg.connect(postgres.dsn(database, role_of("gamma"), "new password: $"))
    await connection.close()
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(postgres.dsn(database, role_of("gamma"), "old-password"))


# --- the kit's tables


async def test_an_outbox_row_wakes_the_listener_of_its_schema(
    alpha: asyncpg.Connection,
) -> None:
    woken: asyncio.Queue[str] = asyncio.Queue()
    await alpha.add_listener("outbox_alpha", lambda *call: woken.put_nowait(str(call[2])))
    await alpha.execute("INSERT INTO outbox (subject, body) SELECT 's', '' FROM generate_series(1, 3)")
    assert await asyncio.wait_for(woken.get(), 5) == "outbox_alpha"
    assert woken.empty()
    await alpha.remove_listener("outbox_alpha", lambda *_: None)
    await alpha.reset()


async def test_a_delivery_is_dead_lettered_once(alpha: asyncpg.Connection) -> None:
    async def bury(stream_seq: int | None, body: bytes) -> str:
        done: str = await alpha.execute(
            """
            INSERT INTO dead_letters (consumer, subject, body, error, error_class, deliveries, stream_seq)
            VALUES ('c', 's', $2, 'e', 'E', 5, $1) ON CONFLICT DO NOTHING
            """,
            stream_seq,
            body,
        )
        return done

    assert await bury(7, b"one") == "INSERT 0 1"
    assert await bury(7, b"one") == "INSERT 0 0"
    assert await bury(7, b"of a stream made anew") == "INSERT 0 1"
    assert await bury(None, b"one") == "INSERT 0 1"
    assert await bury(None, b"one") == "INSERT 0 0"


# --- splitting


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1; SELECT 2", ["SELECT 1;", "SELECT 2"]),
        ("SELECT ';'; SELECT \";\"", ["SELECT ';';", 'SELECT ";"']),
        (r"SELECT E'\';'; SELECT 2", [r"SELECT E'\';';", "SELECT 2"]),
        (
            "DO $$ a; $b$ ; $b$ $$; DO $b$ $$ ; $b$",
            ["DO $$ a; $b$ ; $b$ $$;", "DO $b$ $$ ; $b$"],
        ),
        ("SELECT 1 -- ;\n; ;;", ["SELECT 1 -- ;\n;"]),
        ("/* ; /* ; */ ; */ SELECT 1;", ["SELECT 1;"]),
        ("CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2); SELECT 3", None),
        ("SELECT a$b$c; SELECT $1", ["SELECT a$b$c;", "SELECT $1"]),
        (" -- nothing\n", []),
    ],
)
def test_split(sql: str, expected: list[str] | None) -> None:
    found = [statement.sql for statement in split(sql)]
    assert found == expected if expected is not None else len(found) == 2


PIECES = st.sampled_from(
    [
        "SELECT 1",
        "'a;b'",
        '"c;d"',
        "$$ ; $$",
        "$x$ ; $$ $x$",
        "/* ; */",
        "-- ;\n",
        "\n",
        " ",
    ]
)


@given(
    st.lists(
        st.lists(PIECES, max_size=5).map(lambda parts: " ".join(["SELECT", *parts])),
        max_size=5,
    )
)
def test_split_finds_what_was_joined(statements: list[str]) -> None:
    found = split("\n;".join(statements))
    assert [each.sql.removesuffix("\n;").split() for each in found] == [each.split() for each in statements]
