"""What the demo takes as data, and how it refuses what it cannot use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from burnish.demo import dataset
from burnish.demo.dataset import DatasetError
from libs.llm import PromptError, parse_labels

BANKING77 = Path(
    os.environ.get("BURNISH_SHARED_DATA", Path(dataset.__file__).resolve().parents[3] / "shared" / "data")
).joinpath("banking77")
GOOD = "text,category\n" + "".join(f"message {n} about {label},{label}\n" for label in "ab" for n in range(8))


def folder(tmp_path: Path, train: str | bytes | None = GOOD, test: str | bytes | None = None) -> Path:
    other = GOOD.replace("message", "question") if test is None else test
    for name, text in (("train.csv", train), ("test.csv", other)):
        if text is not None:
            (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return tmp_path


def test_the_built_in_example_is_complete_and_its_splits_are_apart() -> None:
    data = dataset.built_in()
    assert len(parse_labels(data.prompt)) >= 20
    texts = [case.input for case in data.cases] + [row.text for row in data.traffic]
    assert len(texts) >= 600
    assert len(set(texts)) == len(texts)
    assert {case.split for case in data.cases} == {"dev", "test"}


def test_any_two_csv_files_become_a_prompt_traffic_and_gold(tmp_path: Path) -> None:
    data = dataset.from_folder(folder(tmp_path))
    assert [spec.name for spec in parse_labels(data.prompt)] == ["a", "b"]
    assert data.gold == 16
    assert data.traffic
    gold = {case.input for case in data.cases if case.split == "test"}
    assert not gold & {row.text for row in data.traffic}
    assert data == dataset.from_folder(tmp_path)


def test_a_train_row_that_is_also_gold_is_left_out(tmp_path: Path) -> None:
    data = dataset.from_folder(folder(tmp_path, GOOD + "QUESTION 0  about a,a\n"))
    assert "QUESTION 0 about a" not in {row.text for row in data.traffic}
    assert "QUESTION 0 about a" not in {case.input for case in data.cases if case.split == "dev"}


@pytest.mark.parametrize(
    ("train", "told"),
    [
        (None, "train.csv is not there"),
        ("", "'text' is missing; expected text,category, found none"),
        ("text,label\nx,y\n", "'category' is missing; expected text,category, found text, label"),
        ("text,category\n", "no row below the header"),
        ("text,category\nx,a\n,a\n", "line 3: text is empty"),
        ("text,category\nx,\n", "line 2: category is empty"),
        (f"text,category\n{'x' * 10_001},a\n", "line 2: text has 10001 characters"),
        (b"text,category\n\xff\xfe,a\n", "not UTF-8"),
        (GOOD + "x,unheard_of\n", "'unheard_of' is not in test.csv"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, train: str | bytes | None, told: str) -> None:
    with pytest.raises(DatasetError, match=told):
        dataset.from_folder(folder(tmp_path, train))


def test_one_label_cannot_be_measured(tmp_path: Path) -> None:
    one = "text,category\nfirst,a\nsecond,a\n"
    with pytest.raises(DatasetError, match="at least two different labels"):
        dataset.from_folder(folder(tmp_path, one, one.replace("first", "third")))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="is not a folder"):
        dataset.from_folder(tmp_path / "nowhere")


def test_a_prompt_without_labels_says_what_is_expected() -> None:
    with pytest.raises(PromptError, match="expected a '## Labels' section"):
        parse_labels("# Only words\n\nNothing else.\n")


@pytest.mark.skipif(not BANKING77.is_dir(), reason="Banking77 is not at BURNISH_SHARED_DATA")
def test_banking77_has_the_sizes_that_the_demo_promises() -> None:
    data = dataset.from_folder(BANKING77)
    assert (len(data.traffic), data.gold) == (2_000, 3_080)
