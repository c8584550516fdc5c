"""Finds uncommitted edits by comparing bytes, since asking git would run the repository's filters."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from libs.files import UnreadableFile, read_bytes, require_regular
from services.registry.adapters.base import MAX_TEXT_BYTES
from services.registry.git.layout import WorkTree, damaged
from services.registry.git.objects import Snapshot
from services.registry.git.repository import MAX_ATTRIBUTES_BYTES, Repository

_CONVERTED = ("text", "eol", "crlf")


async def uncommitted_edits(repo: Repository, branch: str, tip: Snapshot) -> list[str]:
    """The prompt's files that have edits, staged or not, in any work tree where `branch` is checked out.

    A file under a content filter (such as git-lfs) counts as edited unless it holds the exact
    committed bytes: what the filter would make of it is unknown without running it.
    """
    edited: set[str] = set()
    for tree in repo.trees:
        if tree.branch == branch:
            edited.update(await _edited_in(repo, tree, tip))
    return sorted(edited)


async def _edited_in(repo: Repository, tree: WorkTree, tip: Snapshot) -> list[str]:
    paths = list(tip.entries)
    index = await _index(repo, tree, paths)
    staged = {path for path in paths if index.get(path, ("", ""))[1] != tip.entries[path].oid}
    converted = await _converted(repo, tree, paths)
    for part in tip.parts:
        sparse = index.get(part.path, ("", ""))[0] == "S" and _absent(tree.path / part.path)
        if not sparse and not _same_text(tree.path, part.path, part.text.encode(), part.path in converted):
            staged.add(part.path)
    return sorted(staged)


async def _index(repo: Repository, tree: WorkTree, paths: Sequence[str]) -> Mapping[str, tuple[str, str]]:
    """Path to (tag, blob id); a path in conflict has no single blob and is left out."""
    listed = await repo.git_in(tree, "ls-files", "-z", "-t", "--stage", "--", *paths)
    found: dict[str, tuple[str, str]] = {}
    for record in filter(None, listed.stdout.decode("utf-8", "surrogateescape").split("\0")):
        meta, _, path = record.partition("\t")
        tag, _, oid, stage = meta.split()
        if stage == "0":
            found[path] = (tag, oid)
    return found


async def _converted(repo: Repository, tree: WorkTree, paths: Sequence[str]) -> set[str]:
    """The paths whose line endings git converts between the repository and the work tree."""
    if repo.converts:
        return set(paths)
    _require_attributes(tree.path, paths)
    answer = await repo.git_in(tree, "check-attr", "-z", *_CONVERTED, "--", *paths)
    fields = answer.stdout.decode("utf-8", "surrogateescape").split("\0")
    rows = zip(fields[0::3], fields[2::3], strict=False)
    return {path for path, value in rows if value not in ("unspecified", "unset")}


def _require_attributes(tree: Path, paths: Sequence[str]) -> None:
    """git reads the attributes of every folder above a file, and would wait for a pipe."""
    for folder in {step for path in paths for step in PurePosixPath(path).parents}:
        try:
            require_regular(tree / folder / ".gitattributes", MAX_ATTRIBUTES_BYTES, follow=False)
        except UnreadableFile as error:
            # A link is passed over by git, too.
            if not error.absent and not (tree / folder / ".gitattributes").is_symlink():
                raise damaged(str(error)) from error


def _absent(file: Path) -> bool:
    return not os.path.lexists(file)


def _same_text(tree: Path, path: str, committed: bytes, converted: bool) -> bool:
    found = _read_plain_file(tree, path)
    if found is None or found == committed:
        return found is not None
    return converted and found.replace(b"\r\n", b"\n") == committed.replace(b"\r\n", b"\n")


def _read_plain_file(tree: Path, path: str) -> bytes | None:
    """The file's bytes; None when it is missing, no plain file, or reached through a link."""
    file = tree / path
    if os.path.realpath(file.parent) != str(file.parent):
        return None
    try:
        # Twice the limit leaves room for line endings; anything longer differs anyway.
        return read_bytes(file, 2 * MAX_TEXT_BYTES, follow=False)
    except UnreadableFile:
        return None
