"""The guide `docs/guides/ask-from-an-agent.md`, done as it is written."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from burnish.data_folder import DataFolder
from tests.integration.guides import BURNISH, Desk, Guide, running

GUIDE = Guide("ask-from-an-agent.md")
pytestmark = pytest.mark.timeout(300)


def test_the_guide_can_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    up, search = GUIDE.commands()
    drop, token, ask, over_http = (block.strip() for block in GUIDE.blocks("sh"))
    reader = Desk(tmp_path)
    (tmp_path / "answers.md").write_text(GUIDE.blocks("markdown")[0])
    (tmp_path / "ask.py").write_text(GUIDE.blocks("python")[0])
    with running(reader, up):
        reader.sh(drop)
        reader.until(search, "How long are backups kept?")
        reader.sh(token)
        asked = reader.until(ask.replace("python", shlex.quote(sys.executable), 1), "thirty-five days").splitlines()
        assert asked[0].endswith(" How long are backups kept?")
        assert asked[-1] == "Backups are kept for thirty-five days."

        port = DataFolder(tmp_path / ".burnish").ports()["mcp"]  # 8321 may be taken here
        answer = json.loads(reader.until(over_http.replace(":8321/", f":{port}/"), "Only 443, outgoing."))
        assert answer["result"]["structuredContent"]["results"][0]["question_text"] == "Which ports must be open?"


def test_the_configuration_of_a_host_starts_what_there_is() -> None:
    (server,) = json.loads(GUIDE.blocks("json")[0])["mcpServers"].values()
    assert server["command"] == "burnish"
    assert shlex.join([*BURNISH, *server["args"]]).endswith("-m burnish mcp --token-file agent.token")
