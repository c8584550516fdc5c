"""A folder as a bucket: the embedded default. Dropping a file in it is putting an object."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from libs.files import UnreadableFile, read_bytes
from services.qa_ingest.buckets.base import MAX_KEY, MAX_OBJECT_BYTES, Listed, Unreadable

MAX_OBJECTS = 200_000
MAX_DEPTH = 32
BATCH = 500


class FolderBucket:
    """Regular files below a folder. Names that begin with a dot, links and everything that is no file are passed by.

    A file that changed less than `settle_s` seconds ago may be half written.
    """

    def __init__(self, name: str, folder: Path, *, settle_s: float = 1.0) -> None:
        self.name = name
        self._folder = folder
        self._settle_s = settle_s

    async def list(self) -> AsyncIterator[Listed]:
        """See `Bucket`. Raises OSError where the folder itself cannot be read."""
        walk = self._walk()
        while batch := await asyncio.to_thread(_take, walk, BATCH):
            for listed in batch:
                yield listed

    async def read(self, key: str) -> bytes | None:
        path = self._path(key)
        try:
            return await asyncio.to_thread(read_bytes, path, MAX_OBJECT_BYTES, follow=False)
        except UnreadableFile as error:
            if error.absent:
                return None
            raise Unreadable("unreadable", error.reason) from error

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if not key or any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise Unreadable("bad_key", "a key leads to a file below the folder")
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
                if told is None or len(key) > MAX_KEY or not _is_text(key):
                    continue
                if stat.S_ISDIR(told.st_mode) and depth < MAX_DEPTH:
                    waiting.append((Path(entry.path), f"{key}/", depth + 1))
                elif stat.S_ISREG(told.st_mode):
                    found += 1
                    if found > MAX_OBJECTS:
                        raise OSError(f"{self._folder} holds more than {MAX_OBJECTS:,} files")
                    version = f"{told.st_mtime_ns}-{told.st_size}-{told.st_ino}"
                    # A time ahead of the clock is no reason to wait for ever.
                    age = abs(time.time() - told.st_mtime)
                    yield Listed(key, version, told.st_size, age >= self._settle_s)


def _entries(folder: Path, *, required: bool) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda each: each.name)
    except OSError:
        if required:
            raise
        return []


def _looked_at(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None


def _is_text(key: str) -> bool:
    try:
        key.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return key.isprintable()


def _take(walk: Iterator[Listed], count: int) -> list[Listed]:
    return [listed for listed, _ in zip(walk, range(count), strict=False)]
