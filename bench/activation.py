"""Activation by 16 clients at once: the ledger's lock before BEGIN, against naive SERIALIZABLE with jittered back-off.

`python -m bench.activation --json` prints one JSON object; `--quick` runs a quarter of it. Both sides run the very
same statements on the same embedded Postgres (fsync on), in turns, so that noise of the machine meets both.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import secrets
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg
import click
import structlog

from libs.contracts.prompts import PromptPart
from libs.contracts.touchpoints import Touchpoint
from libs.embedded import EmbeddedPostgres
from libs.provisioning.migrations import migrate, role_of
from libs.service_kit.db import Database, Transaction
from libs.service_kit.retry import Retry
from services.registry.adapters.feed_prompts import FeedPrompts
from services.registry.domain import Target
from services.registry.ledger import Change, Ledger, require_live, switch
from services.registry.registration import Registration
from services.registry.store.versions import Version
from services.registry.stores import MergedStores
from services.registry.verification import verify_ledger

MIGRATIONS = Path(__file__).resolve().parents[1] / "db" / "migrations"
CLIENTS = 16
ROUNDS, QUICK_ROUNDS = 8, 2
COMMITS_A_ROUND = 200
RATIO_GOAL, RETRIES_GOAL, P99_GOAL = 1.2, 0.05, 1 / 3
HOT = Target("hot")
PATIENT = Retry(attempts=10_000)
"""The kit's back-off as it is, but for ever: 5 ms, doubled up to half a second, each times a jitter in 0.5–1."""

Activate = Callable[[Target], Awaitable[int]]
"""Activates the other version of a target; returns how often it had to try again."""


@dataclass
class Side:
    """What one way of activating came to."""

    commits: int = 0
    retries: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """Commits a second, retries a commit, p50 and p99 in milliseconds."""
        latencies = sorted(self.latencies)
        return {
            "commits": self.commits,
            "per_second": round(self.commits / self.seconds, 1),
            "retries_a_commit": round(self.retries / self.commits, 3),
            "p50_ms": round(latencies[len(latencies) // 2] * 1000, 2),
            "p99_ms": round(latencies[int(len(latencies) * 0.99)] * 1000, 2),
        }


class Bench:
    """Both ways on one database. `versions` are two texts a target, so that there is always another to activate."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._ledger = Ledger(db)
        self._random = Random()
        self._versions: dict[Target, list[Version]] = {}

    async def prepare(self, targets: list[Target]) -> None:
        """Register the targets with two versions each."""
        configs = [_touchpoint(target) for target in targets]
        await Registration(self._db, self._ledger, MergedStores([])).apply(configs, "bench")
        async with self._db.transaction() as tx:
            for target in targets:
                prompts = [[PromptPart(path="prompt", text=f"text {n}")] for n in range(2)]
                store = FeedPrompts(None)
                texts = [await store.record(tx.conn, target, one, by="bench", origin="manual") for one in prompts]
                self._versions[target] = [text.version for text in texts]

    async def locked(self, target: Target) -> int:
        tries = 0

        async def work(tx: Transaction[Any]) -> None:
            nonlocal tries
            tries += 1
            await self.switch(tx, target)

        await self._ledger.transact(work)
        return tries - 1

    async def naive(self, target: Target) -> int:
        """SERIALIZABLE, tried again with the kit's own jittered, growing back-off until it commits."""
        retries, delays = 0, PATIENT.delays(self._random)
        while True:
            try:
                async with self._db.transaction(isolation="serializable") as tx:
                    await self.switch(tx, target)
                return retries
            except (asyncpg.SerializationError, asyncpg.DeadlockDetectedError):
                retries += 1
                await asyncio.sleep(next(delays))

    async def intact(self) -> bool:
        """Whether the ledger that all this made verifies."""
        return (await verify_ledger(self._db)).intact

    async def switch(self, tx: Transaction[Any], target: Target) -> None:
        """Activate the other one of the target's two versions."""
        live = await require_live(tx, target)
        one, other = self._versions[target]
        version = other if live.version_ref == one.version_ref else one
        change = Change("activated", target, version, "feed_prompts", "bench")
        await switch(tx, change, expected_live=live.version_ref)


async def measure(side: Side, activate: Activate, targets: list[Target], commits: int) -> None:
    """Let 16 clients make this many commits together."""
    turns = iter(range(commits))

    async def client(number: int) -> None:
        for _ in turns:
            started = time.perf_counter()
            side.retries += await activate(targets[number % len(targets)])
            side.latencies.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    side.seconds += time.perf_counter() - started
    side.commits += commits


async def run(folder: Path, rounds: int) -> dict[str, Any]:
    """Measure both sides in turns."""
    password = secrets.token_hex(16)
    async with EmbeddedPostgres(folder / "postgres") as postgres:
        await migrate(postgres.admin_dsn("burnish"), MIGRATIONS, {"registry": password})
        db = Database("registry", role_dsn(postgres.admin_dsn("burnish"), password), pool_size=CLIENTS)
        await db.open()
        try:
            return await _measured(Bench(db), rounds)
        finally:
            await db.close()


async def _measured(bench: Bench, rounds: int) -> dict[str, Any]:
    many = [Target(f"t{number}") for number in range(CLIENTS)]
    await bench.prepare([HOT, *many])
    naive, locked, apart = Side(), Side(), Side()
    await measure(Side(), bench.locked, [HOT], CLIENTS)
    for _ in range(rounds):
        await measure(naive, bench.naive, [HOT], COMMITS_A_ROUND)
        await measure(locked, bench.locked, [HOT], COMMITS_A_ROUND)
        await measure(apart, bench.locked, many, COMMITS_A_ROUND)
    return _report(naive.figures(), locked.figures(), apart.figures(), await bench.intact())


def _report(naive: dict[str, float], locked: dict[str, float], apart: dict[str, float], intact: bool) -> dict[str, Any]:
    ratio = locked["per_second"] / naive["per_second"]
    p99 = locked["p99_ms"] / naive["p99_ms"]
    met = ratio >= RATIO_GOAL and locked["retries_a_commit"] <= RETRIES_GOAL and p99 <= P99_GOAL and intact
    return {
        "name": "activation",
        "ratio": round(ratio, 2),
        "p99_ratio": round(p99, 3),
        "goal": f"ratio >= {RATIO_GOAL}, retries a commit <= {RETRIES_GOAL}, p99 ratio <= 1/3",
        "met": met,
        "locked": locked,
        "naive": naive,
        "locked_on_16_touchpoints": apart,
        "ledger_intact": intact,
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0]},
    }


def _touchpoint(target: Target) -> Touchpoint:
    storage = {"adapter": "feed_prompts", "initial_text": "the first text"}
    return Touchpoint.model_validate({"id": target.touchpoint_id, "scope": "global", "storage": storage})


def role_dsn(admin_dsn: str, password: str) -> str:
    """The DSN of the registry's own role."""
    parts = urlsplit(admin_dsn)
    login = f"{role_of('registry')}:{quote(password, safe='')}"
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.hostname}:{parts.port}"))


@click.command()
@click.option("--quick", is_flag=True, help="A quarter of the rounds.")
@click.option("--json", "as_json", is_flag=True, help="The default; for symmetry with the other benchmarks.")
def main(quick: bool, as_json: bool) -> None:
    """Measure and print one JSON object."""
    del as_json
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory(prefix="burnish-bench-") as folder:
        report = asyncio.run(run(Path(folder), QUICK_ROUNDS if quick else ROUNDS))
    click.echo(json.dumps({**report, "quick": quick}, indent=2))


if __name__ == "__main__":
    main()
