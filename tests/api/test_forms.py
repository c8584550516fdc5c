"""Forms over HTTP: as a body, as a multipart file, as a list; and what is refused before it is read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from click.testing import CliRunner, Result

import services.qa_ingest.app
from burnish.cli import main
from libs.contracts.queries.qa_forms import MAX_FORM_BYTES
from libs.service_kit.testing import Installation
from services.gateway.routers.qa_ingest import DEFAULT_WORKSPACE
from services.qa_ingest.settings import Settings
from services.qa_ingest.tests.test_forms_workbook import book, values
from tests.api.conftest import Api

MATCH = "/api/qa/match"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
FORM = book(["Question", "Answer"], ["Where is my parcel?", None], ["What is the weather on Mars?", None])
BUNDLE = "---\nquestion: Where is my parcel?\n---\nFollow the tracking link.\n"
DRAFTS = {"status": "draft"}


@pytest_asyncio.fixture
async def client(api: Api, installation: Installation, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """An admin's client, with a library of one pair behind the gateway."""
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / "a.md").write_text(BUNDLE)
    settings = Settings(**installation.settings("qa_ingest"), qa_folder=folder, qa_look_every_s=0.1)
    service = services.qa_ingest.app.build(settings)
    await service.start()
    client = await api.admin()

    try:
        async with asyncio.timeout(30):
            asked = {"query": "where is my parcel", **DRAFTS}
            while not (await client.get("/api/qa/search", params=asked)).json().get("total"):
                await asyncio.sleep(0.05)
        yield client
    finally:
        await service.close()


async def test_a_form_as_body_and_as_file(client: httpx.AsyncClient, api: Api) -> None:
    for sent in (
        {"content": FORM, "headers": {"Content-Type": XLSX}},
        {"content": FORM, "headers": {"Content-Type": "application/octet-stream"}},
        {"files": {"file": ("any name.pdf", FORM, "text/plain")}},
    ):
        answer = await client.post(MATCH, params=DRAFTS, **sent)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        first, second = found["questions"]
        assert (found["format"], found["filled"]) == ("xlsx", 1)
        assert (first["place"], first["outcome"], first["match"]["match_strength"]) == ("Sheet!B2", "filled", "exact")
        assert first["match"]["answer_preview"] == "Follow the tracking link."
        assert second["outcome"] in ("no_match", "too_weak")
        where = f"{MATCH}/{found['form']['form_id']}/file"
        file = await client.get(where)
        assert (file.status_code, file.headers["content-type"]) == (200, XLSX)
        assert file.headers["content-disposition"] == 'attachment; filename="filled.xlsx"'
        assert values(file.content)[1] == ["Where is my parcel?", "Follow the tracking link."]
        other = await api.admin(subject="bob")
        assert (await other.get(where)).status_code == 404
        assert (await (await api.client(workspaces="*")).get(where)).status_code == 403


async def test_a_list_of_questions(client: httpx.AsyncClient) -> None:
    for body in ({"questions": ["Where is my parcel?"]}, ["Where is my parcel?"]):
        answer = await client.post(MATCH, params=DRAFTS, json=body)
        assert answer.status_code == 200, answer.text
        (one,) = answer.json()["questions"]
        assert (one["match"]["question"], one["outcome"], answer.json()["form"]) == ("Where is my parcel?", None, None)


async def test_only_the_list(client: httpx.AsyncClient) -> None:
    answer = await client.post(MATCH, params={**DRAFTS, "fill": False}, content=FORM, headers={"Content-Type": XLSX})
    assert (answer.status_code, answer.json()["form"], answer.json()["filled"]) == (200, None, 0)
    answer = await client.post(MATCH, content=FORM, headers={"Content-Type": XLSX})  # published ones: there are none
    assert (answer.json()["form"], answer.json()["questions"][0]["outcome"]) == (None, "no_match")


async def test_the_command_line_fills_a_file(client: httpx.AsyncClient, tmp_path: Path) -> None:
    form, out = tmp_path / "form.xlsx", tmp_path / "out.xlsx"
    form.write_bytes(FORM)
    token = client.headers["Authorization"].removeprefix("Bearer ")

    async def match(*words: str) -> Result:
        environment = {"BURNISH_URL": str(client.base_url).rstrip("/"), "BURNISH_TOKEN": token, "COLUMNS": "200"}
        words = ("qa", "match", "--status=draft", *words)
        return await asyncio.to_thread(CliRunner().invoke, main, words, env=environment)

    done = await match(str(form), f"--fill={out}")
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (0, "1 of 2 questions answered")
    assert values(out.read_bytes())[1] == ["Where is my parcel?", "Follow the tracking link."]
    assert form.read_bytes() == FORM
    done = await match(str(form), f"--fill={out}")
    assert (done.exit_code, "nothing is written over" in done.stderr) == (2, True)
    done = await match("--json", "-q", "where is my parcel", "-q", "zzz")
    assert [bool(one["match"]) for one in json.loads(done.stdout)["questions"]] == [True, False]
    done = await match(str(form), "--fill-from=exact")
    assert "Sheet!B2" in done.stdout
    form.write_bytes(b"no form")
    done = await match(str(form))
    assert (done.exit_code, "not a ZIP package" in done.stderr) == (2, True)
    for words in ((), (str(form), "-q", "a"), ("-q", "a", f"--fill={out}x")):
        assert (await match(*words)).exit_code == 2


@pytest.mark.parametrize(
    ("body", "kind", "status", "code"),
    [
        (b"x", "text/html", 415, "unsupported_media_type"),
        (b"", XLSX, 422, "invalid"),
        (b"no form", XLSX, 422, "no_package"),
        (b"%PDF-1.7 x", "application/pdf", 422, "bad_pdf"),
        (bytes.fromhex("d0cf11e0a1b11ae1"), XLSX, 422, "encrypted_or_legacy"),
        (b"[]", "application/json", 422, "invalid"),
        (b'{"questions": []}', "application/json", 422, "invalid"),
        (b'{"questions": ["a"], "x": 1}', "application/json", 422, "invalid"),
        (b"{", "application/json", 422, "invalid"),
        (b'"' + b"x" * 5_000_000 + b'"', "application/json", 413, "too_large"),
        (b"x" * (MAX_FORM_BYTES + 1), XLSX, 413, "too_large"),
        (b"x" * (MAX_FORM_BYTES + 1_000_000), XLSX, 413, "too_large"),
        (b"--a\r\n\r\n", "multipart/form-data; boundary=b", 400, "bad_request"),
        (b"x", "multipart/form-data", 400, "bad_request"),
    ],
)
async def test_what_is_refused(client: httpx.AsyncClient, body: bytes, kind: str, status: int, code: str) -> None:
    answer = await client.post(MATCH, content=body, headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


async def test_other_paths_take_no_more_than_before(client: httpx.AsyncClient) -> None:
    answer = await client.post("/api/refinement/signals", content=b"x" * 5_000_000)
    assert answer.status_code == 413


async def test_another_workspace_needs_its_token(client: httpx.AsyncClient, api: Api) -> None:
    narrow = await api.admin(workspaces=[])
    answer = await narrow.post(MATCH, params={"workspace_id": str(DEFAULT_WORKSPACE)}, json=["Where is my parcel?"])
    assert answer.status_code == 403
    answer = await narrow.post(MATCH, content=FORM, headers={"Content-Type": XLSX})
    assert (answer.status_code, answer.json()["code"]) == (422, "no_workspace")
