"""Configure and feed: `platform`, the database in which scanners look for the application's tables."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from burnish.commands.verbs import data_option, json_option, verb
from burnish.data_folder import DataFolder
from burnish.failure import EXITS, FAILED, UNREACHABLE, USAGE, Failure
from burnish.parameters import FILE
from burnish.printer import exact, print_json, remark

if TYPE_CHECKING:
    from burnish.data_folder import Platform

MAX_SQL_BYTES = 50_000_000
TIMEOUT_S = 10.0


def add_to(group: click.Group) -> None:
    """Register the verb."""

    @verb(
        group,
        "platform",
        example=(
            'psql "$(burnish platform)"\nburnish platform --sql tables.sql\n'
            'psql "$(burnish platform --reader)" -c "SELECT * FROM platform.feed_flags"'
        ),
        exits={
            **EXITS,
            0: "the DSN is on stdout (with --sql: the file has run)",
            FAILED: "scanners read elsewhere, or (with --sql) the database refused; nothing of the file has happened",
            UNREACHABLE: "nothing runs in the data folder, or its Postgres does not answer",
        },
    )
    @click.option("--reader", is_flag=True, help="As scanners read it: the role platform_reader, which only reads.")
    @click.option("--sql", type=FILE, help="Run a file of SQL there instead, as the owner, in one transaction.")
    @data_option
    @json_option
    def platform(reader: bool, sql: Path | None, data: Path, as_json: bool) -> None:
        """Print the DSN of the embedded database `platform`, where your own tables may be.

        It is the owner's unless --reader is given. Whoever has it can do everything in that Postgres.
        """
        place = _place(data)
        if sql is not None:
            asyncio.run(_run(place.reader_dsn if reader else place.owner_dsn, sql))
            remark(f"{sql} has run")
        if as_json:
            print_json({"owner": place.owner_dsn, "reader": place.reader_dsn, "reader_role": place.reader_role})
        elif sql is None:
            exact(f"{place.reader_dsn if reader else place.owner_dsn}\n")


def _place(data: Path) -> Platform:
    note = DataFolder(data).running()
    if note is None:
        raise Failure(
            f"no installation runs in {data}",
            "start one with `burnish up`, or name its folder with --data",
            UNREACHABLE,
        )
    if note.platform is None:
        raise Failure(
            "scanners read in a database that is not Burnish's",
            "it is the one of BURNISH_PLATFORM_DSN (or --platform-dsn) with which `burnish up` was started",
        )
    return note.platform


async def _run(dsn: str, file: Path) -> None:
    """The whole file or nothing of it."""
    import asyncpg

    from libs.files import UnreadableFile, read_text

    try:
        script = read_text(file, MAX_SQL_BYTES, encoding="utf-8-sig")
    except UnreadableFile as error:
        raise Failure(str(error), code=USAGE) from error
    try:
        conn = await asyncpg.connect(dsn, timeout=TIMEOUT_S)
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        raise Failure(
            f"Postgres does not answer ({type(error).__name__})", "see `burnish doctor`", UNREACHABLE
        ) from error
    try:
        async with conn.transaction():
            await conn.execute(script)
    except asyncpg.PostgresError as error:
        raise Failure(_told(file, script, error), error.hint or "nothing of the file has happened") from error
    except (asyncpg.InterfaceError, ValueError, OSError) as error:
        raise Failure(f"{file}: it cannot be run: {error}", "nothing of the file has happened") from error
    finally:
        await conn.close(timeout=TIMEOUT_S)


def _told(file: Path, script: str, error: Exception) -> str:
    """What Postgres says, with the line of the file where it says one."""
    position = str(getattr(error, "position", None) or "")
    line = (
        f", line {script.count(chr(10), 0, int(position) - 1) + 1}"
        if position.isdecimal() and int(position) > 0
        else ""
    )
    return f"{file}{line}: {error}"
