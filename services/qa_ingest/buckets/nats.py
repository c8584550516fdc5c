"""A bucket of the NATS object store, over a connection of its own: the account of a service has no JetStream.

nats-py's own reading waits for ever for what is damaged, and takes as much as comes; here both have limits.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import nats
from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.js.api import DeliverPolicy, ObjectStoreConfig, StorageType
from nats.js.client import JetStreamContext
from nats.js.errors import BucketNotFoundError, NotFoundError
from nats.js.object_store import ObjectStore
from pydantic import ByteSize, Field, StringConstraints, model_validator

from libs.files import read_text
from libs.service_kit import logging
from services.qa_ingest.buckets.base import (
    MAX_OBJECT_BYTES,
    MAX_OBJECTS,
    Away,
    BucketKind,
    BucketOptions,
    Listed,
    OwnBus,
    Unreadable,
    is_key,
    is_source,
    too_large,
)

log = logging.get(__name__)
T = TypeVar("T")
DEFAULT_SIZE = ByteSize(1024**3)
MAX_PASSWORD_BYTES = 10_000
CHUNK_WAIT_S = 3.0
"""Longer than any server takes for the next piece of an object: it was replaced meanwhile, or is damaged."""
TRIES = 3
IDLE_S = 60.0


class NatsOptions(BucketOptions):
    """Which object store. Without `server` it is one of our own bus, in the account for buckets, and made if need be.

    With `server`, who may read it is in `credentials_file` (as NATS writes them), or `user` and `password_file`.
    """

    object_store: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,100}$")]
    server: Annotated[str, StringConstraints(pattern=r"^(nats|tls|ws|wss)://[^@]+$", max_length=500)] | None = None
    credentials_file: Path | None = None
    user: str | None = Field(default=None, max_length=200)
    password_file: Path | None = None
    size: ByteSize = Field(default=DEFAULT_SIZE, gt=0, description="of one that is made here: at most so much")
    timeout_s: float = Field(default=20.0, gt=0, le=600, description="for one object, or one listing")

    @model_validator(mode="after")
    def _credentials_are_for_a_server(self) -> NatsOptions:
        if self.server is None and (self.credentials_file or self.user or self.password_file):
            raise ValueError("credentials are for a `server`; our own bus needs none here")
        if (self.user is None) != (self.password_file is None):
            raise ValueError("`user` and `password_file` go together")
        return self


@dataclass(frozen=True, slots=True)
class Info:
    """What the store says about an object. It is the words of whoever put it there."""

    key: str
    nuid: str
    size: int
    digest: str
    deleted: bool
    is_link: bool


class NatsBucket:
    """See `Bucket`. An object's version is the id that each putting gives its pieces."""

    def __init__(self, name: str, options: NatsOptions, bus: OwnBus) -> None:
        self.name = name
        self._options = options
        self._bus = bus
        self._store_name = options.object_store
        self._client: Client | None = None
        self._connecting = asyncio.Lock()

    async def list(self) -> AsyncIterator[Listed]:
        """See `Bucket`."""
        for info in await self._ask(self._infos):
            if not info.deleted and is_source(info.key):
                yield Listed(info.key, f"{info.nuid}-{info.digest}"[:200], info.size)

    async def read(self, key: str) -> bytes | None:
        return await self._ask(lambda js: self._read(js, key))

    async def write(self, key: str, content: bytes) -> None:
        if not is_key(key):
            raise Unreadable("bad_key", "a key is printable text")
        await self._ask(lambda js: self._store(js).put(key, content))

    async def delete(self, key: str) -> None:
        async def gone(js: JetStreamContext) -> None:
            try:
                await self._store(js).delete(key)
            except NotFoundError:
                pass

        await self._ask(gone)

    @asynccontextmanager
    async def changes(self) -> AsyncIterator[AsyncIterator[str]]:
        """See `Bucket`. Ends when nothing was told for a minute, so that whoever listens asks anew."""
        js = await self._ask(_itself)
        subscription = await self._ask(lambda _: self._subscribe(js, "M.>", DeliverPolicy.NEW))
        try:
            yield self._told(subscription)
        finally:
            await _unsubscribe(subscription)

    def meant(self, store: str, key: str) -> bool:
        """The store tells by itself, see `changes`."""
        return False

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    # --- reading ----------------------------------------------------------------------------------------------

    async def _infos(self, js: JetStreamContext) -> Sequence[Info]:
        if await self._last(js, "M.>") is None:
            return ()
        found = []
        subscription = await self._subscribe(js, "M.>", DeliverPolicy.LAST_PER_SUBJECT)
        try:
            while True:
                message = await subscription.next_msg(timeout=CHUNK_WAIT_S)
                info = _info(message.subject, message.data)
                if info is not None:
                    found.append(info)
                if len(found) > MAX_OBJECTS:
                    raise Away(f"it holds more than {MAX_OBJECTS:,} objects")
                if message.metadata.num_pending == 0:
                    return found
        finally:
            await _unsubscribe(subscription)

    async def _read(self, js: JetStreamContext, key: str) -> bytes | None:
        name = base64.urlsafe_b64encode(key.encode()).decode()
        for _ in range(TRIES):
            info = await self._last(js, f"M.{name}")
            if info is None or info.deleted:
                return None
            if info.is_link:
                raise Unreadable("link", "it is a link to another object: bind the bucket that the object is in")
            if info.size > MAX_OBJECT_BYTES:
                raise too_large(info.size)
            content = await self._pieces(js, info) if info.size else b""
            if len(content) == info.size and _digest(content) == info.digest:
                return content
            # Replaced while it was read: what is there now is asked for anew.
        raise Unreadable("damaged", "its pieces are not what its description says: put it there again")

    async def _pieces(self, js: JetStreamContext, info: Info) -> bytes:
        content = bytearray()
        subscription = await self._subscribe(js, f"C.{info.nuid}", DeliverPolicy.ALL)
        try:
            while len(content) < info.size:
                message = await subscription.next_msg(timeout=CHUNK_WAIT_S)
                content += message.data
                if message.metadata.num_pending == 0:
                    break
        except nats.errors.TimeoutError:
            pass
        finally:
            await _unsubscribe(subscription)
        return bytes(content)

    async def _told(self, subscription: Subscription) -> AsyncIterator[str]:
        while True:
            try:
                message = await subscription.next_msg(timeout=IDLE_S)
            except (NatsError, OSError):
                return
            info = _info(message.subject, message.data)
            if info is not None and is_source(info.key):
                yield info.key

    async def _last(self, js: JetStreamContext, subject: str) -> Info | None:
        try:
            message = await js.get_last_msg(f"OBJ_{self._store_name}", f"$O.{self._store_name}.{subject}")
        except NotFoundError:
            return None
        return _info(message.subject or "", message.data or b"")

    async def _subscribe(self, js: JetStreamContext, subject: str, policy: DeliverPolicy) -> Subscription:
        return await js.subscribe(f"$O.{self._store_name}.{subject}", ordered_consumer=True, deliver_policy=policy)

    def _store(self, js: JetStreamContext) -> ObjectStore:
        return ObjectStore(self._store_name, f"OBJ_{self._store_name}", js)

    # --- the connection ---------------------------------------------------------------------------------------

    async def _ask(self, call: Callable[[JetStreamContext], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._options.timeout_s):
                return await call((await self._connected()).jetstream(timeout=5))
        except TimeoutError as error:
            raise Away("no answer in time") from error
        except (NatsError, OSError) as error:
            raise Away(type(error).__name__) from error

    async def _connected(self) -> Client:
        async with self._connecting:
            if self._client is None or self._client.is_closed:
                client = await nats.connect(
                    **self._address(),
                    name=f"burnish/qa_ingest/{self.name}",
                    allow_reconnect=True,
                    max_reconnect_attempts=-1,
                    connect_timeout=5,
                    error_cb=self._on_error,
                )
                try:
                    await self._require(client)
                except BaseException:
                    await client.close()
                    raise
                self._client = client
        return self._client

    def _address(self) -> dict[str, Any]:
        told = self._options
        if told.server is None:
            password = self._bus.password.get_secret_value()
            return {"servers": self._bus.url, "user": self._bus.user, "password": password}
        found: dict[str, Any] = {"servers": told.server}
        if told.credentials_file is not None:
            found["user_credentials"] = str(told.credentials_file)
        if told.user is not None and told.password_file is not None:
            found |= {"user": told.user, "password": read_text(told.password_file, MAX_PASSWORD_BYTES).strip()}
        return found

    async def _require(self, client: Client) -> None:
        js = client.jetstream(timeout=5)
        try:
            await js.object_store(self._store_name)
        except BucketNotFoundError as error:
            if self._options.server is not None:
                raise Away("there is no object store of this name") from error
            await js.create_object_store(
                self._store_name, config=ObjectStoreConfig(max_bytes=int(self._options.size), storage=StorageType.FILE)
            )

    async def _on_error(self, error: Exception) -> None:
        log.debug("qa.bucket.connection", bucket=self.name, error=type(error).__name__)


class Nats(BucketKind[NatsOptions]):
    """`kind: nats`."""

    options_model = NatsOptions
    look_every_s = 30.0

    def open(self, name: str, options: NatsOptions, bus: OwnBus) -> NatsBucket:
        return NatsBucket(name, options, bus)


NATS = Nats()


def _info(subject: str, body: bytes) -> Info | None:
    """A description of an object; None for what is none. The name is that of the subject, which the server holds to."""
    try:
        key = base64.urlsafe_b64decode(subject.rsplit(".", 1)[-1]).decode()
        told = json.loads(body)
        return Info(
            key=key,
            nuid=_token(told.get("nuid", "")),
            size=int(told.get("size", 0)),
            digest=str(told.get("digest", "")),
            deleted=bool(told.get("deleted", False)),
            is_link=bool((told.get("options") or {}).get("link")),
        )
    except (binascii.Error, ValueError, TypeError, AttributeError, RecursionError):
        return None


def _token(text: Any) -> str:
    """A piece of a subject, so that nothing else is subscribed to."""
    if not isinstance(text, str) or not (text.isascii() and text.isalnum()) or len(text) > 100:
        raise ValueError("not an id")
    return text


def _digest(content: bytes) -> str:
    return f"SHA-256={base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()}"


async def _itself(js: JetStreamContext) -> JetStreamContext:
    return js


async def _unsubscribe(subscription: Subscription) -> None:
    try:
        await subscription.unsubscribe()
    except (NatsError, OSError):
        pass
