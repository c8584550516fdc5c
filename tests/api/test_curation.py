"""The library's curation over HTTP and on the command line: the real gateway with the real library behind it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest_asyncio
from click.testing import CliRunner

import services.qa_ingest.app
from burnish.cli import main
from libs.auth.tokens import mint
from libs.service_kit.testing import Installation
from services.qa_ingest.domain.bindings import Binding
from services.qa_ingest.settings import Settings as LibrarySettings
from tests.api.conftest import Api

WORKSPACE = Binding(bucket="b", folder=Path(), workspace="default").workspace_key
LOGGED = re.compile(r"\d{4}-\d\d-\d\d \d\d:")
PAIR = {"question": "How long are backups kept?", "answer_standard": "Thirty-five days."}


@pytest_asyncio.fixture
async def library(api: Api, installation: Installation, tmp_path: Path) -> AsyncIterator[Api]:
    """A library with one workspace, fed by an empty folder."""
    (tmp_path / "folder").mkdir()
    settings = LibrarySettings(**installation.settings("qa_ingest"), qa_folder=tmp_path / "folder")
    service = services.qa_ingest.app.build(settings)
    await service.start()
    yield api
    await service.close()


def ok(response: httpx.Response, status: int = 200) -> Any:
    assert response.status_code == status, response.text
    return response.json()


def no(response: httpx.Response, code: str, status: int) -> Any:
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert (problem.get("code"), response.status_code) == (code, status), problem
    return problem


async def test_a_pair_from_its_making_to_its_end(library: Api) -> None:
    editor = await library.client(subject="ada", roles=["editor"], workspaces=[WORKSPACE])
    key = {"Idempotency-Key": "one"}
    made = ok(await editor.post("/api/qa/pairs", json=PAIR, headers=key), 201)
    assert ok(await editor.post("/api/qa/pairs", json=PAIR, headers=key), 201) == made
    at = f"/api/qa/pairs/{made['pair']['id']}"
    assert (made["pair"]["version"], made["pair"]["publication_status"]) == (1, "draft")
    edited = ok(
        await editor.patch(at, json={"version": 1, "answer_advanced": "In two regions.", "reason": "asked for"})
    )
    stale = no(await editor.patch(at, json={"version": 1, "answer_standard": "x"}), "stale_version", 409)
    assert stale["version"] == 2
    ok(await editor.patch(at, json={"version": 2, "answer_advanced": None}))
    no(await editor.patch(at, json={"version": 3, "question": None}), "not_clearable", 422)
    ok(await editor.post(f"{at}/publish", json={"version": 3}))
    found = ok(await editor.get("/api/qa/search", params={"query": "how long are backups kept"}))
    assert [hit["question"] for hit in found["results"]] == [PAIR["question"]]
    ok(await editor.post(f"{at}/archive", json={"version": 4}))
    assert ok(await editor.get("/api/qa/search", params={"query": "how long are backups kept"}))["results"] == []
    no(await editor.post(f"/api/qa/operations/{edited['operation_id']}/undo", json={}), "changed_since", 409)
    history = ok(await editor.get(at, params={"include_history": True}))["history"]
    assert [line["changed_by"] for line in history] == ["ada"] * 5
    assert (await editor.delete(at, params={"version": 5})).status_code == 403
    admin = await library.admin()
    ok(await admin.delete(at, params={"version": 5}))
    no(await admin.get(at), "not_found", 404)


async def test_merge_split_and_undo_over_http(library: Api) -> None:
    editor = await library.client(roles=["editor"], workspaces=[WORKSPACE])
    one = ok(await editor.post("/api/qa/pairs", json={**PAIR, "scope_tags": ["a"]}), 201)["pair"]
    two = ok(await editor.post("/api/qa/pairs", json={**PAIR, "question": "Backup retention?"}), 201)["pair"]
    body = {"into": {"id": one["id"], "version": 1}, "absorbed": [{"id": two["id"], "version": 1}]}
    merged = ok(await editor.post("/api/qa/pairs/merge", json=body))
    assert [pair["superseded_by"] for pair in merged["pairs"]] == [None, one["id"]]
    assert merged["pairs"][0]["alternate_phrasings"] == ["Backup retention?"]
    back = ok(await editor.post(f"/api/qa/operations/{merged['operation_id']}/undo", json={"reason": "not the same"}))
    assert {pair["superseded_by"] for pair in back["pairs"]} == {None}
    parts = [{"question": f"Part {n}?", "answer_standard": "x"} for n in (1, 2)]
    split = ok(await editor.post(f"/api/qa/pairs/{one['id']}/split", json={"version": 3, "parts": parts}))
    assert [pair["publication_status"] for pair in split["pairs"]] == ["draft", "draft", "archived"]


async def test_an_agent_proposes_and_a_person_accepts(library: Api) -> None:
    editor = await library.client(subject="ada", roles=["editor"], workspaces=[WORKSPACE])
    agent = await library.client(subject="agent-7", roles=["editor"], scopes=["pairs:draft"], workspaces=[WORKSPACE])
    draft = ok(await agent.post("/api/qa/pairs", json=PAIR), 201)["pair"]
    at = f"/api/qa/pairs/{draft['id']}"
    no(await agent.post("/api/qa/pairs", json={**PAIR, "publication_status": "published"}), "people_decide", 403)
    no(await agent.post(f"{at}/publish", json={"version": 1}), "people_decide", 403)
    no(await agent.patch(at, json={"version": 1, "answer_standard": "x"}), "people_decide", 403)
    proposed = ok(await agent.post(f"{at}/edits", json={"version": 1, "answer_standard": "Ninety days."}), 201)
    suggestion = proposed["suggestion"]
    no(await agent.post(f"/api/qa/suggestions/{suggestion['suggestion_id']}/accept", json={}), "people_decide", 403)
    (listed,) = ok(await editor.get("/api/qa/suggestions", params={"kind": "proposed_edit"}))["suggestions"]
    assert (listed["created_by"], listed["detail"]["changes"]) == ("agent-7", {"answer_standard": "Ninety days."})
    done = ok(await editor.post(f"/api/qa/suggestions/{suggestion['suggestion_id']}/accept", json={}))
    assert (done["suggestion"]["state"], done["pairs"][0]["answer_standard"]) == ("accepted", "Ninety days.")


async def test_other_workspaces_and_secrets_are_not_there(library: Api) -> None:
    editor = await library.client(roles=["editor"], workspaces=[WORKSPACE])
    stranger = await library.client(roles=["editor"], workspaces=[uuid4()])
    secret = ok(await editor.post("/api/qa/pairs", json={**PAIR, "sensitive": True}), 201)
    at = f"/api/qa/pairs/{secret['pair']['id']}"
    for client in (editor, stranger):
        no(await client.patch(at, json={"version": 1, "answer_standard": "x"}), "not_found", 404)
        no(await client.post(f"/api/qa/operations/{secret['operation_id']}/undo", json={}), "not_found", 404)
    assert (await stranger.post("/api/qa/pairs", json={**PAIR, "workspace_id": str(WORKSPACE)})).status_code == 403
    trusted = await library.client(roles=["editor"], scopes=["pairs:sensitive"], workspaces=[WORKSPACE])
    ok(await trusted.patch(at, json={"version": 1, "answer_standard": "x"}))


async def test_the_command_line_does_the_same(library: Api, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{library.service.http_port}"
    token = mint(library.key, "ada", roles=["admin"], workspaces="*")

    async def run(*words: str, code: int = 0) -> Any:
        environment = {"BURNISH_URL": url, "BURNISH_TOKEN": token}
        done = await asyncio.to_thread(CliRunner().invoke, main, ["qa", *words, "--json"], env=environment)
        assert done.exit_code == code, done.output
        # The services of this test run in the same process, and log to the same stdout.
        told = [line for line in done.stdout.splitlines() if not LOGGED.match(line)]
        return json.loads("\n".join(told)) if code == 0 else done.stderr

    made = (await run("create", "How long?", "--answer", "A year.", "--tag", "a", "--cadence", "90"))["pair"]
    other = (await run("create", "For how long?", "--answer", "A year.", "--also", "Duration?"))["pair"]
    assert UUID(made["id"])
    assert (await run("edit", made["id"], "--answer", "Two years."))["pair"]["version"] == 2
    assert "version 2" in await run("edit", made["id"], "--answer", "x", "--version", "1", code=6)
    assert (await run("edit", made["id"], "--domain", "d", "--propose"))["kind"] == "proposed_edit"
    assert len(await run("suggestions")) == 1
    merged = await run("merge", made["id"], other["id"], "--reason", "the same")
    assert merged["pairs"][0]["alternate_phrasings"] == ["For how long?", "Duration?"]
    await run("undo", merged["operation_id"])
    parts = tmp_path / "parts.md"
    parts.write_text("---\nquestion: One?\n---\nYes.\n\n---\nquestion: Two?\n---\nNo.\n")
    assert len((await run("split", other["id"], str(parts)))["pairs"]) == 3
    assert (await run("publish", made["id"]))["pair"]["publication_status"] == "published"
    assert (await run("verify", made["id"]))["pair"]["verified_by"] == "ada"
    assert (await run("review", made["id"], "approved"))["pair"]["review_status"] == "approved"
    assert [one["pair_id"] for one in await run("reviews", "--within", "91")] == [made["id"]]
    assert (await run("archive", made["id"]))["pair"]["publication_status"] == "archived"
    assert (await run("restore", made["id"]))["pair"]["publication_status"] == "draft"
    await run("delete", made["id"], code=2)
    assert (await run("delete", made["id"], "--yes"))["pair_id"] == made["id"]
    assert (await run("delete", made["id"], "--yes", code=5)).startswith("error: there is no pair")
