"""The guide `docs/guides/first-loop.md`, done as it is written: its files, its commands, in its order."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.guides import BURNISH, ROOT, Desk, Guide, running

GUIDE = Guide("first-loop.md")
TEXTS = (
    "the transfer back to my account is late",
    "still waiting for the money to be returned",
    "when will you send my money back",
    "the sum you owe me has not arrived",
    "no sign of the returned payment",
    "my money was promised back last week",
)
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Steps 1 to 3: the files as the guide gives them, and everything running."""
    make, first_commit, *_ = GUIDE.blocks("sh")
    reader = Desk(tmp_path)
    reader.sh(make.strip())
    reader.folder = tmp_path / "desk"
    (reader.folder / "prompts" / "intent.md").write_text(GUIDE.blocks("markdown")[0])
    reader.sh(first_commit.strip())
    (reader.folder / "touchpoints.yaml").write_text(GUIDE.blocks("yaml")[0])
    gold, one_signal = GUIDE.blocks("json")
    (reader.folder / "gold.jsonl").write_text(gold)
    told = json.loads(one_signal)
    signals = [
        {**told, "source_key": f"ticket:{n}", "actor_id": f"anna-{n}", "payload": {**told["payload"], "text": text}}
        for n, text in enumerate(TEXTS)
    ]
    (reader.folder / "signals.jsonl").write_text("".join(json.dumps(signal) + "\n" for signal in signals))
    with running(reader, GUIDE.commands()[0]):
        yield reader


def test_the_guide_can_be_followed(desk: Desk) -> None:
    _, doctor, plan, apply, suite, live, push, signals, patterns, proposals, create, show, ab, *rest = GUIDE.commands()
    approve, waive, bad_signals, live_again, history, rollback, history_again, ledger, verify = rest
    for command in (doctor, plan, apply, suite, live, push):
        desk.sh(command)
    desk.until(signals, "anna-0")
    desk.until(patterns, "refund_status answered as charge_dispute")
    found = json.loads(desk.sh(f"{patterns} --json"))[0]
    desk.names["PATTERN_ID"] = found["pattern_id"]
    desk.sh(create)
    desk.until(proposals, "refund_status")
    made = json.loads(desk.sh(f"{proposals} --json"))[0]
    desk.names |= {"PROPOSAL_ID": made["proposal_id"], "NAME": made["proposal_id"].replace("-", "")[:12]}
    assert "refund" in desk.sh(show)
    subprocess.run(  # `ab` tells the verdict by its exit code, and three cases decide nothing
        [*BURNISH, *shlex.split(ab.replace("PROPOSAL_ID", made["proposal_id"]))[1:]],
        cwd=desk.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    desk.sh(waive)
    desk.sh(f"{approve} --yes")
    desk.until("git branch --list 'burnish/*'", desk.names["NAME"])
    merge = GUIDE.blocks("sh")[2].splitlines()[1]
    desk.sh(merge)
    prompt = desk.folder / "prompts" / "intent.md"
    assert prompt.read_text() != GUIDE.blocks("markdown")[0]
    desk.until(live_again, prompt.read_text())
    desk.sh(history)
    desk.sh(rollback)
    desk.sh(GUIDE.blocks("sh")[3].strip())
    desk.until(ledger, "rolled_back")
    desk.sh(history_again)
    desk.sh(verify)
    assert prompt.read_text() == GUIDE.blocks("markdown")[0]
    assert "proposals bad-signals" in bad_signals  # the one step that a reader takes instead of the others
