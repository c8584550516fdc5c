from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.touchpoints_file import TouchpointsFileError, read_touchpoints

EXAMPLE = Path(__file__).parents[2] / "examples" / "support_desk" / "touchpoints.yaml"
WHOLE = """\
touchpoints:
  - id: a.b
    scope: global
    storage:
      adapter: skill_file
      repository: repo
      path: prompts/a.md
    suite:
      file: gold.csv
      margin: 0.02
    signals:
      - scanner: low_confidence
        threshold: 0.4
        every_s: 5
      - scanner: sql
        options: {query: q}
        dsn: BURNISH_PLATFORM_DSN
"""


def write(folder: Path, text: str, name: str = "touchpoints.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def mistakes(folder: Path, text: str) -> list[tuple[int, str, str]]:
    with pytest.raises(TouchpointsFileError) as caught:
        read_touchpoints(write(folder, text))
    assert all(str(folder / "touchpoints.yaml") in line for line in str(caught.value).splitlines())
    return [(one.line, one.field, one.message) for one in caught.value.mistakes]


def test_the_example_is_read() -> None:
    told = read_touchpoints(EXAMPLE)
    intent, scorer = told.touchpoints
    assert intent.storage.paths == ("prompts/intent.md",)
    assert intent.storage.repository == str(EXAMPLE.parent)
    assert intent.signals[1].options == {"threshold": 0.5}
    assert scorer.storage.initial_text == (EXAMPLE.parent / "prompts/relevance.md").read_text()
    assert told.suites == {"support.intent": EXAMPLE.parent / "data/gold.jsonl"}


def test_the_friendly_form_becomes_the_contract(tmp_path: Path) -> None:
    (tmp_path / "gold.csv").write_text("text,category\n")
    told = read_touchpoints(write(tmp_path, WHOLE))
    (touchpoint,) = told.touchpoints
    assert touchpoint.storage.repository == str(tmp_path / "repo")
    assert touchpoint.storage.paths == ("prompts/a.md",)
    assert touchpoint.suite is not None
    assert touchpoint.suite.margin == 0.02
    assert [(source.options, source.every_s) for source in touchpoint.signals] == [
        ({"threshold": 0.4}, 5),
        ({"query": "q", "dsn": "BURNISH_PLATFORM_DSN"}, 60),
    ]
    assert told.suites == {"a.b": tmp_path / "gold.csv"}


def test_every_mistake_is_told_with_line_and_field(tmp_path: Path) -> None:
    (tmp_path / "gold.csv").write_text("text,category\n")
    text = WHOLE.replace("scope: global", "scope: everywhere").replace("margin: 0.02", "margn: 0.02")
    assert [(line, field) for line, field, _ in mistakes(tmp_path, text)] == [
        (3, "touchpoints[0].scope"),
        (10, "touchpoints[0].suite.margn"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "message"),
    [
        ("    scope: global", "    scope: global\n    scope: workspace", 4, "touchpoints[0].scope", "in line 3"),
        ("path: prompts/a.md", "path: 7", 7, "touchpoints[0].storage.path", "valid string"),
        ("path: prompts/a.md", "path: a\n      paths: [b]", 7, "touchpoints[0].storage.path", "not both"),
        ("file: gold.csv", "file: other.csv", 9, "touchpoints[0].suite.file", "there is no file"),
        ("adapter: skill_file", "adapter: git", 5, "touchpoints[0].storage.adapter", "skill_file"),
        ("scanner: sql", "scanner: [sql]", 15, "touchpoints[0].signals[1].scanner", "valid string"),
        ("- id: a.b", "- id: &x a.b", 2, "", "anchors"),
        ("- id: a.b", "- id: !secret a.b", 2, "touchpoints[0].id", "tag"),
        ("touchpoints:", "things:", 1, "things", "touchpoints"),
        ("id: a.b", "id: A b", 2, "touchpoints[0].id", "pattern"),
    ],
)
def test_one_mistake(tmp_path: Path, old: str, new: str, line: int, field: str, message: str) -> None:
    (tmp_path / "gold.csv").write_text("text,category\n")
    told = mistakes(tmp_path, WHOLE.replace(old, new, 1))
    assert told[0][:2] == (line, field)
    assert message in told[0][2]


def test_an_id_twice_is_refused(tmp_path: Path) -> None:
    entry = "  - {id: a, scope: global, storage: {adapter: feed_prompts, initial_text: x}}\n"
    told = mistakes(tmp_path, "touchpoints:\n" + entry * 2)
    assert told == [(3, "touchpoints[1].id", "'a' is there already, in line 2")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("- a\n", "mapping"),
        ("touchpoints: []\n", "at least one"),
        ("touchpoints: {}\n", "at least one"),
        ("touchpoints: [x]\n", "a touchpoint is a mapping"),
        ("touchpoints: [\n", "not YAML"),
        ("a: \x1f\n", "control character"),
        ("a: 2025-01-01\n", "a text has quotes"),
        ("a: 1\n---\nb: 2\n", "not YAML"),
        ("touchpoints:\n  - " + "[" * 30 + "]" * 30 + "\n", "too deeply"),
    ],
)
def test_what_is_no_touchpoints_file(tmp_path: Path, text: str, message: str) -> None:
    assert message in mistakes(tmp_path, text)[0][2]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TouchpointsFileError, match="cannot be read"):
        read_touchpoints(tmp_path / "none.yaml")
    bad = tmp_path / "bad.yaml"
    bad.write_bytes(b"touchpoints:\n  - id: \xff\n")
    with pytest.raises(TouchpointsFileError, match=r"line 2: it is not UTF-8"):
        read_touchpoints(bad)
    bad.write_bytes(b"#" * 1_000_001)
    with pytest.raises(TouchpointsFileError, match="at most"):
        read_touchpoints(bad)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_with_our_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = write(tmp_path_factory.getbasetemp(), text.encode("utf-8", "replace").decode(), "any.yaml")
    with pytest.raises(TouchpointsFileError):
        read_touchpoints(path)
