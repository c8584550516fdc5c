"""An open repository: its objects and references seen through a git folder of our own.

git never reads the folder that somebody else may write: not its configuration, hooks, attributes, grafts, replaced
objects or logs. It gets an empty repository of ours, pointed at the objects (and, to make a branch, at the references)
that `layout` has looked at. What counts of the configuration is read as data, and is a short list: see `_Settings`.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from services.registry.adapters.base import StorageError
from services.registry.git import layout as layouts
from services.registry.git import refs
from services.registry.git.layout import Fence, Layout, WorkTree, damaged
from services.registry.git.run import LIMIT_S, Completed, run

T = TypeVar("T")
MAX_INDEX_BYTES = 1 << 30
MAX_SHALLOW_BYTES = 1 << 24
MAX_ATTRIBUTES_BYTES = 1 << 20
OPEN_LIMIT_S = 40.0
"""How long a repository may be worked on, all commands together."""
MAX_LOOKS = 8
"""How many looks at one repository may be under way; a file system that does not answer keeps each of them."""
KNOWN_EXTENSIONS = frozenset({"noop", "objectformat", "partialclone", "preciousobjects", "refstorage"}) | {
    "relativeworktrees",
    "worktreeconfig",
}
_SHARED = re.compile(r"(?i)umask|group|all|world|everybody|true|false|yes|no|on|off|[01]|0[0-7]{3}")
_YES = frozenset({"true", "yes", "on", "1", ""})
_under_way: Counter[Path] = Counter()


@dataclass(frozen=True)
class _Settings:
    """What a repository's configuration may decide: how objects are named, what is shared, where its trees are."""

    object_format: str
    shared: str
    converts: bool
    bare: bool
    work_tree: str | None


@dataclass(frozen=True)
class Repository:
    """A repository that was looked at and is open. `view` is the git folder of our own, gone when it is closed."""

    layout: Layout
    trees: tuple[WorkTree, ...]
    converts: bool
    view: Path

    @property
    def root(self) -> Path:
        """Where it lies, resolved."""
        return self.layout.root

    @property
    def objects(self) -> Path:
        """Where its objects lie, resolved."""
        return self.layout.objects

    async def git(
        self, *args: str, stdin: bytes | None = None, check: bool = True, env: Mapping[str, str] | None = None
    ) -> Completed:
        """Run git on its objects; see `run.run`."""
        return await run(self.view, *args, stdin=stdin, check=check, env=self._environment() | dict(env or {}))

    async def git_in(self, tree: WorkTree, *args: str) -> Completed:
        """Run git on the index of one of its work trees."""
        env = {"GIT_INDEX_FILE": str(self._index(tree)), "GIT_WORK_TREE": str(tree.path)}
        return await run(tree.path, *args, env=self._environment() | env)

    def read_ref(self, name: str) -> str | None:
        """The object id that a full name such as `refs/heads/main` leads to, or None."""
        return refs.read(self.layout, name)

    def _environment(self) -> dict[str, str]:
        return {"GIT_DIR": str(self.view), "GIT_OBJECT_DIRECTORY": str(self.objects)}

    def _index(self, tree: WorkTree) -> Path:
        """The index of a work tree. One that was split has its rest beside it; git looks for that in the view."""
        for shared in tree.gitdir.glob("sharedindex.*"):
            found = self.layout.regular(shared, MAX_INDEX_BYTES)
            if found is not None and not (self.view / shared.name).exists():
                (self.view / shared.name).symlink_to(found)
        return self.layout.regular(tree.gitdir / "index", MAX_INDEX_BYTES) or tree.gitdir / "index"


@asynccontextmanager
async def opened(path: Path, roots: Sequence[Path]) -> AsyncIterator[Repository]:
    """The repository whose root is `path`. All that it refers to lies below one of `roots`.

    Whatever goes wrong from here to the end, in here or at the caller's, is a `StorageError`; so is taking longer
    than `OPEN_LIMIT_S`. Raises `repository_missing`, `not_a_repository`, `repository_not_allowed` and
    `repository_damaged` by itself.
    """
    try:
        async with asyncio.timeout(OPEN_LIMIT_S), _looked_at(path, Fence(roots)) as repository:
            yield repository
    except Exception as error:
        raise reason_of(error) from error


@asynccontextmanager
async def _looked_at(path: Path, fence: Fence) -> AsyncIterator[Repository]:
    with _own_folder() as view:
        layout = await _apart(path, lambda: layouts.find(path, fence))
        settings = await _settings(view, layout)
        trees = await _apart(path, lambda: _prepared(view, layout, settings))
        yield Repository(layout, tuple(trees), settings.converts, view)


@contextmanager
def _own_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="burnish-view-")).resolve()
    try:
        yield folder
    finally:
        # Links in it go, what they lead to stays.
        shutil.rmtree(folder, ignore_errors=True)


def reason_of(error: Exception) -> StorageError:
    """Whatever went wrong with a repository as an answer; it never holds what stands in a file."""
    if isinstance(error, StorageError):
        return error
    if isinstance(error, TimeoutError):
        return StorageError("git_timeout", "The repository did not answer in time.", "Is the disk slow or full?")
    return damaged(f"The repository cannot be read ({type(error).__name__})")


# --- looking ----------------------------------------------------------------------------------------------


async def _apart(path: Path, look: Callable[[], T]) -> T:
    """Run `look` on a thread of its own, and wait no longer than a command may take.

    Not on the threads that all share: one file system that does not answer would soon hold every one of them.
    """
    if _under_way[path] >= MAX_LOOKS:
        raise StorageError("git_timeout", f"{path}: earlier looks have not come back.", "Does its disk answer?")
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def tell(settle: Callable[[], None]) -> None:
        _under_way[path] -= 1
        if not outcome.done():
            settle()

    def body() -> None:
        settle: Callable[[], None]
        try:
            settle = partial(outcome.set_result, look())
        except Exception as error:
            settle = partial(outcome.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell, settle)

    _under_way[path] += 1
    threading.Thread(target=body, name="repository", daemon=True).start()
    try:
        async with asyncio.timeout(LIMIT_S):
            return await outcome
    except (TimeoutError, OSError, ValueError, RecursionError) as error:
        raise reason_of(error) from error


async def _settings(view: Path, layout: Layout) -> _Settings:
    text = await _apart(layout.root, lambda: layouts.config(layout))
    found = await _parsed(view, layout, text)
    if found.get("extensions.worktreeconfig", "false").lower() in _YES:
        text = await _apart(layout.root, lambda: layouts.work_tree_config(layout))
        found |= await _parsed(view, layout, text)
    for name in found:
        extension = name.removeprefix("extensions.")
        if extension != name and extension not in KNOWN_EXTENSIONS:
            raise damaged(f"{layout.root} uses an extension of git that is not known here")
    if found.get("extensions.refstorage", "files") != "files":
        raise damaged(f"{layout.root} keeps its references in another form than files")
    shared = found.get("core.sharedrepository", "false")
    return _Settings(
        object_format="sha256" if found.get("extensions.objectformat", "sha1").lower() == "sha256" else "sha1",
        shared=shared if _SHARED.fullmatch(shared) else "false",
        converts=found.get("core.autocrlf", "false").lower() in {*_YES, "input"},
        bare=found.get("core.bare", "false").lower() in _YES,
        work_tree=found.get("core.worktree"),
    )


async def _parsed(view: Path, layout: Layout, text: bytes) -> dict[str, str]:
    """The configuration as names and values, the last of each. git reads it as a stream: nothing in it takes effect."""
    listed = await run(view, "config", "--file", "-", "--no-includes", "--null", "--list", stdin=text, check=False)
    if listed.returncode:
        raise damaged(f"the configuration of {layout.root} cannot be read")
    lines = (os.fsdecode(line).partition("\n") for line in listed.stdout.split(b"\0") if line)
    return {name: value for name, _, value in lines}


def _prepared(view: Path, layout: Layout, settings: _Settings) -> list[WorkTree]:
    """Fill the git folder of our own; the repository's work trees."""
    config = [
        "[core]",
        "repositoryformatversion = 1",
        "bare = true",
        f"sharedRepository = {settings.shared}",
        "[extensions]",
        f"objectformat = {settings.object_format}",
    ]
    (view / "config").write_text("\n".join(config) + "\n")
    (view / "HEAD").write_text("ref: refs/heads/none\n")
    (view / "info").mkdir()
    for name, limit in (("shallow", MAX_SHALLOW_BYTES), ("info/attributes", MAX_ATTRIBUTES_BYTES)):
        found = layout.file(layout.common / name, limit)
        if found is not None:
            (view / name).write_bytes(found)
    (view / "refs").symlink_to(layout.refs)
    packed = layout.regular(layout.common / "packed-refs", refs.MAX_PACKED_BYTES)
    if packed is not None:
        (view / "packed-refs").symlink_to(packed)
    return layouts.work_trees(layout, bare=settings.bare, main=settings.work_tree)
