"""Repositories that lead out of the allowed folders, and repositories in trouble: real ones of each kind."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from services.registry.adapters.base import PromptPart, ProposedChange, StorageError
from services.registry.adapters.skill_file import SkillFile
from services.registry.git import refs, run
from services.registry.tests.support import FIRST, SECOND, SKILL, Repository

SECRET = "# Intents\n\n- canary: a text of somebody else\n"
FAST_S = 15.0
"""Far below the time limit of one command: nothing waits for a pipe or for a program."""


async def propose(adapter: SkillFile, name: str, text: str = SECOND) -> ProposedChange:
    held = (await adapter.current()).content_sha256
    return await adapter.propose([PromptPart(path=SKILL, text=text)], message="m", name=name, expected_sha256=held)


class Place:
    """An allowed folder with a repository in it, and another repository that nobody allowed."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "repos"
        self.repo = Repository(self.root / "desk")
        self.repo.commit(SKILL, FIRST, "First prompt")
        self.outside = Repository(tmp_path / "outside")
        self.outside.commit(SKILL, SECRET, "Not for you")
        self.git = self.repo.root / ".git"
        self.out = self.outside.root / ".git"
        self.at = self.repo.root

    def adapter(self) -> SkillFile:
        return SkillFile(self.at, "main", [SKILL], roots=[self.root])

    async def propose(self, name: str = "p1") -> ProposedChange:
        return await propose(self.adapter(), name)

    def replace(self, name: str, by: Callable[[Path], object]) -> None:
        path = self.git / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        by(path)

    def link(self, name: str) -> None:
        """The same thing of the repository outside, by a symbolic link."""
        self.replace(name, lambda path: path.symlink_to(self.out / name))

    def write(self, name: str, text: str) -> None:
        self.replace(name, lambda path: path.write_text(text))

    def state_outside(self) -> dict[str, bytes]:
        files = (file for file in sorted(self.outside.root.rglob("*")) if file.is_file())
        return {str(file): file.read_bytes() for file in files}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def refused(place: Place) -> StorageError:
    """How both reading and writing are refused, at once and without a trace outside."""
    before = place.state_outside()
    began = time.monotonic()
    with pytest.raises(StorageError) as told:
        await place.adapter().current()
    with pytest.raises(StorageError):
        await place.propose()
    assert time.monotonic() - began < FAST_S
    assert place.state_outside() == before
    assert "canary" not in str(told.value)
    return told.value


# --- what leads out ---------------------------------------------------------------------------------------


def _git_file(place: Place) -> None:
    shutil.rmtree(place.git)
    place.git.write_text(f"gitdir: {place.out}\n")


def _git_file_by_a_relative_path(place: Place) -> None:
    shutil.rmtree(place.git)
    place.git.write_text("gitdir: ../../outside/.git\n")


def _git_link(place: Place) -> None:
    shutil.rmtree(place.git)
    place.git.symlink_to(place.out)


def _git_file_behind_a_link(place: Place) -> None:
    shutil.rmtree(place.git)
    (place.root / "elsewhere").write_text(f"gitdir: {place.out}\n")
    place.git.symlink_to(place.root / "elsewhere")


def _repository_is_a_link(place: Place) -> None:
    shutil.rmtree(place.repo.root)
    place.repo.root.symlink_to(place.outside.root)


def _folder_above_is_a_link(place: Place) -> None:
    (place.root / "team").symlink_to(place.outside.root.parent)
    place.at = place.root / "team" / "outside"


def _dots_in_the_path(place: Place) -> None:
    place.at = place.root / "desk" / ".." / ".." / "outside"


def _common_folder(place: Place) -> None:
    place.write("commondir", f"{place.out}\n")


def _common_folder_by_a_relative_path(place: Place) -> None:
    place.write("commondir", "../../../outside/.git")


def _alternates(place: Place) -> None:
    shutil.rmtree(place.git / "objects")
    place.write("objects/info/alternates", f"# a comment\n\n{place.out}/objects\n")
    place.write("refs/heads/main", place.outside.git("rev-parse", "main") + "\n")


def _relative_alternates(place: Place) -> None:
    place.write("objects/info/alternates", "../../../../outside/.git/objects")


def _alternates_of_alternates(place: Place) -> None:
    other = Repository(place.root / "other")
    other.commit(SKILL, FIRST)
    (other.root / ".git/objects/info/alternates").write_text(f"{place.out}/objects\n")
    place.write("objects/info/alternates", f"{other.root}/.git/objects\n")


def _alternates_that_are_not_there(place: Place) -> None:
    place.write("objects/info/alternates", "/nowhere/at/all\n")


def _one_object(place: Place) -> None:
    blob = place.outside.git("rev-parse", f"main:{SKILL}")
    place.link(f"objects/{blob[:2]}/{blob[2:]}")


def _folder_of_objects(place: Place) -> None:
    place.replace("objects/ab", lambda path: path.symlink_to(place.outside.root))


def _linked_work_tree(place: Place) -> None:
    place.repo.git("worktree", "add", "-q", str(place.outside.root.parent / "tree"), "-b", "other")


def _work_tree_entry(place: Place) -> None:
    place.write("worktrees/x/gitdir", f"{place.outside.root}/.git\n")
    place.write("worktrees/x/HEAD", "ref: refs/heads/main\n")


def _work_tree_entry_by_a_relative_path(place: Place) -> None:
    place.write("worktrees/x/gitdir", "../../../../../outside/.git\n")


def _work_tree_whose_common_folder_leads_out(place: Place) -> None:
    shutil.rmtree(place.git)
    place.git.write_text("gitdir: ../linked\n")
    linked = place.root / "linked"
    linked.mkdir()
    (linked / "HEAD").write_text("ref: refs/heads/main\n")
    (linked / "commondir").write_text(str(place.out))


def _configured_work_tree(place: Place) -> None:
    place.repo.git("config", "core.worktree", str(place.outside.root))


def _configured_work_tree_of_its_own(place: Place) -> None:
    place.repo.git("config", "extensions.worktreeConfig", "true")
    place.repo.git("config", "--worktree", "core.worktree", str(place.outside.root))


OUT: list[Callable[[Place], None]] = [
    _git_file,
    _git_file_by_a_relative_path,
    _git_link,
    _git_file_behind_a_link,
    _repository_is_a_link,
    _folder_above_is_a_link,
    _dots_in_the_path,
    _common_folder,
    _common_folder_by_a_relative_path,
    _alternates,
    _relative_alternates,
    _alternates_of_alternates,
    _alternates_that_are_not_there,
    _one_object,
    _folder_of_objects,
    _linked_work_tree,
    _work_tree_entry,
    _work_tree_entry_by_a_relative_path,
    _work_tree_whose_common_folder_leads_out,
    _configured_work_tree,
    _configured_work_tree_of_its_own,
]


@pytest.mark.parametrize("lead_out", OUT, ids=lambda each: each.__name__.strip("_"))
async def test_what_leads_out_is_neither_read_nor_written(place: Place, lead_out: Callable[[Place], None]) -> None:
    lead_out(place)
    told = await refused(place)
    assert told.code == "repository_not_allowed"
    assert "BURNISH_REPOSITORY_ROOTS" in told.hint


@pytest.mark.parametrize(
    "name", ["objects", "objects/pack", "objects/info", "refs", "packed-refs", "config", "shallow"]
)
async def test_a_part_that_is_a_link_to_another_repositorys(place: Place, name: str) -> None:
    place.outside.git("pack-refs", "--all")
    place.link(name)
    assert (await refused(place)).code == "repository_not_allowed"


@pytest.mark.parametrize("name", ["info/attributes", "config.worktree", "worktrees", "worktrees/x"])
async def test_a_part_that_git_seldom_has_is_a_link(place: Place, name: str) -> None:
    place.repo.git("config", "extensions.worktreeConfig", "true")
    place.replace(name, lambda path: path.symlink_to(place.outside.root / SKILL))
    assert (await refused(place)).code == "repository_not_allowed"


async def test_an_index_that_is_a_link_is_not_read(place: Place) -> None:
    place.link("index")
    with pytest.raises(StorageError) as told:
        await place.propose()
    assert told.value.code == "repository_not_allowed"


@pytest.mark.parametrize("name", ["refs/heads", "refs/heads/main"])
async def test_a_reference_behind_a_link(place: Place, name: str) -> None:
    place.link(name)
    assert (await refused(place)).code == "repository_damaged"


async def test_what_stays_below_a_root_is_fine(place: Place) -> None:
    shared = Repository(place.root / "shared")
    shared.commit(SKILL, FIRST)
    shared.git("worktree", "add", "-q", str(place.root / "tree"), "-b", "other")
    place.repo.git("clone", "-q", "--shared", str(shared.root), str(place.root / "clone"))
    shutil.move(shared.root / ".git", place.root / "apart")
    (shared.root / ".git").write_text("gitdir: ../apart\n")
    (place.root / "clone/.git/objects/info/alternates").write_text("../../../apart/objects\n")
    (place.root / "link").symlink_to("clone")
    for folder, branch in (("shared", "main"), ("clone", "main"), ("link", "main")):
        adapter = SkillFile(place.root / folder, branch, [SKILL], roots=[place.root])
        assert (await adapter.current()).parts[0].text == FIRST


async def test_a_linked_work_tree_and_a_submodule_are_repositories(place: Place) -> None:
    place.repo.git("worktree", "add", "-q", str(place.root / "tree"), "-b", "other")
    module = Repository(place.root / "module")
    module.commit(SKILL, FIRST)
    place.repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(module.root), "sub")
    for folder, branch in ((place.root / "tree", "other"), (place.repo.root / "sub", "main")):
        adapter = SkillFile(folder, branch, [SKILL], roots=[place.root])
        current = await adapter.current()
        draft = await adapter.propose(
            [PromptPart(path=SKILL, text=SECOND)], message="m", name="p1", expected_sha256=current.content_sha256
        )
        assert draft.commit
        (folder / SKILL).write_text("edited")
        with pytest.raises(StorageError, match="uncommitted"):
            await adapter.propose(
                [PromptPart(path=SKILL, text=SECRET)], message="m", name="p2", expected_sha256=current.content_sha256
            )


@pytest.mark.parametrize("key", ["include.path", "includeIf.gitdir:/**.path", "includeIf.onbranch:main.path"])
async def test_a_configuration_that_is_included_is_not_even_opened(place: Place, key: str) -> None:
    os.mkfifo(place.outside.root / "pipe")
    place.repo.git("config", key, str(place.outside.root / "pipe"))
    began = time.monotonic()
    assert (await place.propose()).commit
    assert time.monotonic() - began < FAST_S


async def test_replaced_objects_and_grafts_are_not_obeyed(place: Place) -> None:
    place.repo.write("evil.md", SECRET)
    evil = place.repo.git("hash-object", "-w", "evil.md")
    place.repo.git("replace", place.repo.git("rev-parse", f"main:{SKILL}"), evil)
    tip = place.repo.git("rev-parse", "main")
    place.write("info/grafts", f"{tip} {'0' * 40}\n")
    current = await place.adapter().current()
    assert (current.parts[0].text, current.version_ref) == (FIRST, f"git:{tip}")


# --- what is written --------------------------------------------------------------------------------------


async def test_a_dangling_symbolic_reference_makes_no_branch_elsewhere(place: Place) -> None:
    place.repo.git("symbolic-ref", "refs/heads/burnish/p1", "refs/heads/release")
    with pytest.raises(StorageError) as told:
        await place.propose()
    assert told.value.code == "conflict"
    assert place.repo.branches() == ["main"]


async def test_a_symbolic_reference_to_a_branch_is_no_branch_of_ours(place: Place) -> None:
    place.repo.git("branch", "release")
    tip = place.repo.git("rev-parse", "release")
    place.repo.git("symbolic-ref", "refs/heads/burnish/p1", "refs/heads/release")
    with pytest.raises(StorageError) as told:
        await place.propose()
    assert told.value.code == "conflict"
    assert place.repo.git("rev-parse", "release") == tip


@pytest.mark.parametrize("target", ["../release", "../../tags/v1", "/{outside}/.git/refs/heads/release"])
async def test_a_reference_that_is_a_link_is_not_written_through(place: Place, target: str) -> None:
    place.replace(
        "refs/heads/burnish/p1", lambda path: path.symlink_to(target.replace("/{outside}", str(place.outside.root)))
    )
    before = place.state_outside()
    with pytest.raises(StorageError) as told:
        await place.propose()
    assert told.value.code == "repository_damaged"
    assert place.state_outside() == before
    assert not (place.git / "refs/heads/release").exists()
    assert not (place.git / "refs/tags/v1").exists()


@pytest.mark.parametrize("inside", [True, False])
async def test_a_folder_of_references_that_is_a_link_is_not_written_through(place: Place, inside: bool) -> None:
    target = place.git / "refs/tags" if inside else place.out / "refs/heads"
    place.replace("refs/heads/burnish", lambda path: path.symlink_to(target))
    before = place.state_outside()
    with pytest.raises(StorageError) as told:
        await place.propose()
    assert told.value.code == "repository_damaged"
    assert place.state_outside() == before
    assert not list((place.git / "refs/tags").iterdir())


@pytest.mark.parametrize(
    "name", ["../evil", "a/../../evil", "a/.git/b", "x.lock", "x.lock/y", "@{u}", "a\\b", ".x", "x."]
)
async def test_a_name_that_leaves_our_branches_is_refused(place: Place, name: str) -> None:
    with pytest.raises(StorageError) as told:
        await place.propose(name)
    assert told.value.code in ("bad_branch_name", "path_outside_repository")
    assert place.repo.branches() == ["main"]


@pytest.mark.parametrize("name", ["refs/heads/a", "refs/heads/burnish/p1", "refs/heads/Größe/ß", "refs/x/HEAD"])
def test_names_of_references_that_stay_below_refs(name: str) -> None:
    assert refs.is_name(name)


@pytest.mark.parametrize(
    "name",
    ["HEAD", "refs", "refs/", "refs/../x", "refs/heads//a", "refs/heads/.a", "x/refs/a", "refs/a b", "refs/a\nb"],
)
def test_names_of_references_that_do_not(name: str) -> None:
    assert not refs.is_name(name)


# --- what is in trouble -----------------------------------------------------------------------------------


def _huge(path: Path) -> None:
    with path.open("wb") as made:
        made.truncate(1 << 40)


def _to_itself(path: Path) -> None:
    path.symlink_to(path.name)


TROUBLE: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "huge": _huge,
    "loop": _to_itself,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "noise": lambda path: path.write_bytes(bytes(range(256)) * 4),
}
PARTS = [
    "HEAD",
    "config",
    "refs/heads/main",
    "packed-refs",
    "commondir",
    "shallow",
    "info/attributes",
    "objects/info/alternates",
    "objects/ab/cdef",
    "objects/pack/pack-1.idx",
    "worktrees/x/gitdir",
    "worktrees/x",
    "index",
]
HARMLESS = {
    ("HEAD", "noise"),  # nothing is checked out
    *((name, "noise") for name in ("info/attributes", "worktrees/x", "objects/ab/cdef")),
    *((name, "folder") for name in ("objects/ab/cdef", "objects/pack/pack-1.idx", "worktrees/x")),
    *((name, "huge") for name in ("objects/ab/cdef", "objects/pack/pack-1.idx", "worktrees/x")),
    ("objects/pack/pack-1.idx", "noise"),
    ("worktrees/x", "pipe"),
    *(("HEAD", link) for link in ("loop", "device")),  # never followed
    *((name, "loop") for name in ("objects/ab/cdef", "objects/pack/pack-1.idx")),  # an object that is not there
}


@pytest.mark.parametrize("trouble", TROUBLE)
@pytest.mark.parametrize("part", PARTS)
async def test_trouble_in_any_part_is_an_answer_at_once(place: Place, part: str, trouble: str) -> None:
    place.replace(part, TROUBLE[trouble])
    began = time.monotonic()
    with nullcontext() if (part, trouble) in HARMLESS else pytest.raises(StorageError):
        await place.propose()
    assert time.monotonic() - began < FAST_S


@pytest.mark.parametrize("trouble", TROUBLE)
async def test_trouble_in_place_of_the_repository_is_an_answer_at_once(place: Place, trouble: str) -> None:
    for path in (place.git, place.repo.root):
        shutil.rmtree(path)
        TROUBLE[trouble](path)
        with pytest.raises(StorageError):
            await place.adapter().current()
        if path == place.git:
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            path.mkdir()


@pytest.mark.parametrize("trouble", ["pipe", "device", "loop", "huge"])
async def test_trouble_in_the_work_tree_is_an_answer_at_once(place: Place, trouble: str) -> None:
    place.repo.root.joinpath(SKILL).unlink()
    TROUBLE[trouble](place.repo.root / SKILL)
    with pytest.raises(StorageError, match="uncommitted"):
        await place.propose()
    place.repo.root.joinpath(SKILL).unlink()
    place.repo.write(SKILL, FIRST)
    TROUBLE[trouble](place.repo.root / ".gitattributes")
    began = time.monotonic()
    if trouble in ("pipe", "huge"):
        with pytest.raises(StorageError, match=r"\.gitattributes"):
            await place.propose()
    else:  # git passes over attributes that are a link
        assert (await place.propose()).commit
    assert time.monotonic() - began < FAST_S


async def test_a_command_ended_in_the_middle_leaves_no_pipe_open(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.repo.commit("big.txt", "line\n" * 400_000, "Big")
    monkeypatch.setattr(run, "MAX_OUTPUT_BYTES", 1_000)
    opened = set(os.listdir("/dev/fd"))
    with pytest.raises(StorageError, match="says more than"):
        await run.run(place.at, "cat-file", "blob", "HEAD:big.txt")
    await asyncio.sleep(0)  # transports close at the loop's next turn
    assert set(os.listdir("/dev/fd")) == opened


@pytest.mark.parametrize(
    "text", ["ref: refs/heads/main", "ref: ../../../etc/passwd", "ref: ", "0" * 39, "", "x" * 9_000]
)
async def test_a_reference_that_leads_nowhere(place: Place, text: str) -> None:
    place.write("refs/heads/main", text)
    with pytest.raises(StorageError) as told:
        await place.adapter().current()
    assert told.value.code == "repository_damaged"


async def test_a_file_that_may_not_be_read(place: Place) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (place.git / "config").chmod(0)
    assert (await refused(place)).code == "repository_damaged"


async def test_an_extension_or_a_kind_of_references_that_is_not_known_is_said(place: Place) -> None:
    for line in ("refStorage = reftable", "new = true"):
        place.write("config", f"[core]\nrepositoryFormatVersion = 1\n[extensions]\n{line}\n")
        with pytest.raises(StorageError) as told:
            await place.adapter().current()
        assert told.value.code == "repository_damaged"


@pytest.mark.parametrize(
    "asleep", ["sleep 1000", "sleep 1000 & wait", "trap '' TERM; while :; do sleep 1; done", "yes"]
)
async def test_a_git_that_sleeps_or_never_ends_is_ended_with_all_it_started(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asleep: str
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git").write_text(f"#!/bin/sh\necho $$ >> {tmp_path}/groups\n{asleep}\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    began = time.monotonic()
    with pytest.raises(StorageError) as told:
        await run.run(tmp_path, "config", limit_s=1.5)
    assert told.value.code in ("git_timeout", "git_failed")
    assert time.monotonic() - began < FAST_S
    for group in (tmp_path / "groups").read_text().split():
        await _gone(int(group))


async def _gone(group: int) -> None:
    async with asyncio.timeout(5):
        while subprocess.run(["pgrep", "-g", str(group)], capture_output=True).stdout:
            await asyncio.sleep(0.05)


async def test_an_object_that_unpacks_to_more_than_there_is_memory_ends_git_alone(place: Place) -> None:
    # A tree of three gigabytes of zeros is three megabytes on disk: its header is read by everybody.
    import zlib

    packer = zlib.compressobj(9)
    size = 3 << 30
    raw = packer.compress(f"commit {size}\0".encode())
    zeros = bytes(1 << 24)
    raw += b"".join(packer.compress(zeros) for _ in range(size >> 24)) + packer.flush()
    place.write("objects/ab/" + "c" * 38, "")
    (place.git / "objects/ab" / ("c" * 38)).write_bytes(raw)
    place.write("refs/heads/main", "ab" + "c" * 38)
    with pytest.raises(StorageError):
        await place.adapter().current()
