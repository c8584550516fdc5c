"""What needs no server: how arguments are read, whose call it is, and what a fault tells."""

from __future__ import annotations

import json
import logging
from typing import Any
from uuid import uuid4

import pytest
from burnish_sdk import AsyncClient, Conflict, ServerError, UnexpectedAnswer
from mcp import Client

from apps.mcp import app, arguments, logs, refusals, tokens
from apps.mcp.arguments import BadArguments, read
from apps.mcp.tools import TOOLS, Tool
from libs.contracts.printable import is_visible

SECRET = "postgresql://burnish:hunter2@db/burnish"


def test_names_that_a_caller_makes_up_are_shown_short_and_clean() -> None:
    given = {"query": "a", **{f"\x1b[31m\u202e{number}{'x' * 5_000}": 1 for number in range(30)}}
    with pytest.raises(BadArguments) as refused:
        read(arguments.Search, given)
    told = str(refused.value)
    assert len(told) < 5_000
    assert told.endswith("and 20 more")
    assert all(is_visible(one) or one == "\n" for one in told)


def test_a_caller_is_told_what_the_gateway_said_and_of_faults_nothing() -> None:
    stale = Conflict(409, "stale_version", "the pair is at version 3 now", extra={"version": 3, "pair": {"a": 1}})
    assert refusals.told(stale) == "stale_version: the pair is at version 3 now\nversion: 3"
    steering = Conflict(409, "x", "a\x1b[31mb" + "y" * 9_000)
    assert len(refusals.told(steering)) <= refusals.LONGEST
    assert "\x1b" not in refusals.told(steering)
    assert refusals.told(ServerError(500, "internal", SECRET)) == refusals.FAULT
    assert refusals.told(UnexpectedAnswer(SECRET, status=200)) == refusals.FAULT


async def test_a_fault_of_a_tool_is_masked(capsys: pytest.CaptureFixture[str]) -> None:
    async def fails(_: AsyncClient, __: Any) -> Any:
        raise RuntimeError(SECRET)

    search = TOOLS[0]
    broken = Tool(**{**{name: getattr(search, name) for name in Tool.__dataclass_fields__}, "run": fails})
    async with AsyncClient("http://127.0.0.1:9", tokens.current) as gateway:
        server = app.build(gateway, lambda _: "a.b.c", [broken])
        async with Client(server) as client:
            result = await client.call_tool("q_a_search", {"query": "a"})
    assert result.is_error
    assert [one.text for one in result.content if one.type == "text"] == [refusals.FAULT]
    told = capsys.readouterr()
    assert "mcp.tool.failed" in told.out + told.err
    assert "test_units.py:" in told.out + told.err
    assert "hunter2" not in told.out + told.err


def test_the_words_of_the_protocols_library_are_logged_without_what_was_sent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    monkeypatch.setattr(root, "level", root.level)
    logs.configure()
    try:
        raise ValueError(SECRET)
    except ValueError:
        logging.getLogger("mcp.server").exception("a handler of %s raised", SECRET)
    line = json.loads(capsys.readouterr().err)
    assert line["event"].startswith("a handler of %s raised (ValueError at test_units.py:")
    assert SECRET not in json.dumps(line)


@pytest.mark.parametrize(
    ("values", "fine"),
    [
        ([b"Bearer a.b.c"], True),
        ([b"bearer a.b.c"], True),
        ([], False),
        ([b"Bearer a.b.c", b"Bearer a.b.c"], False),
        ([b"Bearer "], False),
        ([b"Bearer a\x00"], False),
        ([b"Bearer \xe9"], False),
    ],
)
def test_the_token_of_a_request(values: list[bytes], fine: bool) -> None:
    headers = [(b"Authorization", value) for value in values]
    if fine:
        assert tokens.of_headers(headers, 0) == "a.b.c"
    else:
        with pytest.raises(tokens.NoToken):
            tokens.of_headers(headers, 0)


def test_a_read_is_what_was_written() -> None:
    identity = uuid4()
    assert read(arguments.Get, {"q_a_pair_id": str(identity)}).q_a_pair_id == identity
    for bad in (float("nan"), float("inf"), "\ud800"):
        with pytest.raises(BadArguments, match="that JSON does not"):
            read(arguments.Search, {"query": "a", "limit": bad})
