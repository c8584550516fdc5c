"""Streamable HTTP: who gets in, what is too large, and what happens while the gateway is away."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import httpx
import pytest

from apps.mcp import http
from apps.mcp.tests.conftest import WORKSPACE, Served, answered, refused
from libs.auth.signing import new_signing_key
from libs.auth.tokens import mint

pytestmark = pytest.mark.timeout(240)
HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


def call(**arguments: Any) -> bytes:
    """A call as bytes, in which a test may write what JSON does not have."""
    params = {"name": "q_a_search", "arguments": {"query": "backups", **arguments}}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


async def post(
    served: Served, token: str | None, content: bytes | None = None, authorization: bytes | None = None
) -> httpx.Response:
    given = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
    said = authorization or (f"Bearer {token}".encode() if token else None)
    given += [(b"Authorization", said)] if said else []
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        return await client.post(served.url, content=content or json.dumps(LIST).encode(), headers=given)


async def test_without_a_token_nobody_gets_in(served: Served) -> None:
    library = served.library
    over = library.token(lifetime_s=1)
    time.sleep(1.1)
    good = library.token()
    assert (await post(served, good)).status_code == 200
    for said in (
        None,
        b"Basic abc",
        b"Bearer",
        b"Bearer a b",
        f"Bearer {good}\u00e9".encode(),
        b"Bearer " + b"a" * 20_000,
        f"Bearer {over}".encode(),
    ):
        answer = await post(served, None, authorization=said)
        assert answer.status_code == 401, said
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["www-authenticate"].startswith("Bearer ")
        assert answer.json()["code"] == "not_authenticated"
        assert over not in answer.text
    assert "run out" in (await post(served, over)).json()["detail"]


async def test_two_tokens_are_none(served: Served) -> None:
    token = served.library.token()
    headers = [*HEADERS.items(), ("Authorization", f"Bearer {token}"), ("Authorization", "Bearer x.y.z")]
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.post(served.url, json=LIST, headers=headers)
    assert answer.status_code == 401


async def test_a_token_that_the_gateway_does_not_know_is_told_so(served: Served) -> None:
    forged = mint(new_signing_key(), "mallory", roles=["admin"], workspaces="*")
    for token in (forged, "not.a.token", "opaque"):
        async with served.client(token) as client:
            told = await refused(client, "q_a_search", {"query": "backups"})
            assert told.startswith("not_authenticated: the gateway does not accept this token")
    async with served.client(served.library.token(roles=["viewer"])) as client:
        assert (await refused(client, "q_a_search", {"query": "backups"})).startswith("not_allowed: ")


async def test_each_caller_sees_its_own_workspaces_on_one_server(served: Served) -> None:
    library = served.library
    async with served.client() as mine, served.client(library.token(workspaces="*")) as everyones:
        assert (await answered(mine, "q_a_search", {"query": "backups"}))["results"]
        asked = {"query": "backups", "workspace_id": str(WORKSPACE)}
        assert (await answered(everyones, "q_a_search", asked))["results"]
        assert (await answered(mine, "q_a_search", {"query": "tenant pays"}))["total"] >= 0


NOT_RIGHT = (
    *(
        call(limit=7).replace(b'"limit": 7', b'"limit": ' + one)
        for one in (b"NaN", b"Infinity", b"-Infinity", b"1e999")
    ),
    call(limit=7).replace(b'"limit": 7', b'"limit": ' + b"9" * 5_000),
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b"[" * 100_000,
    call(query="x").replace(b'"x"', b'"\\ud800"'),
    call().replace(b'"arguments"', b'"argumenst"'),
    call().replace(b'{"query": "backups"}', b"[1]"),
)


async def test_what_is_no_request_or_no_number_is_refused(served: Served) -> None:
    for content in NOT_RIGHT:
        answer = await post(served, served.library.token(), content or b" ")
        assert answer.status_code < 500, content[:100]
        assert "Traceback" not in answer.text
        if answer.status_code == 200:
            told = answer.json()
            assert "error" in told or told["result"]["isError"] is True, content[:100]
    assert (await post(served, served.library.token())).status_code == 200


async def test_a_body_is_bounded_before_it_is_read(served: Served) -> None:
    answer = await post(served, served.library.token(), b" " * (http.MAX_BODY_BYTES + 1))
    assert answer.status_code == 413


async def test_filters_that_no_url_holds_are_refused(served: Served) -> None:
    tags = ["\U0001f4a9" * 200] * 50
    async with served.client() as client:
        asked = {"query": "\U0001f4a9" * 2_000, "scope_filter": {"include": tags, "exclude": tags}}
        told = await refused(client, "q_a_search", asked)
        assert told == "too_large: the filters and the query are too long together"
        assert (await answered(client, "q_a_search", {"query": "backups"}))["results"]


async def test_the_gateway_away_and_back(served: Served) -> None:
    library = served.library
    live, ready = served.url.replace("/mcp", "/health/live"), served.url.replace("/mcp", "/health/ready")
    async with served.client() as client, httpx.AsyncClient(trust_env=False) as bare:
        assert (await bare.get(ready)).status_code == 200
        await library.gateway.close()
        told = await refused(client, "q_a_search", {"query": "backups"})
        assert told.startswith("the gateway cannot be reached now")
        assert "127.0.0.1" not in told
        assert ((await bare.get(ready)).status_code, (await bare.get(live)).status_code) == (503, 200)
        again = library.make_gateway(library.port)
        library.stack.push_async_callback(again.close)
        await again.start()
        assert (await answered(client, "q_a_search", {"query": "backups"}))["results"]
        assert (await bare.get(ready)).status_code == 200
        metrics = (await bare.get(served.url.replace("/mcp", "/metrics"))).text
        assert 'burnish_mcp_calls_total{outcome="refused",tool="q_a_search"}' in metrics


def test_a_port_that_is_taken_is_told() -> None:
    with http.listen("127.0.0.1", 0) as taken, pytest.raises(OSError):
        http.listen("127.0.0.1", taken.getsockname()[1])
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
