from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from burnish.cli import HEADINGS, main
from burnish.commands.verbs import Verb
from burnish.printer import plain


def verbs(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        if isinstance(command, click.Group):
            yield from verbs(command, (*path, name))
        else:
            yield (*path, name), command


ALL = dict(verbs(main))
EXPECTED = """
up|run|mcp|platform|migrate|topology|doctor|demo|scan|ab|live|history|rollback|token|touchpoints plan|touchpoints apply|
touchpoints list|touchpoints show|touchpoints confirm|
signals list|signals show|signals push|patterns list|patterns show|proposals list|
proposals show|proposals create|proposals approve|proposals reject|proposals waive|proposals bad-signals|
suites import|suites list|suites waiting|spend|ledger list|ledger head|ledger verify|dlq list|dlq show|dlq replay|
qa lint|qa convert|qa template|qa search|qa chunks|qa feedback|qa show|qa documents|qa report|qa export|qa ingest|
qa match|
agents list|agents show|agents lint|agents refine|agents chat|agents save|agents create|agents revert|agents catalog|
agents flag|
qa create|qa promote|qa edit|qa archive|qa restore|qa verify|qa publish|qa review|qa merge|qa supersede|
qa split|qa reviews|qa suggestions|qa accept|qa dismiss|qa undo|qa delete|qa import-legacy
"""


def invoke(*words: str, **environment: str) -> tuple[int, str, str]:
    outcome = CliRunner().invoke(main, list(words), env=environment)
    return outcome.exit_code, outcome.stdout, outcome.stderr


def test_the_verbs_are_those_promised() -> None:
    assert {" ".join(path) for path in ALL} == {verb.strip() for verb in EXPECTED.split("|")}


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_verb_explains_itself(path: tuple[str, ...]) -> None:
    code, out, _ = invoke(*path, "--help")
    assert code == 0
    assert f"burnish {' '.join(path)}" in out.split("Example:")[1]
    assert "  0  " in out.split("Exit codes:")[1]


@pytest.mark.parametrize("path", [path for path in ALL if path != ("run",)], ids=" ".join)
def test_every_verb_but_run_speaks_json(path: tuple[str, ...]) -> None:
    assert any(option.name == "as_json" for option in ALL[path].params)


def test_every_verb_is_a_verb_and_has_a_short_summary() -> None:
    for path, command in ALL.items():
        assert isinstance(command, Verb), path
        assert len(command.get_short_help_str(200)) <= 100, path


def test_help_lists_every_verb_under_a_heading() -> None:
    code, out, _ = invoke("--help")
    assert code == 0
    for heading, names in HEADINGS.items():
        listed = out.split(f"{heading}:\n")[1].split("\n\n")[0]
        for name in names:
            assert f"  {name} " in listed
    assert {path[0] for path in ALL} == {name for names in HEADINGS.values() for name in names}


def test_help_needs_nothing_heavy() -> None:
    """`--help` answers while you still look at the keyboard."""
    code = "import sys, burnish.cli; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"asyncpg", "fastapi", "nats", "numpy", "sklearn", "scipy", "httpx", "rich"} & set(loaded)


def test_without_an_installation_the_verb_says_how_to_start_one(tmp_path: Path) -> None:
    code, out, err = invoke("touchpoints", "list", "--data", str(tmp_path / "none"))
    assert (code, out) == (3, "")
    assert "no installation runs in" in err
    assert "burnish up" in err


def test_a_url_without_a_token_is_refused(tmp_path: Path) -> None:
    code, _, err = invoke("patterns", "list", "--data", str(tmp_path), BURNISH_URL="http://127.0.0.1:9")
    assert code == 4
    assert "BURNISH_TOKEN" in err


def test_an_unreachable_gateway_has_its_own_exit_code(tmp_path: Path) -> None:
    url = "http://127.0.0.1:9"
    code, _, err = invoke("ledger", "verify", "--data", str(tmp_path), BURNISH_URL=url, BURNISH_TOKEN="t")
    assert code == 3
    assert f"{url} cannot be reached" in err


def test_a_token_needs_a_signing_key(tmp_path: Path) -> None:
    code, _, err = invoke("token", "--data", str(tmp_path))
    assert code == 1
    assert "no signing key" in err


def test_run_names_the_settings_that_are_missing() -> None:
    outcome = subprocess.run(
        [sys.executable, "-m", "burnish", "run", "qa_ingest"], capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 1
    assert "BURNISH_DATABASE_URL" in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_run_refuses_what_is_no_service() -> None:
    code, _, err = invoke("run", "nonsense")
    assert code == 2
    assert "scanner" in err


def test_topology_writes_the_server_configuration(tmp_path: Path) -> None:
    target = tmp_path / "new" / "accounts.conf"
    code, printed, _ = invoke("topology", "--print")
    assert code == 0
    assert invoke("topology", "--write", str(target))[0] == 0
    assert target.read_text() == printed
    assert "PATTERN_DETECTOR {" in printed


def test_topology_names_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = invoke("topology", "--write", str(tmp_path / "file" / "accounts.conf"))
    assert code == 2
    assert "cannot be written" in err


def test_up_refuses_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = invoke("up", "--data", str(tmp_path / "file"))
    assert code == 2
    assert "is a file" in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_up_names_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    code, _, err = invoke("up", "--data", str(tmp_path / "data"))
    assert code == 1
    assert "cannot be written" in err


def test_doctor_on_an_empty_machine_warns(tmp_path: Path) -> None:
    code, out, _ = invoke("doctor", "--data", str(tmp_path / "none"))
    assert code == 1
    assert "warn  installation: nothing runs in" in out
    assert "→ start it with `burnish up`" in out


@pytest.mark.parametrize(
    "words",
    [
        ["ab"],
        ["ab", "00000000-0000-0000-0000-000000000000", "--run", "00000000-0000-0000-0000-000000000000"],
        ["dlq", "replay"],
        ["signals", "push"],
        ["proposals", "reject", "00000000-0000-0000-0000-000000000000"],
        ["proposals", "show", "not-an-id"],
        ["live", "x", "--at", "yesterday", "--data", "/nonexistent"],
    ],
)
def test_wrong_usage_is_exit_code_2_or_says_what_is_missing(words: list[str]) -> None:
    code, out, err = invoke(*words)
    assert code in (2, 3)
    assert out == ""
    assert err


def test_what_others_wrote_does_not_steer_a_terminal() -> None:
    assert plain("a\x1b[31mred\x1b]0;title\x07\nb") == "a [31mred ]0;title  b"
