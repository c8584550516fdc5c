"""Every verb against hostile arguments, files, settings and gateways: no traceback, one message, a documented code.

The verbs and their parameters come from the command line itself, so a new one is tried as it is added.
"""

from __future__ import annotations

import copy
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import psutil
import pytest
from click.testing import CliRunner, Result

from burnish import answers, client, printer
from burnish.cli import main
from burnish.commands import decide
from burnish.commands.verbs import Verb
from burnish.data_folder import DataFolder, RunningNote
from burnish.errors import InstallationError
from burnish.failure import COMMON_EXITS, FAULT, UNREACHABLE
from burnish.parameters import FileSystemPath
from burnish.supervisor import Supervisor
from burnish.tests.hostile import (
    CSV,
    DSNS,
    JSON_LINES,
    MARKS,
    NATS,
    NOTES,
    RAW,
    REFUSALS,
    STEERING,
    TOKENS,
    URLS,
    YAML,
    RawGateway,
    command_lines,
    example,
    hostile_values,
    response,
    usual_value,
)
from libs.contracts.printable import is_visible
from libs.embedded import EmbeddedError, EmbeddedNats, EmbeddedPostgres

pytestmark = pytest.mark.timeout(300)
ROOT = Path(__file__).parents[2]
TOKEN = "the-token-of-the-data-folder"


def verbs(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Verb]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from verbs(command, (*path, name))
        else:
            assert isinstance(command, Verb)
            yield (*path, name), command


ALL = dict(verbs(main))
ASKING = {path: one for path, one in ALL.items() if UNREACHABLE in one.exits and path not in {("platform",), ("mcp",)}}
ASKING[("doctor",)] = ALL[("doctor",)]
WITH_FILES = {
    path: one
    for path, one in ALL.items()
    if any(isinstance(p.type, FileSystemPath) and p.type.exists for p in one.params)
}
EXACT = {("live",), ("rollback",), ("qa", "convert"), ("qa", "export"), ("qa", "template")}
"""What they put into a pipe is somebody's text, byte for byte."""
all_verbs = pytest.mark.parametrize("path", ALL, ids=" ".join)
asking_verbs = pytest.mark.parametrize("path", ASKING, ids=" ".join)


@pytest.fixture(autouse=True)
def nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a verb would start is not started here: arguments and files are what is tried. Waiting is short."""

    async def refuse(*_: object) -> None:
        raise EmbeddedError("no server is started in this test", "none")

    async def refuse_to_supervise(self: Supervisor) -> None:
        raise InstallationError("nothing is started in this test")

    monkeypatch.setattr(EmbeddedPostgres, "start", refuse)
    monkeypatch.setattr(EmbeddedNats, "start", refuse)
    monkeypatch.setattr(Supervisor, "_start", refuse_to_supervise)

    def refuse_to_serve(*given: object) -> None:
        for one in given:
            if isinstance(one, socket.socket):
                one.close()
        raise InstallationError("nothing is served in this test")

    for name in ("stdio.run", "http.run"):
        monkeypatch.setattr(f"apps.mcp.{name}", refuse_to_serve)
    monkeypatch.setattr("apps.mcp.logs.configure", lambda *_: None)
    monkeypatch.setattr(client, "TIMEOUT_S", 0.7)
    monkeypatch.setattr(decide, "COMMIT_WAIT_S", 0.2)


@pytest.fixture
def gateway() -> Iterator[RawGateway]:
    with RawGateway() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.stopping.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def folder(tmp_path: Path, gateway: RawGateway) -> Path:
    """A data folder in which an installation seems to run, with our gateway."""
    here = psutil.Process()
    note = RunningNote(
        here.pid, here.create_time(), gateway.url, TOKEN, "nats://127.0.0.1:9", "postgresql://127.0.0.1:9/b"
    )
    DataFolder(tmp_path / "data").remember_running(note)
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


HOLDS = {"suites": "c.jsonl", "burnish agents": "p.json", "import-legacy": "l.jsonl", "parts.md": "b.md"}
MORE = {"approve": ["--yes"], "delete": ["--yes"], "create": ["--answer=x"], "edit": ["--answer=x"]}
"""Without which a verb asks a person, or has nothing to send."""


def usual(command: Verb, folder: Path, *, but: str = "") -> list[str]:
    """Every required parameter and every argument as usual, and a short patience."""
    words: list[str] = []
    arguments: list[str] = []
    for one in command.params:
        if isinstance(one, click.Argument) and one.name != but:
            arguments.append(usual_value(one, folder))
        elif one.name != but and (
            one.required or one.name == "timeout_s" or (one.name == "touchpoint" and but != "file")
        ):
            words.append(f"{max(one.opts, key=len)}={usual_value(one, folder)}")
    for group, name in HOLDS.items():  # its file holds something else than touchpoints
        if group in str(command.example):
            arguments = [one.replace("t.yaml", name) for one in arguments]
    return [*words, "--", *arguments]


def run(path: tuple[str, ...], words: list[str], data: Path | None, **environment: str) -> Result:
    command = ALL[path]
    where = [f"--data={data}"] if data and any(one.name == "data" for one in command.params) else []
    outcome = CliRunner().invoke(main, [*path, *where, *words], env={"COLUMNS": "200", **environment})
    judge(path, outcome, words)
    return outcome


def judge(path: tuple[str, ...], outcome: Result, words: list[str]) -> None:
    """What holds of every run of every verb, whatever it was given."""
    told = f"burnish {' '.join(path)} {[word[:80] for word in words]!r}: {outcome.exit_code}\n{outcome.stderr[:2000]}"
    assert outcome.exception is None or isinstance(outcome.exception, SystemExit), (told, outcome.exception)
    assert outcome.exit_code != FAULT, told
    assert outcome.exit_code in {**ALL[path].exits, **COMMON_EXITS}, told
    assert "Traceback" not in outcome.output, told
    shown = outcome.stderr if path in EXACT and "--json" not in words else outcome.output
    assert all(is_visible(one) or one in "\n\t" for one in shown), told
    assert not [mark for mark in (*MARKS, TOKEN) if mark in outcome.output], told
    assert sum(line.startswith("error: ") for line in outcome.stderr.splitlines()) <= 1, told
    if outcome.exit_code:
        assert "error: " in outcome.stderr or outcome.stdout, told  # a verdict is an answer
        assert len(outcome.stderr) < 20_000, told
    if outcome.exit_code == 0 and "--json" in words:
        json.loads(outcome.stdout)


# --- arguments ------------------------------------------------------------------------------------------------


@all_verbs
def test_no_argument_ends_in_a_traceback(
    path: tuple[str, ...], folder: Path, gateway: RawGateway, tmp_path: Path
) -> None:
    (tmp_path / "paths").mkdir()
    for words in command_lines(ALL[path], tmp_path / "paths"):
        run(path, words, None if any(word.startswith("--data=") for word in words) else folder)


@all_verbs
def test_no_extra_or_missing_word_ends_in_a_traceback(path: tuple[str, ...], folder: Path) -> None:
    for words in (
        [],
        ["--json"],
        [STEERING],
        ["--", STEERING],
        ["--nonsense"],
        [f"--{STEERING}"],
        ["--", "a", "b", "c", "d"],
        ["-h"],
    ):
        run(path, words, folder)


def test_every_parameter_has_a_type_that_is_tried(tmp_path: Path) -> None:
    for command in ALL.values():
        for parameter in command.params:
            assert isinstance(hostile_values(parameter, tmp_path), list)


# --- files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", WITH_FILES, ids=" ".join)
def test_no_file_ends_in_a_traceback(path: tuple[str, ...], folder: Path, gateway: RawGateway, tmp_path: Path) -> None:
    gateway.answer = lambda _: response(b'{"signal_ids": [], "touchpoints": []}')
    command = ALL[path]
    for parameter in command.params:
        if not (isinstance(parameter.type, FileSystemPath) and parameter.type.exists and parameter.type.file_okay):
            continue
        for suffix, contents in ((".jsonl", JSON_LINES), (".csv", CSV), (".yaml", {**YAML, **JSON_LINES})):
            for name, content in contents.items():
                file = tmp_path / f"file{suffix}"
                file.write_bytes(content)
                words = usual(command, tmp_path, but=str(parameter.name))
                words = (
                    [*words, str(file)]
                    if isinstance(parameter, click.Argument)
                    else [f"{parameter.opts[-1]}={file}", *words]
                )
                outcome = run(path, words, folder)
                assert "Traceback" not in outcome.output, name


@pytest.mark.parametrize("name", ["installation.json", "secrets.json", "signing_key.json", "ports.json", "jwks.json"])
@pytest.mark.parametrize("note", NOTES)
def test_no_data_folder_ends_in_a_traceback(name: str, note: str, tmp_path: Path) -> None:
    data = tmp_path / "other"
    data.mkdir()
    told = NOTES[note]
    text = told if isinstance(told, str) else json.dumps(told)
    (data / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    for path in (("touchpoints", "list"), ("token",), ("doctor",), ("migrate",), ("topology",), ("up",)):
        run(path, [], data)


@pytest.mark.parametrize("kind", ["folder", "pipe", "loop", "device"])
@pytest.mark.parametrize("name", ["installation.json", "secrets.json", "signing_key.json", "lock", "logs", "jwks.json"])
def test_what_is_no_file_in_a_data_folder_ends_in_no_traceback(name: str, kind: str, tmp_path: Path) -> None:
    data = tmp_path / "other"
    data.mkdir()
    place = data / name
    {
        "folder": place.mkdir,
        "pipe": lambda: os.mkfifo(place),
        "loop": lambda: place.symlink_to(place),
        "device": lambda: place.symlink_to("/dev/zero"),
    }[kind]()  # type: ignore[no-untyped-call]
    for path in (("touchpoints", "list"), ("token",), ("doctor",), ("migrate",), ("up",)):
        run(path, [], data)


# --- settings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", URLS, ids=ascii)
def test_no_url_ends_in_a_traceback_or_is_echoed(url: str, folder: Path) -> None:
    for path in (("touchpoints", "list"), ("doctor",)):
        outcome = run(path, [], folder, BURNISH_URL=url, BURNISH_TOKEN="x.y.z")
        assert outcome.exit_code != 0


@pytest.mark.parametrize("token", TOKENS, ids=lambda token: ascii(token[:20]))
def test_no_token_ends_in_a_traceback_or_is_echoed(token: str, folder: Path, gateway: RawGateway) -> None:
    gateway.answer = lambda _: response(b"", "401 " + token[:20].encode("ascii", "replace").decode())
    for path in (("touchpoints", "list"), ("doctor",)):
        run(path, [], folder, BURNISH_TOKEN=token)
        run(path, [], folder, BURNISH_TOKEN=token, BURNISH_URL=gateway.url)


@pytest.mark.parametrize("dsn", DSNS, ids=ascii)
def test_no_dsn_ends_in_a_traceback_or_is_echoed(dsn: str, tmp_path: Path) -> None:
    for path, words in ((("migrate",), []), (("migrate",), ["--status"]), (("doctor",), []), (("up",), [])):
        run(path, words, tmp_path / "new", BURNISH_ADMIN_DSN=dsn)
    run(("up",), [f"--platform-dsn={dsn}"], tmp_path / "new")


@pytest.mark.parametrize("url", NATS, ids=ascii)
def test_no_nats_url_ends_in_a_traceback_or_is_echoed(url: str, tmp_path: Path) -> None:
    for path in (("topology",), ("doctor",), ("up",)):
        run(path, [], tmp_path / "new", BURNISH_NATS_URL=url)


@pytest.mark.parametrize(
    "name", ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "NO_PROXY"]
)
def test_no_proxy_ends_in_a_traceback(name: str, folder: Path) -> None:
    for value in (
        "x",
        "http://u:word-of-mine@[::1",
        "socks5://127.0.0.1:9",
        "http://127.0.0.1:9",
        "\udcff",
        "/dev/null",
        "/nonexistent",
    ):
        run(("touchpoints", "list"), [], folder, **{name: value})


# --- gateways -------------------------------------------------------------------------------------------------


@asking_verbs
def test_no_gateway_ends_in_a_traceback(
    path: tuple[str, ...], folder: Path, gateway: RawGateway, tmp_path: Path
) -> None:
    words = usual(ALL[path], tmp_path)
    rng = random.Random(str(path))
    for name, raw in {**RAW, **dict(rng.sample(sorted(REFUSALS.items()), 10))}.items():
        gateway.answer = lambda _, raw=raw: raw  # type: ignore[misc]
        outcome = run(path, [*([] if len(name) % 2 else ["--json"]), *words], folder)
        assert outcome.exit_code != 0, name


@asking_verbs
def test_a_gateway_that_drips_or_never_ends_is_left(
    path: tuple[str, ...], folder: Path, gateway: RawGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drip(head: bytes) -> Iterator[bytes]:
        yield head
        while not gateway.stopping.wait(0.05):
            yield b" "

    def flood() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n\r\n["
        while not gateway.stopping.is_set():
            yield b"0," * 500_000

    monkeypatch.setattr(client, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(client, "MAX_ANSWER_BYTES", 3_000_000)
    words = usual(ALL[path], tmp_path)
    endless = (
        lambda: drip(b"HTTP/1.1 200 OK\r\n\r\n"),
        lambda: drip(b"HTTP/1.1 200 OK\r\nX: "),
        lambda: drip(b""),
        flood,
    )
    for begin in endless:
        gateway.answer = lambda _, begin=begin: begin()  # type: ignore[misc]
        started = time.monotonic()
        assert run(path, words, folder).exit_code != 0
        assert time.monotonic() - started < 10


def learned(path: tuple[str, ...], words: list[str], folder: Path, gateway: RawGateway, text: str) -> list[Any]:
    """Answers that carry the verb through, found out by answering each question with what it asks for."""
    known: list[Any] = []
    wanted: list[tuple[int, Any]] = []
    asked = 0

    def answer(_: str) -> bytes:
        nonlocal asked
        asked += 1
        return response(json.dumps(known[asked - 1] if asked <= len(known) else {}).encode())

    def look(shape: Any) -> Any:
        wanted.append((asked, shape))
        return adapter(shape)

    adapter = answers._adapter
    gateway.answer = answer
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "_adapter", look)
        for _ in range(12):
            asked = 0
            wanted.clear()
            outcome = run(path, words, folder)
            if "the gateway's answer cannot be used" not in outcome.output or not wanted:
                return known
            at, shape = wanted[-1]
            known += [{}] * (at - len(known))
            known[at - 1] = example(shape, text)
    return known


def places(document: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    if isinstance(document, dict | list):
        for key, value in document.items() if isinstance(document, dict) else enumerate(document):
            yield from places(value, (*at, key))


WRONG: tuple[Any, ...] = (
    None,
    [],
    {},
    "",
    STEERING,
    "0001-01-01T00:00:00+14:00",
    -1,
    0,
    1e308,
    True,
    False,
    10**300,
    [None],
    {"a": []},
    "x" * 100_000,
)
GONE = object()


def changed(document: Any, at: tuple[Any, ...], value: Any) -> Any:
    whole = [copy.deepcopy(document)]
    one = whole
    for step in (0, *at)[:-1]:
        one = one[step]
    if value is GONE:
        del one[(0, *at)[-1]]
    else:
        one[(0, *at)[-1]] = value
    return whole[0] if whole else {}


@asking_verbs
@pytest.mark.parametrize("as_json", [False, True], ids=["people", "json"])
def test_no_wrong_answer_ends_in_a_traceback(
    path: tuple[str, ...],
    as_json: bool,
    folder: Path,
    gateway: RawGateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "TIMEOUT_S", 20.0)
    rng = random.Random(f"{path}{as_json}")
    words = [
        *(["--json"] if as_json else []),
        *(MORE.get(path[-1], []) if path[0] in ("proposals", "qa") and path != ("proposals", "create") else []),
        *usual(ALL[path], tmp_path),
    ]
    for text in ("x", STEERING, "2025-01-01T00:00:00Z")[: 1 if path == ("doctor",) else 3]:  # it looks at servers, too
        right = learned(path, words, folder, gateway, text)
        assert right or path == ("doctor",)
        cases = [(number, at) for number, answer in enumerate(right) for at in places(answer)]
        for number, at in rng.sample(cases, min(8, len(cases))):
            for value in rng.sample([*WRONG, GONE], 2):
                mended = [changed(one, at, value) if n == number else one for n, one in enumerate(right)]
                waiting = iter([*mended, *[mended[-1]] * 50])
                gateway.answer = lambda _, waiting=waiting: response(json.dumps(next(waiting, {})).encode())  # type: ignore[misc]
                run(path, words, folder)


# --- as a program ---------------------------------------------------------------------------------------------


def program(
    *words: str, stdin: Any = subprocess.DEVNULL, stdout: Any = subprocess.PIPE, **environment: str | None
) -> Any:
    base = {name: value for name, value in os.environ.items() if not name.startswith("BURNISH_")}
    wanted = {**base, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        [sys.executable, "-m", "burnish", *words],
        env={name: value for name, value in wanted.items() if value is not None},
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )


def right_signals(gateway: RawGateway, count: int = 1, text: str = "é日本\u202e") -> None:
    page = {"signals": [example(answers.Signal, text)] * count, "next": None}
    gateway.answer = lambda _: response(json.dumps(page).encode())


@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["people", "json"])
def test_a_reader_who_leaves_ends_the_verb_quietly(as_json: list[str], folder: Path, gateway: RawGateway) -> None:
    right_signals(gateway, 5_000)
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        ended = program("signals", "list", "--data", str(folder), *as_json, stdout=theirs)
    finally:
        os.close(theirs)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_a_full_disk_is_told(folder: Path, gateway: RawGateway) -> None:
    right_signals(gateway)
    for words in (
        ["signals", "list", "--data", str(folder)],
        ["--help"],
        ["topology", "--print"],
        ["signals", "--help"],
    ):
        with Path("/dev/full").open("wb") as full:
            ended = program(*words, stdout=full)
        assert (ended.returncode, b"No space left" in ended.stderr, b"Traceback" in ended.stderr) == (
            74,
            True,
            False,
        ), words


def closed(*words: str, streams: str) -> subprocess.CompletedProcess[bytes]:
    script = f'exec "$0" -m burnish "$@" {streams}'
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BURNISH_")}
    return subprocess.run(
        ["/bin/sh", "-c", script, sys.executable, *words],
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
        timeout=60,
    )


def test_closed_streams_are_no_traceback(folder: Path, gateway: RawGateway) -> None:
    right_signals(gateway)
    listing = ["signals", "list", "--data", str(folder)]
    assert closed(*listing, streams=">&-").returncode == 74
    assert closed(*listing, streams="2>&-").returncode == 0
    assert closed(*listing, streams="<&-").returncode == 0
    assert closed("live", "No Id", streams="2>&- >&-").returncode == 2
    pushed = closed("signals", "push", "--file", "-", "--data", str(folder), streams="<&-")
    assert (pushed.returncode, b"stdin is closed" in pushed.stderr) == (2, True)
    asked = closed("proposals", "approve", "00000000-0000-0000-0000-000000000000", "--data", str(folder), streams="<&-")
    assert b"Traceback" not in asked.stderr


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "ascii:strict"},
        {"PYTHONIOENCODING": "latin-1:strict"},
        {"LC_ALL": "nonsense"},
    ],
    ids=str,
)
def test_no_locale_ends_in_a_traceback(locale: dict[str, str], folder: Path, gateway: RawGateway) -> None:
    right_signals(gateway)
    told = program("signals", "list", "--data", str(folder), **locale)
    assert (told.returncode, told.stderr) == (0, b"")
    document = program("signals", "list", "--json", "--data", str(folder), **locale)
    assert json.loads(document.stdout)["signals"][0]["actor_id"] == "é日本\u202e"
    assert program("live", "é\u202e", **locale).returncode == 2
    gateway.answer = lambda _: response(json.dumps(example(answers.Live, "é日本\u202e")).encode())
    assert program("live", "x", "--data", str(folder), **locale).stdout == "é日本\u202e".encode()


def test_without_a_home_or_a_folder_to_be_in(folder: Path, gateway: RawGateway, tmp_path: Path) -> None:
    right_signals(gateway)
    assert program("signals", "list", "--data", str(folder), HOME=None).returncode == 0
    assert program("signals", "list", "--data", "~/nothing-here", HOME=None).returncode == 3
    assert program("signals", "list", "--data", "~/x", HOME="\udcff").returncode == 3
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f'cd {gone} && rmdir {gone} && exec "$0" -m burnish "$@"'
    for words in (["doctor"], ["signals", "list"], ["up"], ["touchpoints", "plan", "t.yaml"], ["token"], ["live", "x"]):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BURNISH_")}
        ended = subprocess.run(
            ["/bin/sh", "-c", script, sys.executable, *words],
            env={**environment, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=False,
            timeout=60,
        )
        gone.mkdir(exist_ok=True)
        assert b"Traceback" not in ended.stderr, (words, ended.stderr)
        assert ended.returncode in {**ALL[tuple(words[:1])].exits, **COMMON_EXITS} if tuple(words[:1]) in ALL else True
        assert ended.returncode != FAULT, (words, ended.stderr)


def test_names_that_are_not_utf8_are_names(tmp_path: Path, folder: Path, gateway: RawGateway) -> None:
    gateway.answer = lambda _: response(b'{"signal_ids": ["a"], "touchpoints": []}')
    file = os.fsencode(tmp_path) + b"/\xff\x1b[31m.jsonl"
    Path(os.fsdecode(file)).write_text('{"touchpoint_id": "a.b"}\n')
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BURNISH_")}
    command = [sys.executable, "-m", "burnish", "signals", "push", "--data", str(folder), "--file", os.fsdecode(file)]
    ended = subprocess.run(command, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
    Path(os.fsdecode(file)).write_text("nonsense\n")
    ended = subprocess.run(command, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False)
    assert ended.returncode == 2
    assert b"line 1: it is not JSON" in ended.stderr
    assert b"\x1b" not in ended.stderr


def test_ctrl_c_while_waiting(folder: Path, gateway: RawGateway) -> None:
    asked = threading.Event()

    def silent(_: str) -> bytes:
        asked.set()
        gateway.stopping.wait(30)
        return b""

    gateway.answer = silent
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BURNISH_")}
    with subprocess.Popen(
        [sys.executable, "-m", "burnish", "signals", "list", "--data", str(folder)],
        env={**environment, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as waiting:
        assert asked.wait(60)
        waiting.send_signal(2)
        _, told = waiting.communicate(timeout=20)
    assert (waiting.returncode, told.strip()) == (130, b"stopped")


# --- the control ----------------------------------------------------------------------------------------------


def test_a_fault_of_ours_is_told_with_its_place_and_nothing_else(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """What the tests above look for would show: with the protection off, an exception is exit code 70."""

    def broken(_: object) -> None:
        raise KeyError(TOKEN)

    monkeypatch.setattr(client, "Gateway", broken)
    outcome = CliRunner().invoke(main, ["signals", "list", "--data", str(folder)])
    assert outcome.exit_code == FAULT
    assert "this is a fault of Burnish: KeyError in test_hostile.py, line" in outcome.stderr
    assert TOKEN not in outcome.stderr
    monkeypatch.setenv("BURNISH_TRACEBACK", "1")
    printer.keep_secret(TOKEN)
    outcome = CliRunner().invoke(main, ["signals", "list", "--data", str(folder)])
    assert "Traceback" in outcome.stderr
    assert TOKEN not in outcome.stderr
