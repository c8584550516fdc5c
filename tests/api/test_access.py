"""Every endpoint, for every kind of caller: denied by default."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import nats
import pytest

from libs.auth.rights import ADMIN, ROLES, SCOPES
from libs.auth.signing import new_signing_key
from libs.contracts.evaluations import AbReport
from libs.contracts.queries.ab_runner import AbReportReply, AbReports, GetRun, ListRuns
from libs.service_kit.queries import Responder
from libs.service_kit.testing import Installation
from services.gateway.api.access import OPEN, may
from services.registry.tests.support import in_table
from tests.api.conftest import Api

ROOT = "/api/refinement"
UNIFORM = {"type": "about:blank", "title": "Not allowed", "code": "not_allowed"}


async def endpoints(api: Api) -> list[tuple[str, str]]:
    """Every operation of the API, with ids filled in."""
    document = (await (await api.bare()).get("/openapi.json")).json()
    fill = {"touchpoint_id": "summary", "version_ref": "x", "service": "scanner"}
    return [
        (method.upper(), re.sub(r"\{(\w+)\}", lambda match: fill.get(match[1], str(uuid4())), path))
        for path, operations in document["paths"].items()
        for method in operations
    ]


async def callers(api: Api) -> dict[str, Any]:
    stranger = new_signing_key()
    return {
        "none": (401, await api.bare()),
        "garbage": (401, await api.bare({"Authorization": "Bearer a.b.c"})),
        "other key": (401, await Api(api.service, api.registry, stranger, api._stack).admin()),
        "expired": (401, await api.admin(lifetime_s=-60)),
        "other issuer": (401, await api.admin(issuer="eve")),
        "other audience": (401, await api.admin(audience="eve")),
        "no role": (403, await api.client(workspaces="*")),
        "other role": (403, await api.client(roles=["viewer"], scopes=["admin"], workspaces="*")),
        "pusher": (403, await api.client(scopes=["signals:write"], workspaces="*")),
        "reader": (403, await api.client(scopes=["prompts:read"], workspaces="*")),
        **{role: (403, await api.client(roles=[role], workspaces="*")) for role in ROLES if role != ADMIN},
        **{
            scope: (403, await api.client(scopes=[scope], workspaces="*"))
            for scope in SCOPES
            if scope not in ("signals:write", "prompts:read")
        },
    }


ALLOWED = {
    "pusher": ("POST", f"{ROOT}/signals"),
    "reader": ("GET", f"{ROOT}/touchpoints/summary/live"),
}


async def test_every_endpoint_is_denied_to_everyone_but_admins(api: Api) -> None:
    listed = await endpoints(api)
    assert len(listed) >= 35
    for name, (status, client) in (await callers(api)).items():
        for method, path in listed:
            if ALLOWED.get(name) == (method, path) or (name == "editor" and is_editors(method, path)):
                continue
            response = await client.request(method, path, content=b"{broken")
            assert response.status_code == status, (name, method, path)
            if path.startswith("/v2/"):  # nobody here is of an organisation; who is, test_agents looks at
                assert list(response.json()) == ["error"]
                assert list(response.json()["error"]) == ["messages"]
                continue
            body = response.json()
            body.pop("detail")
            assert body == {**UNIFORM, "status": status}


def is_editors(method: str, path: str) -> bool:
    return path.startswith("/api/qa/") and method != "DELETE"


async def test_editors_are_let_into_the_library_and_delete_nothing(api: Api) -> None:
    client = await api.client(roles=["editor"], workspaces="*")
    library = [(method, path) for method, path in await endpoints(api) if path.startswith("/api/qa/")]
    assert ("POST", "/api/qa/pairs") in library
    for method, path in library:
        response = await client.request(method, path, content=b"{broken")
        if method == "DELETE":
            assert response.status_code == 403
        else:
            assert response.status_code not in (401, 403, 500), (method, path, response.text)


async def test_addresses_that_are_not_there_are_denied_alike(api: Api) -> None:
    client = await api.bare()
    for path in ("/", "/api", f"{ROOT}/secret", f"{ROOT}/signals/", "/metrics/", "/docs/oauth2-redirect"):
        assert (await client.get(path)).status_code == 401
    assert (await client.options(f"{ROOT}/signals")).status_code == 401
    admin = await api.admin()
    assert (await admin.get(f"{ROOT}/secret")).json()["code"] == "not_found"
    assert (await admin.delete(f"{ROOT}/signals")).json()["code"] == "method_not_allowed"


async def test_only_the_open_addresses_are_open(api: Api) -> None:
    client = await api.bare()
    for path in OPEN:
        assert (await client.get(path)).status_code in (200, 503)


async def test_an_admin_is_let_in_everywhere(api: Api) -> None:
    client = await api.admin(organization="desk")
    for method, path in await endpoints(api):
        if path.endswith("/refine"):  # which is behind a switch, too
            continue
        response = await client.request(method, path, content=b"{broken")
        assert response.status_code not in (401, 403), (method, path)
        assert response.status_code != 500, (method, path, response.text)


async def test_the_two_scopes_reach_what_they_are_for(api: Api) -> None:
    admin = await api.admin()
    body = {"touchpoints": [in_table().model_dump(mode="json")]}
    assert (await admin.put(f"{ROOT}/touchpoints", json=body)).status_code == 200
    pusher, reader = await api.client(scopes=["signals:write"]), await api.client(scopes=["prompts:read"])
    signal = {"touchpoint_id": "summary", "signal_type": "flag"}
    assert (await pusher.post(f"{ROOT}/signals", json=signal)).status_code == 202
    assert (await reader.get(f"{ROOT}/touchpoints/summary/live")).status_code == 200


async def test_data_of_a_workspace_needs_the_workspace_in_the_token(api: Api) -> None:
    mine, other = uuid4(), uuid4()
    everywhere = await api.admin()
    body = {"touchpoints": [in_table(scope="workspace").model_dump(mode="json")]}
    assert (await everywhere.put(f"{ROOT}/touchpoints", json=body)).status_code == 200
    admin = await api.admin(workspaces=[mine])
    at = f"{ROOT}/touchpoints/summary"
    assert (await admin.get(f"{at}/live", params={"workspace_id": str(mine)})).status_code == 200
    assert (await everywhere.get(f"{at}/live", params={"workspace_id": str(other)})).status_code == 200
    live = (await everywhere.get(f"{at}/live", params={"workspace_id": str(other)})).json()["version_ref"]
    text = {"parts": [{"path": "prompt", "text": "x"}], "workspace_id": str(other)}
    activation = {"version_ref": live, "expected_live": live, "reason": "x", "workspace_id": str(other)}
    signal = {"touchpoint_id": "summary", "signal_type": "flag", "workspace_id": str(other)}
    attempts = [
        await admin.get(f"{at}/live", params={"workspace_id": str(other)}),
        await admin.get(f"{at}/versions", params={"workspace_id": str(other)}),
        await admin.get(f"{at}/versions/{live}", params={"workspace_id": str(other)}),
        await admin.get(f"{at}/intents", params={"workspace_id": str(other)}),
        await admin.get(f"{at}/status", params={"workspace_id": str(other)}),
        await admin.post(f"{at}/versions", json=text),
        await admin.post(f"{at}/activate", json=activation),
        await admin.post(f"{at}/rollback", json={"reason": "x", "workspace_id": str(other)}),
        await admin.post(f"{ROOT}/signals", json={"signals": [signal]}),
    ]
    assert [attempt.status_code for attempt in attempts] == [403] * len(attempts)
    assert {attempt.json()["code"] for attempt in attempts} == {"not_allowed"}
    seen = (await admin.get(f"{ROOT}/ledger")).json()["entries"]
    assert {entry["workspace_id"] for entry in seen} == {str(mine)}
    assert len((await everywhere.get(f"{ROOT}/ledger")).json()["entries"]) == 2


async def test_a_run_of_another_workspace_is_not_there(api: Api, installation: Installation) -> None:
    mine, other = uuid4(), uuid4()
    asked: list[ListRuns] = []

    async def get(query: GetRun) -> AbReportReply:
        return AbReportReply(
            run=AbReport(
                run_id=query.run_id,
                touchpoint_id="summary",
                workspace_id=other,
                status="running",
                label_a="current",
                label_b="proposed",
                a_sha256="0" * 64,
                b_sha256="1" * 64,
                requested_by="ada",
                requested_at=datetime.now(UTC),
            )
        )

    async def several(query: ListRuns) -> AbReports:
        asked.append(query)
        return AbReports(runs=())

    client = await nats.connect(
        installation.servers.nats_url, user="ab_runner", password=installation.servers.nats_password("ab_runner")
    )
    await Responder(GetRun.subject, GetRun, get, {}).start(client)
    await Responder(ListRuns.subject, ListRuns, several, {}).start(client)
    await client.flush()
    admin, everywhere = await api.admin(workspaces=[mine]), await api.admin()
    path = f"{ROOT}/ab/{uuid4()}"
    assert (await everywhere.get(path)).status_code == 200
    assert (await admin.get(path)).status_code == 404
    assert (await admin.get(f"{ROOT}/ab")).status_code == 200
    assert (await everywhere.get(f"{ROOT}/ab")).status_code == 200
    assert [query.workspace_ids for query in asked] == [(mine,), None]
    await client.close()


@pytest.mark.parametrize("path", [f"{ROOT}/touchpoints/a/live/x", f"{ROOT}/touchpoints/a/b/live", f"{ROOT}/signals/x"])
def test_a_scope_does_not_reach_beyond_its_path(path: str) -> None:
    from libs.auth.claims import Caller

    caller = Caller("app", scopes=frozenset({"signals:write", "prompts:read"}))
    assert not may(caller, "GET", path)
    assert not may(caller, "POST", path)
