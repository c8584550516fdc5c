"""The guide `docs/guides/refine-an-agent.md`, done as it is written, on the example's agents."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.integration.guides import ROOT, Desk, Guide, running

GUIDE = Guide("refine-an-agent.md")
pytestmark = pytest.mark.timeout(300)


def test_the_guide_can_be_followed(tmp_path: Path) -> None:
    up, catalog, flag, create, listed, lint, talk, refine, talk_with, save, versions, revert, *words = GUIDE.commands()
    reader = Desk(tmp_path)
    shutil.copytree(ROOT / "examples" / "agents", tmp_path / "examples" / "agents")
    with running(reader, up):
        for command in (catalog, flag, create):
            reader.sh(command)
        reader.names["AGENT_ID"] = json.loads(reader.sh(f"{listed} --json"))["data"][0]["id"]
        with pytest.raises(AssertionError, match="unreachable_gate"):
            reader.sh(f"{lint} >&2")
        assert "did pay_back" not in reader.sh(talk)
        told = reader.sh(refine)
        assert "label printed" in told
        assert "Option 2" in told
        assert "did pay_back" in reader.sh(talk_with)
        assert "is at version 2" in reader.sh(save)
        assert "did pay_back" in reader.sh(talk)
        assert [line.split()[:2] for line in reader.sh(versions).splitlines()[1:]] == [["2", "update"], ["1", "create"]]
        assert "is at version 3" in reader.sh(revert)
        assert "did pay_back" not in reader.sh(talk)
        for said in words:
            assert "Option 1" in reader.sh(said)
