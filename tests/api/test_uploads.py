"""Files brought into the library: over HTTP, and with `burnish qa ingest`."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4, uuid5

import pytest
import pytest_asyncio

import services.qa_ingest.app
from libs.auth.tokens import mint
from libs.contracts.envelope import EVENT_NAMESPACE
from libs.contracts.queries.qa_ingest import UploadDocument
from libs.service_kit.service import Service
from libs.service_kit.testing import Installation
from services.qa_ingest import metrics
from services.qa_ingest.ingest import Ingest
from services.qa_ingest.settings import Settings
from services.qa_ingest.store import operations
from services.qa_ingest.tests.conftest import s3 as s3
from services.qa_ingest.tests.s3_server import S3Server
from services.qa_ingest.tests.stores import S3Store
from services.qa_ingest.tests.test_buckets import bundle
from services.qa_ingest.uploads import Uploads
from tests.api.conftest import Api

DEFAULT = uuid5(EVENT_NAMESPACE, "workspace|default")
NEVER = 80_000.0


@pytest_asyncio.fixture
async def store(s3: Callable[[], S3Server]) -> S3Store:
    return S3Store(await asyncio.to_thread(s3), f"test-{uuid4().hex[:12]}")


@pytest_asyncio.fixture
async def library(installation: Installation, api: Api, tmp_path: Path, store: S3Store) -> AsyncIterator[Service]:
    """The library behind the gateway, with a folder and a bucket of an S3 store that are never listed again."""
    folder = tmp_path / "bound"
    folder.mkdir()
    everywhere = {"workspace": "default", "look_every_s": NEVER}
    buckets = [
        {"bucket": "handbook", "kind": "folder", "folder": str(folder), **everywhere},
        {"bucket": "answers", "kind": "s3", **store.options, **everywhere},
    ]
    bindings = tmp_path / "buckets.yaml"
    bindings.write_text(json.dumps({"buckets": buckets}))
    service = services.qa_ingest.app.build(Settings(**installation.settings("qa_ingest"), qa_buckets=bindings))
    began = time.time()
    await service.start()
    async with asyncio.timeout(30):
        while metrics.BUCKET_LISTED.labels("answers")._value.get() < began:
            await asyncio.sleep(0.05)
    yield service
    await service.close()


def upload(key: str, content: bytes, **more: Any) -> dict[str, Any]:
    return {"object_key": key, "content_base64": b64encode(content).decode(), **more}


async def rows(service: Service, statement: str, workspace: UUID = DEFAULT) -> list[tuple[Any, ...]]:
    async with service.db.connection(workspaces=[workspace]) as conn:
        return [tuple(row) for row in await conn.fetch(statement)]


async def test_a_file_is_brought_and_read_at_once(api: Api, library: Service) -> None:
    client = await api.admin()
    for answer, outcome in (("Because.", "ingested"), ("Because.", "unchanged"), ("Therefore.", "ingested")):
        told = await client.post("/api/qa/documents", json=upload("faq/a b+c.md", bundle("Why?", answer, "a")))
        assert told.status_code == 200, told.text
        followed = told.json()["followed"]
        assert (followed["bucket"], followed["object_key"]) == ("uploads", "faq/a b+c.md")
        assert followed["outcome"] == outcome
        report = await client.get(f"/api/qa/documents/{followed['document_id']}/report")
        assert report.json()["document"]["pairs"] == 1
    assert await rows(library, "SELECT question_text, governance_review_status FROM q_a_pairs") == [("Why?", "pending")]
    assert await rows(library, "SELECT count(*) FROM uploads WHERE followed_at IS NULL") == [(0,)]


async def test_a_file_that_was_put_and_never_read_is_read_later(installation: Installation) -> None:
    service = services.qa_ingest.app.build(Settings(**installation.settings("qa_ingest")))
    await service.db.open()
    taken = Uploads(service.db, Ingest(service.db, []))
    query = UploadDocument(
        workspace_id=DEFAULT, object_key="a.md", upload_id=uuid4(), content=b64encode(bundle("Why?", "Because.", "a"))
    )
    await taken._require_workspace(DEFAULT)
    await taken._put(query, query.content)  # and whoever did it has died
    await taken.follow_waiting()
    assert await rows(service, "SELECT count(*) FROM documents") == [(0,)], "it may be in work elsewhere"
    async with service.db.transaction() as tx:
        await operations.enter(tx.conn, DEFAULT)
        await tx.conn.execute("UPDATE uploads SET put_at = now() - interval '2 minutes'")
    await taken.follow_waiting()
    assert await rows(service, "SELECT object_key, state FROM documents") == [("a.md", "live")]
    await service.db.close()


async def test_a_file_comes_in_pieces_in_any_order_and_twice(api: Api, library: Service) -> None:
    client, whole = await api.admin(), bundle("Why?", "x" * 30_000, "a")
    pieces = [whole[at : at + 10_000] for at in range(0, len(whole), 10_000)]
    common = {"upload_id": str(uuid4()), "parts": len(pieces)}
    for n in (2, 0, 0, 3):
        told = await client.post("/api/qa/documents", json=upload("a.md", pieces[n], part=n, **common))
        assert told.json() == {"followed": None}
    told = await client.post("/api/qa/documents", json=upload("a.md", pieces[1], part=1, **common))
    assert told.json()["followed"]["outcome"] == "ingested"
    assert await rows(library, "SELECT bytes FROM documents") == [(len(whole),)]
    assert await rows(library, "SELECT count(*) FROM upload_parts") == [(0,)]


async def test_a_whole_piece_of_the_largest_size_is_taken_and_no_larger(api: Api, library: Service) -> None:
    client, largest = await api.admin(), 2 * 1024 * 1024
    told = await client.post("/api/qa/documents", json=upload("a.md", b"x" * largest))
    assert told.json()["followed"]["outcome"] == "rejected"
    told = await client.post("/api/qa/documents", json=upload("a.md", b"x" * (largest + 9)))
    assert told.status_code in (413, 422)


async def test_an_extractor_that_is_named_reads_it(api: Api, library: Service) -> None:
    client = await api.admin()
    text = b"# FAQ\n\n## Where is it hosted?\n\nIn two data centres.\n"
    told = await client.post("/api/qa/documents", json=upload("faq.md", text, extractor="markdown_heading_v1"))
    assert told.json()["followed"]["outcome"] == "ingested"
    kinds = "SELECT extractor_kind, promoted_to_pair_id FROM q_a_extractions"
    assert await rows(library, kinds) == [("markdown_heading_v1", None)], "what a helper finds waits for a person"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (upload("a.md", b"x", bucket="none"), 404, "not_found"),
        (upload("a.md", b"x", bucket="handbook", extractor="pseudo_yaml_v1"), 409, "other_extractor"),
        (upload("../a.md", b"x", bucket="handbook"), 422, "bad_key"),
        (upload("/a.md", b"x", bucket="handbook"), 422, "bad_key"),
        (upload(".a.md", b"x", bucket="handbook"), 422, "bad_key"),
        (upload("a.md.report.json", b"x"), 422, "bad_key"),
        (upload("a\x07.md", b"x"), 422, "bad_key"),
        (upload("a.md", b"x", extractor="none"), 422, "unknown_extractor"),
        (upload("a.md", b"x", part=1), 422, "bad_part"),
        ({"object_key": "a.md", "content_base64": "?"}, 422, "bad_content"),
        (upload("a.md", b"x", workspace_id=str(uuid4())), 404, "not_found"),
    ],
)
async def test_what_cannot_be_taken_is_refused(
    api: Api, library: Service, body: dict[str, Any], status: int, code: str
) -> None:
    told = await (await api.admin()).post("/api/qa/documents", json=body)
    assert (told.status_code, told.json()["code"]) == (status, code)
    assert await rows(library, "SELECT count(*) FROM documents") == [(0,)]


async def test_a_workspace_of_somebody_else_is_closed(api: Api, library: Service) -> None:
    other = uuid4()
    client = await api.client(roles=["admin"], workspaces=[str(other)])
    body = upload("a.md", b"x", workspace_id=str(DEFAULT))
    assert (await client.post("/api/qa/documents", json=body)).status_code == 403
    named = {"bucket": "handbook", "object_key": "a.md"}
    assert (await client.post("/api/qa/objects/follow", json=named)).status_code == 404
    assert (await client.get("/api/qa/objects", params={"bucket": "handbook"})).status_code == 404
    assert (await client.get("/api/qa/objects", params={"workspace_id": str(DEFAULT)})).status_code == 403


# --- `burnish qa ingest` ------------------------------------------------------------------------------------------


class Shell:
    """Runs verbs against the gateway, in a folder of its own."""

    def __init__(self, api: Api, folder: Path) -> None:
        self._environment = {
            **os.environ,
            "BURNISH_URL": f"http://127.0.0.1:{api.service.http_port}",
            "BURNISH_TOKEN": mint(api.key, "ada", roles=["admin"], workspaces="*"),
        }
        self.folder = folder

    async def run(self, *words: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "burnish", *words]
        done = await asyncio.to_thread(self._run, command)
        return done.returncode, done.stdout, done.stderr

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=self.folder, env=self._environment, capture_output=True, text=True)


@pytest.fixture
def shell(api: Api, tmp_path: Path) -> Shell:
    folder = tmp_path / "desk"
    (folder / "faq" / "more").mkdir(parents=True)
    (folder / "faq" / "a.md").write_bytes(bundle("Why?", "Because.", "a"))
    (folder / "faq" / "more" / "b c.md").write_bytes(bundle("How?", "Thus.", "b"))
    (folder / "faq" / ".hidden.md").write_bytes(bundle("Hidden?", "Yes.", "h"))
    (folder / "faq" / "link.md").symlink_to(folder / "faq" / "a.md")
    return Shell(api, folder)


async def test_a_folder_is_brought_with_all_below_it(shell: Shell, library: Service) -> None:
    code, out, err = await shell.run("qa", "ingest", "faq")
    assert (code, out.splitlines()) == (
        0,
        [
            "faq/a.md: ingested, 1 pair, 0 left out",
            "faq/more/b c.md: ingested, 1 pair, 0 left out",
            "2 files: 2 ingested; 2 pairs, 0 left out",
        ],
    )
    assert "2 of 2: faq/more/b c.md: ingested" in err
    keys = "SELECT bucket, object_key FROM documents ORDER BY 2"
    assert await rows(library, keys) == [("uploads", "faq/a.md"), ("uploads", "faq/more/b c.md")]
    code, out, _ = await shell.run("qa", "ingest", str(shell.folder / "faq" / "a.md"), "--json")
    (told,) = json.loads(out)
    assert (code, told["object_key"], told["outcome"], told["report"]["document"]["pairs"]) == (
        0,
        "faq/a.md",
        "unchanged",
        1,
    )


async def test_what_is_rejected_is_named_with_its_line_and_the_others_come_in(shell: Shell, library: Service) -> None:
    (shell.folder / "faq" / "z.md").write_text("---\nquestion: Why?\nconfidence: 7\n---\nBecause.\n")
    code, out, _ = await shell.run("qa", "ingest", "faq")
    assert code == 1
    assert "  faq/z.md:3: error: `confidence` is a number from 0 to 1, not '7'" in out
    assert "3 files: 2 ingested, 1 rejected; 2 pairs, 0 left out" in out
    (shell.folder / "faq.docx").write_bytes(b"PK\x03\x04\xff")
    code, out, _ = await shell.run("qa", "ingest", "faq.docx")
    assert code == 1
    assert "name one with --extractor" in out


async def test_a_file_is_copied_into_a_bound_bucket(shell: Shell, library: Service, tmp_path: Path) -> None:
    code, out, _ = await shell.run("qa", "ingest", "faq/a.md", "--bucket", "handbook")
    assert (code, out) == (0, "faq/a.md: ingested, 1 pair, 0 left out\n")
    assert (tmp_path / "bound" / "faq" / "a.md").read_bytes() == bundle("Why?", "Because.", "a")
    assert await rows(library, "SELECT bucket, object_key FROM documents") == [("handbook", "faq/a.md")]


async def test_objects_of_a_bound_store_are_read_now(shell: Shell, library: Service, store: S3Store) -> None:
    for key in ("faq/a.md", "faq/b+c.md", "other.md"):
        await store.put(key, bundle(f"What of {key}?", "That.", key))
    address = f"s3://{store.options['s3_bucket']}"
    code, out, _ = await shell.run("qa", "ingest", f"{address}/faq/")
    assert (code, out.splitlines()[-1]) == (0, "2 files: 2 ingested; 2 pairs, 0 left out")
    code, out, _ = await shell.run("qa", "ingest", f"{address}/other.md")
    assert (code, out) == (0, "other.md: ingested, 1 pair, 0 left out\n")
    for words, expected, hint in (
        ((f"{address}/none.md",), 2, "there is nothing under"),
        (("s3://another-bucket/a.md",), 5, "BURNISH_QA_BUCKETS"),
        ((f"{address}/other.md", "--extractor", "pseudo_yaml_v1"), 2, "read as it is bound"),
        (("s3:///a.md",), 2, "s3://BUCKET/KEY was expected"),
        (("faq/a.md", "--workspace", "Nobody's"), 5, "no such workspace"),
    ):
        code, _, err = await shell.run("qa", "ingest", *words)
        assert code == expected, err
        assert hint in err


# --- prose, read by a model -----------------------------------------------------------------------------------------


async def test_prose_is_read_on_request_with_an_estimate_first(shell: Shell, library: Service) -> None:
    notes = shell.folder / "notes.txt"
    notes.write_text("Q: When are backups written?\nA: At night.\n\nSo it was. Was it?\n\nIt was, by all accounts.\n")
    by_model = ("qa", "ingest", "notes.txt", "--extractor", "llm_extraction")
    code, out, _ = await shell.run(*by_model, "--estimate")
    assert (code, out) == (0, "notes.txt: 88 characters, 1 call of offline/offline-1, at most 0 USD\n")
    code, out, _ = await shell.run(*by_model, "--estimate", "--json")
    assert (code, json.loads(out)) == (
        0,
        [
            {
                "file": "notes.txt",
                "model": "offline/offline-1",
                "characters": 88,
                "calls": 1,
                "answered_before": 0,
                "most_usd": "0",
            }
        ],
    )
    assert await rows(library, "SELECT count(*) FROM uploads") == [(0,)]
    code, out, _ = await shell.run(*by_model, "--max-usd", "0")
    assert (code, out.splitlines()[0]) == (0, "notes.txt: ingested, 2 pairs, 0 left out")
    found = "SELECT question_text, provenance, metadata ->> 'passage' FROM q_a_extractions ORDER BY ordinal"
    assert await rows(library, found) == [
        ("When are backups written?", "INFERRED", "Q: When are backups written?\nA: At night."),
        ("Was it?", "AMBIGUOUS", "So it was. Was it?\n\nIt was, by all accounts."),
    ]
    assert await rows(library, "SELECT count(*) FROM q_a_pairs") == [(0,)]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--extractor", "llm_extraction"), "llm_extraction needs --max-usd"),
        (("--estimate",), "--estimate and --max-usd are for a model"),
        (("--max-usd", "1"), "--estimate and --max-usd are for a model"),
        (("--extractor", "llm_extraction", "--max-usd", "much"), "an amount of USD is written like 0.50"),
    ],
)
async def test_a_model_needs_a_cap_and_nothing_else_does(shell: Shell, words: tuple[str, ...], told: str) -> None:
    code, _, err = await shell.run("qa", "ingest", "faq/a.md", *words)
    assert code == 2
    assert told in err


async def test_an_estimate_names_what_is_wrong(api: Api, library: Service) -> None:
    client = await api.admin()
    for key, content, code in (("a.docx", b"x", "other_kind"), ("a.txt", b"\xff\x00", "not_text")):
        told = await client.post("/api/qa/documents/estimate", json=upload(key, content))
        assert (told.status_code, told.json()["code"]) == (422, code)
    told = await client.post("/api/qa/documents", json=upload("a.txt", b"Why? So.", extractor="llm_extraction"))
    assert (told.status_code, told.json()["code"]) == (422, "no_cap")
