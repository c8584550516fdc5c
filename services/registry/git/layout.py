"""What a repository on disk is made of. All of it is resolved, and must lie below one of the allowed folders.

A repository is a folder that somebody else may write: its `.git` can be a file or a link that names another folder,
which names a common one, whose objects are borrowed from elsewhere, and whose work trees lie anywhere. git follows all
of that. Here it is followed first, by hand, with links resolved and every file looked at before it is read; what leads
out, or is not the kind of file that it must be, refuses the repository as a whole.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from libs.files import UnreadableFile, read_bytes, require_regular, shown
from services.registry.adapters.base import StorageError

MAX_LINE_BYTES = 8_192
MAX_CONFIG_BYTES = 1 << 20
MAX_ALTERNATES_BYTES = 1 << 16
MAX_ALTERNATES_DEPTH = 5
MAX_OBJECT_FILES = 2_000_000
MAX_WORK_TREES = 1_000
ROOTS_HINT = "Add the folder it lies in to BURNISH_REPOSITORY_ROOTS of the registry."


class Fence:
    """The folders that everything of a repository must lie in, with every link on the way to them resolved."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(Path(os.path.realpath(root)) for root in roots)

    def inside(self, path: Path, what: str) -> Path:
        """The resolved path. Raises `repository_not_allowed`, naming `what` and not where it leads."""
        try:
            found = Path(os.path.realpath(path))
        except (OSError, ValueError) as error:
            raise damaged(f"{what} cannot be resolved ({type(error).__name__})") from error
        if not any(found.is_relative_to(root) for root in self._roots):
            raise StorageError(
                "repository_not_allowed", f"{what} lies in no folder that repositories may lie in.", ROOTS_HINT
            )
        return found


@dataclass(frozen=True)
class Layout:
    """The folders of one repository, resolved. `common` is `gitdir` but for a linked work tree."""

    root: Path
    fence: Fence
    gitdir: Path
    common: Path
    objects: Path
    refs: Path
    linked: bool
    """Whether `.git` is a file or link, so that the work tree is not beside the repository's folder."""

    def file(self, path: Path, limit: int) -> bytes | None:
        """The bytes of a file of the repository; None when there is none. Raises for what is no regular file."""
        found = self.fence.inside(path, self.named(path))
        try:
            return read_bytes(found, limit)
        except UnreadableFile as error:
            if error.absent:
                return None
            raise damaged(f"{self.named(path)}: {error.reason}") from error

    def regular(self, path: Path, limit: int) -> Path | None:
        """A file of the repository that git itself will read, resolved; None when there is none. Raises as `file`."""
        found = self.fence.inside(path, self.named(path))
        try:
            require_regular(found, limit)
        except UnreadableFile as error:
            if error.absent:
                return None
            raise damaged(f"{self.named(path)}: {error.reason}") from error
        return found

    def named(self, path: Path) -> str:
        """A path as errors name it: relative to the repository where it lies in it."""
        return shown(path.relative_to(self.root) if path.is_relative_to(self.root) else path)


@dataclass(frozen=True)
class WorkTree:
    """A folder in which a branch is checked out; `gitdir` holds its index. `branch` is None without one."""

    path: Path
    gitdir: Path
    branch: str | None


def damaged(what: str) -> StorageError:
    """The error for a repository in which something is not what it must be."""
    return StorageError("repository_damaged", f"{what}.", "Repair the repository, or clone it anew.")


def find(path: Path, fence: Fence) -> Layout:
    """The repository whose root is `path`, bare or not. Reads no configuration."""
    root = fence.inside(path, shown(path))
    if not root.is_dir():
        raise StorageError("repository_missing", f"There is no folder {shown(root)}.", "Clone the repository there.")
    gitdir, linked = _gitdir(root, fence)
    common = _common(gitdir, fence)
    objects, refs = (fence.inside(common / name, f"{name} of {shown(root)}") for name in ("objects", "refs"))
    if not (os.path.lexists(gitdir / "HEAD") and objects.is_dir() and refs.is_dir()):
        raise _no_repository(root)
    found = Layout(root, fence, gitdir, common, objects, refs, linked)
    _require_objects(found)
    return found


def config(layout: Layout) -> bytes:
    """The repository's own configuration, as it stands in its file."""
    return layout.file(layout.common / "config", MAX_CONFIG_BYTES) or b""


def work_tree_config(layout: Layout) -> bytes:
    """The configuration of the main work tree alone."""
    return layout.file(layout.common / "config.worktree", MAX_CONFIG_BYTES) or b""


def work_trees(layout: Layout, *, bare: bool, main: str | None) -> list[WorkTree]:
    """Every work tree of the repository that is there; `main` is what its configuration says about the first."""
    found = [*_main_tree(layout, bare, main), *_linked_trees(layout)]
    return [WorkTree(path, gitdir, _branch(layout, gitdir)) for path, gitdir in found if path.is_dir()]


# --- finding ----------------------------------------------------------------------------------------------


def _gitdir(root: Path, fence: Fence) -> tuple[Path, bool]:
    dot = root / ".git"
    what = f".git of {shown(root)}"
    if not os.path.lexists(dot):
        return root, False
    found = fence.inside(dot, what)
    if found.is_dir():
        return found, found != dot
    line = _line(found, what)
    if not line.startswith("gitdir: "):
        raise _no_repository(root)
    return _folder(fence, found.parent / line.removeprefix("gitdir: "), what), True


def _common(gitdir: Path, fence: Fence) -> Path:
    pointer = gitdir / "commondir"
    if not os.path.lexists(pointer):
        return gitdir
    what = f"commondir of {shown(gitdir)}"
    return _folder(fence, gitdir / _line(fence.inside(pointer, what), what), what)


def _folder(fence: Fence, path: Path, what: str) -> Path:
    found = fence.inside(path, f"what {what} names")
    if not found.is_dir():
        raise damaged(f"{what} names a folder that is not there")
    return found


def _line(path: Path, what: str) -> str:
    try:
        raw = read_bytes(path, MAX_LINE_BYTES)
    except UnreadableFile as error:
        raise damaged(f"{what}: {error.reason}") from error
    return os.fsdecode(raw.rstrip(b"\r\n"))


def _no_repository(root: Path) -> StorageError:
    return StorageError(
        "not_a_repository", f"{shown(root)} is not the root of a git repository.", "Name the folder that holds .git."
    )


# --- objects ----------------------------------------------------------------------------------------------


def _require_objects(layout: Layout) -> None:
    """Every folder that objects are read from lies inside, and there is nothing in it but files and folders."""
    left = MAX_OBJECT_FILES
    waiting, seen = [(layout.objects, 0)], set[Path]()
    while waiting:
        folder, depth = waiting.pop()
        if folder in seen or not folder.is_dir():
            continue
        seen.add(folder)
        left -= _require_plain(layout, folder, left)
        if depth > MAX_ALTERNATES_DEPTH:
            raise damaged(f"the objects of {shown(layout.root)} are borrowed over too many repositories")
        waiting += [(borrowed, depth + 1) for borrowed in _alternates(layout, folder)]


def _require_plain(layout: Layout, top: Path, most: int) -> int:
    """How many files are below `top`. Raises where one is a device or leads out."""
    count = 0
    waiting, seen = [top], {top}
    while waiting:
        with _listed(layout, waiting.pop()) as entries:
            for entry in entries:
                count += 1
                if count > most:
                    raise damaged(f"{shown(layout.root)} holds more than {MAX_OBJECT_FILES:,} objects in files")
                folder = _plain(layout, entry)
                if folder is not None and folder not in seen:
                    seen.add(folder)
                    waiting.append(folder)
    return count


def _listed(layout: Layout, folder: Path) -> os._ScandirIterator[str]:
    try:
        return os.scandir(folder)
    except OSError as error:
        raise damaged(f"{layout.named(folder)} cannot be read ({error.strerror})") from error


def _plain(layout: Layout, entry: os.DirEntry[str]) -> Path | None:
    """The folder that the entry is or leads to, None for a file. The kind of most is known without looking."""
    if entry.is_dir(follow_symlinks=False):
        return Path(entry.path)
    if entry.is_file(follow_symlinks=False):
        return None
    path = Path(entry.path)
    if not entry.is_symlink():
        raise damaged(f"{layout.named(path)} is neither a file nor a folder")
    found = layout.fence.inside(path, layout.named(path))
    mode = found.stat().st_mode if found.exists() else stat.S_IFREG
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise damaged(f"{layout.named(path)} is neither a file nor a folder")
    return found if stat.S_ISDIR(mode) else None


def _alternates(layout: Layout, objects: Path) -> Iterator[Path]:
    """The folders whose objects are read as well, one a line as git reads them."""
    place = objects / "info" / "alternates"
    raw = layout.file(place, MAX_ALTERNATES_BYTES) or b""
    for line in raw.split(b"\n"):
        if not line or line.startswith(b"#"):
            continue
        if line.startswith(b'"') or b"\0" in line:
            raise damaged(f"{layout.named(place)} names a folder in a way that is not taken")
        yield layout.fence.inside(objects / os.fsdecode(line), f"what {layout.named(place)} names")


# --- work trees -------------------------------------------------------------------------------------------


def _main_tree(layout: Layout, bare: bool, configured: str | None) -> Iterator[tuple[Path, Path]]:
    if configured is not None:
        place = layout.common / configured
        yield layout.fence.inside(place, f"core.worktree of {shown(layout.root)}"), layout.common
    elif bare:
        return
    elif layout.common.name == ".git":
        parent = layout.common.parent
        yield layout.fence.inside(parent, f"the work tree of {shown(layout.root)}"), layout.common
    elif layout.linked and layout.common == layout.gitdir:
        yield layout.root, layout.common


def _linked_trees(layout: Layout) -> Iterator[tuple[Path, Path]]:
    folder = layout.fence.inside(layout.common / "worktrees", layout.named(layout.common / "worktrees"))
    if not folder.is_dir():
        return
    for number, name in enumerate(sorted(os.listdir(folder))):
        if number >= MAX_WORK_TREES:
            raise damaged(f"{layout.named(folder)} holds more than {MAX_WORK_TREES:,} entries")
        entry = layout.fence.inside(folder / name, layout.named(folder / name))
        raw = layout.file(entry / "gitdir", MAX_LINE_BYTES) or b""
        pointer = entry / os.fsdecode(raw.strip())
        if pointer != entry:  # git passes over an entry that names nothing
            tree = pointer.parent if pointer.name == ".git" else pointer
            yield layout.fence.inside(tree, f"what {layout.named(entry / 'gitdir')} names"), entry


def _branch(layout: Layout, gitdir: Path) -> str | None:
    head = gitdir / "HEAD"
    linked = head.is_symlink()  # as early versions of git made it
    text = f"ref: {os.readlink(head)}" if linked else os.fsdecode(layout.file(head, MAX_LINE_BYTES) or b"")
    name = text.removeprefix("ref:").strip()
    return name.removeprefix("refs/heads/") if text.startswith("ref:") and name.startswith("refs/heads/") else None
