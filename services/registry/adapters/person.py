"""What a person does by hand, for the demo and tests: apply and commit a patch, or merge a branch.

Unlike the adapter this works on the checked-out files, so a content filter that the repository
configures does run, as it does for a person; use it on repositories of your own.
"""

from __future__ import annotations

from pathlib import Path

from services.registry.adapters import git, objects
from services.registry.adapters.base import StorageError
from services.registry.adapters.git import Identity

PERSON = Identity("Burnish demo admin", "admin@localhost")


async def apply_patch_and_commit(
    repository: Path, patch: str, message: str, branch: str, *, author: Identity = PERSON
) -> str:
    """Apply `patch` to the checked-out `branch`, commit it, and return the commit id.

    Raises `conflict` when another branch is checked out or the patch does not apply, and
    `uncommitted_edits` when something is staged already; the files are as before then.
    """
    repo = await _checked_out(repository, branch)
    await _refuse_staged(repo)
    raw = patch.encode("utf-8")
    applied = await git.run(repo, "apply", "--index", "-", stdin=raw, check=False)
    if applied.returncode:
        raise StorageError("conflict", f"The patch does not apply to {branch} in {repo}.", "Make a new one.")
    try:
        await git.run(repo, "commit", "--quiet", "-F", "-", stdin=message.encode(), env=author.environment())
    except StorageError:
        await git.run(repo, "apply", "--index", "--reverse", "-", stdin=raw, check=False)
        raise
    return await objects.branch_tip(repo, branch)


async def merge_branch(
    repository: Path, branch: str, into: str, *, fast_forward: bool = True, author: Identity = PERSON
) -> str:
    """Merge `branch` into the checked-out branch `into` and return the new tip.

    `fast_forward=False` always makes a merge commit. Raises `conflict`, with the merge undone.
    """
    repo = await _checked_out(repository, into)
    source = await objects.branch_tip(repo, await objects.checked_branch(repo, branch))
    merged = await git.run(
        repo,
        "merge",
        "--quiet",
        "--no-edit",
        "--ff" if fast_forward else "--no-ff",
        "-m",
        f"Merge branch '{branch}'",
        source,
        check=False,
        env=author.environment(),
    )
    if merged.returncode:
        await git.run(repo, "merge", "--abort", check=False)
        raise StorageError("conflict", f"{branch} does not merge into {into} in {repo}.", "Merge it by hand.")
    return await objects.branch_tip(repo, into)


async def _checked_out(repository: Path, branch: str) -> Path:
    repo = await objects.open_repository(repository)
    head = await git.run(repo, "symbolic-ref", "--quiet", "HEAD", check=False)
    if head.line != f"refs/heads/{branch}":
        raise StorageError(
            "conflict",
            f"{repo} has {head.line or 'no branch'} checked out.",
            f"Run git switch {branch} first.",
        )
    return repo


async def _refuse_staged(repo: Path) -> None:
    staged = await git.run(repo, "diff-index", "--cached", "--name-only", "--no-ext-diff", "HEAD")
    if staged.stdout:
        names = ", ".join(staged.line.split("\n")[:5])
        raise StorageError("uncommitted_edits", f"{repo} has staged edits to {names}.", "Commit them first.")
