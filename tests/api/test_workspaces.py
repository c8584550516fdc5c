"""Every endpoint with another tenant's ids, and every change of what workspaces share, for tokens of every reach."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import pytest_asyncio

import services.normaliser.app
import services.pattern_detector.app
from libs.service_kit.testing import Installation
from services.normaliser.settings import Settings as NormaliserSettings
from services.pattern_detector.settings import Settings as DetectorSettings
from services.registry.tests.support import in_table
from tests.api.conftest import Api
from tests.api.test_api import eventually
from tests.api.test_hostile_values import Example, document, filled, operations, required

ROOT = "/api/refinement"
MINE, OTHER = uuid4(), uuid4()
SHARED, APART = "shared", "apart"


@pytest_asyncio.fixture
async def stocked(api: Api, installation: Installation) -> AsyncIterator[Api]:
    """A shared touchpoint and one of workspaces, with live versions and signals of two tenants."""
    built = (
        services.normaliser.app.build(NormaliserSettings(**installation.settings("normaliser"))),
        services.pattern_detector.app.build(DetectorSettings(**installation.settings("pattern_detector"))),
    )
    async with AsyncExitStack() as stack:
        for service in built:
            stack.push_async_callback(service.close)
            await service.start()
        admin = await api.admin()
        touchpoints = [in_table(SHARED), in_table(APART, scope="workspace")]
        body = {"touchpoints": [one.model_dump(mode="json") for one in touchpoints]}
        assert (await admin.put(f"{ROOT}/touchpoints", json=body)).status_code == 200
        for workspace, count in ((MINE, 1), (OTHER, 2)):
            signal = {"touchpoint_id": APART, "signal_type": "flag", "workspace_id": str(workspace)}
            signals = [{**signal, "payload": {"text": f"{workspace} {n}"}} for n in range(count)]
            assert (await admin.post(f"{ROOT}/signals", json={"signals": signals})).status_code == 202
            live = await admin.get(f"{ROOT}/touchpoints/{APART}/live", params={"workspace_id": str(workspace)})
            assert live.status_code == 200

        async def counted() -> dict[str, Any] | None:
            found = await status(admin)
            return found if (found["signals"]["stored"], found["detector"]["signals"]) == (3, 3) else None

        await eventually(counted)
        yield api


async def status(client: httpx.AsyncClient, **params: Any) -> dict[str, Any]:
    response = await client.get(f"{ROOT}/touchpoints/{APART}/status", params=params)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def test_counts_and_status_are_those_of_the_tokens_workspaces(stocked: Api) -> None:
    reaches: list[tuple[Any, int]] = [("*", 3), ([MINE], 1), ([OTHER], 2), ([MINE, OTHER], 3), ([uuid4()], 0), ([], 0)]
    for workspaces, number in reaches:
        client = await stocked.admin(workspaces=workspaces)
        found = await status(client)
        assert (found["signals"]["stored"], found["detector"]["signals"]) == (number, number), workspaces
        counts = (await client.get(f"{ROOT}/signals/counts")).json()["counts"]
        assert sum(one["stored"] for one in counts) == number
        everything = (found["signals"]["observed"], found["detector"]["heard"])
        assert everything == ((3, 3) if workspaces == "*" else (0, 0)), workspaces
        listed = (await client.get(f"{ROOT}/signals")).json()["signals"]
        assert len(listed) == number
        entries = (await client.get(f"{ROOT}/ledger")).json()["entries"]
        reach = {None, *(map(str, workspaces) if workspaces != "*" else (str(MINE), str(OTHER)))}
        assert {entry["workspace_id"] for entry in entries} <= reach
    mine = await status(await stocked.admin(), workspace_id=str(MINE))
    assert (mine["signals"]["stored"], mine["detector"]["signals"], mine["live"]["workspace_id"]) == (1, 1, str(MINE))


async def test_the_intents_of_a_workspace_touchpoint_need_a_workspace(stocked: Api) -> None:
    client = await stocked.admin()
    for path, method in (("intents", "GET"), ("versions", "GET"), ("confirm", "POST"), ("live", "GET")):
        response = await client.request(method, f"{ROOT}/touchpoints/{APART}/{path}")
        assert (response.status_code, response.json()["code"]) == (422, "scope"), path
        given = await client.request(method, f"{ROOT}/touchpoints/{APART}/{path}", params={"workspace_id": str(MINE)})
        assert given.status_code == 200, path
        shared = await client.request(method, f"{ROOT}/touchpoints/{SHARED}/{path}", params={"workspace_id": str(MINE)})
        assert (shared.status_code, shared.json()["code"]) == (422, "scope"), path


SHARED_CHANGES: list[tuple[str, str, Any]] = [
    ("PUT", "/touchpoints", {"touchpoints": [in_table("new").model_dump(mode="json")]}),
    ("POST", f"/touchpoints/{SHARED}/versions", {"parts": [{"path": "prompt", "text": "x"}]}),
    ("POST", f"/touchpoints/{SHARED}/activate", {"version_ref": "x", "expected_live": None, "reason": "x"}),
    ("POST", f"/touchpoints/{SHARED}/rollback", {"reason": "x"}),
    ("POST", f"/touchpoints/{SHARED}/confirm", None),
    ("PUT", f"/touchpoints/{SHARED}/suite", {"cases": [{"case_id": "1", "input": "a", "expected": "b"}]}),
    ("POST", f"/dead-letters/registry/{uuid4()}/replay", None),
]


@pytest.mark.parametrize("workspaces", [[], [MINE], [MINE, OTHER]], ids=["none", "one", "two"])
async def test_what_is_shared_is_changed_by_a_token_for_all_only(stocked: Api, workspaces: list[UUID]) -> None:
    client, everywhere = await stocked.admin(workspaces=workspaces), await stocked.admin()
    before = (await everywhere.get(f"{ROOT}/ledger")).json()
    for method, path, body in SHARED_CHANGES:
        response = await client.request(method, ROOT + path, json=body)
        assert (response.status_code, response.json()["code"]) == (403, "not_allowed"), path
        assert (await everywhere.request(method, ROOT + path, json=body)).status_code != 403, path
    assert (await client.get(f"{ROOT}/touchpoints/{SHARED}/live")).status_code == 200
    first = before["entries"][0]["seq"]
    changed = [one for one in (await everywhere.get(f"{ROOT}/ledger")).json()["entries"] if one["seq"] > first]
    assert {one["by"] for one in changed} <= {"ada"}


async def test_no_endpoint_takes_another_tenants_workspace(stocked: Api) -> None:
    """Wherever the document has a workspace, in a parameter or a body, a token without it is turned away."""
    client, everywhere = await stocked.admin(workspaces=[MINE]), await stocked.admin()
    openapi = await document(stocked)
    tried = 0
    for method, path, operation in operations(openapi):
        where = filled(path, touchpoint_id=APART)
        names = [one["name"] for one in operation.get("parameters", ()) if one["name"] == "workspace_id"]
        for name in names:
            tried += 1
            response = await client.request(
                method, where, params={**dict.fromkeys(required(operation), "x"), name: str(OTHER)}
            )
            assert response.status_code == 403, (method, path)
        schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
        example = Example(openapi).of(schema) if schema else None
        if "workspace_id" in json.dumps(example):
            tried += 1
            body = SIGNALS if path.endswith("/signals") else _with_workspace(example)
            response = await client.request(method, where, json=body)
            assert response.status_code == 403, (method, path, response.text)
            assert (await everywhere.request(method, where, json=body)).status_code != 403
    assert tried >= 9


SIGNALS = {"signals": [{"touchpoint_id": APART, "signal_type": "flag", "workspace_id": str(OTHER)}]}
"""What an example of the schema leaves out of its evidence would be refused first."""


WITHOUT = ("archived_at", "archived_by", "archive_reason", "valid_to")
"""What an example of the schema cannot have beside the rest: it holds together with one status, or one time, alone."""


def _with_workspace(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: _with_workspace(inner) for name, inner in value.items() if name not in WITHOUT}
        return {**kept, "workspace_id": str(OTHER)} if "workspace_id" in value else kept
    return [_with_workspace(inner) for inner in value] if isinstance(value, list) else value


async def test_a_pattern_of_another_tenant_is_not_there(stocked: Api, installation: Installation) -> None:
    """Evidence for a pattern in the other tenant's workspace: found by its own, by nobody else."""
    admin = await stocked.admin()
    signals = [
        {
            "touchpoint_id": APART,
            "signal_type": "flag",
            "workspace_id": str(OTHER),
            "actor_id": f"u{n}",
            "payload": {"text": "where is my money", "expected": "refund", "got": "card"},
        }
        for n in range(8)
    ]
    assert (await admin.post(f"{ROOT}/signals", json={"signals": signals})).status_code == 202
    assert (await admin.post(f"{ROOT}/touchpoints/{APART}/detect")).status_code == 202

    async def found() -> dict[str, Any] | None:
        patterns = (await admin.get(f"{ROOT}/patterns", params={"include_resolved": True})).json()["patterns"]
        return patterns[0] if patterns else None

    pattern = await eventually(found)
    assert pattern["workspace_id"] == str(OTHER)
    for workspaces, status_code in (([OTHER], 200), ([MINE], 404), ([], 404)):
        client = await stocked.admin(workspaces=workspaces)
        assert (await client.get(f"{ROOT}/patterns/{pattern['pattern_id']}")).status_code == status_code
        asked = await client.post(f"{ROOT}/proposals", json={"pattern_id": pattern["pattern_id"]})
        assert asked.status_code == (202 if status_code == 200 else 404)
        listed = (await client.get(f"{ROOT}/touchpoints/{APART}/patterns")).json()["patterns"]
        assert bool(listed) is (status_code == 200)
