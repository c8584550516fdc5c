"""Events about objects: from an S3 store through the bus, and from object stores that tell by themselves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import nats
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError
from pydantic import SecretStr

from libs.contracts.envelope import ForeignData
from libs.contracts.events.bucket_store import ObjectNotifiedV1
from libs.service_kit.service import Service
from libs.service_kit.testing import Installation
from services.qa_ingest.app import build
from services.qa_ingest.domain.bindings import workspace_id_of
from services.qa_ingest.settings import Settings
from services.qa_ingest.tests.s3_server import S3Server
from services.qa_ingest.tests.stores import Store, store_of
from services.qa_ingest.tests.test_buckets import KEYS, bundle

SUBJECT = ObjectNotifiedV1.type
NEVER = 80_000.0
JETSTREAM_NOT_ENABLED = 10039


def notified(bucket: str, key: str, event: str = "ObjectCreated:Put") -> bytes:
    """As stores send it; `key` as it is encoded there."""
    place = {"bucket": {"name": bucket, "arn": f"arn:aws:s3:::{bucket}"}, "object": {"key": key, "sequencer": "18A"}}
    return json.dumps({"EventName": f"s3:{event}", "Records": [{"eventName": event, "s3": place}]}).encode()


@asynccontextmanager
async def running(installation: Installation, folder: Path, store: Store) -> AsyncIterator[Service]:
    """The service with one bucket, which it lists once at the start and never again."""
    bindings = folder / "buckets.yaml"
    binding = {"bucket": "b", "kind": store.kind, "workspace": "default", "look_every_s": NEVER, **store.options}
    bindings.write_text(json.dumps({"buckets": [binding]}))
    password = SecretStr(installation.servers.nats_password("qa_buckets"))
    given = {**installation.settings("qa_ingest"), "qa_buckets": bindings, "qa_nats_password": password}
    service = build(Settings(**given, qa_embed_every_s=NEVER))
    await service.start()
    try:
        yield service
    finally:
        await service.close()


async def rows(service: Service, statement: str) -> list[tuple[Any, ...]]:
    async with service.db.connection(workspaces=[workspace_id_of("default")]) as conn:
        return [tuple(row) for row in await conn.fetch(statement)]


async def served(service: Service, expected: set[str]) -> None:
    """Wait until exactly these objects are served."""
    statement = "SELECT object_key FROM documents WHERE state IN ('live', 'stale')"
    async with asyncio.timeout(30):
        while {key for (key,) in await rows(service, statement)} != expected:
            await asyncio.sleep(0.05)


@asynccontextmanager
async def connected(installation: Installation, user: str) -> AsyncIterator[Client]:
    client = await nats.connect(
        installation.servers.nats_url, user=user, password=installation.servers.nats_password(user)
    )
    try:
        yield client
    finally:
        await client.close()


async def test_events_of_an_s3_store_name_the_right_objects(
    installation: Installation, tmp_path: Path, s3: Callable[[], S3Server]
) -> None:
    async with (
        store_of("s3", tmp_path, installation.servers, s3) as store,
        running(installation, tmp_path, store) as service,
        connected(installation, "bucket_store") as client,
    ):
        name = store.options["s3_bucket"]
        for key in KEYS:
            await store.put(key, bundle("Why?", f"Because of {key}.", key))
        for key in KEYS:  # MinIO encodes slashes too, AWS does not
            for encoded in (quote_plus(key), quote(key, safe="/")):
                answer = await client.request(SUBJECT, notified(name, encoded), timeout=5)
                assert json.loads(answer.data)["stream"] == "BUCKET"
        await served(service, set(KEYS))
        await store.delete("a+b.md")
        await client.publish(SUBJECT, notified(name, "a%2Bb.md", "ObjectRemoved:Delete"))
        await served(service, {*KEYS} - {"a+b.md"})
        await client.publish(SUBJECT, notified(name, "a+b.md", "ObjectRemoved:Delete"))  # `a b.md`, and it is there
        await client.publish(SUBJECT, notified("another", "a.md"))
        await store.put("last.md", bundle("Which?", "The last.", "last"))
        await client.publish(SUBJECT, notified(name, "last.md"))
        await served(service, {*KEYS, "last.md"} - {"a+b.md"})


async def test_events_that_are_none_are_kept_with_the_dead_letters(
    installation: Installation, tmp_path: Path, s3: Callable[[], S3Server]
) -> None:
    hostile = [
        b"",
        b"{",
        b"[" * 100_000,
        b'{"Records": "all of them"}',
        json.dumps({"Records": [{"s3": {"bucket": {"name": "b"}, "object": {"key": "k" * 9_000}}}]}).encode(),
        json.dumps({"Records": [{"s3": {"bucket": {"name": "b"}, "object": {"key": "k"}}}] * 1_001}).encode(),
    ]
    passed_by = [
        json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"}).encode(),
        notified("b", "%FF%FE"),
        notified("b", "..%2F..%2Fetc%2Fpasswd"),
        notified("b", "%00"),
    ]
    async with (
        store_of("s3", tmp_path, installation.servers, s3) as store,
        running(installation, tmp_path, store) as service,
        connected(installation, "bucket_store") as client,
    ):
        name = store.options["s3_bucket"]
        for body in [*hostile, *passed_by, notified(name, "%00"), notified(name, "..%2Fa.md")]:
            await client.request(SUBJECT, body, timeout=5)
        await store.put("a.md", bundle("Why?", "Because.", "a"))
        await client.request(SUBJECT, notified(name, "a.md"), timeout=5)
        await served(service, {"a.md"})
        assert await rows(service, "SELECT count(*), count(DISTINCT error_class) FROM dead_letters") == [
            (len(hostile), 1)
        ]


async def test_an_object_store_tells_by_itself(installation: Installation, tmp_path: Path) -> None:
    async with (
        store_of("nats", tmp_path, installation.servers, _no_s3) as store,
        running(installation, tmp_path, store) as service,
    ):
        for key in KEYS:
            await store.put(key, bundle("Why?", f"Because of {key}.", key))
        await served(service, set(KEYS))
        await store.put("a+b.md", bundle("Why?", "Because of something else.", "a"))
        await store.delete("a b.md")
        await served(service, {*KEYS} - {"a b.md"})
        statement = "SELECT count(*) FROM q_a_extractions WHERE invalidated_at IS NULL AND answer_text LIKE '%else.'"
        async with asyncio.timeout(10):
            while await rows(service, statement) != [(1,)]:
                await asyncio.sleep(0.05)


async def test_a_store_says_what_it_may_and_hears_nothing(installation: Installation) -> None:
    async with connected(installation, "bucket_store") as client:
        with pytest.raises((NoRespondersError, NatsTimeoutError)):
            await client.request("qa.document.ingested.v1", b"{}", timeout=0.5)
        answer = json.loads((await client.request("$JS.API.STREAM.INFO.QA", b"", timeout=5)).data)
        assert answer["error"]["err_code"] == JETSTREAM_NOT_ENABLED


async def test_object_stores_lie_apart_from_the_bus(installation: Installation) -> None:
    async with connected(installation, "qa_buckets") as client, connected(installation, "qa_ingest") as service:
        js = client.jetstream()
        await js.add_stream(name="forged", subjects=["qa.>", "bucket.>", "ask.>"])
        try:
            await client.publish("qa.document.deleted.v1", b"forged")
            await client.flush()
            assert (await js.stream_info("forged")).state.messages == 1, "it stays in its own account"
            answer = json.loads((await client.request("ask.qa_ingest.documents.list.v1", b"{}", timeout=5)).data)
            assert answer["stream"] == "forged", "nobody of ours was asked"
            answer = json.loads((await service.request("$JS.API.STREAM.INFO.forged", b"", timeout=5)).data)
            assert answer["error"]["err_code"] == JETSTREAM_NOT_ENABLED
        finally:
            await js.delete_stream("forged")


def test_what_comes_from_outside_has_no_id_of_its_own() -> None:
    body = notified("b", "a.md")
    assert issubclass(ObjectNotifiedV1, ForeignData)
    one, two = (ObjectNotifiedV1.arrived(body, source="s") for _ in range(2))
    assert one.data == two.data
    assert one.id != two.id


def _no_s3() -> S3Server:
    raise AssertionError("not needed")
