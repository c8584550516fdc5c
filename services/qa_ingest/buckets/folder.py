"""A bucket that is a folder on this machine: what is dropped there is read."""

from __future__ import annotations

import asyncio
import os
import secrets
import stat
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from libs.files import UnreadableFile, read_bytes
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

MAX_DEPTH = 32
EMPTY_S = 30.0
"""A shell makes the file before the program whose output it gets has begun to write."""
BATCH = 500


class FolderOptions(BucketOptions):
    """Where it is."""

    folder: Path


class FolderBucket:
    """Regular files below a folder. Names that begin with a dot, links and everything that is no file are passed by.

    A file that changed less than `settle_s` seconds ago may be half written.
    """

    def __init__(self, name: str, folder: Path, *, settle_s: float = 1.0) -> None:
        self.name = name
        self._folder = folder
        self._settle_s = settle_s

    async def list(self) -> AsyncIterator[Listed]:
        """See `Bucket`."""
        walk = self._walk()
        while batch := await asyncio.to_thread(_take, walk, BATCH):
            for listed in batch:
                yield listed

    async def read(self, key: str) -> bytes | None:
        path = self._path(key)
        try:
            return await asyncio.to_thread(read_bytes, path, MAX_OBJECT_BYTES, follow=False)
        except UnreadableFile as error:
            if not error.absent:
                raise _unreadable(path, error) from error
            if not self._folder.is_dir():
                raise Away("the folder is not there") from error
            return None

    async def write(self, key: str, content: bytes) -> None:
        path = self._path(key)
        await asyncio.to_thread(_written, path, content)

    async def delete(self, key: str) -> None:
        try:
            await asyncio.to_thread(self._path(key).unlink, missing_ok=True)
        except OSError as error:
            raise Away(_told(error)) from error

    def changes(self) -> None:
        """A folder tells nothing: it is listed often."""

    def meant(self, store: str, key: str) -> bool:
        """No store says events about a folder."""
        return False

    async def close(self) -> None:
        """Nothing is open."""

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if not is_key(key) or any(part.startswith(".") or not part for part in parts):
            raise Unreadable("bad_key", "a key leads to a file below the folder, by names without a dot before them")
        path = self._folder.joinpath(*parts)
        if path.parent.resolve() != self._folder.resolve().joinpath(*parts[:-1]):
            raise Unreadable("bad_key", "a folder of the key is a link")
        return path

    def _walk(self) -> Iterator[Listed]:
        waiting = [(self._folder, "", 0)]
        found = 0
        while waiting:
            folder, prefix, depth = waiting.pop()
            for entry in _entries(folder, required=depth == 0):
                key = f"{prefix}{entry.name}"
                told = _looked_at(entry)
                if told is None or not is_key(key):
                    continue
                if stat.S_ISDIR(told.st_mode) and depth < MAX_DEPTH:
                    waiting.append((Path(entry.path), f"{key}/", depth + 1))
                elif stat.S_ISREG(told.st_mode) and is_source(key):
                    found += 1
                    if found > MAX_OBJECTS:
                        raise Away(f"it holds more than {MAX_OBJECTS:,} files")
                    version = f"{told.st_mtime_ns}-{told.st_size}-{told.st_ino}"
                    # A time ahead of the clock is no reason to wait for ever.
                    age = abs(time.time() - told.st_mtime)
                    yield Listed(key, version, told.st_size, age >= (self._settle_s if told.st_size else EMPTY_S))


class Folder(BucketKind[FolderOptions]):
    """`kind: folder`."""

    options_model = FolderOptions
    look_every_s = 2.0

    def open(self, name: str, options: FolderOptions, bus: OwnBus) -> FolderBucket:
        return FolderBucket(name, options.folder)


FOLDER = Folder()


def _entries(folder: Path, *, required: bool) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda each: each.name)
    except OSError as error:
        if required:
            raise Away(_told(error)) from error
        return []


def _looked_at(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None


def _unreadable(path: Path, error: UnreadableFile) -> Unreadable:
    try:
        size = path.lstat().st_size
    except OSError:
        size = 0
    return too_large(size) if size > MAX_OBJECT_BYTES else Unreadable("unreadable", error.reason)


def _written(path: Path, content: bytes) -> None:
    """The whole file or none of it: whoever lists meanwhile sees the one before."""
    passing = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(passing, "xb") as file:
            file.write(content)
        os.replace(passing, path)
    except OSError as error:
        passing.unlink(missing_ok=True)
        raise Away(_told(error)) from error


def _told(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _take(walk: Iterator[Listed], count: int) -> list[Listed]:
    return [listed for listed, _ in zip(walk, range(count), strict=False)]
