"""Verification of the ledger: entries a second, at two lengths, and the memory that it takes."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import secrets
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import click
import structlog

from bench.activation import Bench, role_dsn
from burnish.installation import MIGRATIONS
from libs.embedded import EmbeddedPostgres
from libs.provisioning.migrations import migrate
from libs.service_kit.db import Database, Transaction
from services.registry.domain import Target
from services.registry.ledger import Ledger
from services.registry.verification import verify_ledger

TARGETS = 20
LENGTHS, QUICK_LENGTHS = (5_000, 20_000), (1_000, 4_000)
A_TRANSACTION = 500
RATIO_GOAL, MIB_GOAL = 0.7, 64.0
MIB = 1024 * 1024


async def lengthen(db: Database, bench: Bench, targets: list[Target], entries: int) -> None:
    """Activate until the ledger has so many entries."""
    async with db.connection() as conn:
        there: int = await conn.fetchval("SELECT count(*) FROM ledger_entries")
    while there < entries:
        count = min(A_TRANSACTION, entries - there)

        async def work(tx: Transaction[Any], first: int = there, count: int = count) -> None:
            for number in range(first, first + count):
                await bench.switch(tx, targets[number % len(targets)])

        await Ledger(db).transact(work)
        there += count
    async with db.connection() as conn:
        await conn.execute("ANALYZE")


async def measured(db: Database) -> dict[str, Any]:
    """One whole verification for its time, and one for its memory, since watching that takes time."""
    started = time.perf_counter()
    outcome = await verify_ledger(db)
    seconds = time.perf_counter() - started
    tracemalloc.start()
    await verify_ledger(db)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        "entries": outcome.entries,
        "intact": outcome.intact,
        "seconds": round(seconds, 2),
        "per_second": round(outcome.entries / seconds),
        "peak_mib": round(peak / MIB, 1),
    }


async def run(folder: Path, lengths: tuple[int, int]) -> dict[str, Any]:
    """Measure a short ledger, lengthen it, and measure it again."""
    password = secrets.token_hex(16)
    async with EmbeddedPostgres(folder / "postgres") as postgres:
        await migrate(postgres.admin_dsn("burnish"), MIGRATIONS, {"registry": password})
        db = Database("registry", role_dsn(postgres.admin_dsn("burnish"), password), pool_size=2)
        await db.open()
        try:
            targets = [Target(f"t{number}") for number in range(TARGETS)]
            bench = Bench(db)
            await bench.prepare(targets)
            sides = []
            for length in lengths:
                await lengthen(db, bench, targets, length)
                sides.append(await measured(db))
        finally:
            await db.close()
    short, long = sides
    ratio = long["per_second"] / short["per_second"]
    met = short["intact"] and long["intact"] and ratio >= RATIO_GOAL and long["peak_mib"] <= MIB_GOAL
    return {
        "name": "ledger",
        "ratio": round(ratio, 2),
        "goal": f"a ledger four times as long at >= {RATIO_GOAL} of the speed, in <= {MIB_GOAL:g} MiB",
        "met": met,
        "short": short,
        "long": long,
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0]},
    }


@click.command()
@click.option("--quick", is_flag=True, help="A fifth of the lengths.")
@click.option("--json", "as_json", is_flag=True, help="The default; for symmetry with the other benchmarks.")
def main(quick: bool, as_json: bool) -> None:
    """Measure and print one JSON object."""
    del as_json
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory(prefix="burnish-bench-") as folder:
        report = asyncio.run(run(Path(folder), QUICK_LENGTHS if quick else LENGTHS))
    click.echo(json.dumps({**report, "quick": quick}, indent=2))


if __name__ == "__main__":
    main()
