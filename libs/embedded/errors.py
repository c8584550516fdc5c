"""What can go wrong with an embedded server, said so that the reader knows what to do next."""

from __future__ import annotations

import errno
from pathlib import Path

from libs.hinted import HintedError


class EmbeddedError(HintedError):
    """An embedded server cannot be used: `message` says what is wrong, `hint` what would be right."""


class PortTaken(EmbeddedError):
    """Another program listens on the port."""


class FolderInUse(EmbeddedError):
    """Another process runs a server on the folder."""


def megabytes(size: int) -> str:
    """`size` bytes as whole megabytes, e.g. `200 MB`."""
    return f"{size // 1_000_000} MB"


def disk_full(folder: Path, needs: int, free: int | None = None) -> EmbeddedError:
    """The error for a disk that has not the `needs` bytes a server wants in `folder`."""
    left = "" if free is None else f" and {megabytes(free)} are free"
    return EmbeddedError(
        f"the disk of {folder} is full: the server needs {megabytes(needs)} there{left}",
        "free some space, or choose a folder on another disk",
    )


def explain(error: OSError, folder: Path, needs: int) -> EmbeddedError:
    """Turn what the operating system said about `folder` into an error with a way out."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(folder, needs)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return EmbeddedError(
            f"{error.filename or folder} cannot be written: {error.strerror}",
            f"make {folder} writable for this user, or choose another folder",
        )
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return EmbeddedError(f"{folder} cannot be a folder: {error.strerror}", "choose another folder")
    return EmbeddedError(f"{folder}: {error.strerror or error}")
