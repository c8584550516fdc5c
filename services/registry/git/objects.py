"""Reads and writes git objects by plumbing: no work tree, no real index, no HEAD."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from services.registry.adapters.base import PromptPart, StorageError, decode_text, refuse_too_large
from services.registry.git import refs
from services.registry.git.layout import damaged
from services.registry.git.repository import Repository
from services.registry.git.run import failure

_OBJECT_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SYMLINK = "120000"
_FILES = ("100644", "100755")

# Every option that a repository's configuration or attributes could set otherwise, so that the
# patch is always text, always complete, and made by git alone.
_DIFF = (
    "--patch",
    "--binary",
    "--text",
    "--full-index",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--no-relative",
    "--no-color",
    "--diff-algorithm=myers",
    "--unified=3",
    "--inter-hunk-context=0",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "-O/dev/null",
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a tree: its mode, blob id and size in bytes."""

    mode: str
    oid: str
    size: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The prompt's files at one commit, in the order they were asked for."""

    commit: str
    entries: Mapping[str, Entry]
    parts: tuple[PromptPart, ...]


async def branch_tip(repo: Repository, branch: str) -> str:
    """The commit a local branch points to; raises `branch_missing`, and `repository_damaged` where it is unreadable."""
    found = repo.read_ref(f"{refs.HEADS}{branch}")
    if found is None:
        raise StorageError(
            "branch_missing", f"{repo.root} has no branch {branch!r} with a commit on it.", _branches_hint(repo)
        )
    tip = await find_commit(repo, found)
    if tip is None:
        raise damaged(f"the branch {branch} of {repo.root} points to a commit that cannot be read")
    return tip


async def find_branch(repo: Repository, branch: str) -> str | None:
    """The commit a local branch points to, or None."""
    found = repo.read_ref(f"{refs.HEADS}{branch}")
    return None if found is None else await find_commit(repo, found)


async def find_commit(repo: Repository, oid: str) -> str | None:
    """The commit of an object id, or None."""
    found = await repo.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{oid}^{{commit}}", check=False)
    return found.line if found.returncode == 0 else None


async def create_branch(repo: Repository, branch: str, commit: str) -> bool:
    """Create the branch; False when somebody else has taken its name, or one that rules it out.

    Raises `repository_damaged` where its place is a symbolic link or lies behind one.
    """
    name = f"{refs.HEADS}{branch}"
    if repo.read_ref(name) is not None or refs.is_symbolic(repo.layout, name):
        return False
    absent = "0" * len(commit)
    made = await repo.git("update-ref", "--no-deref", name, commit, absent, check=False)
    taken = (b"already exists", b"exists; cannot create", b"but expected")
    if made.returncode and not any(sign in made.stderr for sign in taken):
        raise failure("update-ref", made)
    if made.returncode == 0 and repo.read_ref(name) != commit:
        raise damaged(f"the branch {branch} of {repo.root} is not what was written there")
    return made.returncode == 0


async def read_snapshot(repo: Repository, commit: str, paths: Sequence[str]) -> Snapshot:
    """The exact text of `paths` at `commit`; sizes are checked before a byte is read."""
    entries = await _entries(repo, commit, paths)
    refuse_too_large(sum(entry.size for entry in entries.values()), ", ".join(paths))
    blobs = await _read_blobs(repo, [entries[path].oid for path in paths])
    parts = tuple(decode_text(path, raw) for path, raw in zip(paths, blobs, strict=True))
    return Snapshot(commit, entries, parts)


async def write_tree(repo: Repository, base: Snapshot, texts: Mapping[str, bytes], env: Mapping[str, str]) -> str:
    """The id of `base`'s tree with the given files replaced, modes kept; `env` is from `scratch`."""
    await repo.git("read-tree", base.commit, env=env)
    lines = []
    for path, raw in texts.items():
        blob = await repo.git("hash-object", "-w", "--no-filters", "--stdin", stdin=raw, env=env)
        lines.append(f"{base.entries[path].mode} {blob.line}\t{path}\0")
    await repo.git("update-index", "-z", "--index-info", stdin="".join(lines).encode(), env=env)
    return (await repo.git("write-tree", env=env)).line


async def diff(repo: Repository, base: str, tree: str, paths: Sequence[str], env: Mapping[str, str]) -> str:
    """The patch from commit `base` to `tree`, proven: applied to `base` it gives exactly `tree`.

    Raises `git_failed` when it does not.
    """
    patch = (await repo.git("diff-tree", *_DIFF, base, tree, "--", *paths, env=env)).stdout
    await repo.git("read-tree", base, env=env)
    applied = await repo.git("apply", "--cached", "-", stdin=patch, env=env, check=False)
    result = await repo.git("write-tree", env=env)
    if applied.returncode or result.line != tree:
        raise StorageError("git_failed", f"The patch for {', '.join(paths)} does not apply to {base}.")
    return patch.decode("utf-8")


async def is_ancestor(repo: Repository, older: str, newer: str) -> bool:
    """Whether commit `older` is in the history of `newer` (or is the same)."""
    return (await repo.git("merge-base", "--is-ancestor", older, newer, check=False)).returncode == 0


async def parents(repo: Repository, commit: str) -> list[str]:
    """The commit's parents, first parent first."""
    line = (await repo.git("rev-list", "--parents", "--max-count=1", commit)).line
    return line.split()[1:]


async def changed_paths(repo: Repository, base: str, commit: str) -> set[str]:
    """Every path that differs between two commits."""
    listed = await repo.git("diff-tree", "-r", "-z", "--name-only", "--no-renames", base, commit)
    return {name for name in listed.stdout.decode("utf-8", "replace").split("\0") if name}


async def checked_branch(repo: Repository, name: str) -> str:
    """`name` when git would take it as a branch name; raises `bad_branch_name`."""
    printable = name.isprintable() and not name.startswith("-") and not name.startswith("refs/")
    full = f"{refs.HEADS}{name}"
    if printable and refs.is_name(full) and (await repo.git("check-ref-format", full, check=False)).returncode == 0:
        return name
    raise StorageError(
        "bad_branch_name", f"{name!r} cannot be a branch name.", "Use letters, digits, '-', '_', '.' and '/'."
    )


def checked_path(path: str) -> str:
    """`path` when it is a plain relative path inside a repository.

    Raises `path_outside_repository` where it would leave it, and `bad_path` where it is malformed.
    """
    pieces = path.split("/")
    if PurePosixPath(path).is_absolute() or ".." in pieces:
        raise StorageError(
            "path_outside_repository",
            f"{path!r} leads out of the repository.",
            "Give a path relative to its root.",
        )
    odd = not path.isprintable() or path.startswith("-") or "\\" in path
    if odd or any(piece in ("", ".") or piece.lower() == ".git" for piece in pieces):
        raise StorageError("bad_path", f"{path!r} is not a plain file path.", "Write it like prompts/intent.md.")
    return path


def checked_object_id(version_ref: str) -> str:
    """The commit id in a version reference `git:<full id>`; raises `unknown_version`."""
    scheme, _, commit = version_ref.partition(":")
    if scheme != "git" or not _OBJECT_ID.fullmatch(commit):
        raise StorageError("unknown_version", f"{version_ref!r} is not a version.", "Write git:<full commit id>.")
    return commit


async def _entries(repo: Repository, commit: str, paths: Sequence[str]) -> dict[str, Entry]:
    # The folders above are listed as well: one of them may be a symbolic link.
    wanted = {str(step) for path in paths for step in (PurePosixPath(path), *PurePosixPath(path).parents)}
    listed = await repo.git("ls-tree", "-z", "-l", commit, "--", *sorted(wanted - {"."}))
    found = dict(map(_parse_entry, filter(None, listed.stdout.decode("utf-8", "surrogateescape").split("\0"))))
    for path in paths:
        _refuse_unless_file(path, found, commit)
    return {path: found[path] for path in paths}


def _parse_entry(record: str) -> tuple[str, Entry]:
    meta, _, path = record.partition("\t")
    mode, _, oid, size = meta.split()
    return path, Entry(mode, oid, int(size) if size.isdigit() else 0)


def _refuse_unless_file(path: str, found: Mapping[str, Entry], commit: str) -> None:
    for step in (path, *map(str, PurePosixPath(path).parents)):
        if step in found and found[step].mode == _SYMLINK:
            raise StorageError("symbolic_link", f"{step} is a symbolic link.", "Name the file it points to.")
    if path not in found or found[path].mode not in _FILES:
        raise StorageError("path_missing", f"There is no file {path} at commit {commit[:12]}.", "Commit it first.")


async def _read_blobs(repo: Repository, oids: Sequence[str]) -> list[bytes]:
    answer = await repo.git("cat-file", "--batch", stdin="".join(f"{oid}\n" for oid in oids).encode())
    blobs, rest = [], answer.stdout
    for oid in oids:
        header, _, rest = rest.partition(b"\n")
        if not header.startswith(f"{oid} blob ".encode()):
            raise StorageError("git_failed", f"{repo.root} lacks the object {oid}.", "Is the clone complete?")
        size = int(header.split()[2])
        blobs.append(rest[:size])
        rest = rest[size + 1 :]
    return blobs


def _branches_hint(repo: Repository) -> str:
    names = refs.branches(repo.layout, 5)
    return f"It has: {', '.join(names)}." if names else "It has no commit yet."
