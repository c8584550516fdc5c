"""One printer: whatever others wrote, no terminal is steered, JSON stays JSON, and exact text stays exact."""

from __future__ import annotations

import ast
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from burnish import printer
from burnish.cli import main
from burnish.console import CleanConsole
from burnish.tests.conftest import Scripted
from libs.contracts.printable import is_visible

ROOT = Path(__file__).parents[1]
PRINTERS = {"printer.py", "console.py"}
OWN_LOGS = {"forkserver.py", "child.py"}  # their output is a service's log, not a terminal
NASTY = "a\x1b]0;title\x07\x1b[2Jb\x9b31mc\u202ed\u2066e\u200bf\U000e0041g[red]h[/red]\rX"
FORBIDDEN_CALLS = {"print", "echo", "secho", "Console", "confirm", "prompt", "print_exc", "print_exception", "pprint"}


def statements(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = node.func
            yield called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.stdout", "sys.stderr", "os.write"):
            yield ast.unparse(node)


def test_nobody_prints_but_the_printer() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {found}"
        for path in ROOT.rglob("*.py")
        if "tests" not in path.parts and path.name not in PRINTERS | OWN_LOGS
        for found in statements(path)
        if found in FORBIDDEN_CALLS | {"sys.stdout", "sys.stderr", "os.write"}
        and not (path.parent.name == "demo" and found == "print")  # on a console of the printer's
    ]
    assert wrong == []


def seen(text: str) -> bool:
    return all(is_visible(character) or character in "\n\t" for character in text)


@given(st.text(st.characters(exclude_categories=()), max_size=60))
def test_tables_panels_and_markup_let_nothing_through(text: str) -> None:
    out = io.StringIO()
    console = CleanConsole(file=out, markup=False, emoji=False, highlight=False, color_system=None, width=200)
    table = Table(title=text)
    table.add_column(text or "-")
    table.add_row(text)
    console.print(Panel(Text(text), title=Text(text)), table, text)
    assert seen(out.getvalue())


def test_markup_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    printer.console().print("[red]x[/red] :smile: [link=https://e.example]y[/link]")
    assert "[red]x[/red] :smile: [link=https://e.example]y[/link]" in capsys.readouterr().out.replace("\n", "")


def nasty(body: object) -> str:
    return json.dumps(body).replace("NASTY", json.dumps(NASTY)[1:-1])


SIGNAL = {
    "signal_id": "NASTY", "touchpoint_id": "NASTY", "signal_type": "NASTY", "severity": None, "actor_id": "NASTY",
    "rejected": "NASTY", "processed_at": None, "last_seen": "NASTY", "payload": {"NASTY": "NASTY"},
    "evidence_ref": {"NASTY": "NASTY"},
}  # fmt: skip
VERBS = (
    (["signals", "list"], {"signals": [SIGNAL], "next": "NASTY"}),
    (["signals", "show", "00000000-0000-0000-0000-000000000000"], {"signals": [SIGNAL]}),
)


@pytest.mark.parametrize("as_json", [False, True], ids=["people", "json"])
@pytest.mark.parametrize(
    ("words", "body"), VERBS, ids=lambda case: "-".join(case[:2]) if isinstance(case, list) else ""
)
def test_answers_are_clean(data: Path, server: Scripted, words: list[str], body: object, as_json: bool) -> None:
    server.body = nasty(body).encode()
    outcome = CliRunner().invoke(main, [*words, "--data", str(data), *(["--json"] if as_json else [])])
    assert outcome.exit_code == 0
    assert seen(outcome.stdout)
    assert seen(outcome.stderr)
    if as_json:
        assert NASTY in walk(json.loads(outcome.stdout))


def walk(document: object) -> Iterator[object]:
    if isinstance(document, dict):
        for value in document.values():
            yield from walk(value)
    elif isinstance(document, list):
        for value in document:
            yield from walk(value)
    else:
        yield document


@pytest.mark.parametrize("status", [409, 422, 500])
def test_errors_are_clean(data: Path, server: Scripted, status: int) -> None:
    server.status = status
    server.body = nasty({"detail": "NASTY", "live": "NASTY", "errors": [{"loc": "NASTY", "message": "NASTY"}]}).encode()
    outcome = CliRunner().invoke(main, ["history", "x", "--data", str(data)])
    assert seen(outcome.stderr)
    assert outcome.stdout == ""


@pytest.mark.parametrize("word", [NASTY, "--\x1b[31mx", "\u202e"])
def test_what_was_typed_is_clean_in_the_error(word: str) -> None:
    for words in (
        [word],
        ["live", word],
        ["signals", "show", word],
        ["up", "--port", word],
    ):
        outcome = CliRunner().invoke(main, words)
        assert outcome.exit_code == 2
        assert seen(outcome.stderr)


PROMPTS = ["no end of line", "line\n", "two\r\nlines\r\n", "\r", "\ufeffbom \u202e tab\t\x1b[1m\x00\n\n\n", "", " \n "]


def live(text: str) -> dict[str, object]:
    part = {"path": "p.md", "text": text}
    return {
        "touchpoint_id": "x", "version_ref": "v", "content_sha256": "0" * 64, "activated_at": "2025-01-01T00:00:00Z",
        "parts": [part],
    }  # fmt: skip


def burnish(data: Path, *words: str, stdout: int) -> subprocess.CompletedProcess[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BURNISH_")}
    return subprocess.run(
        [sys.executable, "-m", "burnish", *words, "--data", str(data)],
        cwd=ROOT.parent,
        env=environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
        check=False,
    )


def test_a_prompt_in_a_file_is_the_prompt_byte_for_byte(data: Path, server: Scripted, tmp_path: Path) -> None:
    for number, text in enumerate(PROMPTS):
        server.body = live(text)
        target = tmp_path / f"prompt-{number}.md"
        with target.open("wb") as file:
            assert burnish(data, "live", "x", stdout=file.fileno()).returncode == 0
        assert target.read_bytes() == text.encode()


def test_a_prompt_on_a_terminal_is_clean(data: Path, server: Scripted) -> None:
    server.body = live("before\x1b]0;title\x07\u202eafter")
    ours, theirs = pty.openpty()
    try:
        assert burnish(data, "live", "x", stdout=theirs).returncode == 0
        shown = os.read(ours, 65_536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert shown == "before\\x1b]0;title\\x07\\u202eafter\r\n"


def test_a_secret_is_never_shown(data: Path, server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_TOKEN", "a-token-of-mine")
    server.status, server.body = 409, {"detail": "you sent a-token-of-mine to postgresql://me:word@host/db"}
    told = CliRunner().invoke(main, ["history", "x", "--data", str(data)])
    assert "a-token-of-mine" not in told.output
    assert "word" not in told.output
