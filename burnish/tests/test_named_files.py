"""Every place that reads a file which a person named: what is no regular file, or too large, is an answer at once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from burnish.data_folder import DataFolder
from burnish.demo import dataset
from burnish.demo.tests.test_dataset import GOOD
from burnish.errors import InstallationError
from burnish.suite_file import SuiteFileError, read_suite
from burnish.tests.test_refusals import invoke
from burnish.touchpoints_file import TouchpointsFileError, read_touchpoints

FEED = "touchpoints:\n  - id: a.b\n    scope: global\n    storage: {adapter: feed_prompts, initial_text_file: thing}\n"
SUITE = (
    "touchpoints:\n  - id: a.b\n    scope: global\n    storage: {adapter: feed_prompts, initial_text: x}\n"
    "    suite: {file: thing}\n"
)


def _yaml(folder: Path, text: str) -> None:
    (folder / "touchpoints.yaml").write_text(text)
    read_touchpoints(folder / "touchpoints.yaml")


def _suite(folder: Path) -> None:
    (folder / "thing").rename(folder / "thing.csv")
    read_suite(folder / "thing.csv")


def _dataset(folder: Path) -> None:
    (folder / "thing").rename(folder / "train.csv")
    (folder / "test.csv").write_text(GOOD)
    dataset.from_folder(folder)


def _data_folder(folder: Path) -> None:
    (folder / "thing").rename(folder / "ports.json")
    DataFolder(folder).ports()


def _huge(path: Path) -> None:
    with path.open("wb") as made:
        made.truncate(1 << 40)


def _to_a_loop(path: Path) -> None:
    (path.parent / "loop").symlink_to("loop")
    path.symlink_to(path.parent / "loop")


READERS: dict[str, tuple[Callable[[Path], object], type[Exception]]] = {
    "touchpoints": (lambda folder: read_touchpoints(folder / "thing"), TouchpointsFileError),
    "initial text": (lambda folder: _yaml(folder, FEED), TouchpointsFileError),
    "suite of touchpoints": (lambda folder: _yaml(folder, SUITE), TouchpointsFileError),
    "suite": (_suite, SuiteFileError),
    "dataset": (_dataset, dataset.DatasetError),
    "data folder": (_data_folder, InstallationError),
}
MADE: dict[str, Callable[[Path], object]] = {
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "bytes": _huge,
    "symbolic links": _to_a_loop,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("told", MADE)
def test_a_named_file_is_refused_by_its_kind(tmp_path: Path, reader: str, told: str) -> None:
    MADE[told](tmp_path / "thing")
    read, error = READERS[reader]
    began = time.monotonic()
    with pytest.raises(error, match=told):
        read(tmp_path)
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("told", ["a device", "a pipe", "bytes"])
def test_a_pushed_file_is_refused_by_its_kind(data: Path, tmp_path: Path, told: str) -> None:
    MADE[told](tmp_path / "thing")
    code, out, err = invoke(data, "signals", "push", "--file", str(tmp_path / "thing"))
    assert (code, out) == (2, "")
    assert told in err
    assert str(tmp_path / "thing") in err
