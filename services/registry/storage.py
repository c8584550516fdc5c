"""Opens the store of a touchpoint's prompt, only where the installation allows it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from libs.contracts.touchpoints import Touchpoint
from services.registry.adapters import Identity, SkillFileAdapter, StorageError

AUTHOR = Identity("Burnish", "burnish@localhost")


class Repositories:
    """The repositories that may be opened: those of which everything lies below one of `roots`."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(roots)

    def open(self, touchpoint: Touchpoint) -> SkillFileAdapter:
        """The adapter of a touchpoint whose prompt is in git. Raises StorageError for what is no local path."""
        storage = touchpoint.storage
        return SkillFileAdapter(
            _local(storage.repository or ""),
            storage.branch,
            storage.paths,
            post_apply=storage.post_apply,
            author=AUTHOR,
            roots=self._roots,
        )


def _local(location: str) -> Path:
    if "://" in location or location.startswith("git@"):
        raise StorageError(
            "repository_not_allowed", f"{location} is not a folder.", "Clone it, and give the local path."
        )
    path = Path(location)
    if not path.is_absolute():
        raise StorageError(
            "repository_not_allowed", f"{location} is a relative path.", "Give the absolute path on the server."
        )
    return path
