"""Runs the `git` binary in a folder of our own, so that nothing a repository's configuration names is ever obeyed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from services.registry.adapters.base import StorageError

LIMIT_S = 20.0
"""How long one command may take."""
END_LIMIT_S = 2.0
MAX_OUTPUT_BYTES = 64 << 20
MAX_MEMORY_BYTES = 2 << 30
_CHUNK = 1 << 16

# Command-line configuration outranks every file, so these hold whatever stands in one.
_CONFIG = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.splitIndex": "false",
    "core.attributesFile": "/dev/null",
    "core.pager": "cat",
    "core.quotePath": "false",
    "core.bigFileThreshold": "512m",
    "core.packedGitLimit": "512m",
    "core.packedGitWindowSize": "32m",
    "diff.suppressBlankEmpty": "false",
    "apply.whitespace": "nowarn",
    "apply.ignoreWhitespace": "no",
    "commit.gpgSign": "false",
    "merge.verifySignatures": "false",
    "log.showSignature": "false",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    "protocol.allow": "never",
    "protocol.ext.allow": "never",
    "core.filesRefLockTimeout": "5000",
    "gc.auto": "0",
    "maintenance.auto": "false",
    # Repositories may belong to somebody else; nothing that lies in them is obeyed.
    "safe.directory": "*",
}

# The caller's environment is not inherited: a GIT_DIR or GIT_INDEX_FILE in it would redirect everything.
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": ":",
    "GIT_PAGER": "cat",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": "/dev/null",
    "GIT_NO_LAZY_FETCH": "1",
    # An allow list that no transport is on: a partial clone's missing object is an error, not a fetch.
    "GIT_ALLOW_PROTOCOL": "none",
    "LC_ALL": "C",
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a commit is by."""

    name: str
    email: str

    def environment(self) -> dict[str, str]:
        """Author and committer variables."""
        return {
            "GIT_AUTHOR_NAME": self.name,
            "GIT_AUTHOR_EMAIL": self.email,
            "GIT_COMMITTER_NAME": self.name,
            "GIT_COMMITTER_EMAIL": self.email,
        }


BURNISH = Identity("Burnish", "burnish@localhost")


@dataclass(frozen=True, slots=True)
class Completed:
    """What a finished git command left behind."""

    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def line(self) -> str:
        """Standard output as one stripped line of text."""
        return self.stdout.decode("utf-8", "replace").strip()


async def run(
    folder: Path,
    *args: str,
    stdin: bytes | None = None,
    check: bool = True,
    limit_s: float = LIMIT_S,
    env: Mapping[str, str] | None = None,
) -> Completed:
    """Run `git ARGS` in `folder`; `limit_s` is its time limit, after which it and all that it started are gone.

    Raises `git_missing`, `git_timeout`, `git_failed` for an answer without an end, and with `check` also on a
    non-zero exit.
    """
    process = await _start(folder, args, env or {})
    try:
        async with asyncio.timeout(limit_s):
            done = await _communicate(process, stdin or b"", args[0])
    except TimeoutError:
        raise StorageError(
            "git_timeout", f"git {args[0]} did not finish within {limit_s:g} s.", "Is the disk slow or full?"
        ) from None
    finally:
        await _end(process)
    if check and done.returncode:
        raise failure(args[0], done)
    return done


@contextmanager
def scratch(objects: Path | None = None) -> Iterator[dict[str, str]]:
    """Environment with an index of its own, gone afterwards; the repository's index stays as it is.

    Given the repository's `objects` folder, new objects go to a temporary one too, so that a
    whole change can be computed without leaving a single byte behind.
    """
    with tempfile.TemporaryDirectory(prefix="burnish-git-") as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        if objects is not None:
            own = Path(folder, "objects")
            own.mkdir()
            env["GIT_OBJECT_DIRECTORY"] = str(own)
            env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = _quoted(objects)
        yield env


def failure(command: str, done: Completed) -> StorageError:
    """The error for a command that git refused, with git's own reason, cut short."""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    reason = next((line for line in lines if line.startswith(("fatal:", "error:"))), "no reason given")
    return StorageError("git_failed", f"git {command} failed ({done.returncode}): {reason[:200]}")


async def _start(folder: Path, args: tuple[str, ...], env: Mapping[str, str]) -> asyncio.subprocess.Process:
    options = chain.from_iterable(("-c", f"{key}={value}") for key, value in _CONFIG.items())
    try:
        process = await asyncio.create_subprocess_exec(
            "git",
            "--no-pager",
            *options,
            *args,
            cwd=folder,
            env=_environment(folder) | dict(env),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # A group of its own: whatever git starts ends with it.
            start_new_session=True,
        )
    except FileNotFoundError:
        raise _not_started(folder) from None
    except (OSError, ValueError) as error:
        raise StorageError("git_failed", f"git {args[0]} could not be started ({type(error).__name__}).") from error
    _bound_memory(process.pid)
    return process


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "SYSTEMROOT") if name in os.environ}
    # Without the ceiling, a folder that is no repository would pass for one inside its parent's.
    return kept | _ENVIRONMENT | {"GIT_CEILING_DIRECTORIES": str(folder.parent)}


def _bound_memory(pid: int) -> None:
    """What unpacks to more than there is memory ends git, not this process."""
    if hasattr(resource, "prlimit"):
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


async def _communicate(process: asyncio.subprocess.Process, stdin: bytes, command: str) -> Completed:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    _, stdout, stderr = await asyncio.gather(
        _feed(process.stdin, stdin), _read(process.stdout, command), _read(process.stderr, command)
    )
    return Completed(await process.wait(), stdout, stderr)


async def _feed(stream: asyncio.StreamWriter, raw: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stream.write(raw)
        await stream.drain()
    stream.close()


async def _read(stream: asyncio.StreamReader, command: str) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := await stream.read(_CHUNK):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_OUTPUT_BYTES:
            raise StorageError("git_failed", f"git {command} says more than {MAX_OUTPUT_BYTES:,} bytes.")
    return b"".join(pieces)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End it with all that it started. One that no signal reaches is not waited for, so that nobody hangs on it."""
    if not _has_ended(process):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    # A pipe that nobody reads on is never at its end, and asyncio waits for the end of the pipes too.
    process._transport.close()  # type: ignore[attr-defined]  # asyncio has no public way
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_LIMIT_S):
            await process.wait()


def _has_ended(process: asyncio.subprocess.Process) -> bool:
    """Whether it is gone, and nothing that it started holds a pipe of it either."""
    assert process.stdout is not None
    assert process.stderr is not None
    return process.returncode is not None and process.stdout.at_eof() and process.stderr.at_eof()


def _not_started(folder: Path) -> StorageError:
    if not folder.is_dir():
        return StorageError("repository_missing", f"There is no folder {folder}.")
    return StorageError("git_missing", "The git command was not found.", "Install git >= 2.31.")


def _quoted(path: Path) -> str:
    # The variable is a colon-separated list; a C-quoted entry may hold any character.
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
