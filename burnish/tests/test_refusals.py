"""Wrong input: each verb names the field, line or file, says what would be right, and leaves nothing half-done."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import jwt
import pytest
from click.testing import CliRunner

from burnish.cli import main
from burnish.commands.look import MAX_PUSH
from burnish.installation import Installation
from burnish.tests.conftest import Scripted

NOBODY = UUID(int=0)
TOUCHPOINTS = """touchpoints:
  - id: desk.intent
    scope: global
    storage:
      adapter: skill_file
      repository: .
      path: prompts/intent.md
    signals:
      - scanner: si_flags
"""


def invoke(data: Path, *words: str) -> tuple[int, str, str]:
    outcome = CliRunner().invoke(main, [*words, "--data", str(data)])
    return outcome.exit_code, outcome.stdout, outcome.stderr


def signals(path: Path, count: int, text: str = "") -> Path:
    one = {"touchpoint_id": "desk.intent", "signal_type": "flag", "payload": {"text": text}}
    path.write_text("".join(json.dumps({**one, "source_key": str(n)}) + "\n" for n in range(count)))
    return path


def test_a_field_that_the_gateway_refuses_is_a_line_of_the_file(data: Path, server: Scripted, tmp_path: Path) -> None:
    file = tmp_path / "touchpoints.yaml"
    file.write_text(TOUCHPOINTS)
    told = {"loc": "touchpoints[0].signals[0].scanner", "message": "There is nothing of this name.", "hint": "Use x."}
    path = {"loc": "touchpoints[0].storage.paths", "message": "There is no file."}
    server.status, server.body = 422, {"errors": [told, path]}
    for word in ("plan", "apply"):
        code, out, err = invoke(data, "touchpoints", word, str(file))
        assert (code, out) == (2, "")
        assert f"{file}, line 9: touchpoints[0].signals[0].scanner: There is nothing of this name. Use x." in err
        assert f"{file}, line 7: touchpoints[0].storage.path: There is no file.\n  nothing was changed" in err


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (b"{\n", "it is not JSON"),
        (b"\xff\xfe\n", "it is not UTF-8"),
        (b"[1]\n", "a signal is an object"),
        (b"[" * 100_000 + b"\n", "nested too deeply"),
    ],
)
def test_a_bad_line_stops_the_push_before_it_begins(
    data: Path, server: Scripted, tmp_path: Path, bad: bytes, told: str
) -> None:
    file = signals(tmp_path / "signals.jsonl", MAX_PUSH)
    file.write_bytes(file.read_bytes() + b"\n" + bad)
    code, out, err = invoke(data, "signals", "push", "--file", str(file))
    assert (code, out) == (2, "")
    assert f"{file}, line {MAX_PUSH + 2}: " in err
    assert told in err
    assert server.seen == []


def test_a_file_without_signals_is_no_success(data: Path, tmp_path: Path) -> None:
    code, _, err = invoke(data, "signals", "push", "--file", str(signals(tmp_path / "none.jsonl", 0)))
    assert code == 2
    assert "has no signals" in err


def test_a_refused_signal_is_a_line_of_the_file_and_a_key_goes_on(data: Path, server: Scripted, tmp_path: Path) -> None:
    file = signals(tmp_path / "signals.jsonl", MAX_PUSH + 3)
    accepted = {"accepted": MAX_PUSH, "signal_ids": [str(NOBODY)] * MAX_PUSH}
    refused = {"errors": [{"loc": "signals[2].payload.text", "message": "too long"}]}
    server.answers = [(202, accepted), (422, refused)]
    code, _, err = invoke(data, "signals", "push", "--file", str(file), "--key", "mine")
    assert code == 2
    assert f"{file}, line {MAX_PUSH + 3}: payload.text: too long" in err
    assert f"the {MAX_PUSH} before were accepted; `--key mine` goes on after them" in err


def test_a_push_is_as_large_as_the_gateway_takes(data: Path, server: Scripted, tmp_path: Path) -> None:
    server.body = {"accepted": 0, "signal_ids": [], "touchpoints": []}
    assert invoke(data, "signals", "push", "--file", str(signals(tmp_path / "s.jsonl", 400, "x" * 15_000)))[0] == 0
    assert [len(body["signals"]) for body in server.bodies if body] == [198, 198, 4]


def test_a_push_says_which_signals_will_not_count(data: Path, server: Scripted, tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    here = {"workspace_id": str(NOBODY)}
    pairs = [("nope", {}), ("every", here), ("each", {}), ("every", {}), ("each", here), ("nope", here)]
    file.write_text("".join(json.dumps({"touchpoint_id": name, **more}) + "\n" for name, more in pairs))
    known = [{"touchpoint": {"id": "every", "scope": "global"}}, {"touchpoint": {"id": "each", "scope": "workspace"}}]
    server.body = {"signal_ids": [], "touchpoints": known}
    code, _, err = invoke(data, "signals", "push", "--file", str(file))
    assert code == 0
    assert [line for line in err.splitlines() if line.startswith("note: ")] == [
        "note: each is scoped to workspaces: its signals without one do not count",
        "note: every is global: its signals that name a workspace do not count",
        "note: nope is not registered: its signals count once it is",
    ]


def test_a_token_that_may_only_push_is_enough(data: Path, server: Scripted, tmp_path: Path) -> None:
    server.answers = [(202, {"signal_ids": [str(NOBODY)]}), (403, {})]
    code, _, err = invoke(data, "signals", "push", "--file", str(signals(tmp_path / "s.jsonl", 1)))
    assert (code, err) == (0, "1 signal accepted\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["live", "No/Such Id"], "lower-case letters"),
        (["live", "desk.intent", "--workspace", "w"], "not a valid UUID"),
        (["signals", "list", "--touchpoint", "../x"], "lower-case letters"),
    ],
)
def test_an_id_that_is_none_is_not_asked_for(data: Path, server: Scripted, words: list[str], told: str) -> None:
    code, _, err = invoke(data, *words)
    assert code == 2
    assert told in err
    assert server.seen == []


def test_a_run_that_nobody_asked_for_is_not_waited_for(data: Path, server: Scripted) -> None:
    server.status, server.body = 404, {"detail": "there is no run"}
    assert invoke(data, "ab", "--run", str(NOBODY))[0] == 5
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("intent", "code", "told"),
    [
        (
            {"state": "failed", "branch": None, "error": "it has uncommitted edits"},
            1,
            "not committed: it has uncommitted",
        ),
        ({"state": "open", "branch": "burnish/0000", "error": None}, 0, "waits on the branch burnish/0000"),
    ],
)
def test_an_approval_says_what_became_of_its_commit(
    data: Path, server: Scripted, intent: dict[str, str | None], code: int, told: str
) -> None:
    named = {"proposal_id": str(NOBODY), "touchpoint_id": "desk.intent"}
    server.answers = [
        (200, {**named, "state": "approved"}),
        (200, {"tier": 2}),
        (200, {"intents": [{**named, "state": "recorded"}]}),
        (200, {"intents": [{**named, **intent}]}),
    ]
    ended, _, err = invoke(data, "proposals", "approve", str(NOBODY), "--sha256", "0" * 64)
    assert ended == code
    assert told in err


def test_a_scan_without_scanners_is_no_success(data: Path, server: Scripted) -> None:
    server.answers = [(200, {"runs": []}), (200, {"touchpoint": {"signals": []}})]
    code, _, err = invoke(data, "scan", "desk.intent")
    assert code == 6
    assert "desk.intent has no scanners" in err
    assert [method for method, *_ in server.seen] == ["GET", "GET"]


def test_a_scope_never_comes_with_more_than_it_says(tmp_path: Path) -> None:
    Installation(tmp_path).token("admin", "admin")
    code, out, _ = invoke(tmp_path, "token", "--scope", "signals:write")
    assert code == 0
    claims = jwt.decode(out.strip(), options={"verify_signature": False})
    assert (claims["roles"], claims["scope"]) == (["service"], "signals:write")
    code, out, err = invoke(tmp_path, "token", "--scope", "signals:write", "--role", "admin")
    assert (code, out) == (2, "")
    assert "leave --scope out" in err
