"""Run: `up`, `run`, `migrate`, `topology`."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from burnish import printer
from burnish.commands.show import when
from burnish.commands.verbs import data_option, json_option, verb
from burnish.failure import EXITS, FAILED, USAGE, Failure
from burnish.parameters import FOLDER_THAT_IS_THERE, NEW_FILE, TEXT
from burnish.printer import print_json, print_table, remark
from libs.contracts.topology import SERVICES

if TYPE_CHECKING:
    from burnish.supervisor import RunningInstallation
    from libs.provisioning.migrations import Applied, FileStatus, Phase

NAMES = [entry.name for entry in SERVICES]


def add_to(group: click.Group) -> None:
    """Register the verbs."""
    _add_up(group)
    _add_run(group)
    _add_migrate(group)
    _add_topology(group)


def _add_up(group: click.Group) -> None:
    @verb(
        group,
        "up",
        example="burnish up --port 9000\nburnish up --data /var/lib/burnish --repository ~/src/prompts",
        exits={**EXITS, 0: "stopped, by SIGTERM or Ctrl-C", 1: "it could not start; nothing is left running"},
    )
    @data_option
    @click.option("--port", type=click.IntRange(1, 65_535), help="The gateway's port.  [default: 8320, if free]")
    @click.option(
        "--repository",
        "repositories",
        multiple=True,
        type=FOLDER_THAT_IS_THERE,
        help="A folder whose git repositories may hold prompts; may be given again.  [default: the current folder]",
    )
    @click.option(
        "--platform-dsn", type=TEXT, envvar="BURNISH_PLATFORM_DSN", help="The Postgres whose tables scanners read."
    )
    @json_option
    def up(
        data: Path, port: int | None, repositories: tuple[Path, ...], platform_dsn: str | None, as_json: bool
    ) -> None:
        """Run everything on this machine: Postgres, NATS and all services, in one data folder.

        Returns when it is stopped. Other commands find it through the data folder. Servers that run elsewhere are
        used when BURNISH_ADMIN_DSN or BURNISH_NATS_URL name them.
        """
        asyncio.run(_up(data, port, repositories, platform_dsn, as_json))


def _add_run(group: click.Group) -> None:
    @verb(
        group,
        "run",
        example="BURNISH_DATABASE_URL=postgresql://… BURNISH_NATS_URL=nats://… burnish run scanner",
        exits={**EXITS, 0: "stopped, by SIGTERM or Ctrl-C"},
    )
    @click.argument("service", type=click.Choice(NAMES), metavar="SERVICE")
    def run(service: str) -> None:
        """Run one service in the foreground, configured by BURNISH_… environment variables.

        SERVICE is scanner, normaliser, pattern_detector, proposal, ab_runner, registry or qa_ingest; its README lists
        its variables. Logs are JSON lines on stderr.
        """
        from pydantic import ValidationError

        from burnish.child import entry_point

        main = entry_point(service)
        try:
            main()
        except ValidationError as error:
            wrong = [f"BURNISH_{'.'.join(map(str, one['loc'])).upper()}: {one['msg']}" for one in error.errors()]
            raise Failure(f"the settings of {service} are not right:\n  " + "\n  ".join(wrong)) from None


def _add_migrate(group: click.Group) -> None:
    @verb(group, "migrate", example="burnish migrate\nburnish migrate --phase pre\nburnish migrate --status --json")
    @data_option
    @click.option(
        "--phase", type=click.Choice(["pre", "post", "all"]), default="all", show_default=True, help="Which files."
    )
    @click.option(
        "--status", "only_status", is_flag=True, help="Say what is applied and what is pending; change nothing."
    )
    @json_option
    def migrate(data: Path, phase: Phase, only_status: bool, as_json: bool) -> None:
        """Bring every service's schema and role up to date; safe to run twice.

        Works on BURNISH_ADMIN_DSN where it is set, else on the data folder's own Postgres, running or not.
        """
        if only_status:
            _print_status(asyncio.run(_migration_status(data)), as_json)
            return
        applied = asyncio.run(_migrate(data, phase))
        if as_json:
            print_json([{"service": one.service, "file": one.file, "duration_ms": one.duration_ms} for one in applied])
        else:
            remark(f"{len(applied)} migrations applied" if applied else "nothing to do: every schema is up to date")


def _add_topology(group: click.Group) -> None:
    @verb(
        group,
        "topology",
        example="burnish topology\nburnish topology --keep\nburnish topology --write deploy/nats/accounts.conf",
        exits={**EXITS, FAILED: "the bus has no room for the streams, or cannot be reached; stderr says which"},
    )
    @data_option
    @click.option("--print", "to_stdout", is_flag=True, help="Print the NATS server's accounts instead.")
    @click.option("--keep", is_flag=True, help="Stay, and look after the bus until stopped.")
    @click.option("--write", type=NEW_FILE, help="Write them to FILE instead.")
    @json_option
    def topology(data: Path, to_stdout: bool, keep: bool, write: Path | None, as_json: bool) -> None:
        """Create or update streams and durables as the topology table says. Never deletes one.

        Works on BURNISH_NATS_URL where it is set, else on the data folder's own NATS, running or not. How large the
        streams are is set with BURNISH_BUS_STORE, BURNISH_BUS_STREAMS and BURNISH_BUS_REPLICAS; a stream of before is
        made smaller when its content fits. With --keep it stays: it puts messages that the server gave up with the
        dead letters of their service, and makes room in full streams; `burnish up` does so by itself.
        """
        from libs.provisioning.nats_config import server_config

        if to_stdout:
            printer.exact(server_config())
        elif write is not None:
            _write(write, server_config())
            remark(f"wrote {write}")
        else:
            asyncio.run(_apply_topology(data, keep, as_json))


async def _up(
    data: Path, port: int | None, repositories: tuple[Path, ...], platform_dsn: str | None, as_json: bool
) -> None:
    from burnish.supervisor import running_installation

    started = time.monotonic()
    try:
        async with running_installation(
            data, port=port, platform_dsn=platform_dsn, repositories=repositories, on_progress=remark
        ) as running:
            _announce(running, time.monotonic() - started, as_json)
            await asyncio.Event().wait()
    except asyncio.CancelledError:
        remark("stopped")


def _announce(running: RunningInstallation, seconds: float, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "url": running.url,
                "mcp": running.mcp_url,
                "pids": running.pids(),
                "data": str(running.data),
                "started_s": round(seconds, 2),
            }
        )
    remark(f"ready after {seconds:.1f} s: {running.url}")
    remark(f"  agents (MCP): {running.mcp_url}")
    remark(f"  data and logs in {running.data}")
    remark(f"  questions and answers: drop files into {running.data / 'library'}, see `burnish qa documents`")
    remark("  `burnish doctor` checks it, `burnish token` prints a token, Ctrl-C stops it")


async def _migrate(data: Path, phase: Phase) -> list[Applied]:
    from burnish.installation import reached

    async with reached(data, nats=False) as installation:
        return await installation.migrate(phase, remark)


async def _migration_status(data: Path) -> list[FileStatus]:
    from burnish.installation import MIGRATIONS, reached
    from libs.provisioning.migrations import status

    async with reached(data, nats=False) as installation:
        return await status(installation.admin_dsn, MIGRATIONS, NAMES)


def _print_status(found: list[FileStatus], as_json: bool) -> None:
    if as_json:
        print_json([asdict(one) for one in found])
        return
    print_table(
        ["service", "file", "state", "applied"],
        [[one.service, one.file, one.state, when(one.applied_at)] for one in found],
    )


async def _apply_topology(data: Path, keep: bool, as_json: bool) -> None:
    from burnish.installation import reached

    done: list[str] = []

    def tell(what: str) -> None:
        done.append(what)
        remark(what)

    async with reached(data, postgres=False) as installation:
        await installation.apply_topology(tell)
        if as_json:
            print_json(done)
        if keep:
            remark("looking after the bus, until Ctrl-C")
            await installation.keeper(remark).run()


def _write(path: Path, text: str) -> None:
    try:
        if path.exists() and not path.is_file():  # a pipe would wait for whoever reads it
            raise Failure(f"{path} cannot be written: it is no regular file", "name a new file", USAGE)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(f"{path} cannot be written: {error.strerror}", code=USAGE) from error
