"""Runs the `git` binary so that nothing a repository's own configuration names is ever executed."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from services.registry.adapters.base import StorageError

# Command-line configuration outranks every file, so these hold whatever the repository says.
_CONFIG = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.splitIndex": "false",
    "core.attributesFile": "/dev/null",
    "core.pager": "cat",
    "core.quotePath": "false",
    "core.bigFileThreshold": "512m",
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
    repo: Path,
    *args: str,
    stdin: bytes | None = None,
    check: bool = True,
    limit_s: float = 30,
    env: Mapping[str, str] | None = None,
) -> Completed:
    """Run `git ARGS` with `repo` (absolute, resolved) as its root; `limit_s` is its time limit.

    Raises `git_missing`, `git_timeout`, and with `check` also `git_failed` on a non-zero exit.
    """
    process = await _start(repo, args, env or {})
    try:
        async with asyncio.timeout(limit_s):
            stdout, stderr = await process.communicate(stdin or b"")
    except TimeoutError:
        raise StorageError(
            "git_timeout", f"git {args[0]} did not finish within {limit_s:g} s.", "Is the disk slow or full?"
        ) from None
    finally:
        await _reap(process)
    done = Completed(process.returncode or 0, stdout, stderr)
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


async def _start(repo: Path, args: tuple[str, ...], env: Mapping[str, str]) -> asyncio.subprocess.Process:
    settings = (_CONFIG | {"safe.directory": str(repo)}).items()
    options = chain.from_iterable(("-c", f"{key}={value}") for key, value in settings)
    try:
        return await asyncio.create_subprocess_exec(
            "git",
            "--no-pager",
            *options,
            *args,
            cwd=repo,
            env=_environment(repo) | dict(env),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError:
        raise _not_started(repo) from None


def _environment(repo: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "SYSTEMROOT") if name in os.environ}
    # Without the ceiling, a folder that is no repository would pass for one inside its parent's.
    return kept | _ENVIRONMENT | {"GIT_CEILING_DIRECTORIES": str(repo.parent)}


async def _reap(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


def _not_started(repo: Path) -> StorageError:
    if not repo.is_dir():
        return StorageError("repository_missing", f"There is no folder {repo}.")
    return StorageError("git_missing", "The git command was not found.", "Install git >= 2.31.")


def _quoted(path: Path) -> str:
    # The variable is a colon-separated list; a C-quoted entry may hold any character.
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
