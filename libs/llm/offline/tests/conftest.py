"""A small prompt and its evidence, shared by the tests of the offline model."""

import json
from typing import Any

import pytest

from libs.llm import ModelReply, ModelRequest, OfflineModel

SMALL_PROMPT = """\
Choose the label that fits the message best.

## Labels

### card
Anything about a card that no other label fits.

### card_fee
### exchange_rate
How one currency is turned into another.

Examples:
- what is the rate for euros today

### top_up
"""


@pytest.fixture(scope="session")
def model() -> OfflineModel:
    return OfflineModel()


def evidence(*texts: str, expected: str | None = "card_fee", got: str | None = "card") -> list[dict[str, Any]]:
    return [
        {"signal_id": f"s{number}", "text": text, "expected": expected, "got": got} for number, text in enumerate(texts)
    ]


def ask(
    items: list[dict[str, Any]],
    prompt: str | list[dict[str, str]] = SMALL_PROMPT,
    expected: str | None = None,
    got: str | None = None,
    dev_cases: list[dict[str, str]] | None = None,
) -> ModelRequest:
    parts = [{"path": "SKILL.md", "text": prompt}] if isinstance(prompt, str) else prompt
    pattern = {"title": "t", "strategy": "categorical", "expected": expected, "got": got, "evidence": items}
    document = {"touchpoint_id": "t", "prompt": parts, "pattern": pattern, "dev_cases": dev_cases or []}
    return ModelRequest(task="propose", system="", input=json.dumps(document))


def applied(texts: dict[str, str], reply: ModelReply) -> dict[str, str]:
    """The prompt's parts with the hunks of a reply applied; each `before` must occur exactly once."""
    assert reply.data is not None
    before = dict(texts)
    after = dict(texts)
    for hunk in reply.data["hunks"]:
        assert sum(text.count(hunk["before"]) for text in before.values()) == 1
        after[hunk["path"]] = after[hunk["path"]].replace(hunk["before"], hunk["after"])
    return after
