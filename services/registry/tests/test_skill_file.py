"""The git-backed adapter on real repositories: exact bytes, nothing touched, nothing executed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from services.registry.adapters.base import (
    DRIFT_WARNING,
    MAX_PART_CHARACTERS,
    MAX_TEXT_BYTES,
    MergedStore,
    PromptPart,
    ProposedChange,
    RollbackProposal,
    StorageError,
    content_sha256,
    prompt_part,
)
from services.registry.adapters.skill_file import SkillFile
from services.registry.git import run as git_module

SKILL = "skills/intent.md"
FIRST = "# Intents\n\ncard_arrival: where is my card\nrefund: money back\n"
SECOND = "# Intents\n\ncard_arrival: where is my card\nrefund: money back, please\n"
THIRD = "# Intents\n\ncard_arrival: has it been sent\nrefund: money back, please\n"

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}


class Repository:
    """A repository as a person sees it: plain git, without any of the adapter's hardening."""

    def __init__(self, root: Path, *options: str) -> None:
        self.root = root
        subprocess.run(["git", "init", "-q", "-b", "main", *options, str(root)], check=True, env=ENVIRONMENT)

    def git(self, *args: str, stdin: bytes | None = None, at: Path | None = None) -> bytes:
        command = ["git", "-C", str(at or self.root), *args]
        return subprocess.run(command, check=True, env=ENVIRONMENT, input=stdin, capture_output=True).stdout

    def rev(self, ref: str) -> str:
        return self.git("rev-parse", ref).decode().strip()

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())

    def commit(self, path: str, text: str, message: str = "Edit") -> str:
        self.write(path, text)
        self.git("add", "--", path)
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.rev("HEAD")

    def apply(self, patch: str, message: str) -> str:
        self.git("apply", "--index", "-", stdin=patch.encode())
        self.git("commit", "-q", "-m", message)
        return self.rev("HEAD")

    def everything(self) -> dict[str, bytes]:
        """Every file below the root, work tree and git folder alike."""
        files = (file for file in sorted(self.root.rglob("*")) if file.is_file() or file.is_symlink())
        return {str(f): os.readlink(f).encode() if f.is_symlink() else f.read_bytes() for f in files}

    def person_state(self) -> dict[str, bytes]:
        """All but objects and proposal branches: what `propose` must leave alone."""
        free = (".git/objects/", ".git/refs/heads/burnish", ".git/logs/refs/heads/burnish")
        return {k: v for k, v in self.everything().items() if not any(part in k for part in free)}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "repo")
    made.commit("README.md", "about\n", "Start")
    made.commit(SKILL, FIRST, "First prompt")
    return made


def adapter_for(repository: Repository, *paths: str) -> SkillFile:
    return SkillFile(repository.root, "main", paths or (SKILL,), roots=[repository.root.parent])


def prompt(text: str, path: str = SKILL) -> list[PromptPart]:
    return [PromptPart(path=path, text=text)]


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def propose(adapter: SkillFile, text: str, name: str = "p1", path: str = SKILL) -> ProposedChange:
    current = await adapter.current()
    return await adapter.propose(
        prompt(text, path), message="Better refunds", name=name, expected_sha256=current.content_sha256
    )


async def seen(adapter: SkillFile, wanted_sha256: str) -> str | None:
    """The commit at which the store holds the text; its two namings agree."""
    found = await adapter.merged(wanted_sha256)
    if found is None:
        return None
    assert found.where == f"commit {found.version_ref.removeprefix('git:')}"
    return found.version_ref.removeprefix("git:")


async def way_back(adapter: SkillFile, text: str, *, live: str = FIRST, to_ref: str = "git:x") -> RollbackProposal:
    return await adapter.way_back(prompt(text), to_ref=to_ref, activated_sha256=sha(live))


def applies(repository: Repository, patch: str) -> None:
    repository.git("apply", "--check", "-", stdin=patch.encode())


# The content hash


def test_hash_of_one_part_is_that_of_the_file() -> None:
    assert content_sha256(prompt("a\r\nb")) == hashlib.sha256(b"a\r\nb").hexdigest()


def test_hash_of_parts_follows_the_documented_layout() -> None:
    parts = [PromptPart(path="b.md", text="ü"), PromptPart(path="a.md", text="")]
    layout = b"burnish-parts-v1\n4:a.md0:4:b.md2:" + "ü".encode()
    assert content_sha256(parts) == hashlib.sha256(layout).hexdigest()
    assert content_sha256(reversed(parts)) == content_sha256(parts)


def test_hash_tells_apart_what_a_plain_concatenation_would_not() -> None:
    assert content_sha256([PromptPart(path="a", text="xb"), PromptPart(path="b", text="y")]) != content_sha256(
        [PromptPart(path="a", text="x"), PromptPart(path="b", text="by")]
    )


@pytest.mark.parametrize("parts", [[], [PromptPart(path="a", text="x"), PromptPart(path="a", text="y")]])
def test_hash_refuses_no_parts_and_double_paths(parts: list[PromptPart]) -> None:
    with pytest.raises(ValueError, match="part"):
        content_sha256(parts)


# Reading


async def test_current_reads_the_branch_and_names_the_commit_that_touched_the_file(
    repository: Repository,
) -> None:
    touched = repository.rev("HEAD")
    repository.commit("README.md", "other\n")
    current = await adapter_for(repository).current()
    assert current.parts == (PromptPart(path=SKILL, text=FIRST),)
    assert current.content_sha256 == sha(FIRST)
    assert current.version_ref == f"git:{touched}"


@pytest.mark.parametrize("text", ["a\r\nb\r\n", "no newline", "\ufeffmark\r\rold mac", "", "\n\n", "日本 🙂\n"])
async def test_text_is_read_and_written_byte_for_byte(repository: Repository, text: str) -> None:
    repository.commit(SKILL, text)
    adapter = adapter_for(repository)
    assert (await adapter.current()).parts[0].text == text
    wanted = text + "line\r\nlast, without an end"
    intent = await propose(adapter, wanted)
    assert repository.git("cat-file", "blob", f"{intent.branch}:{SKILL}") == wanted.encode()
    applies(repository, intent.diff)


async def test_uncommitted_text_and_other_branches_are_not_read(repository: Repository) -> None:
    repository.git("switch", "-q", "-c", "other")
    repository.commit(SKILL, SECOND)
    repository.write(SKILL, THIRD)
    assert (await adapter_for(repository).current()).parts[0].text == FIRST


async def test_packed_refs_and_objects(repository: Repository) -> None:
    repository.commit(SKILL, SECOND)
    repository.git("gc", "-q")
    assert not (repository.root / ".git/refs/heads/main").exists()
    adapter = adapter_for(repository)
    assert (await adapter.current()).content_sha256 == sha(SECOND)
    intent = await propose(adapter, THIRD)
    repository.git("pack-refs", "--all")
    assert (await propose(adapter, THIRD)).commit == intent.commit


# Proposing


async def test_propose_makes_one_commit_on_its_own_branch_and_touches_nothing_else(
    repository: Repository,
) -> None:
    tip, before = repository.rev("HEAD"), repository.person_state()
    intent = await propose(adapter_for(repository), SECOND)
    assert repository.person_state() == before
    assert repository.rev(f"{intent.branch}^") == tip == intent.base_commit
    assert (intent.branch, intent.commit) == ("burnish/p1", repository.rev("burnish/p1"))
    assert (intent.paths, intent.content_sha256) == ((SKILL,), sha(SECOND))
    assert repository.git("diff", "--name-only", "main", "burnish/p1").decode().split() == [SKILL]
    log = repository.git("log", "-1", "--format=%an <%ae> %cn %B", "burnish/p1").decode().strip()
    assert log == "Burnish <burnish@localhost> Burnish Better refunds"
    applies(repository, intent.diff)


async def test_proposing_the_same_again_finds_the_same_branch(repository: Repository) -> None:
    adapter = adapter_for(repository)
    first = await propose(adapter, SECOND)
    assert await propose(adapter, SECOND) == first
    repository.commit("README.md", "unrelated\n")
    assert await propose(adapter, SECOND) == first


async def test_a_taken_branch_name_is_a_conflict(repository: Repository) -> None:
    adapter = adapter_for(repository)
    taken = await propose(adapter, SECOND)
    with pytest.raises(StorageError) as refused:
        await propose(adapter, THIRD)
    assert refused.value.code == "conflict"
    assert repository.rev("burnish/p1") == taken.commit


async def test_a_branch_that_was_merged_and_rolled_back_is_not_reused(repository: Repository) -> None:
    adapter = adapter_for(repository)
    await propose(adapter, SECOND)
    repository.git("merge", "-q", "burnish/p1")
    repository.commit(SKILL, FIRST, "Roll back")
    with pytest.raises(StorageError) as refused:
        await propose(adapter, SECOND)
    assert refused.value.code == "conflict"
    assert (await propose(adapter, SECOND, "p1-again")).commit


async def test_a_branch_that_changes_more_than_the_prompt_is_not_reused(repository: Repository) -> None:
    adapter = adapter_for(repository)
    repository.git("switch", "-q", "-c", "burnish/p1")
    repository.write("evil.sh", "extra\n")
    repository.git("add", "evil.sh")
    repository.commit(SKILL, SECOND)
    repository.git("switch", "-q", "main")
    with pytest.raises(StorageError) as refused:
        await propose(adapter, SECOND)
    assert refused.value.code == "conflict"


async def test_a_branch_in_the_way_of_the_folder_is_a_conflict(repository: Repository) -> None:
    repository.git("branch", "burnish")
    with pytest.raises(StorageError) as refused:
        await propose(adapter_for(repository), SECOND)
    assert refused.value.code == "conflict"


async def test_the_present_text_is_nothing_to_change(repository: Repository) -> None:
    with pytest.raises(StorageError) as refused:
        await propose(adapter_for(repository), FIRST)
    assert refused.value.code == "nothing_to_change"


async def test_a_branch_that_moved_between_read_and_propose_is_a_conflict(repository: Repository) -> None:
    adapter = adapter_for(repository)
    seen = await adapter.current()
    repository.commit(SKILL, SECOND)
    before = repository.everything()
    with pytest.raises(StorageError) as refused:
        await adapter.propose(prompt(THIRD), message="m", name="p1", expected_sha256=seen.content_sha256)
    assert refused.value.code == "conflict"
    assert repository.everything() == before


async def test_an_unrelated_move_between_read_and_propose_is_fine(repository: Repository) -> None:
    adapter = adapter_for(repository)
    seen = await adapter.current()
    tip = repository.commit("README.md", "unrelated\n")
    intent = await adapter.propose(prompt(SECOND), message="m", name="p1", expected_sha256=seen.content_sha256)
    assert intent.base_commit == tip


async def test_the_same_proposal_made_concurrently_gives_one_branch(repository: Repository) -> None:
    adapter = adapter_for(repository)
    intents = await asyncio.gather(*(propose(adapter, SECOND) for _ in range(4)))
    assert {intent.commit for intent in intents} == {repository.rev("burnish/p1")}


async def test_different_proposals_made_concurrently(repository: Repository) -> None:
    adapter = adapter_for(repository)
    apart = await asyncio.gather(propose(adapter, SECOND, "a"), propose(adapter, THIRD, "b"))
    assert [repository.rev("burnish/a"), repository.rev("burnish/b")] == [i.commit for i in apart]
    racing = await asyncio.gather(propose(adapter, SECOND, "c"), propose(adapter, THIRD, "c"), return_exceptions=True)
    assert sorted(type(result).__name__ for result in racing) == ["ProposedChange", "StorageError"]


async def test_several_parts_and_file_modes(repository: Repository) -> None:
    other = "skills/Gebühren & mehr.md"
    repository.commit(other, "eins\n")
    repository.git("update-index", "--chmod=+x", "--", other)
    (repository.root / other).chmod(0o755)
    repository.git("commit", "-q", "-m", "Mode")
    adapter = adapter_for(repository, SKILL, other)
    current = await adapter.current()
    intent = await adapter.propose(
        prompt("zwei, ü\n", other), message="m", name="p1", expected_sha256=current.content_sha256
    )
    whole = [PromptPart(path=SKILL, text=FIRST), PromptPart(path=other, text="zwei, ü\n")]
    assert (list(intent.parts), intent.content_sha256) == (whole, content_sha256(whole))
    assert intent.paths == (other,)
    assert repository.git("ls-tree", "burnish/p1", "--", other).startswith(b"100755 ")
    applies(repository, intent.diff)
    repository.apply(intent.diff, "By hand")
    assert await adapter.merged(intent.content_sha256)


async def test_a_part_that_is_not_the_prompts_is_refused(repository: Repository) -> None:
    with pytest.raises(StorageError) as refused:
        await propose(adapter_for(repository), "x", path="README.md")
    assert refused.value.code == "unknown_path"


async def test_a_file_marked_as_binary_still_gets_a_patch_to_read(repository: Repository) -> None:
    repository.commit(".gitattributes", "*.md binary\n")
    intent = await propose(adapter_for(repository), SECOND)
    assert "+refund: money back, please" in intent.diff
    applies(repository, intent.diff)


async def test_long_lines_of_wide_characters_keep_the_patch_readable(repository: Repository) -> None:
    # git repeats the line above a hunk after its @@, cut to 80 bytes: inside a character here.
    heading = "a" + "ü" * 100
    repository.commit(SKILL, f"{heading}\n" + "1\n" * 8 + "end\n")
    intent = await propose(adapter_for(repository), f"{heading}\n" + "1\n" * 8 + "END @@ ü\n@@ -1 +1 @@ x\n")
    applies(repository, intent.diff)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=200))
async def test_any_text_survives_the_round_trip(repository: Repository, text: str) -> None:
    if text == FIRST:
        return
    adapter = adapter_for(repository)
    back = await way_back(adapter, text)
    assert back.content_sha256 == sha(text)
    applies(repository, back.diff)


# Uncommitted edits


def _edited(repository: Repository) -> None:
    repository.write(SKILL, FIRST.replace("money", "cheque"))


def _staged(repository: Repository) -> None:
    repository.write(SKILL, SECOND)
    repository.git("add", "--", SKILL)


def _staged_then_undone_on_disk(repository: Repository) -> None:
    _staged(repository)
    repository.write(SKILL, FIRST)


def _deleted(repository: Repository) -> None:
    (repository.root / SKILL).unlink()


def _replaced_by_a_link(repository: Repository) -> None:
    copy = repository.root / "copy.md"
    copy.write_bytes(FIRST.encode())
    (repository.root / SKILL).unlink()
    (repository.root / SKILL).symlink_to(copy)


@pytest.mark.parametrize("edit", [_edited, _staged, _staged_then_undone_on_disk, _deleted, _replaced_by_a_link])
async def test_uncommitted_edits_are_named_and_nothing_is_written(
    repository: Repository, edit: Callable[[Repository], None]
) -> None:
    edit(repository)
    before = repository.everything()
    with pytest.raises(StorageError) as refused:
        await adapter_for(repository).propose(prompt(THIRD), message="m", name="p1", expected_sha256=sha(FIRST))
    assert refused.value.code == "uncommitted_edits"
    assert SKILL in refused.value.message
    assert repository.everything() == before


async def test_unrelated_edits_are_fine(repository: Repository) -> None:
    repository.write("README.md", "half-written")
    repository.write("skills/new.md", "untracked")
    before = repository.person_state()
    await propose(adapter_for(repository), SECOND)
    assert repository.person_state() == before


async def test_edits_while_another_branch_is_checked_out_are_fine(repository: Repository) -> None:
    repository.git("switch", "-q", "-c", "other")
    repository.write(SKILL, THIRD)
    assert (await propose(adapter_for(repository), SECOND)).commit


async def test_edits_in_a_linked_work_tree_count(repository: Repository, tmp_path: Path) -> None:
    repository.git("switch", "-q", "-c", "other")
    linked = tmp_path / "linked"
    repository.git("worktree", "add", "-q", str(linked), "main")
    (linked / SKILL).write_text("edited")
    with pytest.raises(StorageError) as refused:
        await propose(adapter_for(repository), SECOND)
    assert refused.value.code == "uncommitted_edits"


@pytest.mark.parametrize("how", ["autocrlf", "attribute"])
async def test_converted_line_endings_are_no_edit(repository: Repository, how: str) -> None:
    if how == "autocrlf":
        repository.git("config", "core.autocrlf", "true")
    else:
        repository.commit(".gitattributes", "*.md text eol=crlf\n")
    (repository.root / SKILL).unlink()
    repository.git("checkout", "--", SKILL)
    assert b"\r\n" in (repository.root / SKILL).read_bytes()
    intent = await propose(adapter_for(repository), SECOND)
    applies(repository, intent.diff)


async def test_changed_line_endings_without_conversion_are_an_edit(repository: Repository) -> None:
    repository.write(SKILL, FIRST.replace("\n", "\r\n"))
    with pytest.raises(StorageError) as refused:
        await propose(adapter_for(repository), SECOND)
    assert refused.value.code == "uncommitted_edits"


async def test_a_file_outside_a_sparse_checkout_is_no_edit(repository: Repository) -> None:
    repository.git("sparse-checkout", "set", "docs")
    assert not (repository.root / SKILL).exists()
    assert (await propose(adapter_for(repository), SECOND)).commit


# Merging and confirming


async def test_an_intent_becomes_effective_when_a_person_merges(repository: Repository) -> None:
    adapter = adapter_for(repository)
    intent = await propose(adapter, SECOND)
    assert await adapter.merged(intent.content_sha256) is None
    repository.commit("README.md", "meanwhile\n")
    repository.git("merge", "-q", "--no-ff", "--no-edit", "burnish/p1")
    assert await seen(adapter, intent.content_sha256) == intent.commit
    assert (repository.root / SKILL).read_text() == SECOND


async def test_a_patch_applied_by_hand_confirms_as_well(repository: Repository) -> None:
    adapter = adapter_for(repository)
    intent = await propose(adapter, SECOND)
    commit = repository.apply(intent.diff, "By hand")
    assert await seen(adapter, intent.content_sha256) == commit
    assert repository.git("status", "--porcelain") == b""


# Rolling back


async def test_rollback_proposal_restores_the_text_and_changes_nothing(repository: Repository) -> None:
    adapter = adapter_for(repository)
    first = (await adapter.current()).version_ref
    second = repository.commit(SKILL, SECOND)
    repository.write("README.md", "half-written")
    before = repository.everything()
    rollback = await way_back(adapter, FIRST, live=SECOND, to_ref=first)
    assert repository.everything() == before
    assert (rollback.revert_commit, rollback.revert_restores) == (second, True)
    assert (rollback.files, rollback.content_sha256) == ((SKILL,), sha(FIRST))
    assert (rollback.drift.drifted, rollback.drift.warning, rollback.warnings) == (False, None, ())
    assert rollback.target_version_ref == first
    assert second in rollback.explanation
    applies(repository, rollback.diff)
    repository.apply(rollback.diff, "Roll back")
    assert await adapter.merged(sha(FIRST))


async def test_reverting_the_named_commit_gives_the_same_text(repository: Repository) -> None:
    adapter = adapter_for(repository)
    first = (await adapter.current()).version_ref
    repository.commit(SKILL, SECOND)
    rollback = await way_back(adapter, FIRST, live=SECOND, to_ref=first)
    repository.git("revert", "--no-edit", rollback.revert_commit)
    assert await adapter.merged(rollback.content_sha256)


async def test_rollback_over_several_versions_says_that_a_revert_is_not_enough(
    repository: Repository,
) -> None:
    adapter = adapter_for(repository)
    first = (await adapter.current()).version_ref
    repository.commit(SKILL, SECOND)
    repository.commit(SKILL, THIRD)
    rollback = await way_back(adapter, FIRST, live=THIRD, to_ref=first)
    assert not rollback.revert_restores
    assert "would not be enough" in rollback.explanation
    applies(repository, rollback.diff)


async def test_rollback_warns_of_drift_and_still_proceeds(repository: Repository) -> None:
    adapter = adapter_for(repository)
    first = (await adapter.current()).version_ref
    repository.commit(SKILL, SECOND)
    repository.commit(SKILL, THIRD, "Behind the ledger's back")
    rollback = await way_back(adapter, FIRST, live=SECOND, to_ref=first)
    assert rollback.drift.drifted
    assert (rollback.drift.expected_sha256, rollback.drift.found_sha256) == (sha(SECOND), sha(THIRD))
    assert rollback.warnings == (DRIFT_WARNING,)
    applies(repository, rollback.diff)


async def test_rollback_to_a_text_that_git_never_saw(repository: Repository) -> None:
    adapter = adapter_for(repository)
    before = repository.everything()
    rollback = await way_back(adapter, "from the ledger", live=FIRST)
    assert repository.everything() == before
    assert rollback.target_version_ref == "git:x"
    applies(repository, rollback.diff)


async def test_rollback_warns_of_uncommitted_edits(repository: Repository) -> None:
    repository.write(SKILL, THIRD)
    rollback = await way_back(adapter_for(repository), SECOND, live=FIRST)
    assert len(rollback.warnings) == 1 and SKILL in rollback.warnings[0]


async def test_rollback_to_the_present_text_is_nothing_to_change(repository: Repository) -> None:
    with pytest.raises(StorageError) as refused:
        await way_back(adapter_for(repository), FIRST, live=FIRST)
    assert refused.value.code == "nothing_to_change"


async def test_configured_steps_reach_the_person(repository: Repository) -> None:
    adapter = SkillFile(
        repository.root,
        "main",
        [SKILL],
        roots=[repository.root],
        redeploy_required=True,
        post_apply=["make sync-taxonomy"],
    )
    intent = await propose(adapter, SECOND)
    rollback = await way_back(adapter, SECOND, live=FIRST)
    assert intent.post_apply == rollback.post_apply == ["make sync-taxonomy"]
    assert intent.redeploy_required and rollback.redeploy_required
    assert "make sync-taxonomy" in rollback.explanation and "redeploy" in rollback.explanation


# Repositories of every kind


async def test_bare_repository(repository: Repository, tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    repository.git("clone", "-q", "--bare", str(repository.root), str(bare))
    adapter = SkillFile(bare, "main", [SKILL], roots=[tmp_path])
    intent = await propose(adapter, SECOND)
    assert repository.git("cat-file", "blob", f"burnish/p1:{SKILL}", at=bare) == SECOND.encode()
    applies(repository, intent.diff)
    rollback = await way_back(adapter, THIRD, live=FIRST)
    applies(repository, rollback.diff)
    repository.git("update-ref", "refs/heads/main", "refs/heads/burnish/p1", at=bare)
    assert await seen(adapter, intent.content_sha256) == intent.commit


async def test_sha256_object_format(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "wide", "--object-format=sha256")
    first = repository.commit(SKILL, FIRST)
    adapter = adapter_for(repository)
    intent = await propose(adapter, SECOND)
    assert len(first) == len(intent.commit or "") == 64
    assert (await propose(adapter, SECOND)).commit == intent.commit
    repository.git("merge", "-q", "burnish/p1")
    rollback = await way_back(adapter, FIRST, live=SECOND, to_ref=f"git:{first}")
    applies(repository, rollback.diff)


async def test_repository_of_another_owner(repository: Repository) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a repository away")
    for file in (repository.root, *repository.root.rglob("*")):
        os.lchown(file, 12345, 12345)
    assert (await propose(adapter_for(repository), SECOND)).commit


async def test_folder_names_with_awkward_characters(tmp_path: Path) -> None:
    repository = Repository(tmp_path / 'a:b "c" \\ ü')
    repository.commit(SKILL, FIRST)
    rollback = await way_back(adapter_for(repository), SECOND, live=FIRST)
    applies(repository, rollback.diff)


async def test_the_callers_git_variables_do_not_leak_in(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert (await adapter_for(repository).current()).content_sha256 == sha(FIRST)


# Hostile repositories


def _alarm(repository: Repository, name: str) -> str:
    """A shell command that would leave a file behind if it ever ran."""
    return f"touch '{repository.root.parent}/alarm-{name}'; cat"


def _alarms(folder: Path) -> set[str]:
    return {file.name.removeprefix("alarm-") for file in folder.glob("alarm-*")}


def _arm(repository: Repository) -> None:
    hooks = repository.root / ".git/hooks"
    for hook in ("reference-transaction", "pre-commit", "commit-msg", "post-commit", "post-index-change"):
        (hooks / hook).write_text(f"#!/bin/sh\n{_alarm(repository, hook)}\n")
        (hooks / hook).chmod(0o755)
    settings = {
        "core.fsmonitor": "fsmonitor",
        "diff.external": "external",
        "diff.evil.command": "driver",
        "diff.evil.textconv": "textconv",
        "filter.evil.clean": "clean",
        "filter.evil.smudge": "smudge",
        "filter.evil.process": "process",
        "core.pager": "pager",
        "core.editor": "editor",
        "gpg.program": "gpg",
        "core.sshCommand": "ssh",
        "core.alternateRefsCommand": "alternate",
    }
    (repository.root / ".git/info/attributes").write_text("*.md filter=evil diff=evil -text\n")
    for key, name in settings.items():
        repository.git("config", key, _alarm(repository, name))
    for key, value in {
        "filter.evil.required": "true",
        "log.showSignature": "true",
        "commit.gpgSign": "true",
        "core.splitIndex": "true",
        "core.bigFileThreshold": "1",
        "diff.noprefix": "true",
        "diff.suppressBlankEmpty": "true",
        "apply.whitespace": "error-all",
        "core.logAllRefUpdates": "always",
    }.items():
        repository.git("config", key, value)


async def test_nothing_that_a_hostile_repository_names_is_executed(repository: Repository, tmp_path: Path) -> None:
    second = repository.commit(SKILL, SECOND)
    _arm(repository)
    # Same size, other time: the state in which git itself would run the clean filter.
    repository.write(SKILL, SECOND)
    adapter = adapter_for(repository)
    intent = await propose(adapter, THIRD + "trailing  \n")
    rollback = await way_back(adapter, FIRST, live=SECOND)
    assert await seen(adapter, sha(SECOND)) == second
    repository.write(SKILL, SECOND.replace("money", "penny"))
    with pytest.raises(StorageError, match="uncommitted"):
        await propose(adapter, THIRD, "p2")
    assert _alarms(tmp_path) == set()
    assert "@@ -" in intent.diff and "--- a/skills/intent.md" in rollback.diff


def test_the_hostile_repository_really_is_hostile(repository: Repository, tmp_path: Path) -> None:
    _arm(repository)
    repository.write(SKILL, FIRST.replace("money", "penny"))
    subprocess.run(["git", "-C", str(repository.root), "diff"], env=ENVIRONMENT, capture_output=True, check=False)
    subprocess.run(
        ["git", "-C", str(repository.root), "branch", "x"], env=ENVIRONMENT, capture_output=True, check=False
    )
    fired = _alarms(tmp_path)
    assert {"fsmonitor", "reference-transaction"} <= fired
    assert fired & {"clean", "process", "driver", "external"}


async def test_a_missing_object_is_not_fetched(repository: Repository, tmp_path: Path) -> None:
    blob = repository.rev(f"HEAD:{SKILL}")
    (repository.root / f".git/objects/{blob[:2]}/{blob[2:]}").unlink()
    alarm = tmp_path / "alarm-remote"
    for key, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": str(tmp_path),
        "remote.origin.uploadpack": f"touch {alarm};",
        "protocol.file.allow": "always",
    }.items():
        repository.git("config", key, value)
    with pytest.raises(StorageError) as refused:
        await adapter_for(repository).current()
    assert refused.value.code == "git_failed"
    assert not alarm.exists()


async def test_symbolic_links_are_refused(repository: Repository, tmp_path: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("secret")
    (repository.root / "link.md").symlink_to(secret)
    (repository.root / "folder").symlink_to(tmp_path)
    repository.git("add", "link.md", "folder")
    repository.git("commit", "-q", "-m", "Links")
    for path in ("link.md", "folder/secret.md"):
        with pytest.raises(StorageError) as refused:
            await adapter_for(repository, path).current()
        assert refused.value.code == "symbolic_link"


async def test_a_linked_folder_in_the_work_tree_is_not_followed(repository: Repository, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (repository.root / "skills").rename(outside)
    (repository.root / "skills").symlink_to(outside)
    with pytest.raises(StorageError) as refused:
        await propose(adapter_for(repository), SECOND)
    assert refused.value.code == "uncommitted_edits"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("../outside.md", "path_outside_repository"),
        ("a/../../outside.md", "path_outside_repository"),
        ("/etc/passwd", "path_outside_repository"),
        ("-rf", "bad_path"),
        ("a//b.md", "bad_path"),
        ("./a.md", "bad_path"),
        (".git/config", "bad_path"),
        ("sub/.GIT/config", "bad_path"),
        ("a\nb.md", "bad_path"),
        ("a\\b.md", "bad_path"),
        ("", "bad_path"),
    ],
)
def test_paths_that_are_not_plain_are_refused(tmp_path: Path, path: str, code: str) -> None:
    with pytest.raises(StorageError) as refused:
        SkillFile(tmp_path, "main", [path], roots=[tmp_path])
    assert refused.value.code == code


@pytest.mark.parametrize("paths", [[], ["a.md", "a.md"]])
def test_a_prompt_has_paths_and_each_once(tmp_path: Path, paths: list[str]) -> None:
    with pytest.raises(StorageError) as refused:
        SkillFile(tmp_path, "main", paths, roots=[tmp_path])
    assert refused.value.code == "bad_path"


@pytest.mark.parametrize("name", ["-d", "--help", "a..b", "a b", "a.lock", "a\nb", "", "@{-1}", "a~1"])
async def test_bad_branch_names_are_refused(repository: Repository, name: str) -> None:
    with pytest.raises(StorageError) as refused:
        await propose(adapter_for(repository), SECOND, name)
    assert refused.value.code == "bad_branch_name"


@pytest.mark.parametrize("name", ["-d", "a..b", "a\nb", "", "refs/heads/main"])
async def test_bad_tracked_branches_are_refused(repository: Repository, name: str) -> None:
    with pytest.raises(StorageError) as refused:
        await SkillFile(repository.root, name, [SKILL], roots=[repository.root]).current()
    assert refused.value.code == "bad_branch_name"


async def test_glob_characters_in_a_path_are_plain(repository: Repository) -> None:
    with pytest.raises(StorageError) as refused:
        await adapter_for(repository, "skills/*.md").current()
    assert refused.value.code == "path_missing"
    repository.commit(":(top)[a].md", "odd name\n")
    adapter = adapter_for(repository, ":(top)[a].md")
    applies(repository, (await propose(adapter, "changed\n", path=":(top)[a].md")).diff)


# Clear answers


async def test_missing_things_are_told_apart(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (repository.root / "docs").mkdir()
    cases = {
        "repository_missing": SkillFile(tmp_path / "nowhere", "main", [SKILL], roots=[tmp_path]),
        "not_a_repository": SkillFile(tmp_path / "plain", "main", [SKILL], roots=[tmp_path]),
        "branch_missing": SkillFile(repository.root, "trunk", [SKILL], roots=[tmp_path]),
        "path_missing": SkillFile(repository.root, "main", ["skills/none.md"], roots=[tmp_path]),
    }
    for code, adapter in cases.items():
        with pytest.raises(StorageError) as refused:
            await adapter.current()
        assert refused.value.code == code
        assert refused.value.hint
    with pytest.raises(StorageError) as refused:
        await SkillFile(repository.root / "docs", "main", [SKILL], roots=[tmp_path]).current()
    assert refused.value.code == "not_a_repository"
    with pytest.raises(StorageError, match="It has: main"):
        await cases["branch_missing"].current()
    with pytest.raises(StorageError) as refused:
        await adapter_for(repository, "skills").current()
    assert refused.value.code == "path_missing"


@pytest.mark.parametrize("garbage", ["objects/pack/multi-pack-index", "refs/heads/main"])
async def test_a_commit_that_cannot_be_read_is_damage_and_no_missing_branch(
    repository: Repository, garbage: str
) -> None:
    file = repository.root / ".git" / garbage
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(bytes(range(256)) * 3 if "index" in garbage else b"0" * 39 + b"1\n")
    with pytest.raises(StorageError) as refused:
        await adapter_for(repository).current()
    assert refused.value.code == "repository_damaged"


async def test_an_empty_repository_has_no_branch(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no commit yet") as refused:
        await adapter_for(Repository(tmp_path / "empty")).current()
    assert refused.value.code == "branch_missing"


async def test_the_parts_of_a_prompt_have_a_size_together(repository: Repository) -> None:
    paths = [f"skills/{n}.md" for n in range(MAX_TEXT_BYTES // MAX_PART_CHARACTERS)]
    for path in paths:
        repository.commit(path, "small\n")
    adapter = adapter_for(repository, *paths)
    held = (await adapter.current()).content_sha256
    full = [prompt_part(path, "x" * MAX_PART_CHARACTERS) for path in paths]
    assert (await adapter.propose(full, message="m", name="full", expected_sha256=held)).commit
    over = [prompt_part(paths[0], "x" * (MAX_PART_CHARACTERS - 1) + "ü"), *full[1:]]
    with pytest.raises(StorageError) as refused:
        await adapter.propose(over, message="m", name="over", expected_sha256=held)
    assert refused.value.code == "text_too_large"


@pytest.mark.parametrize("size", [MAX_PART_CHARACTERS + 1, MAX_TEXT_BYTES + 1])
async def test_a_part_larger_than_an_event_carries_is_refused(repository: Repository, size: int) -> None:
    with pytest.raises(StorageError) as refused:
        prompt_part(SKILL, "x" * size)
    assert refused.value.code == "text_too_large"
    repository.commit(SKILL, "x" * size)
    with pytest.raises(StorageError) as refused:
        await adapter_for(repository).current()
    assert refused.value.code == "text_too_large"


async def test_the_largest_part_is_read_and_proposed(repository: Repository) -> None:
    adapter = adapter_for(repository)
    assert (await propose(adapter, "x" * MAX_PART_CHARACTERS)).commit
    repository.commit(SKILL, "x" * MAX_PART_CHARACTERS)
    assert len((await adapter.current()).parts[0].text) == MAX_PART_CHARACTERS


@pytest.mark.parametrize("raw", [b"caf\xe9\n", b"a\0b\n", "wide".encode("utf-16")])
async def test_files_that_are_not_text_are_refused(repository: Repository, raw: bytes) -> None:
    (repository.root / SKILL).write_bytes(raw)
    repository.git("commit", "-q", "-a", "-m", "Bytes")
    with pytest.raises(StorageError) as refused:
        await adapter_for(repository).current()
    assert refused.value.code == "not_utf8"


def test_a_nul_is_left_out_of_a_text_where_it_is_made_a_prompt() -> None:
    assert prompt("a\0b")[0].text == "ab"


def test_a_text_without_a_utf8_form_is_no_prompt() -> None:
    with pytest.raises(ValidationError, match="unicode"):
        prompt("\ud800")


async def test_a_missing_git_says_so(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repository.root))
    with pytest.raises(StorageError) as refused:
        await adapter_for(repository).current()
    assert refused.value.code == "git_missing"


async def test_a_command_that_hangs_is_ended(repository: Repository) -> None:
    fifo = repository.root / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(StorageError) as refused:
        await git_module.run(repository.root, "hash-object", "--no-filters", "fifo", limit_s=0.2)
    assert refused.value.code == "git_timeout"


async def test_failures_never_quote_the_prompt(repository: Repository) -> None:
    secret = "canary-in-the-prompt"
    repository.commit(SKILL, f"{secret}\n")
    adapter = adapter_for(repository)
    for text, expected in ((f"{secret}\n", None), (f"{secret}!\n", "0" * 64)):
        with pytest.raises(StorageError) as refused:
            await adapter.propose(
                prompt(text), message=secret, name="p1", expected_sha256=expected or sha(f"{secret}\n")
            )
        assert secret not in str(refused.value)


def test_the_adapter_is_a_store_that_a_person_merges_into() -> None:
    assert issubclass(SkillFile, MergedStore)
