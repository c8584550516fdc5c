"""The guide `docs/guides/models.md`, done as it is written, with a server that speaks the wire format."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest

from libs.llm.testing import Asked, Chat, ModelServer, Written
from libs.llm.testing.server import KEY
from tests.integration.guides import BURNISH, ROOT, Desk, Guide, running
from tests.integration.test_first_loop import TEXTS

FIRST, GUIDE = Guide("first-loop.md"), Guide("models.md")
pytestmark = pytest.mark.timeout(300)
WIRE = Chat()


def by_rule(asked: Asked) -> Written:
    """Writes one example into the prompt, or answers with a label."""
    try:
        brief = json.loads(asked.input)
    except ValueError:
        label = "refund_status" if "money" in asked.input else "charge_dispute"
        return WIRE.said(json.dumps({"label": label}), tokens=(200, 10))
    (part,) = brief["prompt"]
    before = "- where is my refund\n"
    hunk = {
        "path": part["path"],
        "before": before,
        "after": f"{before}- when will I have the sum again\n",
        "signal_ids": [brief["pattern"]["evidence"][0]["signal_id"]],
    }
    return WIRE.said(json.dumps({"hunks": [hunk], "rationale": "Refunds lack examples."}), tokens=(4_000, 300))


@contextmanager
def served() -> Iterator[ModelServer]:
    """In a thread of its own: the guide's commands block ours."""
    server, loop, stop, up = ModelServer(WIRE, by_rule), asyncio.new_event_loop(), asyncio.Event(), threading.Event()

    async def serve() -> None:
        async with server:
            up.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert up.wait(30)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """The folder of the first loop, with the model, the price and the key of this guide, and everything running."""
    make, first_commit, *_ = FIRST.blocks("sh")
    reader = Desk(tmp_path)
    reader.sh(make.strip())
    reader.folder = folder = tmp_path / "desk"
    (folder / "prompts" / "intent.md").write_text(FIRST.blocks("markdown")[0])
    reader.sh(first_commit.strip())
    offline = "    model:\n      provider: offline\n"
    assert offline in FIRST.blocks("yaml")[0]
    (folder / "touchpoints.yaml").write_text(FIRST.blocks("yaml")[0].replace(offline, GUIDE.blocks("yaml")[0]))
    gold, one_signal = FIRST.blocks("json")
    (folder / "gold.jsonl").write_text(gold)
    told = json.loads(one_signal)
    signals = [
        {**told, "source_key": f"ticket:{n}", "actor_id": f"anna-{n}", "payload": {**told["payload"], "text": text}}
        for n, text in enumerate(TEXTS)
    ]
    (folder / "signals.jsonl").write_text("".join(json.dumps(signal) + "\n" for signal in signals))
    (folder / "prices.toml").write_text(GUIDE.blocks("toml")[0])
    (folder / "key").write_text(f"{KEY}\n")
    for line in GUIDE.blocks("sh")[0].splitlines():
        name, _, value = line.removeprefix("export ").partition("=")
        monkeypatch.setenv(name, value.replace("$PWD", str(folder)))
    with served() as server:
        monkeypatch.setenv("BURNISH_OPENAI_BASE_URL", server.url)
        with running(reader, GUIDE.commands()[0]):
            yield reader


def test_the_guide_can_be_followed(desk: Desk) -> None:
    _, plan, apply, create, ab, spend, spend_more = GUIDE.commands()
    _, _, _, _, suite, _, push, _, patterns, proposals, *_ = FIRST.commands()
    for command in (plan, apply, suite, push):
        desk.sh(command)
    desk.until(patterns, "refund_status answered as charge_dispute")
    desk.names["PATTERN_ID"] = json.loads(desk.sh(f"{patterns} --json"))[0]["pattern_id"]
    desk.sh(create)
    desk.until(proposals, "refund_status")
    (made, *_) = json.loads(desk.sh(f"{proposals} --json"))
    desk.names["PROPOSAL_ID"] = made["proposal_id"]
    subprocess.run(  # `ab` tells the verdict by its exit code, and two cases decide nothing
        [*BURNISH, *shlex.split(ab.replace("PROPOSAL_ID", made["proposal_id"]))[1:]],
        cwd=desk.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    told = json.loads(desk.sh(f"{spend} --json"))
    by_caller = {day["caller"]: day for day in told["days"]}
    assert by_caller["ab_runner"]["calls"] == 4  # two cases with each text
    assert Decimal(by_caller["ab_runner"]["usd"]) == 4 * Decimal("0.00007")  # 200 at 0.25 and 10 at 2.00
    written = by_caller["proposal"]
    assert Decimal(written["usd"]) == written["calls"] * Decimal("0.0016")  # 4,000 at 0.25 and 300 at 2.00
    assert {day["model"].partition("@")[0] for day in told["days"]} == {"small"}
    shown = desk.sh(spend)
    assert "openai/small@127.0.0.1" in shown
    assert "0.00028" in shown
    assert desk.sh(spend_more).count("openai/small") >= 7
    for log in (desk.folder / ".burnish").rglob("*.log"):
        assert KEY not in log.read_text(errors="replace"), log


def test_the_guide_names_what_there_is() -> None:
    """The tiers of its example are tiers, and its models have a published price."""
    from libs.llm.prices import published
    from libs.llm.tiers import TIERS, model_named

    (line,) = [block for block in GUIDE.blocks("sh") if "MODEL_TIERS" in block]
    mapped = json.loads(line.partition("=")[2].strip().strip("'"))
    for name, model in mapped.items():
        assert name in TIERS
        named = model_named(model, "x")
        assert published().of(named.provider, named.name) is not None
