"""From a review in the library to a stored signal, and from a published pair to a case that waits: real services."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

import services.ab_runner.app
import services.gateway.app
import services.normaliser.app
import services.qa_ingest.app
import services.registry.app
from libs.auth.signing import jwks, new_signing_key
from libs.auth.tokens import mint
from libs.service_kit.testing import Installation
from services.ab_runner.settings import Settings as AbRunnerSettings
from services.gateway.settings import Settings as GatewaySettings
from services.normaliser.settings import Settings as NormaliserSettings
from services.qa_ingest.domain.bindings import workspace_id_of
from services.qa_ingest.settings import Settings as LibrarySettings
from services.registry.settings import Settings as RegistrySettings

pytestmark = pytest.mark.timeout(240)
TOUCHPOINT = {
    "id": "support.answers",
    "scope": "workspace",
    "storage": {"adapter": "feed_prompts", "initial_text": "Answer from the library."},
}
BUNDLE = """---
question: How long are backups kept?
id: BK-1
publication_status: published
provenance: INFERRED
---
Backups are kept for thirty days in one region.
"""
WORKSPACE = workspace_id_of("desk")


@dataclass
class Platform:
    """The gateway, asked as an admin: of the workspace in the library, of everything else elsewhere."""

    http: httpx.AsyncClient
    folder: Path
    token: Callable[[Any], str]

    def _headers(self, path: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token([WORKSPACE] if path.startswith('/api/qa') else '*')}"}

    async def get(self, path: str, **params: Any) -> Any:
        return (await self.http.get(path, params=params, headers=self._headers(path))).raise_for_status().json()

    async def send(self, method: str, path: str, body: Any) -> Any:
        answer = await self.http.request(method, path, json=body, headers=self._headers(path))
        assert answer.is_success, answer.text
        return answer.json()

    async def until(self, holds: Callable[[Any], bool], path: str, **params: Any) -> Any:
        deadline = time.monotonic() + 60
        while not holds(found := await self.get(path, **params)):
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.1)
        return found


@pytest_asyncio.fixture
async def platform(installation: Installation, tmp_path: Path) -> AsyncIterator[Platform]:
    key = new_signing_key()
    (tmp_path / "jwks.json").write_text(jwks(key))
    folder = tmp_path / "desk"
    folder.mkdir()
    buckets = tmp_path / "buckets.yaml"
    buckets.write_text(
        f"buckets: [{{bucket: desk, kind: folder, folder: {folder}, workspace: desk, curate_as_pair: true,"
        " trusted: true, touchpoint_id: support.answers}]\n"
    )
    of = installation.settings
    library: dict[str, Any] = {"qa_buckets": buckets, "qa_look_every_s": 0.1}
    gateway = services.gateway.app.build(GatewaySettings(**of("gateway"), jwt_jwks=str(tmp_path / "jwks.json")))
    built = (
        services.registry.app.build(RegistrySettings(**of("registry"))),
        services.normaliser.app.build(NormaliserSettings(**of("normaliser"))),
        services.ab_runner.app.build(AbRunnerSettings(**of("ab_runner"))),
        services.qa_ingest.app.build(LibrarySettings(**of("qa_ingest"), **library)),
        gateway,
    )
    async with AsyncExitStack() as stack:
        for service in built:
            stack.push_async_callback(service.close)
            await service.start()
        base = f"http://127.0.0.1:{gateway.http_port}"
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=base, trust_env=False, timeout=20))
        yield Platform(http, folder, lambda reach: mint(key, "ada", roles=["admin"], workspaces=reach))


async def test_what_people_think_of_an_answer_is_a_signal_and_what_they_publish_is_a_case(platform: Platform) -> None:
    # The file is there before the touchpoint is: the workspace names it when it is registered.
    (platform.folder / "answers.md").write_text(BUNDLE)
    found = await platform.until(
        lambda told: bool(told["results"]), "/api/qa/search", query="how long are backups kept"
    )
    pair = found["results"][0]["id"]
    await platform.send("PUT", "/api/refinement/touchpoints", {"touchpoints": [TOUCHPOINT]})
    waiting = "/api/refinement/suites/waiting"
    told = await platform.until(lambda told: bool(told["cases"]), waiting, touchpoint_id="support.answers")
    (case,) = told["cases"]
    assert (case["pair_id"], case["version"], case["input"]) == (pair, 1, "How long are backups kept?")
    assert told["counts"] == {"support.answers": 1}

    review = {"version": 1, "outcome": "changes_requested", "reason": "it is ninety days by now"}
    await platform.send("POST", f"/api/qa/pairs/{pair}/review", review)
    version = (await platform.get(f"/api/qa/pairs/{pair}"))["version"]
    edit = {"version": version, "answer_standard": "Ninety days, in two regions.", "reason": "new contract"}
    await platform.send("PATCH", f"/api/qa/pairs/{pair}", edit)
    signals = await platform.until(
        lambda told: len(told["signals"]) == 2, "/api/refinement/signals", touchpoint_id="support.answers"
    )
    by_type = {one["signal_type"]: one for one in signals["signals"]}
    finding, correction = by_type["governance_finding"], by_type["human_edit"]
    assert (finding["actor_id"], finding["payload"]["reason"]) == ("ada", review["reason"])
    assert (finding["workspace_id"], finding["rejected"], finding["severity"]) == (str(WORKSPACE), None, "high")
    assert correction["payload"]["expected"] == edit["answer_standard"]
    assert correction["evidence_ref"] == {**correction["evidence_ref"], "source": "library.pair", "id": pair}

    await platform.until(lambda told: told["cases"][0]["version"] > 1, waiting)
    (case,) = (await platform.get(waiting))["cases"]
    assert case["answer_preview"] == edit["answer_standard"]
    archive = {"version": case["version"], "reason": "no more"}
    await platform.send("POST", f"/api/qa/pairs/{pair}/archive", archive)
    await platform.until(lambda told: told["cases"] == [], waiting)
