"""Prompts that are files in a git repository: changes become branches or patches that a person merges."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from libs.contracts.touchpoints import Storage, Touchpoint
from services.registry.adapters.base import (
    CurrentPrompt,
    Drift,
    MergedStore,
    Misfit,
    PromptPart,
    ProposedChange,
    RollbackProposal,
    Seen,
    StorageError,
    content_sha256,
    measure_drift,
    text_bytes,
)
from services.registry.git import objects
from services.registry.git.objects import Snapshot
from services.registry.git.repository import Repository, opened
from services.registry.git.run import BURNISH, scratch
from services.registry.git.worktree import uncommitted_edits

BRANCH_PREFIX = "burnish/"


@dataclass(frozen=True, slots=True)
class _Change:
    """The way from the tracked branch's tip to a wanted text."""

    tip: Snapshot
    target: tuple[PromptPart, ...]
    texts: dict[str, bytes]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self.texts)


class SkillFile(MergedStore):
    """The prompt in `paths` (relative, at least one) on the local `branch` of `repository`, bare or not.

    The tracked branch's tip is the only truth: uncommitted text is never read. No method touches
    the work tree, the real index or HEAD, nothing runs that the repository's configuration names,
    and only `propose` writes at all. All that the repository refers to must lie below
    one of `roots`. `redeploy_required` says that applications load the file themselves and keep what
    they loaded; `post_apply` what a person runs after merging.
    """

    def __init__(
        self,
        repository: Path,
        branch: str,
        paths: Sequence[str],
        *,
        roots: Sequence[Path],
        redeploy_required: bool = True,
        post_apply: Sequence[str] = (),
    ) -> None:
        if not paths or len(set(paths)) < len(paths):
            raise StorageError("bad_path", "A prompt needs at least one path, and each only once.")
        self._repository = repository
        self._branch = branch
        self._paths = tuple(objects.checked_path(path) for path in paths)
        self._redeploy_required = redeploy_required
        self._post_apply = tuple(post_apply)
        self._roots = tuple(roots)

    @classmethod
    def of(cls, storage: Storage, roots: Sequence[Path]) -> Self:
        """Raises `repository_not_allowed` for what is no local path."""
        return cls(
            _local(storage.repository or ""), storage.branch, storage.paths, roots=roots, post_apply=storage.post_apply
        )

    @classmethod
    def misfits(cls, touchpoint: Touchpoint) -> Iterator[Misfit]:
        """A repository and at least one path in it; and one text for all workspaces."""
        storage = touchpoint.storage
        if touchpoint.scope == "workspace":
            hint = "A workspace touchpoint has a version per workspace: its texts are kept in the registry."
            yield Misfit("storage.adapter", "A file in git has one text for all workspaces.", hint)
        if not storage.repository:
            hint = "Give the absolute path of the clone on the server."
            yield Misfit("storage.repository", "A file in git needs its `repository`.", hint)
        if not storage.paths:
            yield Misfit("storage.paths", "A file in git needs its `path` (or `paths`).", "Write it like prompts/a.md.")

    @classmethod
    def location(cls, storage: Storage) -> tuple[object, ...]:
        """Repository, branch and paths."""
        return storage.repository, storage.branch, storage.paths

    async def current(self) -> CurrentPrompt:
        """The exact text at the tracked branch's tip; `version_ref` is `git:<last commit to touch it>`."""
        async with self._opened() as (repo, tip):
            commit = await self._last_touched(repo, tip.commit)
        return CurrentPrompt(tip.parts, content_sha256(tip.parts), f"git:{commit}")

    async def propose(
        self, parts: Sequence[PromptPart], *, message: str, name: str, expected_sha256: str
    ) -> ProposedChange:
        """Write `parts` as one commit on the new branch `burnish/<name>`, based on the tracked tip.

        Parts that are not given stay as they are. Asking again with the same text finds the same
        branch. Raises `conflict` when the tracked text is not the expected one or the branch holds
        something else, `uncommitted_edits`, and `nothing_to_change`; nothing is written then.
        """
        async with self._opened() as (repo, tip):
            branch = await self._proposal_branch(repo, name)
            self._refuse_moved(tip, expected_sha256)
            change = self._change(tip, parts)
            await self._refuse_uncommitted(repo, tip)
            with scratch() as env:
                tree = await objects.write_tree(repo, tip, change.texts, env)
                patch = await objects.diff(repo, tip.commit, tree, change.paths, env)
            commit, base = await self._on_branch(repo, branch, change, tree, message)
        return ProposedChange(
            parts=change.target,
            content_sha256=content_sha256(change.target),
            branch=branch,
            commit=commit,
            base_commit=base,
            paths=change.paths,
            diff=patch,
            redeploy_required=self._redeploy_required,
            post_apply=list(self._post_apply),
        )

    async def merged(self, content_sha256: str) -> Seen | None:
        """The commit that brought this text to the tracked branch, when its tip holds it now; else None.

        It goes by content, so a squashed, rebased or hand-applied change counts just as well.
        """
        current = await self.current()
        if current.content_sha256 != content_sha256:
            return None
        return Seen(current.version_ref, f"commit {current.version_ref.removeprefix('git:')}")

    async def way_back(self, parts: Sequence[PromptPart], *, to_ref: str, activated_sha256: str) -> RollbackProposal:
        """Raises `nothing_to_change` when the tracked branch already holds that text."""
        async with self._opened() as (repo, tip):
            change = self._change(tip, parts)
            patch = await self._patch(repo, change)
            drift = measure_drift(activated_sha256, content_sha256(tip.parts))
            revert = await self._last_touched(repo, tip.commit)
            restores = await self._revert_restores(repo, revert, change)
            edited = await uncommitted_edits(repo, self._branch, tip)
        return RollbackProposal(
            target_version_ref=to_ref,
            content_sha256=content_sha256(change.target),
            base_commit=tip.commit,
            diff=patch,
            revert_commit=revert,
            revert_restores=restores,
            files=change.paths,
            redeploy_required=self._redeploy_required,
            post_apply=list(self._post_apply),
            explanation=self._explain(change, to_ref, revert, restores),
            drift=drift,
            warnings=_warnings(drift, edited),
        )

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[Repository, Snapshot]]:
        async with opened(self._repository, self._roots) as repo:
            branch = await objects.checked_branch(repo, self._branch)
            tip = await objects.branch_tip(repo, branch)
            yield repo, await objects.read_snapshot(repo, tip, self._paths)

    async def _last_touched(self, repo: Repository, commit: str) -> str:
        found = await repo.git("rev-list", "--max-count=1", commit, "--", *self._paths)
        return found.line

    async def _proposal_branch(self, repo: Repository, branch_name: str) -> str:
        if branch_name.startswith("-"):
            raise StorageError("bad_branch_name", f"{branch_name!r} cannot be a branch name.")
        return await objects.checked_branch(repo, BRANCH_PREFIX + branch_name.removeprefix(BRANCH_PREFIX))

    def _refuse_moved(self, tip: Snapshot, expected_sha256: str) -> None:
        found = content_sha256(tip.parts)
        if found != expected_sha256:
            raise StorageError(
                "conflict",
                f"Branch {self._branch} now holds {', '.join(self._paths)} with SHA-256 {found}, "
                f"not {expected_sha256}.",
                "Rebase the change on the current text.",
            )

    def _change(self, tip: Snapshot, parts: Sequence[PromptPart]) -> _Change:
        wanted = {part.path: part for part in parts}
        if len(wanted) < len(parts) or not wanted.keys() <= set(self._paths):
            raise StorageError(
                "unknown_path",
                f"The text is for {', '.join(part.path for part in parts)}.",
                f"This prompt has one part each for {', '.join(self._paths)}.",
            )
        target = tuple(wanted.get(part.path, part) for part in tip.parts)
        texts = text_bytes(target)
        changed = {new.path: texts[new.path] for new, old in zip(target, tip.parts, strict=True) if new != old}
        if not changed:
            raise StorageError(
                "nothing_to_change",
                f"Branch {self._branch} already holds this text in {', '.join(self._paths)}.",
            )
        return _Change(tip, target, changed)

    async def _refuse_uncommitted(self, repo: Repository, tip: Snapshot) -> None:
        edited = await uncommitted_edits(repo, self._branch, tip)
        if edited:
            raise StorageError(
                "uncommitted_edits",
                f"{repo.root} has uncommitted edits to {', '.join(edited)} on branch {self._branch}.",
                "Commit or discard them, then try again.",
            )

    async def _patch(self, repo: Repository, change: _Change) -> str:
        with scratch(repo.objects) as env:
            tree = await objects.write_tree(repo, change.tip, change.texts, env)
            return await objects.diff(repo, change.tip.commit, tree, change.paths, env)

    async def _on_branch(
        self, repo: Repository, name: str, change: _Change, tree: str, message: str
    ) -> tuple[str, str]:
        """Create the branch, or find it with this very change; the commit and its base."""
        existing = await objects.find_branch(repo, name)
        if existing is None:
            commit = await self._commit(repo, tree, change.tip.commit, message)
            if await objects.create_branch(repo, name, commit):
                return commit, change.tip.commit
            existing = await objects.find_branch(repo, name)
        base = await self._base_of_same_change(repo, existing, change) if existing else None
        if existing is None or base is None:
            raise StorageError(
                "conflict",
                f"Branch {name} cannot be created: that name is taken by something else.",
                "Choose another branch name, or delete the old branch.",
            )
        return existing, base

    async def _commit(self, repo: Repository, tree: str, parent: str, message: str) -> str:
        body = message.replace("\0", "").strip() or f"Change {', '.join(self._paths)}"
        made = await repo.git(
            "commit-tree",
            "--no-gpg-sign",
            tree,
            "-p",
            parent,
            stdin=f"{body}\n".encode("utf-8", "replace"),
            env=BURNISH.environment(),
        )
        return made.line

    async def _base_of_same_change(self, repo: Repository, existing: str, change: _Change) -> str | None:
        """The base of an existing branch if merging it into the tip would still be exactly this change."""
        bases = await objects.parents(repo, existing)
        tip = change.tip.commit
        if len(bases) != 1 or not await objects.is_ancestor(repo, bases[0], tip):
            return None
        # A branch that was merged before (and rolled back since) would merge as nothing at all.
        if await objects.is_ancestor(repo, existing, tip):
            return None
        if not await objects.changed_paths(repo, bases[0], existing) <= set(change.paths):
            return None
        before = await objects.read_snapshot(repo, bases[0], self._paths)
        after = await objects.read_snapshot(repo, existing, self._paths)
        same = before.parts == change.tip.parts and after.parts == change.target
        return bases[0] if same else None

    async def _revert_restores(self, repo: Repository, revert: str, change: _Change) -> bool:
        bases = await objects.parents(repo, revert)
        if len(bases) != 1:
            return False
        try:
            before = await objects.read_snapshot(repo, bases[0], self._paths)
        except StorageError:
            return False
        return before.parts == change.target

    def _explain(self, change: _Change, target_ref: str, revert: str, restores: bool) -> str:
        way = (
            f"`git revert {revert}` gives the same text."
            if restores
            else f"Reverting {revert}, the last commit to touch it, would not be enough: use the patch."
        )
        lines = [
            f"Brings {', '.join(change.paths)} on branch {self._branch} back to {target_ref}.",
            "Apply the patch with `git apply --index`, commit and merge it.",
            way,
            "The present version stays live until the merged text is seen on the branch.",
        ]
        if self._redeploy_required:
            lines.append("Then redeploy or restart what loads the file: a running process keeps what it read.")
        lines.extend(f"Afterwards: {step}" for step in self._post_apply)
        return "\n".join(lines)


def _warnings(drift: Drift, edited: Sequence[str]) -> tuple[str, ...]:
    found = [drift.warning] if drift.warning else []
    if edited:
        found.append(f"Uncommitted edits to {', '.join(edited)} are in the way: commit or discard them first.")
    return tuple(found)


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
