"""2,000 racing activations from two processes: one live version at every moment, losers get 409, nothing is lost."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from itertools import pairwise

import asyncpg

from libs.service_kit import logging
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from libs.service_kit.testing import Installation
from services.registry.domain import Target
from services.registry.ledger import Ledger
from services.registry.store import versions
from services.registry.tests.support import Parts, in_table
from services.registry.verification import verify_ledger

HERE = Target("summary")
PROCESSES = 2
CLIENTS = 4
ATTEMPTS = 2_000


@dataclass
class Tally:
    """What one process's attempts came to."""

    won: int = 0
    lost: int = 0
    other: int = 0


async def race(dsn: str, refs: list[str], attempts: int) -> Tally:
    """Read what is live, then try to replace it, as many times as given, from several clients at once."""
    db = Database("registry", dsn, pool_size=CLIENTS)
    await db.open()
    ledger, tally = Ledger(db), Tally()
    left = iter(range(attempts))

    async def client() -> None:
        for number in left:
            async with db.connection() as conn:
                seen = await versions.live(conn, HERE)
            assert seen is not None
            wanted = next(ref for ref in refs[number % len(refs) :] + refs if ref != seen.version_ref)
            try:
                await ledger.activate(HERE, wanted, expected_live=seen.version_ref, by="ada", reason="race")
                tally.won += 1
            except Refused as no:
                tally.lost += (no.status, no.code) == (409, "conflict")
                tally.other += (no.status, no.code) != (409, "conflict")

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    await db.close()
    return tally


async def in_a_process(dsn: str, refs: list[str]) -> Tally:
    asked = json.dumps([dsn, refs, ATTEMPTS // PROCESSES])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.registry.tests.test_race", stdin=-1, stdout=-1
    )
    out, _ = await process.communicate(asked.encode())
    return Tally(**json.loads(out))


async def test_one_version_is_live_at_every_moment(parts: Parts, installation: Installation) -> None:
    await parts.register(in_table())
    refs = [await parts.record(HERE, f"text {n}") for n in range(4)]
    reader = await asyncpg.connect(installation.admin_dsn)
    over, seen = asyncio.Event(), []

    async def watch() -> None:
        count = "SELECT count(*) FROM registry.prompt_version_registry WHERE rolled_back_at IS NULL"
        while not over.is_set():
            seen.append(await reader.fetchval(count))
            await asyncio.sleep(0.002)

    watching = asyncio.create_task(watch())
    dsn = installation.settings("registry")["database_url"]
    tallies = await asyncio.gather(*(in_a_process(dsn, refs) for _ in range(PROCESSES)))
    over.set()
    await watching
    await reader.close()

    won, lost = sum(tally.won for tally in tallies), sum(tally.lost for tally in tallies)
    assert won + lost == ATTEMPTS
    assert won > 0
    assert lost > 0
    assert len(seen) > 50
    assert set(seen) == {1}
    rows = await parts.rows("SELECT * FROM prompt_version_registry ORDER BY activated_at")
    assert len(rows) == won + 1
    for row, following in pairwise(rows):
        assert row["rolled_back_at"] == following["activated_at"]
    assert rows[-1]["rolled_back_at"] is None
    outcome = await verify_ledger(parts.db)
    assert (outcome.intact, outcome.entries) == (True, won + 1)


if __name__ == "__main__":
    logging.configure("registry", "ERROR")
    given_dsn, given_refs, given_attempts = json.load(sys.stdin)
    print(json.dumps(vars(asyncio.run(race(given_dsn, given_refs, given_attempts)))))
