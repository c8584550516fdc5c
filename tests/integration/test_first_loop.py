"""The guide `docs/guides/first-loop.md`, done as it is written: its files, its commands, in its order."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "first-loop.md"
BURNISH = [sys.executable, "-m", "burnish"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
WHO = ["git", "-c", "user.name=Reader", "-c", "user.email=reader@localhost"]
TEXTS = (
    "the transfer back to my account is late",
    "still waiting for the money to be returned",
    "when will you send my money back",
    "the sum you owe me has not arrived",
    "no sign of the returned payment",
    "my money was promised back last week",
)
pytestmark = pytest.mark.timeout(300)


@dataclass
class Desk:
    """The reader's folder, and what the guide calls PATTERN_ID, PROPOSAL_ID and NAME."""

    folder: Path
    names: dict[str, str] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)

    def sh(self, script: str) -> str:
        """Run a line of the guide in the folder; returns stdout. Fails with what the command said."""
        for name, value in self.names.items():
            script = script.replace(name, value)
        script = re.sub(r"^burnish\b", shlex.join(BURNISH), script).replace("git commit", shlex.join([*WHO, "commit"]))
        script = script.replace("git merge", shlex.join([*WHO, "merge"]))
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
        done = subprocess.run(
            script,
            shell=True,
            cwd=self.folder,
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        self.ran.append(script)
        return done.stdout

    def until(self, script: str, holds: str) -> str:
        """Run a command until its output has a text: what other services do takes a moment."""
        deadline = time.monotonic() + 60
        while True:
            told = self.sh(script)
            if holds in told:
                return told
            assert time.monotonic() < deadline, f"{script}: no {holds!r} in\n{told}"
            time.sleep(0.3)


def blocks(kind: str) -> list[str]:
    return [text for found, text in BLOCK.findall(GUIDE.read_text()) if found == kind]


def commands() -> list[str]:
    """Every `$ burnish …` line of the guide."""
    return [line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines()]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Steps 1 to 3: the files as the guide gives them, and everything running."""
    make, first_commit, *_ = blocks("sh")
    reader = Desk(tmp_path)
    reader.sh(make.strip())
    reader.folder = tmp_path / "desk"
    (reader.folder / "prompts" / "intent.md").write_text(blocks("markdown")[0])
    reader.sh(first_commit.strip())
    (reader.folder / "touchpoints.yaml").write_text(blocks("yaml")[0])
    gold, one_signal = blocks("json")
    (reader.folder / "gold.jsonl").write_text(gold)
    told = json.loads(one_signal)
    signals = [
        {**told, "source_key": f"ticket:{n}", "actor_id": f"anna-{n}", "payload": {**told["payload"], "text": text}}
        for n, text in enumerate(TEXTS)
    ]
    (reader.folder / "signals.jsonl").write_text("".join(json.dumps(signal) + "\n" for signal in signals))
    up = shlex.split(commands()[0])
    assert up[:2] == ["burnish", "up"]
    running = subprocess.Popen([*BURNISH, *up[1:]], cwd=reader.folder, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        _wait_until_up(reader, running)
        yield reader
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(60)


def _wait_until_up(reader: Desk, running: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while running.poll() is None and time.monotonic() < deadline:
        probe = [*BURNISH, "touchpoints", "list"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        if not subprocess.run(probe, cwd=reader.folder, env=environment, capture_output=True, check=False).returncode:
            return
        time.sleep(0.5)
    raise AssertionError("burnish up did not come up")


def test_the_guide_can_be_followed(desk: Desk) -> None:
    _, doctor, plan, apply, suite, live, push, signals, patterns, proposals, create, show, ab, *rest = commands()
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
    merge = blocks("sh")[2].splitlines()[1]
    desk.sh(merge)
    prompt = desk.folder / "prompts" / "intent.md"
    assert prompt.read_text() != blocks("markdown")[0]
    desk.until(live_again, prompt.read_text())
    desk.sh(history)
    desk.sh(rollback)
    desk.sh(blocks("sh")[3].strip())
    desk.until(ledger, "rolled_back")
    desk.sh(history_again)
    desk.sh(verify)
    assert prompt.read_text() == blocks("markdown")[0]
    assert "proposals bad-signals" in bad_signals  # the one step that a reader takes instead of the others
