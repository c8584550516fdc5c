"""Live prompts from memory: two replicas, facts that get lost, a registry that is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

import services.gateway.app
from libs.auth.signing import SigningKey
from libs.contracts.envelope import Event
from libs.contracts.events.registry import VersionActivatedV1
from libs.service_kit.service import Service
from libs.service_kit.testing import Installation
from services.gateway import handlers
from services.gateway.domain import LivePrompts
from services.registry.tests.support import FIRST, SECOND, in_table
from tests.api.conftest import Api, cut, gateway_settings

ROOT = "/api/refinement"
AT = f"{ROOT}/touchpoints/summary"
Replica = Callable[..., Awaitable[tuple[Service, httpx.AsyncClient]]]


@pytest_asyncio.fixture
async def replica(api: Api, installation: Installation, keys: Path, key: SigningKey) -> AsyncIterator[Replica]:
    """Starts one more gateway; the service, and an admin's client for it."""
    async with AsyncExitStack() as stack:

        async def start(**settings: Any) -> tuple[Service, httpx.AsyncClient]:
            service = services.gateway.app.build(gateway_settings(installation, keys, **settings))
            await service.start()
            stack.push_async_callback(service.close)
            return service, await Api(service, api.registry, key, stack).admin()

        yield start


async def registered(client: httpx.AsyncClient) -> str:
    """A touchpoint with a second version that is not live; its reference."""
    body = {"touchpoints": [in_table().model_dump(mode="json")]}
    assert (await client.put(f"{ROOT}/touchpoints", json=body)).status_code == 200
    text = {"parts": [{"path": "prompt", "text": SECOND}]}
    return str((await client.post(f"{AT}/versions", json=text)).json()["version_ref"])


async def live(client: httpx.AsyncClient) -> dict[str, Any]:
    response = await client.get(f"{AT}/live")
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def activate(client: httpx.AsyncClient, version: str) -> None:
    expected = (await live(client))["version_ref"]
    body = {"version_ref": version, "expected_live": expected, "reason": "better"}
    assert (await client.post(f"{AT}/activate", json=body)).status_code == 200


async def becomes(client: httpx.AsyncClient, text: str, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            while (await live(client))["parts"][0]["text"] != text:
                await asyncio.sleep(0.02)
    except TimeoutError:
        return False
    return True


async def test_every_replica_hears_of_a_change(api: Api, replica: Replica) -> None:
    """No answer is ever asked for twice by itself here: what makes it new is the fact."""
    replicas = [await replica(live_fresh_s=3_600) for _ in range(2)]
    clients = [client for _, client in replicas]
    second = await registered(clients[0])
    for client in clients:
        assert (await live(client))["parts"][0]["text"] == FIRST
    await activate(clients[0], second)
    assert (await live(clients[0]))["parts"][0]["text"] == SECOND, "who activates and reads sees it"
    assert await becomes(clients[1], SECOND, 5)
    assert (await clients[1].post(f"{AT}/rollback", json={"reason": "worse"})).status_code == 200
    assert await becomes(clients[0], FIRST, 5)


async def test_the_control_without_hearing_a_replica_stays_behind(
    api: Api, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(event: Event[VersionActivatedV1], prompts: LivePrompts) -> None:
        """Nothing."""

    _, first = await replica(live_fresh_s=3_600)
    monkeypatch.setattr(handlers, "on_version_activated", deaf)
    _, other = await replica(live_fresh_s=3_600)
    second = await registered(first)
    await live(other)
    await activate(first, second)
    assert not await becomes(other, SECOND, 1.5)


async def test_a_fact_that_got_lost_is_made_up_for(api: Api, replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    async def deaf(event: Event[VersionActivatedV1], prompts: LivePrompts) -> None:
        """Nothing."""

    monkeypatch.setattr(handlers, "on_version_activated", deaf)
    _, first = await replica(live_fresh_s=0.5)
    _, other = await replica(live_fresh_s=0.5)
    second = await registered(first)
    await live(other)
    await activate(first, second)
    assert await becomes(other, SECOND, 5)


@pytest.mark.parametrize("forgets", [True, False], ids=["forgets", "control"])
async def test_what_was_said_while_a_replica_was_not_connected_is_made_up_for(
    api: Api, replica: Replica, forgets: bool
) -> None:
    _, first = await replica(live_fresh_s=3_600)
    away, other = await replica(live_fresh_s=3_600)
    if not forgets:
        away._gap_jobs.clear()
    second = await registered(first)
    await live(other)
    connected = asyncio.Event()
    before = away.bus.on_gap

    def noticed() -> None:
        before()
        connected.set()

    away.bus.on_gap = noticed
    away.bus.client.options["reconnect_time_wait"] = 4.0  # long enough to miss what is said now
    cut(away)
    while away.bus.client.is_connected:
        await asyncio.sleep(0.01)
    await activate(first, second)
    await asyncio.wait_for(connected.wait(), 20)
    assert await becomes(other, SECOND, 1.5) is forgets


async def test_while_the_registry_is_away_the_last_known_prompt_is_served_for_a_while(
    api: Api, replica: Replica
) -> None:
    _, patient = await replica(live_fresh_s=0.1, live_stale_s=3_600)
    _, other = await replica(live_fresh_s=0.1, live_stale_s=0.1)
    await registered(patient)
    for client in (patient, other):
        await live(client)
    await api.registry.close()
    await asyncio.sleep(0.5)
    assert (await live(patient))["parts"][0]["text"] == FIRST
    gone = await other.get(f"{AT}/live")
    assert (gone.status_code, gone.json()["service"], gone.headers["retry-after"]) == (503, "registry", "2")
    unknown = await patient.get(f"{ROOT}/touchpoints/none/live")
    assert unknown.status_code == 503


async def test_many_who_ask_at_once_are_one_question(api: Api, replica: Replica, monkeypatch: Any) -> None:
    service, client = await replica(live_fresh_s=3_600)
    await registered(client)
    asked: list[Any] = []
    ask = service.asker.ask

    async def counted(query: Any, **options: Any) -> Any:
        asked.append(query)
        return await ask(query, **options)

    monkeypatch.setattr(service.asker, "ask", counted)
    answers = await asyncio.gather(*(client.get(f"{AT}/live") for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert len(asked) == 1
