"""The offline model on Banking77: right about half the time, and proposals that do not always help."""

import csv
import json
import os
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest
from scipy.stats import binomtest

from libs.llm import ModelRequest, OfflineModel
from libs.llm.offline.quotable_text import quotable

DATA = Path(os.environ.get("BURNISH_SHARED_DATA", Path(__file__).parents[5] / "shared" / "data")) / "banking77"

pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason="needs Banking77: set BURNISH_SHARED_DATA to the folder that holds banking77/"
)

Rows = list[tuple[str, str]]


def rows(name: str) -> Rows:
    with (DATA / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return [(row["text"], row["category"]) for row in csv.DictReader(file)]


def names_only(labels: list[str]) -> str:
    return "Choose the label of the message.\n\n## Labels\n\n" + "".join(f"### {label}\n\n" for label in labels)


async def right(model: OfflineModel, prompt: str, cases: Rows) -> list[bool]:
    replies = await model.classify_many(prompt, [text for text, _ in cases])
    return [
        reply.data is not None and reply.data["label"] == label
        for reply, (_, label) in zip(replies, cases, strict=True)
    ]


async def confusions(model: OfflineModel, prompt: str, traffic: Rows) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """(expected, got, evidence), the largest first."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    replies = await model.classify_many(prompt, [text for text, _ in traffic])
    for number, (reply, (text, label)) in enumerate(zip(replies, traffic, strict=True)):
        assert reply.data is not None
        if (got := reply.data["label"]) != label:
            item = {"signal_id": f"s{number}", "text": text, "expected": label, "got": got}
            found[label, got].append(item)
    return sorted(((*key, items) for key, items in found.items()), key=lambda each: (-len(each[2]), each[:2]))


async def test_names_only_is_right_about_half_the_time_and_proposals_differ_in_worth() -> None:
    train, test = rows("train"), rows("test")
    Random(77).shuffle(train)
    traffic, dev = train[:2000], train[2000:2300]
    model = OfflineModel()
    prompt = names_only(sorted({label for _, label in train}))
    baseline = await right(model, prompt, test)
    assert 0.50 <= sum(baseline) / len(test) <= 0.62

    helped = []
    for expected, got, items in (await confusions(model, prompt, traffic))[:12]:
        changed, hunks = await proposed(model, prompt, expected, got, items, dev)
        now = await right(model, changed, test)
        gained = sum(b and not a for a, b in zip(baseline, now, strict=True))
        lost = sum(a and not b for a, b in zip(baseline, now, strict=True))
        helped.append(gained > lost and binomtest(gained, gained + lost).pvalue < 0.05)
        allowed = {quotable(item["text"]) for item in items} | {quotable(text) for text, _ in dev}
        assert all(line in allowed for hunk in hunks for line in added_lines(hunk))
    assert len(helped) == 12
    assert sum(helped) >= 3
    assert not all(helped)


async def proposed(
    model: OfflineModel, prompt: str, expected: str, got: str, items: list[dict[str, Any]], dev: Rows
) -> tuple[str, list[dict[str, Any]]]:
    document = {
        "touchpoint_id": "intent",
        "prompt": [{"path": "SKILL.md", "text": prompt}],
        "pattern": {"expected": expected, "got": got, "evidence": items},
        "dev_cases": [{"input": text, "expected": label} for text, label in dev],
    }
    reply = await model.complete(ModelRequest(task="propose", system="", input=json.dumps(document)))
    assert reply.data is not None
    changed = prompt
    for hunk in reply.data["hunks"]:
        assert prompt.count(hunk["before"]) == 1
        changed = changed.replace(hunk["before"], hunk["after"])
    return changed, reply.data["hunks"]


def added_lines(hunk: dict[str, Any]) -> list[str]:
    new = hunk["after"].removeprefix(hunk["before"]).splitlines()
    return [line.removeprefix("- ") for line in new if line not in ("", "Examples:")]
