"""Reads branches from a repository's own files: real folders and regular files only, whatever git would follow."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from services.registry.git.layout import MAX_LINE_BYTES, Layout, damaged

HEADS = "refs/heads/"
MAX_PACKED_BYTES = 256 << 20
MAX_HOPS = 5
MAX_LISTED = 10_000
_OID = re.compile(rb"([0-9a-f]{40}(?:[0-9a-f]{24})?)(?:\s.*)?", re.DOTALL)
_STEP = re.compile(r"[^\x00-\x20\x7f~^:?*\[\\]+")


def is_name(name: str) -> bool:
    """Whether a full name such as `refs/heads/main` stays below `refs/`, as git's own rules want it."""
    steps = name.split("/")
    odd = ".." in name or "@{" in name or name.endswith(".") or steps[0] != "refs" or len(steps) < 2
    return not odd and all(_STEP.fullmatch(step) and step[0] != "." and step[-5:] != ".lock" for step in steps)


def read(layout: Layout, name: str) -> str | None:
    """The object id that a reference leads to; None when there is none of that name."""
    for _ in range(MAX_HOPS):
        raw = _loose(layout, name)
        if raw is None:
            return _packed(layout, name)
        if not raw.startswith(b"ref:"):
            return _oid(raw, name)
        name = os.fsdecode(raw[4:].strip())
        if not is_name(name):
            raise damaged(f"a reference of {layout.named(layout.root)} leads to what is no name of one")
    raise damaged(f"{name} is a reference to a reference, more than {MAX_HOPS} times over")


def is_symbolic(layout: Layout, name: str) -> bool:
    """Whether the reference names another one rather than a commit."""
    return (_loose(layout, name) or b"").startswith(b"ref:")


def branches(layout: Layout, most: int) -> list[str]:
    """The first names of branches, sorted; for a hint."""
    packed = (name for name, _ in _packed_lines(layout) if name.startswith(HEADS.encode()))
    names = {*_loose_names(layout), *(os.fsdecode(name.removeprefix(HEADS.encode())) for name in packed)}
    return sorted(names)[:most]


def _loose(layout: Layout, name: str) -> bytes | None:
    """The file of a reference; None when there is none. Raises where anything on the way is a link or a device."""
    path = layout.refs
    for step in name.split("/")[1:]:
        if not stat.S_ISDIR(path.lstat().st_mode):
            return None
        path = path / step
        mode = _mode(path)
        if mode is None:
            return None
        if stat.S_ISLNK(mode):
            raise damaged(f"the reference {name} is a symbolic link, or lies behind one")
    return None if path.is_dir() else layout.file(path, MAX_LINE_BYTES)


def _mode(path: Path) -> int | None:
    try:
        return path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise damaged(f"a reference cannot be looked at ({type(error).__name__})") from error


def _oid(raw: bytes, name: str) -> str:
    found = _OID.fullmatch(raw)
    if not found:
        raise damaged(f"the reference {name} holds no object id")
    return found[1].decode()


def _packed(layout: Layout, name: str) -> str | None:
    wanted = os.fsencode(name)
    return next((_oid(oid, name) for found, oid in _packed_lines(layout) if found == wanted), None)


def _packed_lines(layout: Layout) -> Iterator[tuple[bytes, bytes]]:
    raw = layout.file(layout.common / "packed-refs", MAX_PACKED_BYTES) or b""
    for line in raw.split(b"\n"):
        if line[:1] not in (b"#", b"^", b""):
            oid, _, name = line.partition(b" ")
            yield name.rstrip(b"\r"), oid


def _loose_names(layout: Layout) -> Iterator[str]:
    heads = layout.refs / "heads"
    if not stat.S_ISDIR(_mode(heads) or 0):
        return
    left = MAX_LISTED
    for folder, folders, files in os.walk(heads):
        folders.sort()
        for file in sorted(files):
            left -= 1
            if left < 0:
                return
            if not file.endswith(".lock"):
                yield os.path.relpath(os.path.join(folder, file), heads)
