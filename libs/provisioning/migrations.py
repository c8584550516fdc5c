"""Applies the plain SQL of `db/migrations` to each service's schema: in order, under a lock, safe to run twice.

Files are `<service>/NNNN_<pre|post>_<name>.sql`, `kit/...` for tables that every service has in its schema, and
`touchpoints/...` for the table of every service that hears of touchpoints. A file is one transaction, unless its first
line is `-- burnish: no-transaction` (for `CREATE INDEX CONCURRENTLY`); such a file must be safe to run again, because
a crash in it leaves what came before. Row-level security hides nothing from a file.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import itertools
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import asyncpg

from libs.contracts import topology
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.postgres import session_settings
from libs.provisioning.errors import ProvisioningError

Phase = Literal["pre", "post", "all"]
State = Literal["applied", "pending", "changed", "missing"]
Progress = Callable[[str], None]

KIT = "kit"
TOUCHPOINTS = "touchpoints"
HEARS_OF_TOUCHPOINTS = frozenset(
    durable.service for entry in topology.SERVICES for durable in entry.hears if durable.event is TouchpointRegisteredV1
)
EXTENSIONS = ("vector", "pg_trgm")
NO_TRANSACTION = "-- burnish: no-transaction"
FILE_NAME = re.compile(r"(?P<number>\d{4})_(?P<phase>pre|post)_(?P<name>[a-z0-9_]+)\.sql")
SERVICE_NAME = re.compile(r"(?!pg_)[a-z][a-z0-9_]{0,39}")
RESERVED = frozenset({KIT, TOUCHPOINTS, "public", "extensions", "migrations", "information_schema"})
ROWS_SEEN = "burnish.workspaces"  # what row-level security reads; the owner of the tables is bound by it too
LOCK = 0x6275726E6973  # any number that nothing else in the cluster locks
LOCK_POLL_S = 0.1
# A waiting ALTER TABLE makes every later reader wait behind it, so it gives up soon and tries again.
DDL_LOCK_TIMEOUT = "3s"
DDL_ATTEMPTS = 20
DDL_PAUSE_S = 0.5
LOCKED_OUT = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)
SCRAM_ROUNDS = 4096


class MigrationError(ProvisioningError):
    """A migration cannot be read or applied: `message` names the file (and line), `hint` says what would be right."""


@dataclass(frozen=True)
class Applied:
    """A file that a call of `migrate` has applied; `file` is relative to the folder of migrations."""

    service: str
    file: str
    sha256: str
    duration_ms: int


@dataclass(frozen=True)
class FileStatus:
    """One file in one service's schema; `missing` is one that was applied and is no longer in the folder."""

    service: str
    file: str
    state: State
    applied_at: datetime | None = None


@dataclass(frozen=True)
class Statement:
    """One SQL statement and the line of its file it begins on."""

    sql: str
    line: int


@dataclass(frozen=True)
class Migration:
    """One file, read and split."""

    file: str
    number: int
    phase: str
    sha256: str
    transaction: bool
    statements: tuple[Statement, ...]


def role_of(service: str) -> str:
    """The login role of a service."""
    return f"burnish_{service}"


async def migrate(
    admin_dsn: str,
    folder: Path,
    roles: Mapping[str, str],
    phase: Phase = "all",
    on_progress: Progress | None = None,
) -> list[Applied]:
    """Bring the schemas of `roles` (service -> its role's password) up to date; what was applied now, in order.

    Makes the database that `admin_dsn` names when it is missing, then extensions, roles, schemas and rights, then
    applies the pending files of `phase`, the kit's before each service's own. Two at once: the second waits.
    Raises `MigrationError`; files applied before the failing one stay applied.
    """
    tell = on_progress or (lambda _: None)
    plan = _plan(folder, roles)
    async with _locked(admin_dsn, tell):
        await _ensure_database(admin_dsn)
        connection = await _connect(admin_dsn)
        try:
            await _bootstrap(connection, roles)
            done = await _applied(connection)
            _require_unchanged(plan, done)
            return [
                await _apply(connection, service, migration, tell)
                for service, migration in plan
                if (service, migration.file) not in done and phase in ("all", migration.phase)
            ]
        finally:
            await connection.close()


async def status(admin_dsn: str, folder: Path, services: Iterable[str]) -> list[FileStatus]:
    """Each file of each service with its state, in the order it is applied. Changes nothing."""
    services = list(services)
    plan = _plan(folder, services)
    try:
        connection = await _connect(admin_dsn)
    except asyncpg.InvalidCatalogNameError:
        done: dict[tuple[str, str], asyncpg.Record] = {}
    else:
        try:
            done = await _applied(connection)
        finally:
            await connection.close()
    known = {(service, migration.file) for service, migration in plan}
    gone = [key for key in done if key not in known and key[0] in services]
    return [_status_of(service, migration, done) for service, migration in plan] + [
        FileStatus(service, file, "missing", done[service, file]["applied_at"]) for service, file in gone
    ]


def _status_of(service: str, migration: Migration, done: Mapping[tuple[str, str], asyncpg.Record]) -> FileStatus:
    row = done.get((service, migration.file))
    if row is None:
        return FileStatus(service, migration.file, "pending")
    state: State = "applied" if row["sha256"] == migration.sha256 else "changed"
    return FileStatus(service, migration.file, state, row["applied_at"])


# --- reading files


def _plan(folder: Path, services: Iterable[str]) -> list[tuple[str, Migration]]:
    """What is to be applied to whom, in order. Reads every file, so a bad one is found before anything is done."""
    if not folder.is_dir():
        raise MigrationError(
            f"{folder} is no folder of migrations",
            "it holds one folder for each service",
        )
    kit, touchpoints = _read_folder(folder / KIT), _read_folder(folder / TOUCHPOINTS)
    plan = []
    for service in services:
        if not SERVICE_NAME.fullmatch(service) or service in RESERVED:
            raise MigrationError(
                f"{service!r} cannot be the name of a service",
                "use a-z, 0-9 and _; it becomes a schema's name",
            )
        shared = [*kit, *touchpoints] if service in HEARS_OF_TOUCHPOINTS else kit
        plan += [(service, migration) for migration in [*shared, *_read_folder(folder / service)]]
    return plan


def _read_folder(folder: Path) -> list[Migration]:
    if not folder.is_dir():
        return []
    files = [path for path in folder.iterdir() if not path.name.startswith(".") and path.suffix != ".md"]
    found = sorted((_read(path) for path in files), key=lambda migration: migration.number)
    for one, other in itertools.pairwise(found):
        if one.number == other.number:
            raise MigrationError(
                f"{one.file} and {other.file} have the same number",
                "give the later one the next free number",
            )
    return found


def _read(path: Path) -> Migration:
    file = f"{path.parent.name}/{path.name}"
    match = FILE_NAME.fullmatch(path.name)
    if match is None or not path.is_file():
        raise MigrationError(
            f"{file} is not the name of a migration",
            "it would be NNNN_pre_name.sql or NNNN_post_name.sql",
        )
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise MigrationError(f"{file} is not UTF-8: {error.reason} at byte {error.start}") from error
    return Migration(
        file=file,
        number=int(match["number"]),
        phase=match["phase"],
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        transaction=text.split("\n", 1)[0].strip() != NO_TRANSACTION,
        statements=tuple(_checked(file, split(text))),
    )


def _checked(file: str, statements: Iterable[Statement]) -> Iterable[Statement]:
    for statement in statements:
        words = statement.sql.upper().rstrip(";").split()
        if words[0] in {"BEGIN", "COMMIT", "ROLLBACK", "ABORT", "END"} or words[:2] == [
            "START",
            "TRANSACTION",
        ]:
            raise MigrationError(
                f"{file}, line {statement.line}: {words[0]} ends or begins a transaction",
                f"a file is one transaction; without one, begin it with {NO_TRANSACTION!r}",
            )
        yield statement


# --- splitting SQL

_TOKEN = re.compile(
    r"""
      (?P<blank>\s+|--[^\n]*)
    | (?P<comment>/\*)
    | (?P<quoted>[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*")
    | (?P<dollar>\$(?:[^\W\d]\w*)?\$)
    | (?P<word>\w+(?:\$\w*)*)
    | (?P<end>;)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def split(text: str) -> list[Statement]:
    """Split SQL at its semicolons, except those inside quotes, dollar quotes, comments and brackets.

    Brackets, because a `CREATE RULE` lists its actions in them. A body in `BEGIN ATOMIC ... END` is not understood.
    """
    statements: list[Statement] = []
    start: int | None = None
    depth = position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        assert match is not None  # `other` takes any character
        blank = match.lastgroup in ("blank", "comment")
        if start is None and not blank and match.lastgroup != "end":
            start = position
        position = _after(text, match)
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if match.lastgroup == "end" and depth <= 0:
            if start is not None:
                statements.append(_statement(text, start, position))
            start, depth = None, 0
    if start is not None:
        statements.append(_statement(text, start, len(text)))
    return statements


def _after(text: str, match: re.Match[str]) -> int:
    """Where the token ends that begins with `match`."""
    if match.lastgroup == "dollar":
        closing = text.find(match[0], match.end())
        return len(text) if closing < 0 else closing + len(match[0])
    if match.lastgroup == "comment":
        return _after_comment(text, match.end())
    return match.end()


def _after_comment(text: str, position: int) -> int:
    """Comments nest in SQL."""
    depth = 1
    for mark in re.compile(r"/\*|\*/").finditer(text, position):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)


def _statement(text: str, start: int, end: int) -> Statement:
    return Statement(text[start:end].rstrip(), text.count("\n", 0, start) + 1)


# --- the database


async def _connect(dsn: str, database: str | None = None) -> asyncpg.Connection:
    try:
        return await asyncpg.connect(
            dsn, database=database, timeout=15, server_settings=session_settings("burnish/migrate")
        )
    except asyncpg.InvalidCatalogNameError:
        raise
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        raise MigrationError(
            f"Postgres at {_place(dsn)} cannot be reached as admin: {error or type(error).__name__}",
            "check that it runs, and the admin's DSN",
        ) from error
    except (asyncpg.InterfaceError, ValueError) as error:  # what is said of it may hold its password
        raise MigrationError(
            f"the admin's DSN is none that can be used ({type(error).__name__})",
            "a DSN such as postgresql://user:password@host:5432/database was expected",
        ) from error


def _place(dsn: str) -> str:
    """Host and port of a DSN: what may be shown of it."""
    parts = urlsplit(dsn)
    try:
        return f"{parts.hostname or 'localhost'}:{parts.port or 5432}"
    except ValueError:  # a port that is none
        return str(parts.hostname)


def _database_of(dsn: str) -> str:
    return unquote(urlsplit(dsn).path.lstrip("/")) or "burnish"


@asynccontextmanager
async def _locked(dsn: str, tell: Progress) -> AsyncIterator[None]:
    """Keep every other migration of this cluster out.

    Roles belong to the cluster, so the lock does: it is taken in the maintenance database. It is polled for, because
    one that waits inside Postgres holds a snapshot, and CREATE INDEX CONCURRENTLY would wait for that in turn.
    """
    connection = await _connect(dsn, "postgres")
    try:
        waiting = False
        while not await connection.fetchval("SELECT pg_try_advisory_lock($1)", LOCK):
            if not waiting:
                tell("waiting for another migration to end")
            waiting = True
            await asyncio.sleep(LOCK_POLL_S)
        yield
    finally:
        await connection.close()


async def _ensure_database(dsn: str) -> None:
    name = _database_of(dsn)
    connection = await _connect(dsn, "postgres")
    try:
        if not await connection.fetchval("SELECT true FROM pg_database WHERE datname = $1", name):
            await connection.execute(f"CREATE DATABASE {_quoted(name)}")
    finally:
        await connection.close()


async def _bootstrap(connection: asyncpg.Connection, roles: Mapping[str, str]) -> None:
    """Extensions, the record of migrations, and each service's role, schema and rights. Harmless when repeated."""
    async with connection.transaction():
        await connection.execute("SET LOCAL client_min_messages = warning")
        await connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        await connection.execute("CREATE SCHEMA IF NOT EXISTS extensions")
        for extension in EXTENSIONS:
            await connection.execute(f"CREATE EXTENSION IF NOT EXISTS {extension} SCHEMA extensions")
        await connection.execute(
            """
            CREATE SCHEMA IF NOT EXISTS migrations;
            CREATE TABLE IF NOT EXISTS migrations.applied (
                service     text        NOT NULL,
                file        text        NOT NULL,
                sha256      text        NOT NULL,
                applied_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
                duration_ms int         NOT NULL,
                PRIMARY KEY (service, file)
            )
            """
        )
        for service, password in roles.items():
            await _ensure_service(connection, service, password)


async def _ensure_service(connection: asyncpg.Connection, service: str, password: str) -> None:
    role, schema = role_of(service), _quoted(service)
    await _ensure_role(connection, role)
    verifier = _scram_verifier(service, password)
    await connection.execute(f"ALTER ROLE {role} LOGIN NOINHERIT PASSWORD '{verifier}'")
    # For the role and not for role and database, because a cloned database loses the latter.
    await connection.execute(f"ALTER ROLE {role} SET search_path = {schema}, extensions")
    mine = f"ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT"
    await connection.execute(
        f"""
        CREATE SCHEMA IF NOT EXISTS {schema};
        REVOKE ALL ON SCHEMA {schema} FROM PUBLIC;
        GRANT USAGE ON SCHEMA {schema}, extensions TO {role};
        {mine} SELECT, INSERT, UPDATE, DELETE ON TABLES TO {role};
        {mine} USAGE, SELECT ON SEQUENCES TO {role};
        {mine} EXECUTE ON FUNCTIONS TO {role};
        {mine} USAGE ON TYPES TO {role};
        """
    )


async def _ensure_role(connection: asyncpg.Connection, role: str) -> None:
    """Make the role, or make sure that one made by others may do no more than ours."""
    may_more = await connection.fetchval(
        """
        SELECT rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls
        FROM pg_roles WHERE rolname = $1
        """,
        role,
    )
    if may_more is None:
        await connection.execute(f"CREATE ROLE {role}")
    elif may_more:
        raise MigrationError(
            f"the role {role} exists and may do more than a service may",
            f"ALTER ROLE {role} NOSUPERUSER NOCREATEROLE NOCREATEDB NOREPLICATION NOBYPASSRLS",
        )


def _scram_verifier(service: str, password: str) -> str:
    """What Postgres stores for a password (RFC 5803), so that the password itself is never in a statement or log."""
    if not password or not password.isascii() or not password.isprintable():
        raise MigrationError(
            f"the password of {role_of(service)} is empty or has characters beyond printable ASCII",
            "use letters and digits",
        )
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, SCRAM_ROUNDS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    encoded = [base64.b64encode(part).decode() for part in (salt, stored, server)]
    return f"SCRAM-SHA-256${SCRAM_ROUNDS}:{encoded[0]}${encoded[1]}:{encoded[2]}"


async def _applied(
    connection: asyncpg.Connection,
) -> dict[tuple[str, str], asyncpg.Record]:
    if await connection.fetchval("SELECT to_regclass('migrations.applied')") is None:
        return {}
    rows = await connection.fetch(
        "SELECT service, file, sha256, applied_at FROM migrations.applied ORDER BY applied_at, service, file"
    )
    return {(row["service"], row["file"]): row for row in rows}


def _require_unchanged(
    plan: Iterable[tuple[str, Migration]],
    done: Mapping[tuple[str, str], asyncpg.Record],
) -> None:
    for service, migration in plan:
        row = done.get((service, migration.file))
        if row is not None and row["sha256"] != migration.sha256:
            raise MigrationError(
                f"{migration.file} has changed since it was applied to {service} on {row['applied_at']:%Y-%m-%d %H:%M}",
                "restore the file, and put the change into a new one",
            )


# --- applying one file


async def _apply(connection: asyncpg.Connection, service: str, migration: Migration, tell: Progress) -> Applied:
    tell(f"{service}: {migration.file}")
    started = time.monotonic()
    await connection.execute("RESET ALL")
    if migration.transaction:
        await _apply_whole(connection, service, migration, started)
    else:
        await _apply_singly(connection, service, migration, started)
    return Applied(service, migration.file, migration.sha256, _since(started))


async def _apply_whole(connection: asyncpg.Connection, service: str, migration: Migration, started: float) -> None:
    for attempt in range(1, DDL_ATTEMPTS + 1):
        try:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL lock_timeout = '{DDL_LOCK_TIMEOUT}'")
                await _run(connection, service, migration)
                await _record(connection, service, migration, started)
            return
        except _LockedOut as error:
            if attempt == DDL_ATTEMPTS:
                raise error.final() from error
            await asyncio.sleep(DDL_PAUSE_S)


async def _apply_singly(connection: asyncpg.Connection, service: str, migration: Migration, started: float) -> None:
    await _run(connection, service, migration)
    await _record(connection, service, migration, started)


async def _run(connection: asyncpg.Connection, service: str, migration: Migration) -> None:
    scope = "LOCAL" if migration.transaction else "SESSION"
    await connection.execute(f"SET {scope} search_path = {_quoted(service)}, extensions")
    await connection.execute(f"SET {scope} {ROWS_SEEN} = '*'")
    for statement in migration.statements:
        try:
            await connection.execute(statement.sql)
        except asyncpg.PostgresError as error:
            if migration.transaction and isinstance(error, LOCKED_OUT):
                raise _LockedOut(service, migration, statement, error) from error
            raise _failure(service, migration, statement, error) from error


async def _record(connection: asyncpg.Connection, service: str, migration: Migration, started: float) -> None:
    await connection.execute(
        "INSERT INTO migrations.applied (service, file, sha256, duration_ms) VALUES ($1, $2, $3, $4)",
        service,
        migration.file,
        migration.sha256,
        _since(started),
    )


class _LockedOut(Exception):
    """Somebody held a lock for too long; trying again may succeed."""

    def __init__(
        self,
        service: str,
        migration: Migration,
        statement: Statement,
        error: asyncpg.PostgresError,
    ) -> None:
        super().__init__(str(error))
        self._where = (service, migration, statement, error)

    def final(self) -> MigrationError:
        return _failure(*self._where)


def _failure(
    service: str,
    migration: Migration,
    statement: Statement,
    error: asyncpg.PostgresError,
) -> MigrationError:
    line = statement.line + _lines_before(statement.sql, error)
    kept = "nothing of this file was kept" if migration.transaction else "what stands above this line was kept"
    hint = f"{kept}; {error.hint}" if getattr(error, "hint", None) else kept
    return MigrationError(f"{migration.file}, line {line}, for {service}: {error.args[0]}", hint)


def _lines_before(sql: str, error: asyncpg.PostgresError) -> int:
    """How many lines of the statement stand before the place Postgres points at, if it points at one."""
    position = getattr(error, "position", None)
    return sql.count("\n", 0, int(position) - 1) if position else 0


def _since(started: float) -> int:
    return round((time.monotonic() - started) * 1000)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
