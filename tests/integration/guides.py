"""A guide, done as it is written: its files, its commands, in a reader's folder."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BURNISH = [sys.executable, "-m", "burnish"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
WHO = ["git", "-c", "user.name=Reader", "-c", "user.email=reader@localhost"]


@dataclass(frozen=True)
class Guide:
    """A page of `docs/guides`."""

    name: str

    def blocks(self, kind: str) -> list[str]:
        """Its code blocks of a language."""
        text = (ROOT / "docs" / "guides" / self.name).read_text()
        return [block for found, block in BLOCK.findall(text) if found == kind]

    def commands(self) -> list[str]:
        """Every `$ burnish …` line."""
        return [line.removeprefix("$ ") for block in self.blocks("console") for line in block.splitlines()]


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


@contextmanager
def running(reader: Desk, command: str) -> Iterator[None]:
    """`burnish up` as the guide writes it, in the reader's folder, until the end."""
    words = shlex.split(command)
    assert words[:2] == ["burnish", "up"]
    up = subprocess.Popen([*BURNISH, *words[1:]], cwd=reader.folder, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        _wait_until_up(reader, up)
        yield
    finally:
        up.send_signal(signal.SIGTERM)
        up.wait(60)


def _wait_until_up(reader: Desk, running: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while running.poll() is None and time.monotonic() < deadline:
        probe = [*BURNISH, "touchpoints", "list"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        if not subprocess.run(probe, cwd=reader.folder, env=environment, capture_output=True, check=False).returncode:
            return
        time.sleep(0.5)
    raise AssertionError("burnish up did not come up")
