"""Examines an installation and says, check by check, what is well, what is not, and what to do about it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish import answers
from burnish.answers import read
from burnish.client import Gateway
from burnish.data_folder import DataFolder, RunningNote
from burnish.doctor_bus import examine_bus
from burnish.errors import InstallationError
from burnish.failure import Failure
from burnish.finding import Finding, Level
from burnish.installation import DEFAULT_PORT, MIGRATIONS, SERVICE_NAMES, External, Installation
from burnish.room import room
from libs.contracts.topology import DAY_S
from libs.embedded import ports
from libs.provisioning.errors import ProvisioningError
from libs.provisioning.settings import BusSettings
from libs.service_kit.settings import KitSettings

if TYPE_CHECKING:
    import asyncpg

WORST: tuple[Level, ...] = ("ok", "warn", "fail")
LARGEST_EFFECT = 0.1
FEWEST_CASES = 100
TIMEOUT_S = 8.0
OLDEST = 'SELECT extract(epoch FROM now() - min(seen_at)) FROM "{name}".inbox'


def verdict(findings: Iterable[Finding]) -> Level:
    """The worst level found."""
    return max((finding.level for finding in findings), key=WORST.index, default="ok")


async def examine(data: Path) -> AsyncIterator[Finding]:
    """Every check, in the order in which one depends on another. Changes nothing."""
    for finding in _machine(data):
        yield finding
    try:
        note = DataFolder(data).running()
    except InstallationError as error:
        yield Finding("installation", "fail", error.message, error.hint)
        return
    yield _running(data, note)
    if note is None:
        yield _port()
    external = External.from_environment()
    if note is not None:
        external = External(external.admin_dsn or note.admin_dsn, external.nats_url or note.nats_url)
    installation = Installation(data, external=external)
    if external.admin_dsn is not None:
        for finding in await _postgres(installation):
            yield finding
    if external.nats_url is not None:
        for finding in await examine_bus(installation):
            yield finding
    if note is not None:
        for finding in await _services(note):
            yield finding
    for finding in await asyncio.to_thread(_through_gateway, data):
        yield finding


# --- the machine ----------------------------------------------------------------------------------------------


def _machine(data: Path) -> list[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    right = (3, 11) <= sys.version_info[:2] < (3, 14)
    python = Finding("python", "ok" if right else "fail", version, "" if right else "use Python 3.11 to 3.13")
    git = shutil.which("git")
    if git:
        found = Finding("git", "ok", git)
    else:
        found = Finding("git", "warn", "there is no git", "install it: prompts of the adapter skill_file live in git")
    return [python, _disk(data), found]


def _disk(data: Path) -> Finding:
    external = External.from_environment()
    try:
        settings = BusSettings.from_environment()
    except ProvisioningError as error:
        return Finding("disk", "fail", error.message, error.hint)
    found = room(data, settings, postgres=external.admin_dsn is None, nats=external.nats_url is None)
    if not found.enough:
        todo = f"it needs {found.needed // 1_000_000} MB: free some, or use another --data"
        return Finding("disk", "fail", f"{found} in {data}", todo)
    if not found.comfortable:
        todo = "free some, or set BURNISH_BUS_STORE lower: on a full disk facts wait in the outboxes"
        return Finding("disk", "warn", f"{found} in {data}", todo)
    return Finding("disk", "ok", f"{found} in {data}")


def _running(data: Path, note: RunningNote | None) -> Finding:
    if note is None:
        return Finding("installation", "warn", f"nothing runs in {data}", "start it with `burnish up`")
    return Finding("installation", "ok", f"{note.url}, pid {note.pid}, in {data}")


def _port() -> Finding:
    if ports.is_free(DEFAULT_PORT):
        return Finding("port", "ok", f"{DEFAULT_PORT} is free for the gateway")
    return Finding("port", "warn", f"{DEFAULT_PORT} is taken", "`burnish up` takes a free port, or the one of --port")


# --- Postgres -------------------------------------------------------------------------------------------------


async def _postgres(installation: Installation) -> list[Finding]:
    import asyncpg

    from libs.provisioning.migrations import MigrationError, status

    try:
        conn = await asyncpg.connect(installation.admin_dsn, timeout=TIMEOUT_S)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        return [Finding("postgres", "fail", f"it does not answer ({type(error).__name__})", "check BURNISH_ADMIN_DSN")]
    try:
        version = await conn.fetchval("SHOW server_version")
        remembered = await _inboxes(conn)
    finally:
        await conn.close()
    reached = Finding("postgres", "ok", f"PostgreSQL {version} answers")
    try:
        files = await status(installation.admin_dsn, MIGRATIONS, SERVICE_NAMES)
    except MigrationError as error:
        return [reached, Finding("migrations", "fail", error.message, error.hint)]
    pending = [one.file for one in files if one.state == "pending"]
    odd = [f"{one.file} is {one.state}" for one in files if one.state in ("changed", "missing")]
    if odd:
        return [reached, Finding("migrations", "fail", "; ".join(odd), "restore the files that were applied")]
    if pending:
        return [reached, Finding("migrations", "fail", f"pending: {', '.join(pending)}", "run `burnish migrate`")]
    return [reached, Finding("migrations", "ok", f"all {len(files)} are applied"), remembered]


async def _inboxes(conn: asyncpg.Connection[asyncpg.Record]) -> Finding:
    """How old the oldest event is that a service remembers: it forgets what no stream can deliver any more."""
    import asyncpg

    ages: dict[str, float] = {}
    for name in SERVICE_NAMES:
        try:
            ages[name] = float(await conn.fetchval(OLDEST.format(name=name), timeout=TIMEOUT_S) or 0) / DAY_S
        except (asyncpg.PostgresError, TimeoutError):
            continue  # not migrated yet, or too large to be read now
    kept = float(KitSettings.model_fields["inbox_kept_days"].default)
    name, age = max(ages.items(), key=lambda one: one[1], default=("", 0.0))
    told = f"the oldest event remembered is {age:.1f} days old ({name})" if age else "nothing is remembered yet"
    if age > max(kept, float(os.environ.get("BURNISH_INBOX_KEPT_DAYS", kept))) + 2:
        return Finding("inbox", "warn", told, f"it is not pruned: see job.failed in the log of {name}")
    return Finding("inbox", "ok", told)


# --- services -------------------------------------------------------------------------------------------------


async def _services(note: RunningNote) -> list[Finding]:
    import httpx

    async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as client:
        return list(await asyncio.gather(*(_service(client, name, url) for name, url in note.services.items())))


async def _service(client: Any, name: str, url: str) -> Finding:
    import httpx

    try:
        answer = await client.get(f"{url}/health/ready")
        checks = answer.json()["checks"]
    except (httpx.HTTPError, ValueError, KeyError) as error:
        return Finding(name, "fail", f"it does not answer ({type(error).__name__})", "see its log in the data folder")
    wrong = [f"{check}: {outcome}" for check, outcome in checks.items() if outcome != "ok"]
    if wrong:
        return Finding(name, "fail", "; ".join(wrong), "see its log in the data folder")
    return Finding(name, "ok", f"ready, {len(checks)} checks")


# --- through the gateway --------------------------------------------------------------------------------------


def _through_gateway(data: Path) -> list[Finding]:
    try:
        with Gateway(data) as api:
            touchpoints = read(api.get("/touchpoints"), answers.ExaminedTouchpoints)["touchpoints"]
            return [*_dead_letters(api), *_touchpoints(api, touchpoints), *_suites(api, touchpoints)]
    except Failure as error:
        return [Finding("gateway", "warn", error.message, error.hint)]


def _dead_letters(api: Gateway) -> list[Finding]:
    found = read(api.get("/dead-letters", limit=1_000), answers.DeadLetters)
    count, silent = len(found["dead_letters"]), found["unavailable"]
    if count:
        return [Finding("dead letters", "warn", f"{count} wait", "see `burnish dlq list`, then `burnish dlq replay`")]
    if silent:
        return [Finding("dead letters", "warn", f"{', '.join(silent)} cannot be asked", "see the lines above")]
    return [Finding("dead letters", "ok", "none")]


def _touchpoints(api: Gateway, registered: list[answers.Examined]) -> list[Finding]:
    if not registered:
        return [Finding("touchpoints", "ok", "none yet; `burnish touchpoints apply FILE` registers some")]
    active = [one["touchpoint"] for one in registered if one["touchpoint"]["active"]]
    unreadable = [told for touchpoint in active if (told := _unreadable(api, touchpoint)) is not None]
    return unreadable or [Finding("touchpoints", "ok", f"{len(active)} active, every prompt can be read")]


def _unreadable(api: Gateway, touchpoint: answers.ExaminedTouchpoint) -> Finding | None:
    """A plan of what is registered already reads the stored prompt, and changes nothing."""
    try:
        api.post("/touchpoints/plan", {"touchpoints": [touchpoint]})
    except Failure as error:
        todo = "put the prompt back where the touchpoint says, or apply its touchpoints file anew"
        return Finding(f"touchpoint {touchpoint['id']}", "fail", f"it cannot be used: {error.message}", todo)
    return None


def _suites(api: Gateway, registered: list[answers.Examined]) -> list[Finding]:
    expected = [one["touchpoint"]["id"] for one in registered if one["touchpoint"]["suite"]]
    there = {suite["touchpoint_id"]: suite for suite in read(api.get("/suites"), answers.Suites)["suites"]}
    found = [_suite(identity, there.get(identity)) for identity in sorted({*expected, *there})]
    return found or [Finding("suites", "ok", "no touchpoint has one")]


def _suite(identity: str, suite: answers.Suite | None) -> Finding:
    check = f"suite of {identity}"
    if suite is None:
        todo = f"import one with `burnish suites import {identity} FILE`: without it a change can only be waived"
        return Finding(check, "warn", "there is none", todo)
    effect, cases = suite["smallest_detectable_effect"], suite["test_cases"]
    told = f"{cases} test cases" + (f", the smallest difference it can show is {effect:.3f}" if effect else "")
    if cases < FEWEST_CASES or (effect or 0) > LARGEST_EFFECT:
        return Finding(check, "warn", told, "add cases: most changes will stay undecided")
    return Finding(check, "ok", told)
