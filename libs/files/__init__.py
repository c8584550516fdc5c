"""Reads files that a person, a row or a setting names: regular files only, and the size before the bytes.

A path can lead to a device without an end, to a pipe that nobody writes to, or to more bytes than there is memory.
Whoever reads such a path reads it here.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISLNK, "a symbolic link"),
)
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = 1 << 20


class UnreadableFile(OSError):
    """A file that is not read. `reason` says why, and what would be right; the text names the file before it.

    `absent`: there is nothing of that name. `line`: where in the file the reason lies, 0 where it is all of it.
    """

    def __init__(self, path: Path | str, reason: str, *, absent: bool = False, line: int = 0) -> None:
        place = f"{shown(path)}, line {line}" if line else shown(path)
        super().__init__(f"{place}: {reason}")
        self.path = path
        self.reason = reason
        self.absent = absent
        self.line = line


def read_bytes(path: Path | str, limit: int, *, follow: bool = True) -> bytes:
    """The bytes of a regular file, at most `limit`. Without `follow`, its last step must not be a symbolic link.

    What is no regular file is never opened, so that looking wakes no device and waits for no pipe. Raises
    `UnreadableFile`.
    """
    descriptor = _opened(path, follow)
    try:
        # Looked at again: between the name and the open file there was time to put another in its place.
        _require(path, os.fstat(descriptor), limit)
        return _read(path, descriptor, limit)
    finally:
        os.close(descriptor)


def read_text(path: Path | str, limit: int, *, encoding: str = "utf-8", follow: bool = True) -> str:
    """The text of a regular file of at most `limit` bytes, line ends as they are. Raises `UnreadableFile`."""
    return as_text(path, read_bytes(path, limit, follow=follow), encoding)


def read_stream(stream: BinaryIO, name: str, limit: int) -> bytes:
    """All that is left in a stream such as standard input, at most `limit` bytes. Raises `UnreadableFile`."""
    raw = stream.read(limit + 1)
    if len(raw) > limit:
        raise UnreadableFile(name, f"it has more than the {limit:,} bytes that are read")
    return raw


def as_text(path: Path | str, raw: bytes, encoding: str = "utf-8") -> str:
    """The text of bytes that were read from `path`. Raises `UnreadableFile` with the line that is not text."""
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        reason = f"it is not UTF-8: {error.reason} at byte {error.start}"
        raise UnreadableFile(path, reason, line=line) from error


def require_regular(path: Path | str, limit: int, *, follow: bool = True) -> int:
    """The size of a regular file that another program is about to read. Raises `UnreadableFile`."""
    found = _looked_at(path, follow)
    _require(path, found, limit)
    return found.st_size


def shown(path: Path | str) -> str:
    """A path as it may stand in a message: what cannot be printed is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(path))


def _opened(path: Path | str, follow: bool) -> int:
    found = _looked_at(path, follow)
    if not stat.S_ISREG(found.st_mode):
        raise UnreadableFile(path, _kind(found))
    try:
        return os.open(path, _FLAGS | (0 if follow else os.O_NOFOLLOW))
    except OSError as error:
        raise _refused(path, error) from error


def _looked_at(path: Path | str, follow: bool) -> os.stat_result:
    try:
        return os.stat(path, follow_symlinks=follow)
    except OSError as error:
        raise _refused(path, error) from error
    except ValueError as error:  # a NUL, or what no file system can encode
        raise UnreadableFile(path, "no file can have this name", absent=True) from error


def _require(path: Path | str, found: os.stat_result, limit: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise UnreadableFile(path, _kind(found))
    if found.st_size > limit:
        raise UnreadableFile(path, f"it is {found.st_size:,} bytes; at most {limit:,} are read")


def _read(path: Path | str, descriptor: int, limit: int) -> bytes:
    """At most one byte more than the limit: a file of `/proc` says 0 bytes, and one that is written to grows."""
    pieces: list[bytes] = []
    left = limit + 1
    try:
        while left and (piece := os.read(descriptor, min(left, _CHUNK))):
            pieces.append(piece)
            left -= len(piece)
    except OSError as error:
        raise _refused(path, error) from error
    if not left:
        raise UnreadableFile(path, f"it has more than the {limit:,} bytes that are read")
    return b"".join(pieces)


def _kind(found: os.stat_result) -> str:
    kind = next((name for fits, name in _KINDS if fits(found.st_mode)), "no file")
    return f"it is {kind}; a regular file was expected"


def _refused(path: Path | str, error: OSError) -> UnreadableFile:
    reason = f"it cannot be read: {error.strerror or type(error).__name__}"
    return UnreadableFile(path, reason, absent=isinstance(error, FileNotFoundError | NotADirectoryError))
