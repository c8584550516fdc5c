"""The SDK against the real gateway: its document, its answers, and a change that is seen."""

from __future__ import annotations

import ast
import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import pytest_asyncio
from pydantic import BaseModel, TypeAdapter

import burnish_sdk
from burnish_sdk import AsyncClient, Conflict, Invalid, NotFound, Signal, SignalPayload, models, operations
from burnish_sdk.operation import API, Operation
from burnish_sdk.tests.conftest import FAST, OFTEN
from burnish_sdk.tests.real import TOUCHPOINT, Real, real_gateway
from libs.service_kit.testing import Installation

SENT: list[tuple[Operation[Any], str]] = [
    (next(operations.push_signals([Signal(touchpoint_id="t", signal_type="flag")], "k")), "/signals"),
    (operations.list_signals(), "/signals"),
    (operations.count_signals(), "/signals/counts"),
    (operations.live_prompt("t", UUID(int=1)), "/touchpoints/{touchpoint_id}/live"),
    (operations.search_pairs("q"), "/api/qa/search"),
    (operations.get_pair(UUID(int=1)), "/api/qa/pairs/{pair_id}"),
    (operations.create_pair(models.NewPair(question="q", answer_standard="a")), "/api/qa/pairs"),
    (operations.promote_extraction(UUID(int=1)), "/api/qa/extractions/{extraction_id}/promote"),
    (operations.propose_edit(UUID(int=1), 1, models.PairChanges(question="q")), "/api/qa/pairs/{pair_id}/edits"),
]


@pytest_asyncio.fixture
async def real(installation: Installation, tmp_path: Path) -> AsyncIterator[Real]:
    async with real_gateway(installation, tmp_path) as running:
        yield running


@pytest_asyncio.fixture
async def client(real: Real) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(real.url, real.token, FAST, OFTEN) as one:
        await one.request("PUT", "/touchpoints", body={"touchpoints": [TOUCHPOINT]})
        yield one


# --- the document -----------------------------------------------------------------------------------------


async def test_what_is_sent_and_read_is_what_the_gateway_documents(real: Real) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        document = (await http.get(f"{real.url}/openapi.json")).json()
    for operation, path in SENT:
        described = document["paths"][path if path.startswith("/api/") else f"{API}{path}"][operation.method.lower()]
        known = {each["name"].lower() for each in described.get("parameters", ())}
        sent = {name.lower() for name in (*operation.params, *operation.headers)}
        assert sent <= known, f"{operation.method} {path} sends what is not documented"
        success = next(answer for status, answer in described["responses"].items() if status.startswith("2"))
        schema = success["content"]["application/json"]["schema"]
        assert operation.reply is not None
        assert differences(operation.reply, schema, document) == []


async def test_a_signal_has_the_fields_that_the_gateway_takes(real: Real) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        document = (await http.get(f"{real.url}/openapi.json")).json()
    body = document["paths"][f"{API}/signals"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    signal = next(one for one in body["oneOf"] if "touchpoint_id" in one["properties"])
    ours = Signal.model_json_schema()
    assert set(ours["properties"]) == set(signal["properties"])
    assert set(ours["required"]) == set(signal["required"])
    for name in ("touchpoint_id", "signal_type", "source_key", "severity", "actor_kind", "actor_id", "version_ref"):
        assert plain(ours["properties"][name]) >= plain(signal["properties"][name]), name


async def test_a_pair_has_the_fields_that_the_gateway_takes(real: Real) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        document = (await http.get(f"{real.url}/openapi.json")).json()
    for path in ("/api/qa/pairs", "/api/qa/pairs/{pair_id}/edits"):
        content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        taken = set(_resolved(content, document)["properties"])
        assert set(models.PairChanges.model_fields) <= taken, path


def test_the_sdk_knows_the_words_and_bounds_of_the_contracts() -> None:
    from libs.contracts import signals, vocabulary

    for name in ("SignalType", "Severity", "ActorKind"):
        assert getattr(models, name) == getattr(vocabulary, name)
    for ours, theirs in ((models.SignalPayload, signals.SignalPayload), (models.EvidenceRef, signals.EvidenceRef)):
        assert ours.model_json_schema()["properties"] == theirs.model_json_schema()["properties"]


def differences(reply: TypeAdapter[Any], schema: dict[str, Any], document: dict[str, Any]) -> list[str]:
    """What we read that the gateway does not promise, and what it tells that we do not know."""
    ours = reply.json_schema()
    return list(_differences("", ours, ours, schema, document))


def _differences(
    at: str, ours: dict[str, Any], our_root: dict[str, Any], theirs: dict[str, Any], their_root: dict[str, Any]
) -> Iterator[str]:
    ours, theirs = _resolved(ours, our_root), _resolved(theirs, their_root)
    if "items" in ours and "items" in theirs:
        yield from _differences(f"{at}[]", ours["items"], our_root, theirs["items"], their_root)
        return
    if "properties" not in ours or "properties" not in theirs:
        if plain(ours) and plain(theirs) and not plain(ours) & plain(theirs):
            yield f"{at}: {plain(ours)} is not {plain(theirs)}"
        return
    mine, told = ours["properties"], theirs["properties"]
    yield from (f"{at}.{name} is not told" for name in mine if name not in told)
    yield from (f"{at}.{name} is not known here" for name in told if name not in mine)
    for name in mine.keys() & told.keys():
        if name in ours.get("required", ()) and name not in theirs.get("required", ()):
            yield f"{at}.{name} may be left out"
        yield from _differences(f"{at}.{name}", mine[name], our_root, told[name], their_root)


def _resolved(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        found: Any = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        schema = found
    return schema


def plain(schema: dict[str, Any]) -> set[str]:
    """The types and formats that a field may have."""
    return {str(one.get("format") or one["type"]) for one in schema.get("anyOf", [schema]) if "type" in one} - {"null"}


def test_the_test_sees_a_difference() -> None:
    class Theirs(BaseModel):
        accepted: str
        signal_ids: list[int]
        new: int

    theirs = Theirs.model_json_schema()
    assert len(differences(operations.ACCEPTED, theirs, theirs)) == 3


# --- alive ------------------------------------------------------------------------------------------------


async def test_signals_are_taken_once_for_a_key(client: AsyncClient) -> None:
    flag = Signal(touchpoint_id="sdk.greeting", signal_type="flag", payload=SignalPayload(text="rude", note="kept"))
    key = uuid4().hex
    first = await client.signals.push(flag, flag, idempotency_key=key)
    assert (first.accepted, len(set(first.signal_ids))) == (2, 2)
    assert await client.signals.push(flag, flag, idempotency_key=key) == first
    with pytest.raises((Conflict, Invalid)):
        await client.signals.push(flag, idempotency_key=key)


async def test_a_field_that_is_not_right_is_named(client: AsyncClient) -> None:
    flag = Signal(touchpoint_id="sdk.greeting", signal_type="flag")
    with pytest.raises(Invalid) as refused:
        await client.signals.push(flag.model_copy(update={"touchpoint_id": "No Such"}))
    assert refused.value.code == "invalid"
    assert [error.loc for error in refused.value.errors] == ["signals[0].touchpoint_id"]


async def test_an_activation_is_seen(client: AsyncClient) -> None:
    with pytest.raises(NotFound):
        await client.prompts.get("sdk.unknown")
    first = await client.prompts.get("sdk.greeting")
    assert (first.text, first.stale) == ("Be kind.", False)
    body = {"parts": [{"path": first.parts[0].path, "text": "Be brief."}]}
    recorded = await client.request("POST", "/touchpoints/sdk.greeting/versions", body=body)
    change = {"version_ref": recorded["version_ref"], "expected_live": first.version_ref, "reason": "shorter"}
    await client.request("POST", "/touchpoints/sdk.greeting/activate", body=change)
    async with asyncio.timeout(15):
        while (now := await client.prompts.get("sdk.greeting")).text != "Be brief.":
            await asyncio.sleep(0.01)
    assert (now.version_ref, now.stale) == (recorded["version_ref"], False)
    assert (await client.prompts.live("sdk.greeting")).activation_id == now.activation_id


# --- alone ------------------------------------------------------------------------------------------------


def test_it_imports_httpx_and_pydantic_and_nothing_else() -> None:
    allowed = {*sys.stdlib_module_names, "httpx", "pydantic", "pydantic_core", "burnish_sdk"}
    for file in Path(burnish_sdk.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert {name.split(".")[0] for name in names} <= allowed, file.name


def test_every_operation_is_compared() -> None:
    made = {name for name, value in vars(operations).items() if getattr(value, "__module__", "") == operations.__name__}
    known = {"push_signals", "list_signals", "count_signals", "live_prompt", "search_pairs", "get_pair"} | {
        "create_pair",
        "promote_extraction",
        "propose_edit",
    }
    assert {name for name in made if not name.startswith("_")} == known, "add it to SENT"
    assert all(isinstance(operation, Operation) for operation, _ in SENT)


# --- the page ---------------------------------------------------------------------------------------------

README = Path(burnish_sdk.__file__).parents[1] / "README.md"


@pytest.mark.parametrize("number", [0, 1])
async def test_the_quick_start_runs_as_it_stands(
    client: AsyncClient, real: Real, number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BURNISH_URL", real.url)
    monkeypatch.setenv("BURNISH_TOKEN", real.token)
    block = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[number]
    await asyncio.to_thread(exec, compile(block, str(README), "exec"), {"__name__": "__main__"})
    assert "Be kind." in capsys.readouterr().out
