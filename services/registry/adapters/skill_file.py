"""Prompts that are files in a git repository: changes become branches or patches that a person merges."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from services.registry.adapters.base import (
    Activation,
    CurrentPrompt,
    Draft,
    Drift,
    Intent,
    PromptPart,
    RollbackProposal,
    StorageError,
    StoredVersion,
    Tier,
    content_sha256,
    measure_drift,
    text_bytes,
)
from services.registry.git import objects
from services.registry.git.objects import Snapshot
from services.registry.git.repository import Repository, opened
from services.registry.git.run import BURNISH, Identity, scratch
from services.registry.git.worktree import uncommitted_edits

BRANCH_PREFIX = "burnish/"

Mode = Literal["branch", "patch"]
"""`branch`: a commit on a new branch, and its patch. `patch`: only the patch, the repository untouched."""


@dataclass(frozen=True, slots=True)
class _Change:
    """The way from the tracked branch's tip to a wanted text."""

    tip: Snapshot
    target: tuple[PromptPart, ...]
    texts: dict[str, bytes]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self.texts)


class SkillFileAdapter:
    """The prompt in `paths` (relative, at least one) on the local `branch` of `repository`, bare or not.

    The tracked branch's tip is the only truth: uncommitted text is never read. No method touches
    the work tree, the real index or HEAD, nothing runs that the repository's configuration names,
    and only `propose` in branch mode writes at all. All that the repository refers to must lie below
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
        author: Identity = BURNISH,
    ) -> None:
        if not paths or len(set(paths)) < len(paths):
            raise StorageError("bad_path", "A prompt needs at least one path, and each only once.")
        self._repository = repository
        self._branch = branch
        self._paths = tuple(objects.checked_path(path) for path in paths)
        self._redeploy_required = redeploy_required
        self._post_apply = tuple(post_apply)
        self._author = author
        self._roots = tuple(roots)

    @property
    def tier(self) -> Tier:
        """2: a person merges."""
        return 2

    async def current(self) -> CurrentPrompt:
        """The exact text at the tracked branch's tip; `version_ref` is `git:<last commit to touch it>`."""
        async with self._opened() as (repo, tip):
            commit = await self._last_touched(repo, tip.commit)
        return CurrentPrompt(tip.parts, content_sha256(tip.parts), f"git:{commit}", tip.commit)

    async def read(self, version_ref: str) -> tuple[PromptPart, ...]:
        """The prompt at `git:<full commit id>`; raises `unknown_version` and `path_missing`."""
        async with opened(self._repository, self._roots) as repo:
            return (await self._read(repo, version_ref)).parts

    async def list_versions(self, limit: int = 20) -> list[StoredVersion]:
        """The commits that touched the files, newest first, at most `limit`; renames are not followed.

        A commit at which the prompt was not a readable text, whole, is left out.
        """
        async with self._opened() as (repo, tip):
            listed = await repo.git(
                "rev-list",
                f"--max-count={limit}",
                "--encoding=UTF-8",
                "--format=%H%x00%ct%x00%an%x00%s",
                tip.commit,
                "--",
                *self._paths,
            )
            rows = listed.stdout.decode("utf-8", "replace").split("\n")
            found = [await self._stored_version(repo, row) for row in rows if "\0" in row]
        return [version for version in found if version is not None]

    async def propose(
        self,
        parts: Sequence[PromptPart],
        message: str,
        branch_name: str,
        expected_current_sha256: str,
        *,
        mode: Mode = "branch",
    ) -> Intent:
        """Write `parts` as one commit on the new branch `burnish/<branch_name>`, based on the tracked tip.

        Parts that are not given stay as they are. Asking again with the same text finds the same
        branch. Raises `conflict` when the tracked text is not the expected one or the branch holds
        something else, `uncommitted_edits`, and `nothing_to_change`; nothing is written then.
        """
        async with self._opened() as (repo, tip):
            name = await self._proposal_branch(repo, branch_name)
            self._refuse_moved(tip, expected_current_sha256)
            change = self._change(tip, parts)
            await self._refuse_uncommitted(repo, tip)
            if mode == "patch":
                return self._intent(change, await self._patch(repo, change))
            with scratch() as env:
                tree = await objects.write_tree(repo, tip, change.texts, env)
                patch = await objects.diff(repo, tip.commit, tree, change.paths, env)
            commit, base = await self._on_branch(repo, name, change, tree, message)
        return self._intent(change, patch, branch=name, commit=commit, base=base)

    async def merged(self, content_sha256: str) -> str | None:
        """The commit that brought this text to the tracked branch, when its tip holds it now; else None.

        It goes by content, so a squashed, rebased or hand-applied change counts just as well.
        """
        current = await self.current()
        matches = current.content_sha256 == content_sha256
        return objects.checked_object_id(current.version_ref) if matches else None

    async def drift(self, activated_sha256: str) -> Drift:
        """The hash recorded at activation against the tracked branch's text now."""
        return measure_drift(activated_sha256, (await self.current()).content_sha256)

    async def rollback_proposal(
        self,
        *,
        activated_sha256: str,
        to_ref: str | None = None,
        parts: Sequence[PromptPart] | None = None,
    ) -> RollbackProposal:
        """How a person gets back to `parts`, or where none are given to the text at `to_ref`.

        Changes nothing in the repository. Raises `nothing_to_change` when the tracked branch
        already holds that text.
        """
        async with self._opened() as (repo, tip):
            if parts is None:
                parts = (await self._read(repo, to_ref or "")).parts
            change = self._change(tip, parts)
            patch = await self._patch(repo, change)
            drift = measure_drift(activated_sha256, content_sha256(tip.parts))
            revert = await self._last_touched(repo, tip.commit)
            restores = await self._revert_restores(repo, revert, change)
            edited = await uncommitted_edits(repo, self._branch, tip)
        target_sha256 = content_sha256(change.target)
        target_ref = to_ref or f"sha256:{target_sha256}"
        return RollbackProposal(
            target_version_ref=target_ref,
            content_sha256=target_sha256,
            base_commit=tip.commit,
            diff=patch,
            revert_commit=revert,
            revert_restores=restores,
            files=change.paths,
            redeploy_required=self._redeploy_required,
            post_apply=list(self._post_apply),
            explanation=self._explain(change, target_ref, revert, restores),
            drift=drift,
            warnings=_warnings(drift, edited),
        )

    # The adapter interface, for callers that do not care where a prompt lives.

    async def current_version(self) -> CurrentPrompt:
        return await self.current()

    async def propose_change(
        self, parts: Sequence[PromptPart], *, message: str, name: str, expected_current_sha256: str
    ) -> Intent:
        """See `propose`, in branch mode."""
        return await self.propose(parts, message, name, expected_current_sha256)

    async def activate(self, draft: Draft) -> Activation:
        """Whether a person has merged the draft; nothing is written, so it may be asked again."""
        commit = await self.merged(draft.content_sha256)
        return Activation(commit is not None, draft.content_sha256, f"git:{commit}" if commit else None)

    async def rollback_to(
        self, version_ref: str, *, activated_sha256: str, parts: Sequence[PromptPart] | None = None
    ) -> RollbackProposal:
        return await self.rollback_proposal(activated_sha256=activated_sha256, to_ref=version_ref, parts=parts)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[Repository, Snapshot]]:
        async with opened(self._repository, self._roots) as repo:
            branch = await objects.checked_branch(repo, self._branch)
            tip = await objects.branch_tip(repo, branch)
            yield repo, await objects.read_snapshot(repo, tip, self._paths)

    async def _read(self, repo: Repository, version_ref: str) -> Snapshot:
        commit = objects.checked_object_id(version_ref)
        if await objects.find_commit(repo, commit) is None:
            raise StorageError("unknown_version", f"{repo.root} has no commit {commit}.", "Is the clone shallow?")
        return await objects.read_snapshot(repo, commit, self._paths)

    async def _last_touched(self, repo: Repository, commit: str) -> str:
        found = await repo.git("rev-list", "--max-count=1", commit, "--", *self._paths)
        return found.line

    async def _stored_version(self, repo: Repository, row: str) -> StoredVersion | None:
        commit, seconds, author, summary = row.split("\0")
        try:
            snapshot = await objects.read_snapshot(repo, commit, self._paths)
        except StorageError as error:
            if error.code in ("git_failed", "git_missing", "git_timeout"):
                raise
            return None
        created_at = datetime.fromtimestamp(int(seconds), UTC)
        return StoredVersion(f"git:{commit}", content_sha256(snapshot.parts), created_at, author, summary)

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
            env=self._author.environment(),
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

    def _intent(
        self,
        change: _Change,
        patch: str,
        *,
        branch: str | None = None,
        commit: str | None = None,
        base: str | None = None,
    ) -> Intent:
        return Intent(
            parts=change.target,
            content_sha256=content_sha256(change.target),
            branch=branch,
            commit=commit,
            base_commit=base or change.tip.commit,
            paths=change.paths,
            diff=patch,
            redeploy_required=self._redeploy_required,
            post_apply=list(self._post_apply),
        )

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
