"""A bucket of an S3-compatible store: AWS, MinIO, Ceph, SeaweedFS and others.

botocore waits in threads of the bucket's own, so that a store that hangs keeps nobody else's threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field, HttpUrl, StringConstraints

from libs.files import UnreadableFile, require_regular
from services.qa_ingest.buckets.base import (
    MAX_OBJECT_BYTES,
    MAX_OBJECTS,
    Away,
    BucketKind,
    BucketOptions,
    Listed,
    OwnBus,
    Unreadable,
    is_source,
    too_large,
)

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

T = TypeVar("T")
PAGE = 1_000
THREADS = 4
GONE = frozenset({"NoSuchKey", "404"})
OF_THE_OBJECT = {
    "InvalidObjectState": Unreadable("archived", "it is in an archive of the store: restore it there"),
    "KeyTooLongError": Unreadable("bad_key", "the store takes no key of this length"),
}


class S3Options(BucketOptions):
    """Which bucket of which store. Who may read it is never written here.

    Credentials are those of the environment (`AWS_ACCESS_KEY_ID` and so on, a role of the machine), or of
    `credentials_file`, in the format of `~/.aws/credentials`.
    """

    s3_bucket: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{1,254}$")]
    endpoint: HttpUrl | None = Field(default=None, description="where the store is; AWS otherwise")
    region: str = Field(default="us-east-1", max_length=100)
    prefix: str = Field(default="", max_length=500, description="only objects whose keys begin so")
    credentials_file: Path | None = None
    profile: str = Field(default="default", max_length=100)
    timeout_s: float = Field(default=20.0, gt=0, le=600, description="for one request, with all that it reads")


class S3Bucket:
    """See `Bucket`. An object's version is its ETag with size and time: the same content put again is another."""

    def __init__(self, name: str, options: S3Options) -> None:
        self.name = name
        self._options = options
        self._bucket = options.s3_bucket
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=f"s3-{name}")
        self._made: Any = None

    async def list(self) -> AsyncIterator[Listed]:
        """See `Bucket`."""
        more: dict[str, Any] = {}
        found = 0
        while True:
            page = await self._ask(partial(self._page, more))
            for one in page.get("Contents", ()):
                if is_source(one["Key"]):
                    found += 1
                    version = f"{one.get('ETag', '')}-{one['Size']}-{one['LastModified'].isoformat()}"
                    yield Listed(one["Key"], version[:200], one["Size"])
            if found > MAX_OBJECTS:
                raise Away(f"it holds more than {MAX_OBJECTS:,} objects")
            if not page.get("IsTruncated") or not page.get("NextContinuationToken"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    async def read(self, key: str) -> bytes | None:
        return await self._ask(lambda: self._read(key))

    async def write(self, key: str, content: bytes) -> None:
        await self._ask(lambda: self._client().put_object(Bucket=self._bucket, Key=key, Body=content))

    async def delete(self, key: str) -> None:
        await self._ask(lambda: self._client().delete_object(Bucket=self._bucket, Key=key))

    def changes(self) -> None:
        """S3 tells by events that its store sends to the bus; see `handlers.py`."""

    def meant(self, store: str, key: str) -> bool:
        return store == self._bucket and key.startswith(self._options.prefix)

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    # --- in a thread ------------------------------------------------------------------------------------------

    def _read(self, key: str) -> bytes | None:
        from botocore.exceptions import ClientError

        try:
            answer = self._client().get_object(Bucket=self._bucket, Key=key)
        except ClientError as error:
            if _code(error) in GONE:
                return None
            raise
        with answer["Body"] as body:
            size = int(answer.get("ContentLength", MAX_OBJECT_BYTES))
            if size > MAX_OBJECT_BYTES:
                raise too_large(size)
            content: bytes = body.read(MAX_OBJECT_BYTES + 1)
        if len(content) > MAX_OBJECT_BYTES:
            raise too_large(len(content))
        return content

    def _page(self, more: dict[str, Any]) -> Any:
        # botocore asks for encoded keys by itself and decodes them, but only where nobody else asks for it.
        return self._client().list_objects_v2(Bucket=self._bucket, Prefix=self._options.prefix, MaxKeys=PAGE, **more)

    def _client(self) -> Any:
        """Made at the first use, in a thread: it reads files and may ask who this machine is."""
        if self._made is None:
            self._made = _client(self._options)
        return self._made

    async def _ask(self, call: Callable[[], T]) -> T:
        from botocore.exceptions import BotoCoreError, ClientError

        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._options.timeout_s):
                return await loop.run_in_executor(self._threads, call)
        except TimeoutError as error:
            raise Away(f"no answer within {self._options.timeout_s:g} s") from error
        except ClientError as error:
            code = _code(error)
            if code in OF_THE_OBJECT:
                raise OF_THE_OBJECT[code] from error
            raise Away(f"the store refuses: {code}") from error
        except (BotoCoreError, UnreadableFile, RuntimeError) as error:
            # What botocore says holds addresses and names of files; its class says what is wrong.
            raise Away(type(error).__name__) from error


class S3(BucketKind[S3Options]):
    """`kind: s3`."""

    options_model = S3Options
    look_every_s = 60.0

    def open(self, name: str, options: S3Options, bus: OwnBus) -> S3Bucket:
        return S3Bucket(name, options)


S3_BUCKETS = S3()
MAX_CREDENTIALS_BYTES = 100_000


def _client(options: S3Options) -> Any:
    from botocore.config import Config
    from botocore.session import Session

    session = Session(profile=options.profile if options.credentials_file else None)
    if options.credentials_file is not None:
        require_regular(options.credentials_file, MAX_CREDENTIALS_BYTES)
        session.set_config_variable("credentials_file", str(options.credentials_file))
    return session.create_client(
        "s3",
        region_name=options.region,
        endpoint_url=str(options.endpoint) if options.endpoint else None,
        config=Config(
            connect_timeout=min(5.0, options.timeout_s),
            read_timeout=options.timeout_s,
            retries={"total_max_attempts": 2, "mode": "standard"},
            max_pool_connections=THREADS,
            # Stores of today know the virtual-host style only where their DNS was made for it.
            s3={"addressing_style": "path"} if options.endpoint else {},
            # Not every store knows the checksums that AWS began to send by itself.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


def _code(error: ClientError) -> str:
    """What the store calls it, cut and printable."""
    told = str(error.response.get("Error", {}).get("Code", "unknown"))
    return "".join(c for c in told if c.isalnum())[:60]
