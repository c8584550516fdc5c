"""What a bucket is: objects that can be listed, read and written. Whoever reads one reads it as it is now."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, SecretStr

MAX_OBJECT_BYTES = 50 * 1024 * 1024
MAX_OBJECTS = 200_000
MAX_KEY = 1_000
REPORT_SUFFIX = ".report.json"
"""What stands beside a source and says what became of it. Such a name is never a source."""


@dataclass(frozen=True, slots=True)
class Listed:
    """An object in a listing. `version` changes whenever its content may have.

    One that is not `settled` may still be written to: it is there, and read at a later listing.
    """

    key: str
    version: str
    size: int
    settled: bool = True


class Unreadable(Exception):
    """An object that cannot be read: a code, and what would be right. It may be there and readable later."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Away(Exception):
    """The bucket does not answer, or not as it should: this says nothing about what is in it."""


class Bucket(Protocol):
    """One bucket. Names are unique; keys use forward slashes. Every method raises `Away`, within the bucket's time."""

    name: str

    def list(self) -> AsyncIterator[Listed]:
        """Every object that is there now."""
        ...

    async def read(self, key: str) -> bytes | None:
        """The object's bytes, at most `MAX_OBJECT_BYTES`; None where it is gone. Raises `Unreadable`."""
        ...

    async def write(self, key: str, content: bytes) -> None:
        """Put an object, in place of what has this key. Raises `Unreadable` for a key that it cannot have."""
        ...

    async def delete(self, key: str) -> None:
        """Take an object away, if it is there."""
        ...

    def changes(self) -> AbstractAsyncContextManager[AsyncIterator[str]] | None:
        """Keys of objects that may have changed, as the bucket itself tells; None where it tells nothing."""
        ...

    def meant(self, store: str, key: str) -> bool:
        """Whether an event about this object of the bucket that its store calls `store` is about this bucket."""
        ...

    async def close(self) -> None:
        """Give back what was open."""
        ...


@dataclass(frozen=True, slots=True)
class OwnBus:
    """Our own NATS server, and who has object stores on it: never the service's own account."""

    url: str = "nats://127.0.0.1:4222"
    user: str = "qa_buckets"
    password: SecretStr = field(default_factory=lambda: SecretStr(""))


class BucketOptions(BaseModel):
    """What a kind of bucket takes in its binding, beside what every binding has. Another key is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid")


OptionsT = TypeVar("OptionsT", bound=BucketOptions)


class BucketKind(Generic[OptionsT]):
    """One kind of bucket, registered as `burnish.buckets` under the name that bindings give in `kind`."""

    options_model: type[OptionsT]
    look_every_s: ClassVar[float] = 30.0
    """How often it is listed where its binding says nothing: seldom where a listing costs, or where it tells itself."""

    def open(self, name: str, options: OptionsT, bus: OwnBus) -> Bucket:
        """The bucket of a binding. Connects at the first use."""
        raise NotImplementedError

    def opened(self, name: str, given: dict[str, Any], bus: OwnBus) -> Bucket:
        """The same with the options as they are written. Raises pydantic's `ValidationError`."""
        return self.open(name, self.options_model.model_validate(given), bus)


def is_key(key: str) -> bool:
    """Whether an object of this name can be followed: text that can be printed, of bounded length."""
    try:
        key.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return 0 < len(key) <= MAX_KEY and key.isprintable()


def is_source(key: str) -> bool:
    """Whether an object of this name is looked at: no report of our own, and no mere name of a folder."""
    return is_key(key) and not key.endswith(("/", REPORT_SUFFIX))


def too_large(size: int) -> Unreadable:
    """The refusal of an object before it is read."""
    return Unreadable("too_large", f"it is {size:,} bytes; at most {MAX_OBJECT_BYTES:,} are read")
