"""Live prompts: warm from memory, changed within a moment, kept while the gateway is away."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from burnish_sdk import AsyncClient, Client, NotAllowed, NotFound, Prompt, Refreshing, Unavailable, UnexpectedAnswer
from burnish_sdk.tests.conftest import FAST, LIVE, OFTEN, TOKEN, Fake, Reply, Seen, problem

TOUCHPOINT = "support.intent"
WORKSPACE = UUID(int=7)


class Registry:
    """What is live, with its ETag."""

    def __init__(self) -> None:
        self.version = 1
        self.failing: Reply | None = None

    def __call__(self, seen: Seen) -> Reply:
        if self.failing is not None:
            return self.failing
        etag = f'"{self.version}"'
        if seen.headers.get("If-None-Match") == etag:
            return Reply(b"", 304, {"ETag": etag})
        parts = [{"path": "a", "text": f"Be kind {self.version}."}, {"path": "b", "text": "Be brief."}]
        return Reply({**LIVE, "version_ref": f"v{self.version}", "parts": parts}, headers={"ETag": etag})


@pytest.fixture
def registry(fake: Fake) -> Registry:
    fake.reply = one = Registry()
    return one


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it did not come"
        time.sleep(0.005)


def test_it_is_asked_for_once_and_read_from_memory(fake: Fake, registry: Registry) -> None:
    with Client(fake.url, TOKEN, FAST, Refreshing(every_s=60)) as client:
        first = client.prompts.get(TOUCHPOINT)
        assert (first.version_ref, first.text, first.stale) == ("v1", "Be kind 1.\nBe brief.", False)
        for _ in range(1_000):
            assert client.prompts.get(TOUCHPOINT) is first
        assert client.prompts.get(TOUCHPOINT, WORKSPACE) is not first
    assert [seen.path for seen in fake.seen] == [
        f"/api/refinement/touchpoints/{TOUCHPOINT}/live",
        f"/api/refinement/touchpoints/{TOUCHPOINT}/live?workspace_id={WORKSPACE}",
    ]


def test_many_who_wait_ask_once(fake: Fake, registry: Registry) -> None:
    with Client(fake.url, TOKEN, FAST, Refreshing(every_s=60)) as client:
        found: list[Prompt] = []
        threads = [threading.Thread(target=lambda: found.append(client.prompts.get(TOUCHPOINT))) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 16
        assert len(fake.seen) == 1


def test_an_activation_is_seen_by_its_etag(fake: Fake, registry: Registry, client: Client) -> None:
    assert client.prompts.get(TOUCHPOINT).version_ref == "v1"
    until(lambda: len(fake.seen) > 3)
    assert {seen.headers["If-None-Match"] for seen in fake.seen[1:]} == {'"1"'}
    registry.version = 2
    until(lambda: client.prompts.get(TOUCHPOINT).version_ref == "v2")
    assert client.prompts.get(TOUCHPOINT).text.startswith("Be kind 2.")


def test_the_default_interval_sees_it_within_a_second(fake: Fake, registry: Registry) -> None:
    with Client(fake.url, TOKEN) as client:
        client.prompts.get(TOUCHPOINT)
        assert Refreshing().every_s <= 0.5
        registry.version = 2
        changed = time.monotonic()
        until(lambda: client.prompts.get(TOUCHPOINT).version_ref == "v2")
        assert time.monotonic() - changed < 5  # no bound of time on a loaded machine: `bench.sdk` measures it


@pytest.mark.parametrize(
    "failing",
    [problem(503), problem(500), problem(401), Reply(b"<html>"), Reply([])],
    ids=["503", "500", "401", "html", "a list"],
)
def test_while_it_is_away_the_last_known_one_is_served_and_says_so(
    fake: Fake, registry: Registry, client: Client, failing: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "burnish_sdk")
    client.prompts.get(TOUCHPOINT)
    registry.failing = failing
    until(lambda: client.prompts.get(TOUCHPOINT).stale)
    assert client.prompts.get(TOUCHPOINT).version_ref == "v1"
    count = len(fake.seen)
    until(lambda: len(fake.seen) > count + 2)
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1
    assert TOKEN not in caplog.text
    assert "Be kind" not in caplog.text
    registry.version, registry.failing = 2, None
    until(lambda: not client.prompts.get(TOUCHPOINT).stale)
    assert client.prompts.get(TOUCHPOINT).version_ref == "v2"
    assert "answers again" in caplog.text


def test_a_gateway_that_is_gone_leaves_the_last_known_one(fake: Fake, registry: Registry, client: Client) -> None:
    client.prompts.get(TOUCHPOINT)
    fake.reply = lambda _: None
    until(lambda: client.prompts.get(TOUCHPOINT).stale)
    fake.reply = registry
    until(lambda: not client.prompts.get(TOUCHPOINT).stale)
    assert client.prompts.get(TOUCHPOINT).version_ref == "v1"


def test_it_is_asked_less_often_while_it_is_away(fake: Fake, registry: Registry) -> None:
    with Client(fake.url, TOKEN, FAST, Refreshing(every_s=0.01, away_s=60)) as client:
        client.prompts.get(TOUCHPOINT)
        registry.failing = problem(503)
        until(lambda: client.prompts.get(TOUCHPOINT).stale)
        count = len(fake.seen)
        time.sleep(0.5)
        assert len(fake.seen) - count <= 7  # ever twice as long; fifty without that


@pytest.mark.parametrize(
    ("failing", "kind"),
    [(problem(404), NotFound), (problem(403), NotAllowed), (problem(503), Unavailable), (Reply([]), UnexpectedAnswer)],
)
def test_one_that_was_never_known_raises(
    fake: Fake, registry: Registry, client: Client, failing: Reply, kind: type[Exception]
) -> None:
    registry.failing = failing
    for _ in range(2):
        with pytest.raises(kind):
            client.prompts.get(TOUCHPOINT)
    registry.failing = None
    assert client.prompts.get(TOUCHPOINT).version_ref == "v1"


def test_one_that_is_gone_raises_from_then_on(fake: Fake, registry: Registry, client: Client) -> None:
    client.prompts.get(TOUCHPOINT)
    registry.failing = problem(404)

    def gone() -> bool:
        try:
            client.prompts.get(TOUCHPOINT)
        except NotFound:
            return True
        return False

    until(gone)


def test_one_that_nobody_reads_is_forgotten(fake: Fake, registry: Registry) -> None:
    with Client(fake.url, TOKEN, FAST, Refreshing(every_s=0.01, forget_s=0.05)) as client:
        client.prompts.get(TOUCHPOINT)
        until(lambda: not client._running.known)
        count = len(fake.seen)
        time.sleep(0.1)
        assert len(fake.seen) == count
        assert client.prompts.get(TOUCHPOINT).version_ref == "v1"
        until(lambda: len(fake.seen) > count + 1)  # and is checked again


def test_one_in_trouble_does_not_keep_the_others(fake: Fake, registry: Registry, client: Client) -> None:
    def answer(seen: Seen) -> Reply:
        return problem(500) if "/broken/" in seen.path and len(fake.seen) > 2 else registry(seen)

    fake.reply = answer
    client.prompts.get("broken")
    client.prompts.get(TOUCHPOINT)
    until(lambda: client.prompts.get("broken").stale)
    registry.version = 2
    until(lambda: client.prompts.get(TOUCHPOINT).version_ref == "v2")
    assert not client.prompts.get(TOUCHPOINT).stale


async def test_in_an_event_loop_it_is_the_same(fake: Fake, registry: Registry) -> None:
    async with AsyncClient(fake.url, TOKEN, FAST, OFTEN) as client:
        prompts = await asyncio.gather(*(client.prompts.get(TOUCHPOINT) for _ in range(16)))
        assert len({id(one) for one in prompts}) == 1
        registry.version = 2
        async with asyncio.timeout(10):
            while (await client.prompts.get(TOUCHPOINT)).version_ref != "v2":
                await asyncio.sleep(0.005)
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not tasks


async def test_what_the_gateway_says_now_and_said_then(fake: Fake, registry: Registry) -> None:
    from datetime import UTC, datetime

    async with AsyncClient(fake.url, TOKEN, FAST) as client:
        live = await client.prompts.live(TOUCHPOINT, at=datetime(2026, 11, 1, tzinfo=UTC))
    assert live.text == "Be kind 1.\nBe brief."
    assert fake.seen[0].path.endswith("/live?at=2026-11-01T00%3A00%3A00%2B00%3A00")


FORKED = """
import json, os, sys, time
from burnish_sdk import Client, Options, Refreshing
client = Client(sys.argv[1], "a.b.c", refreshing=Refreshing(every_s=0.02))
before = client.prompts.get("support.intent").version_ref
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    first = client.prompts.get("support.intent").version_ref
    os.write(writing, b"x")
    deadline = time.monotonic() + 10
    while (now := client.prompts.get("support.intent").version_ref) != "v2" and time.monotonic() < deadline:
        time.sleep(0.01)
    client.close()
    print(json.dumps([before, first, now]), flush=True)
    os._exit(0)
os.read(reading, 1)
print("forked", flush=True)
os.waitpid(child, 0)
client.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_checks_by_itself(fake: Fake, registry: Registry) -> None:
    """A web server that forks after the first read: a thread does not come along, so the child begins its own."""
    command = [sys.executable, "-W", "ignore", "-c", FORKED, fake.url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "forked\n"
    registry.version = 2
    told: Any = json.loads(process.stdout.readline())
    assert process.wait(20) == 0
    process.stdout.close()
    assert told == ["v1", "v1", "v2"]
