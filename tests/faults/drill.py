"""The kill drill: signals are pushed through the API while processes are killed; afterwards everything reconciles.

The kill plan comes from a seed. Two kinds of kills: SIGKILL from outside at random moments, and processes that kill
themselves between commit and ack or between PubAck and mark (`libs.service_kit.faults`).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any
from uuid import uuid4

import httpx

from burnish.supervisor import RunningInstallation, running_installation

TOUCHPOINT = "drill.intent"
BATCH = 20
PUSHERS = 4
SETTLE_S = 240.0
VICTIMS = (
    *("scanner", "normaliser", "pattern_detector", "proposal", "ab_runner", "registry"),
    *("gateway", "qa_ingest", "agents"),
)
SERVERS = ("postgres", "nats")
PROMPT = "## Labels\n\n### a\nAbout a.\n\n### b\nAbout b.\n"


@dataclass(frozen=True)
class Plan:
    """What the drill does. The same seed kills the same services after the same pauses."""

    signals: int
    kills: int
    seed: int
    inbox: bool = True
    suicide: float = 0.0
    among: tuple[str, ...] = VICTIMS

    def victims(self) -> Iterator[tuple[float, str]]:
        """(pause in seconds, service) for each kill; every service is among them when there are enough."""
        random = Random(self.seed)
        names = [self.among[n % len(self.among)] for n in range(self.kills)]
        random.shuffle(names)
        for name in names:
            yield random.uniform(0.2, 0.8), name

    def settings(self, under_fire: Path) -> dict[str, str]:
        """Environment variables of every service; they kill themselves only while that file is there."""
        points = f"commit_ack:{self.suicide},puback_mark:{self.suicide}"
        faults = f"{points};seed={self.seed};while={under_fire}" if self.suicide else ""
        return {
            "BURNISH_INBOX": "true" if self.inbox else "false",
            "BURNISH_FAULTS": faults,
            "BURNISH_LOG_LEVEL": "WARNING",
        }


@dataclass
class Result:
    """What came of it."""

    accepted: set[str] = field(default_factory=set)
    kills: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    retried_pushes: int = 0
    stored: int = 0
    observed: int = 0
    projected: int = 0
    heard: int = 0
    dead_letters: int = 0
    elapsed_s: float = 0.0

    def summary(self) -> dict[str, Any]:
        """For people and for JSON."""
        told = {key: value for key, value in vars(self).items() if key not in ("accepted", "kills")}
        return {
            "accepted": len(self.accepted),
            "kills": sum(self.kills.values()),
            "by_victim": dict(self.kills),
            **told,
        }


Trouble = Callable[[RunningInstallation, Plan, Result, asyncio.Task[None]], Awaitable[None]]


async def run(plan: Plan, folder: Path, trouble: Trouble | None = None) -> Result:
    """Run the drill in `folder` and count. `trouble` is what happens while signals are pushed; else processes die."""
    result, started = Result(), monotonic()
    under_fire = folder.with_suffix(".under-fire")
    async with (
        running_installation(folder, settings=plan.settings(under_fire)) as running,
        _client(running) as client,
    ):
        await register(client)
        under_fire.touch()
        pushing = asyncio.create_task(push_all(client, plan, result))
        await (trouble or _kill)(running, plan, result, pushing)
        await pushing
        under_fire.unlink()
        await settle(client, result)
        result.restarts = sum(running.restart_counts.values())
    result.elapsed_s = round(monotonic() - started, 1)
    return result


async def register(client: httpx.AsyncClient) -> None:
    """Register the touchpoint that signals are pushed for."""
    touchpoint = {
        "id": TOUCHPOINT,
        "scope": "global",
        "storage": {"adapter": "feed_prompts", "initial_text": PROMPT},
        "model": {"provider": "offline", "name": "offline"},
    }
    while True:
        with suppress(httpx.HTTPError):
            answer = await client.put("/api/refinement/touchpoints", json={"touchpoints": [touchpoint]})
            if answer.is_success:
                return
        await asyncio.sleep(0.2)


async def push_all(client: httpx.AsyncClient, plan: Plan, result: Result) -> None:
    """Spread over the time of the kills, so that each of them hits work in flight."""
    starts = range(0, plan.signals, BATCH)
    pace = sum(pause for pause, _ in plan.victims()) / len(starts)
    began = monotonic()
    batches = iter(enumerate(starts))

    async def pusher() -> None:
        for turn, start in batches:
            await asyncio.sleep(began + turn * pace - monotonic())
            await _push(client, plan.seed, range(start, min(start + BATCH, plan.signals)), result)

    await asyncio.gather(*(pusher() for _ in range(PUSHERS)))


async def _push(client: httpx.AsyncClient, seed: int, numbers: range, result: Result) -> None:
    """Push one batch until it is accepted: a lost answer is asked for again with the same idempotency key."""
    body = {"signals": [_signal(seed, number) for number in numbers]}
    headers = {"Idempotency-Key": f"drill-{seed}-{numbers.start}"}
    while True:
        try:
            answer = await client.post("/api/refinement/signals", json=body, headers=headers)
        except httpx.HTTPError:
            result.retried_pushes += 1
            await asyncio.sleep(0.1)
            continue
        if answer.status_code == 202:
            result.accepted.update(answer.json()["signal_ids"])
            return
        if answer.status_code not in (429, 500, 502, 503):
            raise AssertionError(f"{answer.status_code}: {answer.text}")
        result.retried_pushes += 1
        await asyncio.sleep(0.1)


def _signal(seed: int, number: int) -> dict[str, Any]:
    expected, got = ("a", "b") if number % 2 else ("b", "a")
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    return {
        "touchpoint_id": TOUCHPOINT,
        "signal_type": "flag",
        "evidence_ref": {"source": "push", "id": f"{seed}-{number}"},
        "payload": {"text": f"message number {number}", "expected": expected, "got": got},
        "actor_id": f"user-{number % 40}",
        "actor_kind": "human",
        "source_key": f"push:{seed}:{number}",
        "observed_at": at.isoformat(),
    }


async def _kill(running: RunningInstallation, plan: Plan, result: Result, pushing: asyncio.Task[None]) -> None:
    for pause, victim in plan.victims():
        await asyncio.wait([pushing], timeout=pause)
        pid = running.pids().get(victim)
        if pid is None:  # it is dead already: the next one
            continue
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            result.kills[victim] += 1


async def settle(client: httpx.AsyncClient, result: Result) -> None:
    """Wait until what was accepted has gone all the way, and a little longer, so that a double would show."""
    deadline, quiet_since = monotonic() + SETTLE_S, monotonic()
    last: tuple[int, ...] = ()
    while monotonic() < deadline:
        await asyncio.sleep(0.5)
        counted = await _count(client, result)
        if counted != last:
            last, quiet_since = counted, monotonic()
        arrived = result.stored >= len(result.accepted) and result.projected >= len(result.accepted)
        if arrived and monotonic() - quiet_since > 5:
            return


async def _count(client: httpx.AsyncClient, result: Result) -> tuple[int, ...]:
    with suppress(httpx.HTTPError, KeyError):
        status = (await client.get(f"/api/refinement/touchpoints/{TOUCHPOINT}/status")).json()
        result.stored = status["signals"]["stored"]
        result.observed = status["signals"]["observed"]
        result.projected = status["detector"]["signals"]
        result.heard = status["detector"]["heard"]
        letters: Mapping[str, Any] = (await client.get("/api/refinement/dead-letters")).json()
        result.dead_letters = len(letters["dead_letters"])
    return (result.stored, result.observed, result.projected, result.heard)


def _client(running: RunningInstallation) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {running.token(subject=f'drill-{uuid4().hex[:6]}')}"}
    return httpx.AsyncClient(base_url=running.url, headers=headers, timeout=20, trust_env=False)
