"""The git repository in which the demo's prompt lives, and what a person does in it."""

from __future__ import annotations

import subprocess
from pathlib import Path

AUTHOR = ("-c", "user.name=Demo Admin", "-c", "user.email=admin@localhost", "-c", "commit.gpgsign=false")
BRANCH = "main"


def make(folder: Path, path: str, text: str) -> None:
    """A new repository with the prompt as its first commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", f"--initial-branch={BRANCH}")
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    git(folder, "add", "--", path)
    git(folder, *AUTHOR, "commit", "--quiet", "-m", "Add the prompt")


def merge(folder: Path, branch: str) -> str:
    """Merge a proposed branch into main, as the person who reviewed it; returns the commit."""
    git(folder, *AUTHOR, "merge", "--quiet", "--no-edit", "--ff", branch)
    return head(folder)


def apply_patch(folder: Path, patch: str, message: str) -> str:
    """Apply a patch to main and commit it, as the person who reviewed it; returns the commit."""
    git(folder, "apply", "--index", "-", stdin=patch)
    git(folder, *AUTHOR, "commit", "--quiet", "-m", message)
    return head(folder)


def head(folder: Path) -> str:
    """The commit at the tip of main."""
    return git(folder, "rev-parse", BRANCH).strip()


def git(folder: Path, *arguments: str, stdin: str | None = None) -> str:
    """Run git; raises RuntimeError with git's own words."""
    done = subprocess.run(  # noqa: S603  # arguments are ours
        ["git", "-C", str(folder), *arguments],  # noqa: S607
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode:
        raise RuntimeError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout
