"""Child processes that die with us, and what is left of those of a process that was killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import psutil

from libs.embedded.account import Account
from libs.embedded.folder import Record

LAUNCHER = Path(__file__).with_name("launch.py")
PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")
POLL_S = 0.02

_Request = tuple["Future[subprocess.Popen[bytes]]", list[str], dict[str, Any]]


class _Spawner:
    """One thread that starts all children and lives as long as this process.

    Linux sends the parent-death signal when the *thread* that forked ends, and a thread of an event loop's
    executor ends with its loop.
    """

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="embedded-spawner", daemon=True).start()

    def popen(self, command: list[str], options: dict[str, Any]) -> subprocess.Popen[bytes]:
        future: Future[subprocess.Popen[bytes]] = Future()
        self._requests.put((future, command, options))
        return future.result()

    def _serve(self) -> None:
        while True:
            future, command, options = self._requests.get()
            try:
                child = subprocess.Popen(command, **options)  # noqa: S603 - a list, and no shell
                future.set_result(cast("subprocess.Popen[bytes]", child))
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                future.set_exception(error)


_spawner: _Spawner | None = None
_spawner_lock = threading.Lock()


def _the_spawner() -> _Spawner:
    global _spawner
    with _spawner_lock:
        if _spawner is None or _spawner.owner != os.getpid():  # threads do not survive a fork
            _spawner = _Spawner()
        return _spawner


def spawn(
    command: Sequence[str | Path],
    *,
    log: Path | None,
    cwd: Path,
    death_signal: signal.Signals,
    account: Account | None = None,
    environment: Mapping[str, str] | None = None,
    keep_open: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start `command`; it gets `death_signal` when this process ends. It inherits the descriptors `keep_open`.

    Its output is appended to `log`, or with None can be read from the returned process's `stdout`.

    It sees a clean environment (no `PG*`, no keys of ours) plus `environment`, and is in its own session, so that
    Ctrl-C in a terminal reaches us only and we decide in which order things stop.
    """
    who = account or Account(-1, -1)
    wrapper = [
        sys.executable,
        "-I",
        "-S",
        str(LAUNCHER),
        str(os.getpid()),
        str(int(death_signal)),
    ]
    wrapper += [str(who.uid), str(who.gid), str(who.capability)]
    passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    with contextlib.ExitStack() as closing:
        output: int = subprocess.PIPE
        if log is not None:
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            closing.callback(os.close, output)
        options = {
            "stdin": subprocess.DEVNULL,
            "stdout": output,
            "stderr": subprocess.STDOUT,
            "cwd": cwd,
            "env": {**passed_on, **(environment or {})},
            "start_new_session": True,
            "pass_fds": tuple(keep_open),
        }
        return _the_spawner().popen([*wrapper, *(str(word) for word in command)], options)


async def output_of(process: subprocess.Popen[bytes], timeout: float) -> str:
    """Wait for a process that was started without a log, at most `timeout` seconds; what it printed.

    However this ends, the process has ended too.
    """
    try:
        output, _ = await asyncio.to_thread(process.communicate, timeout=timeout)
    finally:
        stop_now(process, signal.SIGTERM, 5)
    return output.decode("utf-8", errors="replace").strip()


async def ended(process: subprocess.Popen[bytes], timeout: float) -> bool:
    """Wait up to `timeout` seconds for `process` to end; whether it did."""
    try:
        await asyncio.to_thread(process.wait, timeout)
    except subprocess.TimeoutExpired:
        return False
    return True


async def stop(process: subprocess.Popen[bytes], ladder: Sequence[tuple[signal.Signals, float]]) -> None:
    """Send each signal of `ladder` in turn, giving its seconds to end, and kill at last."""
    for number, patience in ladder:
        process.send_signal(number)
        if await ended(process, patience):
            return
    process.kill()
    await ended(process, 10)


def stop_now(process: subprocess.Popen[bytes], number: signal.Signals, patience: float) -> None:
    """The same without an event loop: for an interpreter that is ending and for a start that failed."""
    if process.poll() is None:
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    if process.poll() is None:
        process.kill()
        process.wait()


def record_of(port: int, pid: int) -> Record:
    """What to write down about our child."""
    try:
        return Record(port, pid, psutil.Process(pid).create_time())
    except psutil.Error:  # it is gone already; whoever waits for it will say why
        return Record(port, pid, 0.0)


def survivor(record: Record | None) -> psutil.Process | None:
    """The recorded process if it still runs, and not another program that got its pid."""
    if record is None:
        return None
    try:
        process = psutil.Process(record.pid)
        same = process.create_time() == record.created and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return None
    return process if same else None


def running_in(folder: Path) -> list[psutil.Process]:
    """Processes whose working folder is `folder`: a Postgres server and its workers, in its data folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.cwd() == str(folder):
                found.append(process)
    return found


async def finish(process: psutil.Process, number: signal.Signals, patience: float) -> None:
    """Stop a server whose owner was killed. Usually it is ending already, for it got the death signal."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
        deadline = time.monotonic() + patience
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline:
                process.kill()
            await asyncio.sleep(POLL_S)


class Log:
    """The log file of a server; what it wrote since `mark()` can be quoted."""

    KEEP = 10_000_000

    def __init__(self, path: Path) -> None:
        self.path = path
        self._from = 0

    def mark(self) -> None:
        """A new start begins here; a log of more than 10 MB is put aside first (one is kept)."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size > self.KEEP:
            self.path.replace(self.path.with_suffix(".log.1"))
            size = 0
        self._from = size

    def keep_small(self) -> None:
        """Put a log of more than 10 MB aside while its process writes on; a line or two may be lost in between.

        Only for a log that is opened for appending, as those of `spawn` are: it goes on at its new end.
        """
        with contextlib.suppress(OSError):
            if self.path.stat().st_size > self.KEEP:
                self._copy_aside()
                os.truncate(self.path, 0)
                self._from = 0

    def _copy_aside(self) -> None:
        """As far as there is room for it: on a full disk the log is emptied all the same."""
        aside = self.path.with_suffix(".log.1")
        aside.unlink(missing_ok=True)
        with contextlib.suppress(OSError), self.path.open("rb") as log:
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as copy:
                shutil.copyfileobj(log, copy)

    def text(self) -> str:
        """All that was written since the mark, at most the last 64 kB."""
        if not self.path.exists():
            return ""
        with self.path.open("rb") as stream:
            end = stream.seek(0, os.SEEK_END)
            stream.seek(max(self._from, end - 65_536))
            return stream.read().decode("utf-8", errors="replace")

    def tail(self, lines: int = 12) -> str:
        """The last lines since the mark, indented for an error message."""
        return "\n".join(f"  {line}" for line in self.text().splitlines()[-lines:])

    def says(self, phrase: str) -> bool:
        """Whether it wrote `phrase`, in whatever case."""
        return phrase.lower() in self.text().lower()
