"""What a bucket is: objects that can be listed and read. Whoever reads one reads it as it is now."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

MAX_OBJECT_BYTES = 50 * 1024 * 1024
MAX_KEY = 1_000


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


class Bucket(Protocol):
    """One bucket. Names are unique; keys use forward slashes."""

    name: str

    def list(self) -> AsyncIterator[Listed]:
        """Every object that is there now."""
        ...

    async def read(self, key: str) -> bytes | None:
        """The object's bytes, at most `MAX_OBJECT_BYTES`; None where it is gone. Raises `Unreadable`."""
        ...
