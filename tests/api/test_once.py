"""The same request again: one effect and one answer, whatever died in between. The gateway runs as a process here."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from libs.embedded.ports import free_port
from libs.service_kit.testing import Installation
from services.registry.tests.support import SECOND, in_table
from tests.api.conftest import Api
from tests.api.test_api import SIGNAL, observed

ROOT = "/api/refinement"
AT = f"{ROOT}/touchpoints/summary"
KEY = {"Idempotency-Key": "again"}


@asynccontextmanager
async def process(
    installation: Installation, keys: Path, api: Api, faults: str = ""
) -> AsyncIterator[tuple[subprocess.Popen[bytes], httpx.AsyncClient]]:
    """A gateway as a process of its own, ready, with an admin's client for it."""
    settings = installation.settings("gateway")
    port = free_port()
    environment = {
        "PATH": os.environ["PATH"],
        **{f"BURNISH_{name.upper()}": str(settings[name]) for name in ("database_url", "nats_url", "nats_user")},
        "BURNISH_NATS_PASSWORD": settings["nats_password"],
        "BURNISH_HTTP_PORT": str(port),
        "BURNISH_JWT_JWKS": str(keys),
        "BURNISH_FAULTS": faults,
    }
    child = subprocess.Popen([sys.executable, "-m", "services.gateway"], env=environment)
    admin = await api.admin()
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", headers=admin.headers, timeout=30, trust_env=False
    ) as client:
        try:
            async with asyncio.timeout(60):
                while not await ready(client):
                    await asyncio.sleep(0.1)
            yield child, client
        finally:
            child.kill()
            await asyncio.to_thread(child.wait)


async def ready(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/health/ready")).status_code == 200
    except httpx.HTTPError:
        return False


async def activation(client: httpx.AsyncClient) -> dict[str, Any]:
    """A touchpoint, and the body that makes its second version live."""
    body = {"touchpoints": [in_table().model_dump(mode="json")]}
    assert (await client.put(f"{ROOT}/touchpoints", json=body)).status_code == 200
    first = (await client.get(f"{AT}/live")).json()["version_ref"]
    second = await client.post(f"{AT}/versions", json={"parts": [{"path": "prompt", "text": SECOND}]})
    return {"version_ref": second.json()["version_ref"], "expected_live": first, "reason": "better"}


async def kinds(client: httpx.AsyncClient) -> list[str]:
    return [entry["kind"] for entry in (await client.get(f"{ROOT}/ledger")).json()["entries"]]


async def test_a_gateway_that_dies_before_it_recorded_what_was_done_does_it_once(
    api: Api, installation: Installation, keys: Path
) -> None:
    body = await activation(await api.admin())
    async with process(installation, keys, api, "asked_record:1") as (child, client):
        with pytest.raises(httpx.HTTPError):
            await client.post(f"{AT}/activate", json=body, headers=KEY)
        assert await asyncio.to_thread(child.wait, 10) == -signal.SIGKILL
    async with process(installation, keys, api) as (_, client):
        answers = [await client.post(f"{AT}/activate", json=body, headers=KEY) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 200], answers[0].text
        assert answers[0].json() == answers[1].json()
        assert (await client.get(f"{AT}/live")).json()["version_ref"] == body["version_ref"]
        assert await kinds(client) == ["activated", "registered"]
        # The control: without the key it is another request, and that version is live already.
        assert (await client.post(f"{AT}/activate", json=body)).status_code == 409


async def test_a_gateway_that_dies_while_it_tells_the_bus_pushes_once(
    api: Api, installation: Installation, keys: Path
) -> None:
    await api.service.close()  # else the one in this process may tell the bus
    body = {"signals": [SIGNAL, SIGNAL]}
    async with process(installation, keys, api, "puback_mark:1") as (child, client):
        try:
            first = (await client.post(f"{ROOT}/signals", json=body, headers=KEY)).json()
        except httpx.HTTPError:
            first = None  # it was dead before the answer was out
        assert await asyncio.to_thread(child.wait, 10) == -signal.SIGKILL
    async with process(installation, keys, api) as (_, client):
        again = await client.post(f"{ROOT}/signals", json=body, headers=KEY)
        assert again.status_code == 202
        assert first is None or again.json() == first
        last = await client.post(f"{ROOT}/signals", json=SIGNAL, headers={"Idempotency-Key": "last"})
        assert last.status_code == 202
        signals = await observed(installation, 3)
    assert [str(signal.signal_id) for signal in signals] == [*again.json()["signal_ids"], *last.json()["signal_ids"]]


async def test_every_change_under_a_key_is_one_change(api: Api) -> None:
    client = await api.admin()
    body = await activation(client)
    attempts: list[tuple[str, Any]] = [
        (f"{AT}/versions", {"parts": [{"path": "prompt", "text": "third"}]}),
        (f"{AT}/activate", body),
        (f"{AT}/rollback", {"reason": "worse"}),
        (f"{AT}/detect", None),
        (f"{AT}/scan", None),
    ]
    for number, (path, content) in enumerate(attempts):
        key = {"Idempotency-Key": f"k{number}"}
        answers = await asyncio.gather(*(client.post(path, json=content, headers=key) for _ in range(4)))
        assert {answer.status_code for answer in answers} <= {200, 201, 202}, (path, answers[0].text)
        assert len({answer.text for answer in answers}) == 1, path
        other = await client.post(path, json=content, headers=key, params={"x": "1"})
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused"), path
    assert await kinds(client) == ["rolled_back", "activated", "registered"]
    assert len((await client.get(f"{AT}/versions")).json()["versions"]) == 3
    async with api.service.db.connection() as conn:
        assert await conn.fetchval("SELECT count(*) FROM idempotency_keys") == len(attempts)


async def test_a_key_is_its_callers_own_and_a_refusal_is_not_remembered(api: Api) -> None:
    ada, bob = await api.admin(), await api.admin(subject="bob")
    body = await activation(ada)
    wrong = {**body, "expected_live": "nothing"}
    assert (await ada.post(f"{AT}/activate", json=wrong, headers=KEY)).status_code == 409
    assert (await ada.post(f"{AT}/activate", json=body, headers=KEY)).status_code == 200
    assert (await bob.post(f"{AT}/activate", json=body, headers=KEY)).status_code == 409
