"""The kinds of buckets as a test uses them: put and delete as an application does, and the bucket that we read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import nats
from nats.js.api import ObjectStoreConfig
from nats.js.object_store import ObjectStore
from pydantic import SecretStr

from libs.service_kit.testing.servers import Servers
from services.qa_ingest.buckets.base import Bucket, OwnBus
from services.qa_ingest.buckets.folder import FolderBucket
from services.qa_ingest.buckets.nats import NatsBucket, NatsOptions
from services.qa_ingest.buckets.s3 import S3Bucket, S3Options
from services.qa_ingest.tests.s3_server import S3Server

KINDS = ("folder", "nats", "s3")


class Store(Protocol):
    """Where objects are put."""

    kind: str
    options: dict[str, Any]
    """What a binding says of it."""

    def bucket(self, name: str = "b") -> Bucket:
        """As the library reads it."""
        ...

    async def put(self, key: str, content: bytes) -> None: ...

    async def delete(self, key: str) -> None: ...

    async def get(self, key: str) -> bytes: ...


class FolderStore:
    kind = "folder"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.options: dict[str, Any] = {"folder": str(folder)}

    def bucket(self, name: str = "b") -> Bucket:
        return FolderBucket(name, self.folder, settle_s=0.0)

    async def put(self, key: str, content: bytes) -> None:
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    async def delete(self, key: str) -> None:
        (self.folder / key).unlink()

    async def get(self, key: str) -> bytes:
        return (self.folder / key).read_bytes()


class NatsStore:
    kind = "nats"

    def __init__(self, store: ObjectStore, bus: OwnBus, name: str) -> None:
        self.store = store
        self._bus = bus
        self.options: dict[str, Any] = {"object_store": name, "timeout_s": 10.0}

    def bucket(self, name: str = "b") -> Bucket:
        return NatsBucket(name, NatsOptions.model_validate(self.options), self._bus)

    async def put(self, key: str, content: bytes) -> None:
        await self.store.put(key, content)

    async def delete(self, key: str) -> None:
        await self.store.delete(key)

    async def get(self, key: str) -> bytes:
        return (await self.store.get(key)).data or b""


class S3Store:
    kind = "s3"

    def __init__(self, server: S3Server, bucket: str) -> None:
        self.client = server.client()
        self._name = bucket
        self.client.create_bucket(Bucket=bucket)
        self.options: dict[str, Any] = {
            "s3_bucket": bucket,
            "endpoint": server.endpoint,
            "credentials_file": str(server.credentials_file),
        }

    def bucket(self, name: str = "b") -> Bucket:
        return S3Bucket(name, S3Options.model_validate(self.options))

    async def put(self, key: str, content: bytes) -> None:
        await asyncio.to_thread(self.client.put_object, Bucket=self._name, Key=key, Body=content)

    async def delete(self, key: str) -> None:
        await asyncio.to_thread(self.client.delete_object, Bucket=self._name, Key=key)

    async def get(self, key: str) -> bytes:
        answer = await asyncio.to_thread(self.client.get_object, Bucket=self._name, Key=key)
        content: bytes = await asyncio.to_thread(answer["Body"].read)
        return content


@asynccontextmanager
async def store_of(kind: str, folder: Path, servers: Servers, s3: Callable[[], S3Server]) -> AsyncIterator[Store]:
    """An empty store of this kind."""
    name = f"test-{uuid4().hex[:12]}"
    if kind == "folder":
        yield FolderStore(folder / "bucket")
    elif kind == "s3":
        yield S3Store(s3(), name)
    else:
        bus = OwnBus(servers.nats_url, password=SecretStr(servers.nats_password("qa_buckets")))
        client = await nats.connect(bus.url, user=bus.user, password=bus.password.get_secret_value())
        js = client.jetstream()
        try:
            yield NatsStore(await js.create_object_store(name, config=ObjectStoreConfig()), bus, name)
        finally:
            await js.delete_object_store(name)
            await client.close()
