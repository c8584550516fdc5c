"""Which store a touchpoint has is a matter of its adapter's registration, and of nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from libs.contracts.touchpoints import Storage, Touchpoint
from libs.contracts.vocabulary import registered
from services.registry import stores
from services.registry.adapters.base import ImmediateStore, MergedStore, StorageError
from services.registry.adapters.feed_prompts import FeedPrompts
from services.registry.adapters.skill_file import SkillFile
from services.registry.stores import MergedStores
from services.registry.tests.support import FIRST, SECOND, SKILL, in_table

SOURCES = Path(__file__).parents[3]


def in_git(scope: str = "global", **storage: Any) -> Touchpoint:
    place = {"adapter": "skill_file", "repository": "/srv/desk", "paths": [SKILL], **storage}
    return Touchpoint.model_validate({"id": "a.b", "scope": scope, "storage": place})


def misfits(touchpoint: Touchpoint) -> list[str]:
    return [misfit.field for misfit in stores.misfits(touchpoint)]


def test_every_adapter_that_is_registered_is_a_store_of_one_of_the_two_kinds() -> None:
    assert {name: stores.kind(name) for name in registered("adapters")} == {
        "feed_prompts": FeedPrompts,
        "skill_file": SkillFile,
    }
    assert issubclass(FeedPrompts, ImmediateStore)
    assert issubclass(SkillFile, MergedStore)


def test_a_store_is_chosen_by_the_adapter(tmp_path: Path) -> None:
    assert isinstance(stores.immediate(in_table()), FeedPrompts)
    assert stores.immediate(in_git()) is None
    assert isinstance(MergedStores([tmp_path]).of(in_git()), SkillFile)
    assert (stores.is_immediate("feed_prompts"), stores.is_immediate("skill_file")) == (True, False)
    with pytest.raises(StorageError) as refused:
        MergedStores([tmp_path]).of(in_table())
    assert refused.value.code == "nothing_to_merge"


@pytest.mark.parametrize("repository", ["https://example.org/desk.git", "git@example.org:desk.git", "desk", "../desk"])
def test_a_repository_is_a_local_path(tmp_path: Path, repository: str) -> None:
    with pytest.raises(StorageError) as refused:
        MergedStores([tmp_path]).of(in_git(repository=repository))
    assert refused.value.code == "repository_not_allowed"


@pytest.mark.parametrize(
    ("touchpoint", "fields"),
    [
        (in_table(), []),
        (in_table(text=None), ["storage.initial_text"]),
        (in_table(scope="workspace", text=None), []),
        (in_git(), []),
        (in_git(scope="workspace"), ["storage.adapter"]),
        (in_git(repository=None), ["storage.repository"]),
        (in_git(paths=[]), ["storage.paths"]),
        (in_git(repository="", paths=[]), ["storage.repository", "storage.paths"]),
        (in_git(adapter="feed_prompts", initial_text="x"), ["storage.paths"]),
        (in_git(adapter="inline"), ["storage.adapter"]),
        (in_git(adapter="from_elsewhere"), ["storage.adapter"]),
    ],
)
def test_an_adapter_says_itself_what_it_needs(touchpoint: Touchpoint, fields: list[str]) -> None:
    assert misfits(touchpoint) == fields


def test_where_a_prompt_lives_is_what_its_adapter_says() -> None:
    def moved(before: Touchpoint, after: Touchpoint) -> bool:
        return stores.moved(before.storage, after.storage)

    assert not moved(in_table(text=FIRST), in_table(text=SECOND))
    assert not moved(in_git(), in_git(post_apply=["make sync"]))
    assert moved(in_table(), in_git())
    assert moved(in_git(), in_git(branch="other"))
    assert moved(in_git(), in_git(repository="/srv/other"))
    assert moved(in_git(), in_git(paths=[SKILL, "b.md"]))
    assert isinstance(in_git().storage, Storage)


def test_no_other_module_knows_an_adapter_by_its_name() -> None:
    """Words in documentation aside: no code compares, lists or makes one. The demo writes a configuration."""
    names = set(registered("adapters"))
    found = {
        f"{path.relative_to(SOURCES)}:{line}"
        for folder in ("services", "libs", "burnish")
        for path in sorted((SOURCES / folder).rglob("*.py"))
        if "tests" not in path.parts and "testing" not in path.parts
        for line in _constants(path, names)
    }
    assert {place.partition(":")[0] for place in found} <= {"libs/contracts/vocabulary.py", "burnish/demo/loop.py"}


def _constants(path: Path, names: set[str]) -> Iterator[int]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and node.value in names:
            yield node.lineno
