"""Buckets that do not answer: each by itself, within its own time, and nothing is taken for deleted."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from libs.embedded.ports import free_port
from libs.service_kit.db import Database
from services.qa_ingest import metrics
from services.qa_ingest.buckets import opened
from services.qa_ingest.buckets.base import Away, Bucket, OwnBus
from services.qa_ingest.domain.bindings import Binding
from services.qa_ingest.hints import Hints
from services.qa_ingest.ingest import Bound, Ingest
from services.qa_ingest.tests.test_buckets import bundle

OpenDatabase = Callable[[str], Awaitable[Database]]
LIMIT_S = 0.5


def bound(kind: str, **options: Any) -> Bound:
    binding = Binding(bucket=f"away-{kind}", kind=kind, workspace="default", **options)
    return Bound(opened(binding, OwnBus()), binding)


def elsewhere(kind: str, port: int, folder: Path) -> Bound:
    """A bucket of each kind whose server is on this port, or which is not there."""
    if kind == "folder":
        return bound("folder", folder=folder / "not there")
    if kind == "nats":
        return bound("nats", object_store="b", server=f"nats://127.0.0.1:{port}", timeout_s=LIMIT_S)
    credentials = folder / "credentials"
    credentials.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    address = {"endpoint": f"http://127.0.0.1:{port}", "credentials_file": str(credentials)}
    return bound("s3", s3_bucket="bucket", timeout_s=LIMIT_S, **address)


@contextmanager
def hanging() -> Iterator[int]:
    """A server that lets connect and says nothing; its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "bucket"
    made.mkdir()
    (made / "a.md").write_bytes(bundle("Why?", "Because.", "a"))
    return made


@pytest.mark.parametrize("kind", ["folder", "nats", "s3"])
async def test_a_bucket_that_is_not_there_is_away_and_the_next_is_read(
    database: OpenDatabase, tmp_path: Path, folder: Path, kind: str
) -> None:
    db = await database("qa_ingest")
    away = elsewhere(kind, free_port(), tmp_path)
    there = Binding(bucket="there", folder=folder, workspace="default")
    ingest = Ingest(db, [away, Bound(opened(there, OwnBus()), there)])
    await ingest.prepare()
    age_the_files(folder)
    assert await ingest.look() == 1
    up = {name: metrics.BUCKET_UP.labels(name)._value.get() for name in (f"away-{kind}", "there")}
    assert up == {f"away-{kind}": 0, "there": 1}
    await away.bucket.close()


@pytest.mark.parametrize("kind", ["nats", "s3"])
async def test_a_bucket_that_hangs_holds_nobody_longer_than_its_limit(
    database: OpenDatabase, tmp_path: Path, folder: Path, kind: str
) -> None:
    db = await database("qa_ingest")
    there = Binding(bucket="there", folder=folder, workspace="default")
    age_the_files(folder)
    with hanging() as port:
        away = elsewhere(kind, port, tmp_path)
        ingest = Ingest(db, [away, Bound(opened(there, OwnBus()), there)])
        await ingest.prepare()
        hints = [asyncio.create_task(Hints(ingest).follow(away, f"{n}.md", "store")) for n in range(3)]
        await asyncio.sleep(0)
        began = time.monotonic()
        assert await ingest.look_at(ingest.bound[1]) == 1
        assert time.monotonic() - began < LIMIT_S + 2, "hints about the bucket that hangs left it a place"
        for call in (_listed(away.bucket), away.bucket.read("a.md"), away.bucket.write("a.md", b"")):
            began = time.monotonic()
            with pytest.raises(Away):
                await call
            assert time.monotonic() - began < LIMIT_S + 2
        await asyncio.gather(*hints)
        await away.bucket.close()


async def test_what_is_wrong_with_a_store_is_told_without_what_it_said(tmp_path: Path) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"<Error><Code>AccessDenied</Code><Message>canary-secret</Message></Error>"
        writer.write(b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    away = elsewhere("s3", server.sockets[0].getsockname()[1], tmp_path)
    with pytest.raises(Away) as told:
        await _listed(away.bucket)
    assert str(told.value) == "the store refuses: AccessDenied"
    server.close()
    await away.bucket.close()


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        ("tape", {}, "bucket b: kind: there is no 'tape'; there are folder, nats, s3"),
        ("folder", {}, "bucket b: folder: Field required"),
        ("s3", {"s3_bucket": "faq", "access_key": "canary"}, "bucket b: access_key: Extra inputs are not permitted"),
        ("s3", {"s3_bucket": "faq", "endpoint": "file:///etc"}, "bucket b: endpoint: URL scheme should be"),
        ("nats", {"object_store": "a.b"}, "bucket b: object_store: String should match"),
        ("nats", {"object_store": "a", "server": "nats://u:canary@h"}, "bucket b: server: String should match"),
        ("nats", {"object_store": "a", "user": "u"}, "bucket b: nats: Value error, credentials are for a `server`"),
    ],
)
def test_a_binding_that_is_wrong_is_named_with_its_field(kind: str, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match="bucket b") as told:
        opened(Binding(bucket="b", kind=kind, workspace="w", **options), OwnBus())
    assert str(told.value).startswith(expected)
    assert "canary" not in str(told.value)


def age_the_files(folder: Path) -> None:
    """What was written a moment ago may still be written to."""
    import os

    for path in folder.iterdir():
        os.utime(path, (1_000_000_000, 1_000_000_000))


async def _listed(bucket: Bucket) -> list[str]:
    return [listed.key async for listed in bucket.list()]
