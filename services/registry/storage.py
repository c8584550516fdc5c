"""Opens the store of a touchpoint's prompt, only where the installation allows it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from libs.contracts.touchpoints import Touchpoint
from services.registry.adapters import Identity, SkillFileAdapter, StorageError

AUTHOR = Identity("Burnish", "burnish@localhost")
ROOTS_HINT = "Add the folder it lies in to BURNISH_REPOSITORY_ROOTS of the registry."


class Repositories:
    """The repositories that may be opened: those below one of `roots`, with every link on the way resolved."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(root.resolve() for root in roots)

    def open(self, touchpoint: Touchpoint) -> SkillFileAdapter:
        """The adapter of a touchpoint whose prompt is in git. Raises StorageError where that is not allowed."""
        storage = touchpoint.storage
        return SkillFileAdapter(
            self._allowed(storage.repository or ""),
            storage.branch,
            storage.paths,
            post_apply=storage.post_apply,
            author=AUTHOR,
        )

    def _allowed(self, location: str) -> Path:
        if "://" in location or location.startswith("git@"):
            raise StorageError(
                "repository_not_allowed", f"{location} is not a folder.", "Clone it, and give the local path."
            )
        path = Path(location)
        if not path.is_absolute():
            raise StorageError(
                "repository_not_allowed", f"{location} is a relative path.", "Give the absolute path on the server."
            )
        resolved = path.resolve()
        if not any(resolved.is_relative_to(root) for root in self._roots):
            raise StorageError(
                "repository_not_allowed", f"{location} lies in no folder that repositories may lie in.", ROOTS_HINT
            )
        return resolved
