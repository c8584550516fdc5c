"""The kill drill of the library: files are put, changed, broken and deleted in three stores while `qa_ingest` dies.

Two replicas read the same buckets. Each process is armed with one fault point, kills itself there with a chance, and is
started again with the next point. Events of the S3 store are said twice, shuffled and again later, and a tenth of them
never; folders are listed, and object stores tell by themselves. Afterwards the rows are those of a run without deaths.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from random import Random
from signal import SIGKILL
from time import monotonic
from typing import Any
from urllib.parse import quote_plus

import asyncpg
import nats
from nats.aio.client import Client

from libs.contracts.events.bucket_store import ObjectNotifiedV1
from libs.service_kit.testing import Installation
from services.qa_ingest.tests.s3_server import S3Server
from services.qa_ingest.tests.stores import KINDS, Store, store_of

POINTS = {
    "lock_read": 1.0,
    "read_write": 1.0,
    "write_commit": 1.0,
    "commit_unlock": 1.0,
    "commit_ack": 20.0,
    "puback_mark": 5.0,
}
"""Steps between event and ack, with how much oftener a process dies where it seldom comes by."""
SETTLE_S = 600.0
IDLE_S = 2.0

State = dict[tuple[str, str], tuple[str, str]]
"""What is to be served: (bucket, key) → (state, hash of the content)."""
Rows = dict[str, Counter[tuple[Any, ...]]]


@dataclass(frozen=True)
class Plan:
    """What the drill does, all from the seed."""

    files: int
    deaths: int
    seed: int
    chance: float = 0.0
    replicas: int = 2
    noise: bool = True
    locks: bool = True
    unique: bool = True

    @classmethod
    def undisturbed(cls, like: Plan) -> Plan:
        """The same files, nobody dies, one replica, each event once and in order."""
        return cls(like.files, 0, like.seed, replicas=1, noise=False)


@dataclass
class Result:
    """What came of it."""

    rows: Rows = field(default_factory=dict)
    deaths: Counter[str] = field(default_factory=Counter)
    events: int = 0
    elapsed_s: float = 0.0

    def summary(self) -> dict[str, Any]:
        """For people and for JSON."""
        told = {name: sum(rows.values()) for name, rows in self.rows.items()}
        return {"deaths": dict(self.deaths), "events": self.events, "elapsed_s": self.elapsed_s, **told}


def differences(one: Rows, other: Rows) -> dict[str, int]:
    """By table, how many rows are only in one of them."""
    return {
        name: sum(((one[name] - other[name]) + (other[name] - one[name])).values())
        for name in one
        if one[name] != other[name]
    }


async def run(plan: Plan, folder: Path, installation: Installation, s3: S3Server) -> Result:
    """Run the plan in three empty stores and an empty database, and read the rows."""
    result, began, random = Result(), monotonic(), Random(plan.seed)
    folder.mkdir()
    async with AsyncExitStack() as stack:
        stores: dict[str, Store] = {}
        for kind in KINDS:
            made = store_of(kind, folder, installation.servers, lambda: s3)
            stores[kind] = await stack.enter_async_context(made)
        admin = await asyncpg.connect(installation.admin_dsn, server_settings={"search_path": "qa_ingest"})
        stack.push_async_callback(admin.close)
        if not plan.unique:
            await admin.execute("DROP INDEX q_a_extractions_once")
        teller = await _Teller.connected(installation, plan, random, stores["s3"].options["s3_bucket"], stack)
        replicas = _Replicas(plan, folder, installation, stores, result)
        stack.push_async_callback(replicas.stop)
        await replicas.start()
        for phase in PHASES:
            expected = await _play(phase, plan, stores, teller)
            await _settled(admin, installation, expected)
        await replicas.stop()
        result.events = teller.said
        result.rows = {**await _rows(admin), "facts": await _facts(installation)}
    result.elapsed_s = round(monotonic() - began, 1)
    return result


# --- what is put --------------------------------------------------------------------------------------------------


def _bundle(bucket: str, n: int, first: str = "Because.", second: str | None = "Thus.") -> bytes:
    blocks = [(f"Why {n}?", first, f"{bucket}-{n}-a")]
    if second is not None:
        blocks.append((f"How {n}?", second, f"{bucket}-{n}-b"))
    return "".join(f"---\nquestion: {asked}\nid: {token}\n---\n{said}\n\n" for asked, said, token in blocks).encode()


def _broken(bucket: str, n: int) -> bytes:
    return f"---\nquestion: Why {n}?\nid: {bucket}-{n}-a\nconfidence: 7\n---\nBecause.\n".encode()


def _first(bucket: str, n: int) -> tuple[bytes | None, str] | None:
    return _bundle(bucket, n), "live"


def _second(bucket: str, n: int) -> tuple[bytes | None, str] | None:
    match n % 6:
        case 0:
            return _bundle(bucket, n, first="Because of that."), "live"
        case 1:
            return None, "deleted"
        case 2:
            return _broken(bucket, n), "stale"
        case 4:
            return _bundle(bucket, n), "live"
        case 5:
            return _bundle(bucket, n, second=None), "live"
    return None


def _third(bucket: str, n: int) -> tuple[bytes | None, str] | None:
    match n % 6:
        case 0 | 1 | 2:
            return _bundle(bucket, n), "live"
        case 3:
            return _bundle(bucket, n, first="Therefore."), "live"
        case 5:
            return None, "deleted"
    return None


PHASES = (_first, _second, _third)
"""What becomes of each file: new content and the state that it comes to; None where nothing does."""


def _key(n: int) -> str:
    return f"dir {n % 7}/faq+{n}%2F.md"


def _expected(phases: Sequence[Any], files: int) -> State:
    found: State = {}
    for phase in phases:
        for bucket, n in _files(files):
            happens = phase(bucket, n)
            if happens is None:
                continue
            content, state = happens
            place = (bucket, _key(n))
            if content is None:
                found.pop(place)
            elif state == "stale":
                found[place] = ("stale", found[place][1])
            else:
                found[place] = ("live", hashlib.sha256(content).hexdigest())
    return found


def _files(files: int) -> Iterator[tuple[str, int]]:
    for n in range(files):
        yield KINDS[n % len(KINDS)], n // len(KINDS)


async def _play(phase: Any, plan: Plan, stores: Mapping[str, Store], teller: _Teller) -> State:
    for bucket, n in _files(plan.files):
        happens = phase(bucket, n)
        if happens is None:
            continue
        if happens[0] is None:
            await stores[bucket].delete(_key(n))
        else:
            await stores[bucket].put(_key(n), happens[0])
        if bucket == "s3":
            await teller.tell(_key(n))
    await teller.end()
    return _expected(PHASES[: PHASES.index(phase) + 1], plan.files)


class _Teller:
    """Says the events of the S3 store, as a store on a bad day."""

    def __init__(self, client: Client, plan: Plan, random: Random, bucket: str) -> None:
        self._client = client
        self._plan = plan
        self._random = random
        self._bucket = bucket
        self._waiting: list[bytes] = []
        self._before: list[bytes] = []
        self.said = 0

    @classmethod
    async def connected(
        cls, installation: Installation, plan: Plan, random: Random, bucket: str, stack: AsyncExitStack
    ) -> _Teller:
        password = installation.servers.nats_password("bucket_store")
        client = await nats.connect(installation.servers.nats_url, user="bucket_store", password=password)
        stack.push_async_callback(client.close)
        return cls(client, plan, random, bucket)

    async def tell(self, key: str) -> None:
        place = {"bucket": {"name": self._bucket}, "object": {"key": quote_plus(key)}}
        body = json.dumps({"Records": [{"s3": place}]}).encode()
        if not self._plan.noise:
            await self._say([body])
        elif self._random.random() > 0.1:
            self._waiting += [body, body]
            if self._random.random() < 0.2:
                await self.end()

    async def end(self) -> None:
        """What waits, and some of before, in any order."""
        late = self._random.sample(self._before, len(self._before) // 20)
        self._random.shuffle(self._waiting)
        await self._say([*self._waiting, *late])
        self._before += self._waiting
        self._waiting = []

    async def _say(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            await self._client.request(ObjectNotifiedV1.type, body, timeout=10)
            self.said += 1


# --- who dies -----------------------------------------------------------------------------------------------------


class _Replicas:
    """Processes of `qa_ingest`; each that dies is started again."""

    def __init__(
        self, plan: Plan, folder: Path, installation: Installation, stores: Mapping[str, Store], result: Result
    ) -> None:
        self._plan = plan
        self._result = result
        self._fire = folder / "under-fire"
        self._points = cycle(POINTS)
        self._environment = self._settings(folder, installation, stores)
        self._watching: list[asyncio.Task[None]] = []
        self._processes: set[Process] = set()

    async def start(self) -> None:
        if self._plan.deaths:
            self._fire.touch()
        self._watching = [asyncio.create_task(self._keep()) for _ in range(self._plan.replicas)]

    async def stop(self) -> None:
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        self._processes = set()

    async def _keep(self) -> None:
        while True:
            point = next(self._points)
            chance = min(1.0, self._plan.chance * POINTS[point])
            faults = f"{point}:{chance};seed={self._plan.seed};while={self._fire}" if self._plan.deaths else ""
            environment = {**self._environment, "BURNISH_FAULTS": faults}
            process = await asyncio.create_subprocess_exec(sys.executable, "-m", "services.qa_ingest", env=environment)
            self._processes.add(process)
            code = await process.wait()
            self._processes.discard(process)
            assert code == -SIGKILL, f"qa_ingest ended by itself with {code}"
            self._result.deaths[point] += 1
            if sum(self._result.deaths.values()) >= self._plan.deaths:
                self._fire.unlink(missing_ok=True)

    def _settings(self, folder: Path, installation: Installation, stores: Mapping[str, Store]) -> dict[str, str]:
        common = {"workspace": "default", "curate_as_pair": True, "look_every_s": 0.5}
        bindings = folder / "buckets.yaml"
        buckets = [{"bucket": kind, "kind": kind, **store.options, **common} for kind, store in stores.items()]
        bindings.write_text(json.dumps({"buckets": buckets}))
        given = installation.settings("qa_ingest")
        return {
            "PATH": os.environ["PATH"],
            **{f"BURNISH_{name.upper()}": str(given[name]) for name in ("database_url", "nats_url", "nats_user")},
            "BURNISH_NATS_PASSWORD": given["nats_password"],
            "BURNISH_QA_NATS_PASSWORD": installation.servers.nats_password("qa_buckets"),
            "BURNISH_QA_BUCKETS": str(bindings),
            "BURNISH_QA_EMBED_EVERY_S": "80000",
            "BURNISH_QA_OBJECT_LOCKS": str(self._plan.locks).lower(),
            "BURNISH_LOG_LEVEL": "ERROR",
        }


# --- what is there ------------------------------------------------------------------------------------------------


async def _settled(admin: asyncpg.Connection[Any], installation: Installation, expected: State) -> None:
    """Until exactly this is served, every event is handled and every fact is out."""
    async with asyncio.timeout(SETTLE_S):
        while await _served(admin) != expected or not await _quiet(admin, installation):
            await asyncio.sleep(0.5)
        await asyncio.sleep(IDLE_S)  # longer than a turn of the listing, so that a double would show


async def _served(admin: asyncpg.Connection[Any]) -> State:
    rows = await admin.fetch("SELECT bucket, object_key, state, content_sha256 FROM documents")
    return {
        (row["bucket"], row["object_key"]): (row["state"], row["content_sha256"])
        for row in rows
        if row["state"] in ("live", "stale")
    }


async def _quiet(admin: asyncpg.Connection[Any], installation: Installation) -> bool:
    if await admin.fetchval("SELECT count(*) FROM outbox"):
        return False
    client = await installation.bus_admin()
    try:
        info = await client.jetstream().consumer_info("BUCKET", "qa_ingest-bucket_object_notified_v1")
    finally:
        await client.close()
    return not info.num_pending and not info.num_ack_pending


async def _rows(admin: asyncpg.Connection[Any]) -> Rows:
    """Everything that people and searches see, without ids and times."""
    statements = {
        "documents": "SELECT bucket, object_key, state, content_sha256, rejected FROM documents",
        "runs": "SELECT bucket, object_key, outcome, pairs FROM ingest_runs JOIN documents d ON d.id = document_id",
        "live": _EXTRACTIONS.format(state="IS NULL"),
        "invalidated": _EXTRACTIONS.format(state="IS NOT NULL"),
        "promoted": "SELECT source_id_token, question_text, answer_standard, version FROM q_a_pairs",
        "flagged": "SELECT source_id_token FROM q_a_pairs WHERE governance_review_status = 'pending'",
        "suggestions": (
            "SELECT kind, state, p.source_id_token FROM suggestions s JOIN q_a_pairs p ON p.id = s.pair_id"
            " WHERE kind IN ('proposed_edit', 'source_changed')"
        ),
    }
    return {name: Counter(tuple(row) for row in await admin.fetch(each)) for name, each in statements.items()}


_EXTRACTIONS = """
SELECT d.bucket, e.object_key, e.question_text, e.answer_text, e.invalidation_reason, p.source_id_token
FROM q_a_extractions e JOIN documents d ON d.id = e.document_id LEFT JOIN q_a_pairs p ON p.id = e.promoted_to_pair_id
WHERE e.invalidated_at {state}
"""


async def _facts(installation: Installation) -> Counter[tuple[Any, ...]]:
    """What was said on the bus of documents, each time that it was said."""
    client = await installation.bus_admin()
    found: Counter[tuple[Any, ...]] = Counter()
    try:
        js = client.jetstream()
        last = (await js.stream_info("QA")).state.last_seq
        subscription = await js.subscribe("qa.document.>", ordered_consumer=True)
        while last:
            message = await subscription.next_msg(timeout=10)
            data = json.loads(message.data)["data"]
            found[message.subject, data["bucket"], data["object_key"], data.get("content_sha256", "")] += 1
            if message.metadata.num_pending == 0:
                break
    finally:
        await client.close()
    return found
