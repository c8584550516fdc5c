"""What the example's README promises about its data: counts, labels, and splits that do not leak."""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from ruamel.yaml import YAML

EXAMPLE = Path(__file__).resolve().parent.parent
SPLITS = ("traffic", "dev", "test")
NEAR_DUPLICATE = 0.9


@dataclass(frozen=True)
class Utterance:
    text: str
    label: str
    split: str
    case_id: str | None = None
    cluster: str | None = None


@cache
def labels_of(prompt: str) -> dict[str, str]:
    """Label → everything under its heading."""
    _, _, body = (EXAMPLE / "prompts" / prompt).read_text("utf-8").partition("## Labels\n")
    return dict(re.findall(r"^### (\S+)\n(.*?)(?=^### |\Z)", body, re.MULTILINE | re.DOTALL))


@cache
def examples_of(prompt: str) -> tuple[str, ...]:
    return tuple(item for text in labels_of(prompt).values() for item in re.findall(r"^- (.+)$", text, re.MULTILINE))


@cache
def traffic() -> tuple[Utterance, ...]:
    with (EXAMPLE / "data" / "traffic.csv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, strict=True)
        assert rows.fieldnames == ["text", "category"]
        return tuple(Utterance(row["text"], row["category"], "traffic") for row in rows)


@cache
def gold() -> tuple[Utterance, ...]:
    lines = (EXAMPLE / "data" / "gold.jsonl").read_text("utf-8").splitlines()
    cases = [json.loads(line) for line in lines]
    return tuple(
        Utterance(
            case["input"],
            case["expected"],
            case["split"],
            case["case_id"],
            case.get("cluster"),
        )
        for case in cases
    )


def everything() -> tuple[Utterance, ...]:
    return traffic() + gold()


def normalised(text: str) -> str:
    return " ".join(text.lower().split())


def tokens(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))


def jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / len(a | b)


def repeated(values: Iterable[str]) -> list[str]:
    return [value for value, times in Counter(values).items() if times > 1]


def test_there_is_enough_of_it() -> None:
    sizes = Counter(utterance.split for utterance in everything())
    assert len(labels_of("intent.md")) >= 24
    assert sizes["traffic"] >= 300
    assert sizes["dev"] >= 80
    assert sizes["test"] >= 300
    assert sum(sizes.values()) >= 660


def test_every_split_has_every_label_and_no_other() -> None:
    assert {utterance.split for utterance in everything()} == set(SPLITS)
    for split in SPLITS:
        found = {utterance.label for utterance in everything() if utterance.split == split}
        assert found == set(labels_of("intent.md")), split


def test_no_text_occurs_twice_in_any_splits() -> None:
    assert repeated(normalised(utterance.text) for utterance in everything()) == []


def test_texts_are_clean() -> None:
    for utterance in everything():
        assert utterance.text == utterance.text.strip() != ""
        assert "\n" not in utterance.text
        assert tokens(utterance.text)


def test_no_test_case_is_nearly_a_seen_text() -> None:
    test_cases = [(case.text, tokens(case.text)) for case in gold() if case.split == "test"]
    seen = [(utterance.text, tokens(utterance.text)) for utterance in everything() if utterance.split != "test"]
    near = [
        (text, other)
        for text, words in test_cases
        for other, other_words in seen
        if jaccard(words, other_words) >= NEAR_DUPLICATE
    ]
    assert near == []


def test_prompt_examples_are_nobodys_messages() -> None:
    messages = {normalised(utterance.text) for utterance in everything()}
    assert messages.isdisjoint(normalised(example) for example in examples_of("intent.md"))


def test_case_ids_are_unique_and_a_cluster_stays_in_one_split() -> None:
    assert repeated(case.case_id or "" for case in gold()) == []
    members: dict[str, list[Utterance]] = {}
    for case in gold():
        if case.cluster is not None:
            members.setdefault(case.cluster, []).append(case)
    assert len(members) >= 5
    for cluster, cases in members.items():
        assert len(cases) >= 2, cluster
        assert len({case.split for case in cases}) == 1, cluster


@pytest.mark.parametrize("prompt", ["intent.md", "relevance.md"])
def test_prompt_has_front_matter_and_described_labels(prompt: str) -> None:
    text = (EXAMPLE / "prompts" / prompt).read_text("utf-8")
    assert re.match(r"---\nname: [a-z-]+\ndescription: \S.*\n---\n\n# \S", text)
    headings = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert repeated(headings) == []
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", heading) for heading in headings)
    for name, body in labels_of(prompt).items():
        description = body.partition("Examples:")[0].strip()
        assert description, name


def test_platform_tables_are_created_only_where_absent() -> None:
    sql = (EXAMPLE / "platform.sql").read_text("utf-8")
    created = re.findall(r"^CREATE (?:TABLE|SCHEMA|INDEX) .*$", sql, re.MULTILINE)
    assert len(created) > 5
    assert all("IF NOT EXISTS" in statement for statement in created)
    for table in ("feed_articles", "feed_flags", "content_items", "ai_drafts"):
        assert f"CREATE TABLE IF NOT EXISTS platform.{table} (" in sql


def test_files_that_touchpoints_name_exist() -> None:
    document = YAML(typ="safe").load(EXAMPLE / "touchpoints.yaml")
    touchpoints = {touchpoint["id"]: touchpoint for touchpoint in document["touchpoints"]}
    intent, relevance = (
        touchpoints["support.intent"],
        touchpoints["si.relevance-scorer"],
    )
    assert (EXAMPLE / intent["storage"]["path"]).is_file()
    assert (EXAMPLE / intent["suite"]["file"]).is_file()
    assert (EXAMPLE / relevance["storage"]["initial_text_file"]).is_file()
    assert (intent["scope"], relevance["scope"]) == ("global", "workspace")
