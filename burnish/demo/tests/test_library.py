"""`burnish demo qa`: real services, real files, a real MCP client."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from burnish.demo import library_report
from burnish.demo.command import demo


@pytest.mark.timeout(300)
def test_the_library_is_shown_from_files_to_history() -> None:
    told = CliRunner().invoke(demo, ["qa", "--json"])
    assert told.exit_code == 0, told.output
    result = json.loads(told.stdout)
    assert {
        (each["bucket"], each["object_key"], each["pairs"], len(each["rejects"])) for each in result["documents"]
    } == {
        ("bundles", "orders.md", 3, 0),
        ("bundles", "subscription.md", 3, 0),
        ("faq", "app.md", 3, 1),
        ("word", "returns.docx", 3, 1),
        ("sheets", "shop.xlsx", 3, 0),
    }
    assert [problem["line"] for problem in result["refused"]["problems"]] == [7, 8, 17, 18, 28]
    asked, edited = result["asked"], result["edited"]
    assert asked["pair"]["question_text"] == "What can I do when my order has not arrived?"
    assert asked["results"][0]["match_strength"] in ("fair", "strong")
    assert not [hit for hit in asked["unknown"]["results"] if hit["match_strength"] != "weak"]
    assert [version["change_type"] for version in edited["pair"]["history"]] == ["source_changed", "initial_ingest"]
    assert edited["before"] in edited["pair"]["answer_standard"]
    console = Console(width=100, record=True, file=None, force_terminal=False, quiet=False)
    library_report.show(console, result)
    assert "5 files · 15 questions with answers · 2 left out by name" in console.export_text()


def test_a_data_set_is_for_the_loop(tmp_path: Path) -> None:
    told = CliRunner().invoke(demo, ["qa", "--dataset", str(tmp_path)])
    assert told.exit_code == 2
    assert "--dataset is for the loop" in told.output
