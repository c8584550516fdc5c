"""What is registered is found without importing it, and loaded as what it must be."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import get_args

import pytest

from libs.contracts.vocabulary import PREFIX, Kind, registered
from libs.registrations import BadRegistration, all_of, load, load_class

Install = Callable[[str], None]
CODE = "class Animal: pass\nclass Dog(Animal): pass\nNUMBER = 7\nWORD = 'seven'\n"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Another distribution beside ours, with these lines as its entry points."""

    def install(lines: str) -> None:
        folder = tmp_path / "elsewhere-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1\n")
        (folder / "entry_points.txt").write_text(lines)
        (tmp_path / "elsewhere.py").write_text(CODE)
        monkeypatch.syspath_prepend(str(tmp_path))
        registered.cache_clear()

    yield install
    registered.cache_clear()
    sys.modules.pop("elsewhere", None)


def test_a_name_from_another_distribution_is_one_of_the_vocabulary(install: Install) -> None:
    before = registered("scanners")
    install("[burnish.scanners]\nzoo = elsewhere:Dog\n")
    assert registered("scanners") == (*before, "zoo")
    assert load_class("scanners", "zoo", object).__name__ == "Dog"


def test_what_is_registered_is_loaded_as_what_it_must_be(install: Install) -> None:
    install("[burnish.tasks]\nnumber = elsewhere:NUMBER\nword = elsewhere:WORD\n")
    assert load("tasks", "number", int) == 7
    with pytest.raises(BadRegistration, match=r"burnish.tasks: word = elsewhere:WORD is no builtins.int"):
        load("tasks", "word", int)
    with pytest.raises(BadRegistration, match=r"is no builtins\.int"):
        all_of("tasks", int)
    with pytest.raises(KeyError):
        load("tasks", "nothing", int)


def test_a_class_is_of_its_kind(install: Install) -> None:
    install("[burnish.tasks]\ndog = elsewhere:Dog\nnumber = elsewhere:NUMBER\n")
    with pytest.raises(BadRegistration, match=r"dog = elsewhere:Dog is no subclass of builtins.int"):
        load_class("tasks", "dog", int)
    with pytest.raises(BadRegistration, match=r"number = elsewhere:NUMBER is no builtins.type"):
        load_class("tasks", "number", int)


@pytest.mark.parametrize("value", ["nowhere:Dog", "elsewhere:Cat"])
def test_what_cannot_be_imported_is_named(install: Install, value: str) -> None:
    install(f"[burnish.tasks]\ndog = {value}\n")
    with pytest.raises(BadRegistration, match=f"burnish.tasks: dog = {value} cannot be imported"):
        load_class("tasks", "dog", object)


def test_a_name_that_two_claim_is_refused(install: Install) -> None:
    install("[burnish.metrics]\naccuracy = elsewhere:NUMBER\n")
    with pytest.raises(BadRegistration, match="accuracy is registered twice, as elsewhere:NUMBER and services"):
        load("metrics", "accuracy", object)


def test_the_installation_knows_all_that_the_project_says() -> None:
    said = tomllib.loads(Path("pyproject.toml").read_text())["project"]["entry-points"]
    known = {point for point in distribution("burnish").entry_points if point.group.startswith(PREFIX)}
    assert {(point.group, point.name, point.value) for point in known} == {
        (group, name, value) for group, points in said.items() for name, value in points.items()
    }, "run `make check`: what is registered changed since the installation"
    assert {group.removeprefix(PREFIX) for group in said} == set(get_args(Kind))


@pytest.mark.parametrize("kind", get_args(Kind))
def test_all_that_we_register_can_be_loaded(kind: Kind) -> None:
    assert list(all_of(kind, object)) == list(registered(kind))


def test_the_vocabulary_imports_nothing_of_what_it_names() -> None:
    script = (
        "import sys\nfrom typing import get_args\nfrom libs.contracts.vocabulary import Kind, registered\n"
        "assert all(registered(kind) for kind in get_args(Kind))\n"
        "print([name for name in sys.modules if name.startswith(('services', 'libs.llm', 'libs.registrations'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_an_installation_without_its_metadata_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("libs.contracts.vocabulary.entry_points", lambda **_: ())
    registered.cache_clear()
    try:
        with pytest.raises(RuntimeError, match=r"nothing is registered as burnish.metrics"):
            registered("metrics")
    finally:
        registered.cache_clear()
