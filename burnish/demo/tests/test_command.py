"""`burnish demo`: bad input ends at once, in words, with nothing started; Banking77 goes round."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from burnish.demo.command import demo
from burnish.demo.tests.test_dataset import BANKING77


def test_a_data_set_without_the_columns_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("message,intent\nhello,greeting\n")
    (tmp_path / "test.csv").write_text("text,category\nhello,greeting\n")
    told = CliRunner().invoke(demo, ["--dataset", str(tmp_path), "--data", str(tmp_path / "data")])
    assert told.exit_code == 2
    assert "'text' is missing; expected text,category, found message, intent" in told.output
    assert not (tmp_path / "data").exists()


def test_a_folder_of_another_demo_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    told = CliRunner().invoke(demo, ["--data", str(tmp_path)])
    assert told.exit_code == 1
    assert "is there from another demo" in told.output
    assert list(tmp_path.iterdir()) == [tmp_path / "repository"]


@pytest.mark.timeout(300)
@pytest.mark.skipif(not BANKING77.is_dir(), reason="Banking77 is not at BURNISH_SHARED_DATA")
def test_banking77_goes_round_with_one_better_and_one_that_is_not() -> None:
    told = CliRunner().invoke(demo, ["--dataset", str(BANKING77), "--proposals", "8", "--json"])
    assert told.exit_code == 0, told.output
    result = json.loads(told.stdout)
    assert (result["dataset"]["production_inputs"], result["dataset"]["gold_cases"]) == (2_000, 3_080)
    better = [p for p in result["proposals"] if p["verdict"] == "better"]
    assert any(p["metrics"]["accuracy"]["ci95"][0] > 0 for p in better)
    assert any(p["verdict"] in ("worse", "undecided") for p in result["proposals"])
    assert result["activated"]["version_ref"] == result["rolled_back"]["from"]
