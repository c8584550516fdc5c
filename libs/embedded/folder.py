"""The one folder of a server: made, checked, locked against a second process, with a record of what runs."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from libs.embedded.errors import EmbeddedError, FolderInUse, disk_full, explain
from libs.files import read_text

MAX_NOTE_BYTES = 65_536


@dataclass(frozen=True)
class Record:
    """What ran here last: the port to take again, and the process (with its start time, for pids return)."""

    port: int
    pid: int
    created: float


class ServerFolder:
    """A folder that at most one process at a time runs a server in.

    The lock is the kernel's and ends with its holder, so there is none to clean up after a crash.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path).expanduser().absolute()
        self._lock: int | None = None

    def open(self, needs: int) -> None:
        """Make the folder, check that it has `needs` bytes free and can be written, and lock it.

        Raises `FolderInUse`, or `EmbeddedError` for a disk that is full or a folder that is not ours.
        """
        self.require_space(needs)
        with self.explained(needs):
            self.path.mkdir(parents=True, exist_ok=True)
            self.path = self.path.resolve()
            if os.geteuid() == 0:
                self.path.chmod(0o711)  # whoever runs the server passes through; files guard themselves
            self._take_lock()
            self.write("writable", "")
            (self.path / "writable").unlink()

    def require_space(self, needs: int) -> None:
        """Raise when the disk has less than `needs` bytes, before anything is made on it."""
        with self.explained(needs):
            free = shutil.disk_usage(_nearest(self.path)).free
        if free < needs:
            raise disk_full(self.path, needs, free)

    def close(self) -> None:
        """Let others have the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextlib.contextmanager
    def explained(self, needs: int) -> Iterator[None]:
        """Whatever the operating system refuses inside becomes an `EmbeddedError`."""
        try:
            yield
        except OSError as error:
            raise explain(error, self.path, needs) from error

    def write(self, name: str, text: str) -> Path:
        """Write a file of mode 0600, whole or not at all."""
        target, fresh = self.path / name, self.path / f"{name}.new"
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            fresh.replace(target)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        return target

    @property
    def record(self) -> Record | None:
        """What the last process wrote down here, if it is readable."""
        try:
            return Record(**json.loads(read_text(self.path / "server.json", MAX_NOTE_BYTES)))
        except (OSError, ValueError, TypeError):
            return None

    @record.setter
    def record(self, record: Record) -> None:
        self.write("server.json", json.dumps(asdict(record)))

    def _take_lock(self) -> None:
        lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        if not stat.S_ISREG(os.fstat(lock).st_mode):
            os.close(lock)
            raise EmbeddedError(f"{self.path / 'lock'} is no regular file", "remove it")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 32).decode(errors="replace").strip()
            os.close(lock)
            raise self.in_use(holder) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        self._lock = lock

    def in_use(self, holder: int | str) -> EmbeddedError:
        """The error for a folder that process `holder` uses."""
        which = "this process" if str(holder) == str(os.getpid()) else f"process {holder or 'unknown'}"
        return FolderInUse(
            f"{self.path} is in use by {which}",
            f"stop {which}, or choose another folder for this one",
        )


def _nearest(path: Path) -> Path:
    return next(part for part in (path, *path.parents) if part.exists())
