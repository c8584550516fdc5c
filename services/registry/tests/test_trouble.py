"""One repository in trouble, of whatever kind, is nothing to the others: confirmation, drift, registration."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from libs.contracts.envelope import Event
from libs.contracts.touchpoints import Touchpoint
from libs.service_kit.errors import Refused
from libs.service_kit.testing import event_of
from services.registry import metrics
from services.registry.adapters.base import StorageError
from services.registry.adapters.skill_file import SkillFile
from services.registry.domain import Target
from services.registry.drift import DriftCheck
from services.registry.git import repository as repositories
from services.registry.git import run
from services.registry.looks import PAUSE, Looks
from services.registry.store import intents
from services.registry.tests.support import FIRST, SECOND, SKILL, THIRD, Parts, Repository, approved

NAMES = ("a.bad", "b.fine", "c.fine")


def _loop(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.symlink_to(folder.name)


def _pipe(folder: Path) -> None:
    (folder / ".git/config").unlink()
    os.mkfifo(folder / ".git/config")


def _work_tree(folder: Path) -> None:
    (folder / ".git/worktrees/x").mkdir(parents=True)
    (folder / ".git/worktrees/x/gitdir").write_bytes(b"\xff\xfe/nowhere\0/.git")


def _leads_out(folder: Path) -> None:
    shutil.rmtree(folder / ".git")
    (folder / ".git").write_text("gitdir: /\n")


TROUBLE = [_loop, _pipe, _work_tree, _leads_out]


def touchpoint(identity: str, repository: Repository) -> Touchpoint:
    storage = {"adapter": "skill_file", "repository": str(repository.root), "paths": [SKILL]}
    return Touchpoint.model_validate({"id": identity, "scope": "global", "storage": storage})


@pytest.fixture
async def registered(parts: Parts, tmp_path: Path) -> dict[str, Repository]:
    """Three touchpoints, each in a repository of its own, each with an approved change on its branch."""
    made = {name: Repository(tmp_path / "repos" / name) for name in NAMES}
    for repository in made.values():
        repository.commit(SKILL, FIRST)
    await parts.register(*(touchpoint(name, repository) for name, repository in made.items()))
    for name in NAMES:
        await parts.pending_merges.take_up(await _approval(parts, name))
    return made


async def _approval(parts: Parts, name: str) -> Event:  # type: ignore[type-arg]
    return event_of(approved(name, await parts.live(Target(name)), SECOND))


@pytest.mark.parametrize("trouble", TROUBLE, ids=lambda each: each.__name__.strip("_"))
async def test_the_others_are_confirmed_and_checked(
    parts: Parts, registered: dict[str, Repository], trouble: Callable[[Path], None]
) -> None:
    for name in NAMES[1:]:
        registered[name].git("merge", "-q", registered[name].branches()[0])
    trouble(registered["a.bad"].root)
    left = await parts.pending_merges.check()
    assert [intent.target.touchpoint_id for intent in left] == ["a.bad"]
    assert left[0].state == "open"
    assert left[0].error_code in ("repository_missing", "repository_damaged", "repository_not_allowed")
    assert left[0].error
    registered["c.fine"].commit(SKILL, THIRD, "Behind the ledger's back")
    check = DriftCheck(parts.db, parts.ledger, parts.pending_merges, parts.stores)
    drifted = await check.check()
    # A repository that is not there has no text any more; one that cannot be read says nothing.
    gone = left[0].error_code == "repository_missing"
    assert drifted == 1 + gone
    assert metrics.DRIFT_UNKNOWN._value.get() == 1 - gone


async def test_trouble_is_told_once_and_forgotten_when_it_is_over(
    parts: Parts, registered: dict[str, Repository]
) -> None:
    place = registered["a.bad"].root / ".git/config"
    kept = place.read_text()
    _pipe(registered["a.bad"].root)
    (intent, *_) = await parts.pending_merges.check("a.bad")
    (again, *_) = await parts.pending_merges.check("a.bad")
    assert (intent.error_code, intent.updated_at) == ("repository_damaged", again.updated_at)
    place.unlink()
    place.write_text(kept)
    (intent, *_) = await parts.pending_merges.check("a.bad")
    assert (intent.state, intent.error_code, intent.error) == ("open", None, None)


async def test_a_repository_that_does_not_answer_costs_one_look_and_then_less(
    parts: Parts,
    registered: dict[str, Repository],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    slow = tmp_path / "programs/git"
    slow.parent.mkdir()
    git = shutil.which("git")
    slow.write_text(f'#!/bin/sh\ncase "$GIT_OBJECT_DIRECTORY" in *a.bad*) sleep 1000;; esac\nexec {git} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(repositories, "OPEN_LIMIT_S", 3.0)
    for name in NAMES[1:]:
        registered[name].git("merge", "-q", registered[name].branches()[0])
    left = await parts.pending_merges.check()
    while len(left) > 1:  # a busy machine may need more than the short limit for the others, too
        left = await parts.pending_merges.check()
    assert (left[0].target.touchpoint_id, left[0].error_code) == ("a.bad", "git_timeout")
    began = time.monotonic()
    await parts.pending_merges.check()
    assert time.monotonic() - began < 2, "it was looked at again although it had cost seconds just before"


async def test_an_approval_for_a_repository_that_does_not_answer_is_kept_and_made_ready_later(
    parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository(tmp_path / "repos/one")
    repository.commit(SKILL, FIRST)
    await parts.register(touchpoint("one", repository))
    event = await _approval(parts, "one")
    with monkeypatch.context() as patched:
        patched.setattr(repositories, "OPEN_LIMIT_S", 0.0)
        await parts.pending_merges.take_up(event)
    async with parts.db.connection() as conn:
        intent = await intents.get(conn, event.data.proposal_id)
    assert intent is not None
    assert (intent.state, intent.error_code) == ("recorded", "git_timeout")
    (intent,) = await parts.pending_merges.check("one")
    assert (intent.state, intent.error_code) == ("open", None)


async def test_registration_names_the_one_that_is_in_trouble(parts: Parts, tmp_path: Path) -> None:
    made = {name: Repository(tmp_path / "repos" / name) for name in NAMES}
    for repository in made.values():
        repository.commit(SKILL, FIRST)
    _pipe(made["b.fine"].root)
    _loop(made["c.fine"].root)
    with pytest.raises(Refused) as told:
        await parts.registration.plan([touchpoint(name, repository) for name, repository in made.items()])
    errors = cast(list[dict[str, str]], told.value.extra["errors"])
    assert [error["loc"] for error in errors] == [
        "touchpoints[1].storage.repository",
        "touchpoints[2].storage.repository",
    ]


@pytest.mark.parametrize("error", [RecursionError("canary"), OSError("canary"), UnicodeError("canary"), TimeoutError()])
async def test_whatever_is_raised_while_a_repository_is_open_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    repository = Repository(tmp_path / "one")
    repository.commit(SKILL, FIRST)

    async def raising(*_: object, **__: object) -> run.Completed:
        raise error

    monkeypatch.setattr(repositories, "run", raising)
    with pytest.raises(StorageError) as told:
        await SkillFile(repository.root, "main", [SKILL], roots=[tmp_path]).current()
    assert told.value.code in ("repository_damaged", "git_timeout")
    assert "canary" not in str(told.value)


async def test_looks_are_apart_and_a_slow_one_in_trouble_is_left_alone_for_a_while() -> None:
    now = [0.0]
    looks = Looks(lambda: now[0])
    seen: list[str] = []
    told: list[str] = []

    async def look(name: str) -> None:
        seen.append(name)
        if name == "slow":
            now[0] += 7.0
            raise TimeoutError
        if name == "bad":
            raise RecursionError

    async def trouble(name: str, error: Exception) -> None:
        told.append(f"{name} {type(error).__name__}")

    async def all_of_them(*, at_once: bool = False) -> int:
        seen.clear()
        return await looks.over(["bad", "slow", "fine"], str, look, trouble, at_once=at_once)

    assert await all_of_them() == 2
    assert (seen, told) == (["bad", "slow", "fine"], ["bad RecursionError", "slow TimeoutError"])
    assert await all_of_them() == 2
    assert seen == ["bad", "fine"]
    assert await all_of_them(at_once=True) == 2
    assert seen == ["bad", "slow", "fine"]
    now[0] += 7.0 * PAUSE + 0.1
    await all_of_them()
    assert seen == ["bad", "slow", "fine"]
