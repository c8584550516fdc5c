from __future__ import annotations

import json
from pathlib import Path

import pytest

from burnish.suite_file import SuiteFileError, read_suite


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_jsonl(tmp_path: Path) -> None:
    lines = [
        {"case_id": "one", "input": "a\u2028b", "expected": "x", "split": "dev", "cluster": "c"},
        {"text": "b", "category": "y", "unknown": 1},
    ]
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n\n"
    one, two = read_suite(write(tmp_path, "s.jsonl", text))
    assert (one.case_id, one.input, one.split, one.cluster) == ("one", "a\u2028b", "dev", "c")
    assert (two.input, two.expected, two.split) == ("b", "y", "test")


def test_csv_with_a_text_over_two_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "s.csv", '\ufefftext,category,split\n"two\nlines",x,\nb,y,dev\n')
    assert [(case.input, case.expected, case.split) for case in read_suite(path)] == [
        ("two\nlines", "x", "test"),
        ("b", "y", "dev"),
    ]


def test_an_id_comes_from_the_content_whatever_the_order(tmp_path: Path) -> None:
    rows = ["a,x", "b,y", "a,x"]
    first = read_suite(write(tmp_path, "1.csv", "\n".join(["text,category", *rows])))
    again = read_suite(write(tmp_path, "2.csv", "\n".join(["text,category", *reversed(rows)])))
    assert {case.case_id for case in first} == {case.case_id for case in again}
    assert len({case.case_id for case in first}) == 3


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.txt", "", "a .jsonl or a .csv"),
        ("s.csv", "text,label2\na,b\n", r"line 1: it has no column `expected` \(or `category`\)"),
        ("s.csv", "text,category\n", "it has no cases"),
        ("s.csv", "text,category\na,b,c\n", "line 2: it has more fields"),
        ("s.csv", 'text,category\n"a,b\n', "it is not CSV"),
        ("s.jsonl", '{"input": "a", "expected": "x"}\n{"input"', "line 2: it is not JSON"),
        ("s.jsonl", "[]", "line 1: a case is an object"),
        ("s.jsonl", '{"input": "a"}', "line 1: expected: is missing"),
        ("s.jsonl", '{"input": "a", "expected": "x", "split": "train"}', "line 1: split: "),
        ("s.jsonl", '{"case_id": "1", "input": "a", "expected": "x"}\n' * 2, "line 2: case_id: '1' is there already"),
        ("s.jsonl", "", "it has no cases"),
    ],
)
def test_mistakes_name_line_and_field(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(SuiteFileError, match=message):
        read_suite(write(tmp_path, name, text))


def test_mistakes_are_told_together_but_not_endlessly(tmp_path: Path) -> None:
    with pytest.raises(SuiteFileError) as caught:
        read_suite(write(tmp_path, "s.jsonl", '{"input": "a"}\n' * 50))
    assert str(caught.value).splitlines()[-1] == "… and 30 more"
