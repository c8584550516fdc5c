"""Every endpoint of the document with hostile values in every parameter and body: never a 500, never a traceback."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

import services.ab_runner.app
import services.agents.app
import services.normaliser.app
import services.pattern_detector.app
import services.proposal.app
import services.qa_ingest.app
import services.scanner.app
from libs.service_kit.testing import Installation
from services.ab_runner.settings import Settings as AbRunnerSettings
from services.agents.settings import Settings as AgentsSettings
from services.normaliser.settings import Settings as NormaliserSettings
from services.pattern_detector.settings import Settings as DetectorSettings
from services.proposal.settings import Settings as ProposalSettings
from services.qa_ingest.settings import Settings as LibrarySettings
from services.registry.tests.support import in_table
from services.scanner.settings import Settings as ScannerSettings
from tests.api.conftest import Api

ROOT = "/api/refinement"
pytestmark = pytest.mark.timeout(400)

TEXTS = (
    "%00",
    "a%00b",
    "%",
    "%ff%fe",
    "%ED%A0%80",
    "..%2f..%2fetc",
    "-1",
    "0",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "1e400",
    "NaN",
    "0001-01-01T00:00:00%2B14:00",
    "9999-12-31T23:59:59-14:00",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
    "2026-01-01T00:00:00",
    "x" * 4_000,
    "%F0%9F%92%A9" * 60,
    "%E2%80%AE",
    "summary",
    str(uuid4()),
    "",
)
"""As they stand in a URL: percent-encoded already."""

RAW = (
    b'"\\ud800"',
    b'{"\\udc00": 1}',
    b"[" * 100_000,
    b'{"a": NaN}',
    b'{"a": 1e400}',
    b'{"a": ' + b"9" * 5_000 + b"}",
    b"\xff\xfe",
    b"",
    b"null",
    b"[]",
    b'"text"',
    b"7",
)
VALUES: tuple[Any, ...] = (
    "a\x00b",
    "\x00",
    "\ud800",
    "x" * 300_000,
    "",
    " ",
    "\u202e\x1b[31m",
    -(2**63) - 1,
    2**63,
    10**30,
    1e308,
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    str(uuid4()),
    None,
    True,
    [],
    {},
    {"\x00": "\x00", "k": ["\x00", 10**400]},
    [[[[[[1]]]]]],
    ["a"] * 3,
)


@pytest_asyncio.fixture
async def whole(api: Api, installation: Installation, tmp_path: Path) -> AsyncIterator[Api]:
    """Every service that the gateway asks, running for real."""
    built = (
        services.normaliser.app.build(NormaliserSettings(**installation.settings("normaliser"))),
        services.pattern_detector.app.build(DetectorSettings(**installation.settings("pattern_detector"))),
        services.proposal.app.build(ProposalSettings(**installation.settings("proposal"))),
        services.ab_runner.app.build(AbRunnerSettings(**installation.settings("ab_runner"))),
        services.scanner.app.build(ScannerSettings(**installation.settings("scanner"))),
        services.qa_ingest.app.build(LibrarySettings(**installation.settings("qa_ingest"))),
        services.agents.app.build(
            AgentsSettings(**installation.settings("agents"), agents_engine_folder=tmp_path / "engine")
        ),
    )
    async with AsyncExitStack() as stack:
        for service in built:
            stack.push_async_callback(service.close)
            await service.start()
        yield api


class Tried:
    """What came of every request; the bad ones by what was sent."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.count = 0
        self.bad: list[str] = []

    async def request(self, method: str, url: str, **content: Any) -> None:
        self.count += 1
        sent = f"{method} {url[:160]} {str(content)[:160]}"
        try:
            response = await self._client.request(method, url, **content)
        except (httpx.InvalidURL, httpx.LocalProtocolError):
            return
        if response.status_code >= 500:
            self.bad.append(f"{response.status_code} {response.text[:200]} <- {sent}")
        elif response.status_code >= 400 and not _has_its_shape(url, response):
            self.bad.append(f"{response.headers['content-type']} <- {sent}")


def _has_its_shape(url: str, response: httpx.Response) -> bool:
    if url.startswith("/v2/") and response.headers["content-type"] == "application/json":
        return bool(response.json()["error"]["messages"])
    return response.headers["content-type"] == "application/problem+json"


async def document(api: Api) -> dict[str, Any]:
    found: dict[str, Any] = (await (await api.bare()).get("/openapi.json")).json()
    return found


def filled(path: str, **values: str) -> str:
    """The path with ids that are there where there are any."""
    known = {"touchpoint_id": "summary", "version_ref": "x", "service": "scanner", **values}
    for name in [part[1:-1] for part in path.split("/") if part.startswith("{")]:
        path = path.replace(f"{{{name}}}", known.get(name) or str(uuid4()))
    return path


def required(operation: dict[str, Any]) -> set[str]:
    """The query parameters without which an endpoint looks at nothing else."""
    return {one["name"] for one in operation.get("parameters", ()) if one["in"] == "query" and one.get("required")}


def operations(openapi: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


async def test_no_parameter_of_any_endpoint_makes_it_fail(whole: Api, capfd: pytest.CaptureFixture[str]) -> None:
    client = await whole.admin(organization="desk")
    body = {"touchpoints": [in_table().model_dump(mode="json")]}
    assert (await client.put(f"{ROOT}/touchpoints", json=body)).status_code == 200
    tried = Tried(client)
    for method, path, operation in operations(await document(whole)):
        for parameter in operation.get("parameters", ()):
            for text in TEXTS:
                match parameter["in"]:
                    case "path":
                        await tried.request(method, filled(path, **{parameter["name"]: text or "%20"}))
                    case "query":
                        others = "".join(f"&{name}=x" for name in required(operation) - {parameter["name"]})
                        await tried.request(method, f"{filled(path)}?{parameter['name']}={text}{others}")
                    case "header":
                        value = text.encode("latin-1", "ignore")[:500] or b" "
                        await tried.request(method, filled(path), headers={parameter["name"]: value.decode("latin-1")})
    assert tried.count > 1_000
    assert tried.bad == []
    assert "Traceback" not in "".join(capfd.readouterr())


async def test_no_body_of_any_endpoint_makes_it_fail(whole: Api, capfd: pytest.CaptureFixture[str]) -> None:
    client = await whole.admin(organization="desk")
    openapi = await document(whole)
    tried = Tried(client)
    for method, path, operation in operations(openapi):
        if "requestBody" not in operation:
            continue
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        where = filled(path)
        for raw in RAW:
            await tried.request(method, where, content=raw, headers={"Content-Type": "application/json"})
        example = Example(openapi).of(schema)
        for changed in broken(example):
            content = json.dumps(changed).encode()
            await tried.request(method, where, content=content, headers={"Content-Type": "application/json"})
    assert tried.count > 1_000
    assert tried.bad == []
    assert "Traceback" not in "".join(capfd.readouterr())


async def test_a_token_may_name_as_many_workspaces_as_it_holds(whole: Api) -> None:
    client = await whole.admin(workspaces=[uuid4() for _ in range(120)])
    for path in ("/api/qa/search?query=a", "/api/qa/documents"):
        answer = await client.get(path)
        assert answer.status_code == 200, answer.text
    for path in (f"/api/qa/pairs/{uuid4()}", f"/api/qa/documents/{uuid4()}/report"):
        assert (await client.get(path)).status_code == 404


async def test_an_export_is_of_one_workspace_and_sensitive_pairs_need_their_scope(whole: Api) -> None:
    one, other = uuid4(), uuid4()
    client = await whole.admin(workspaces=[one])
    answer = await client.get("/api/qa/export")
    assert (answer.status_code, answer.json()["pairs"]) == (200, [])
    assert (await client.get(f"/api/qa/export?workspace_id={other}")).status_code == 403
    assert (await client.get("/api/qa/export?include_sensitive=true")).status_code == 403
    allowed = await whole.admin(workspaces=[one], scopes=["pairs:sensitive"])
    assert (await allowed.get("/api/qa/export?include_sensitive=true")).status_code == 200
    several = await whole.admin(workspaces=[one, other])
    answer = await several.get("/api/qa/export")
    assert (answer.status_code, answer.json()["code"]) == (422, "which_workspace")


class Example:
    """A value that a schema of the document takes, with every property in it."""

    def __init__(self, openapi: dict[str, Any]) -> None:
        self._components = openapi["components"]["schemas"]

    def of(self, schema: dict[str, Any], depth: int = 0) -> Any:
        if "$ref" in schema:
            return self.of(self._components[schema["$ref"].rsplit("/", 1)[1]], depth)
        if "const" in schema or "enum" in schema:
            return schema.get("const", schema.get("enum", [None])[0])
        for choice in ("oneOf", "anyOf", "allOf"):
            if choice in schema:
                return self.of(schema[choice][0], depth)
        makers: dict[str, Callable[[], Any]] = {
            "object": lambda: {name: self.of(inner, depth + 1) for name, inner in schema.get("properties", {}).items()},
            "array": lambda: [self.of(schema["items"], depth + 1)] if "items" in schema else [],
            "integer": lambda: max(1, schema.get("minimum", 1)),
            "number": lambda: 0.5,
            "boolean": lambda: True,
            "null": lambda: None,
        }
        return makers.get(schema.get("type", "string"), lambda: self._text(schema))()

    @staticmethod
    def _text(schema: dict[str, Any]) -> str:
        formats = {"uuid": str(uuid4()), "date-time": "2026-01-01T00:00:00Z", "date": "2026-01-01"}
        if "64" in schema.get("pattern", ""):
            return "0" * 64
        return formats.get(schema.get("format", ""), "summary")


def broken(value: Any) -> Iterator[Any]:
    """The same with one place at a time replaced by each hostile value, or with a key too many."""
    yield from VALUES
    if isinstance(value, dict):
        for name, inner in value.items():
            for changed in broken(inner):
                yield {**value, name: changed}
        yield {**value, "a\x00b": 1}
        yield {**value, "\ud800": 1}
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            for changed in broken(inner):
                copied = copy.copy(value)
                copied[index] = changed
                yield copied


@pytest.mark.parametrize(
    "path",
    [
        "a\x00b",
        "{}/loop",
        "{}/" + "x" * 300,
        "x" * 990,
        "relative",
        "{}/missing",
        "/proc/self/mem",
        "https://h/x",
        "~u",
    ],
)
async def test_a_repository_that_is_no_path_is_told_by_its_field(api: Api, tmp_path: Path, path: str) -> None:
    (tmp_path / "repos").mkdir(exist_ok=True)
    (tmp_path / "repos" / "loop").symlink_to(tmp_path / "repos" / "loop")
    touchpoint = {
        "id": "summary",
        "scope": "global",
        "storage": {"adapter": "skill_file", "repository": path.format(tmp_path / "repos"), "paths": ["a.md"]},
    }
    client = await api.admin()
    response = await client.post(f"{ROOT}/touchpoints/plan", json={"touchpoints": [touchpoint]})
    assert response.status_code == 422, response.text
    assert response.json()["errors"][0]["loc"].startswith("touchpoints[0].storage")


@pytest.mark.parametrize("path", ["a\x00b", "x" * 499, "../" * 50, "/etc/passwd", "loop", "."])
async def test_a_prompt_that_is_no_file_is_told_by_its_field(api: Api, repository: Any, path: str) -> None:
    (repository.root / "loop").symlink_to("loop")
    touchpoint = {
        "id": "summary",
        "scope": "global",
        "storage": {"adapter": "skill_file", "repository": str(repository.root), "paths": [path]},
    }
    client = await api.admin()
    response = await client.post(f"{ROOT}/touchpoints/plan", json={"touchpoints": [touchpoint]})
    assert response.status_code == 422, response.text
