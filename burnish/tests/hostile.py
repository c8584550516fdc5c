"""Hostile arguments, files, settings and gateways, from which the tests of every verb are made."""

from __future__ import annotations

import json
import os
import socket
import socketserver
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

import click
from typing_extensions import is_typeddict

from burnish.parameters import FileSystemPath, Matching, Moment, Seconds, Text

NIL = "00000000-0000-0000-0000-000000000000"
STEERING = "a\x1b]0;t\x07\x1b[2J\x9b31mb\u202ec\u2066d\u200be\U000e0041f[red]g[/red]\r\nh"


# --- arguments ------------------------------------------------------------------------------------------------


def paths(folder: Path) -> list[str]:
    """Names of what is no file or folder that anybody would want; made below `folder`."""
    loop, pipe, plain = folder / "loop", folder / "pipe", folder / "plain"
    if not loop.is_symlink():
        loop.symlink_to(loop)
        os.mkfifo(pipe)
        plain.write_bytes(b"\xff\xfe\x00")
        (folder / os.fsdecode(b"not-utf8-\xff")).mkdir()
        (folder / "secret").mkdir(mode=0)
    listening = folder / "socket"
    if not listening.exists():
        with socket.socket(socket.AF_UNIX) as one:
            here = Path.cwd()
            os.chdir(folder)  # a socket's name is short
            try:
                one.bind("socket")
            finally:
                os.chdir(here)
    return [
        "/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/proc/self/mem", "/proc/1/environ", "", ".", "..",
        str(loop), str(loop / "below"), str(pipe), str(pipe / "below"), str(plain), str(plain / "below"),
        str(listening), str(folder / "not-utf8-\udcff"), str(folder / "secret" / "below"), str(folder / "none"),
        "~nouser", "~nouser/below", "~\x00", "a\x00b", "x" * 300, "/".join(["y" * 200] * 30), "\ud800", "\udcff\udcfe",
        str(folder / STEERING.replace("/", "")), "-", "--", "\u202e",
    ]  # fmt: skip


TEXTS = [
    "", " ", "\x00", "a\x00b", "\ud800", "\udcff", "x" * 200_001, STEERING, "\n", "\r\n", "../../x", "%00", "%2e%2e/x",
    "?a=b", "#x", "é", "日本語", "\u202e", "'; DROP TABLE x; --", "${HOME}", "[bold]x[/bold]", "-1", "NaN", "true",
]  # fmt: skip
UUIDS = [
    "",
    "x",
    NIL[:-1],
    NIL + "0",
    "{" + NIL + "}",
    "urn:uuid:" + NIL,
    "٠" * 32,
    STEERING,
    "\ud800",
    "\x00",
    "-",
    "_" * 32,
]
NUMBERS = [
    "", "x", "0", "-1", "1.5", "1e3", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
    "9" * 5_000, "0x10", "1_0", "٣", "inf", "nan", "-inf", "\x00", "\ud800", STEERING, "65536",
]  # fmt: skip
SECONDS = [*NUMBERS, "1e308", "1e-308", "1e999", "-0.0"]
MOMENTS = [
    *TEXTS, "0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00-14:00", "9999-12-31T23:59:59-14:00",
    "9999-12-31T23:59:59.999999+14:00", "0000-01-01T00:00:00Z", "2025-02-30T00:00:00Z", "2025-01-01T25:00:00Z",
    "2025-01-01", "20250101T000000Z", "2025-W01-1T00:00:00Z", "2025-01-01T00:00:00+99:99", "inf", "now",
]  # fmt: skip


def hostile_values(parameter: click.Parameter, folder: Path) -> list[str]:
    """Values to try for a parameter, by its type. A type that is not known here fails the test."""
    kind = parameter.type
    if isinstance(kind, FileSystemPath):
        return paths(folder)
    if isinstance(kind, Moment):
        return MOMENTS
    if isinstance(kind, Matching | Text):
        return TEXTS
    if isinstance(kind, Seconds):
        return SECONDS
    if isinstance(kind, click.IntRange):
        return NUMBERS
    if isinstance(kind, click.types.UUIDParameterType):
        return UUIDS
    if isinstance(kind, click.Choice):
        return TEXTS
    if isinstance(kind, click.types.BoolParamType):
        return []
    raise AssertionError(f"{parameter.name} has no type of burnish.parameters: {kind!r}")


def usual_value(parameter: click.Parameter, folder: Path) -> str:
    """A value that a verb takes, so that another of its parameters is what it stumbles over."""
    kind = parameter.type
    if isinstance(kind, FileSystemPath):
        return usual_file(folder, parameter)
    if isinstance(kind, Moment):
        return "2025-01-01T00:00:00+00:00"
    if isinstance(kind, Matching):
        return "0" * 64 if kind.name == "sha256" else "a.b"
    if isinstance(kind, click.types.UUIDParameterType):
        return NIL
    if isinstance(kind, click.Choice):
        return str(next(iter(kind.choices)))
    return "1" if isinstance(kind, click.IntRange | Seconds) else "text"


TOUCHPOINTS = "touchpoints:\n  - {id: a.b, scope: global, storage: {adapter: feed_prompts, initial_text: x}}\n"
SIGNAL = '{"touchpoint_id": "a.b", "signal_type": "flag", "payload": {"text": "x"}}\n'
CASE = '{"input": "a", "expected": "x"}\n'
PACK = '{"profile": {"name": "x"}}'
PARTS = "---\nquestion: One?\n---\n\nYes.\n\n---\nquestion: Two?\n---\n\nNo.\n"
_ID = "00000000-0000-4000-8000-000000000001"
LEGACY = json.dumps(
    {
        "id": _ID,
        "content_type": "q_a_pair",
        "content": "Q: Why?\n\nBecause.",
        "answer_standard": "Because.",
        "workspace_id": _ID,
        "created_at": "2024-05-01T10:00:00+00:00",
    }
)


def usual_file(folder: Path, parameter: click.Parameter) -> str:
    """A file or folder of the kind that a parameter names."""
    kind = parameter.type
    assert isinstance(kind, FileSystemPath)
    if not kind.file_okay:
        return str(folder)
    files = {
        "t.yaml": TOUCHPOINTS,
        "s.jsonl": SIGNAL,
        "c.jsonl": CASE,
        "p.json": PACK,
        "l.jsonl": LEGACY,
        "b.md": PARTS,
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    return str(folder / ("s.jsonl" if isinstance(parameter, click.Option) else "t.yaml"))


def command_lines(command: click.Command, folder: Path) -> Iterator[list[str]]:
    """Every parameter with every hostile value, the required others as usual."""
    for parameter in command.params:
        for value in hostile_values(parameter, folder):
            words: list[str] = []
            arguments: list[str] = []
            for other in command.params:
                wanted = other is parameter
                if not wanted and not (other.required or isinstance(other, click.Argument)):
                    continue
                told = value if wanted else usual_value(other, folder)
                if isinstance(other, click.Argument):
                    arguments.append(told)
                else:
                    words.append(f"{max(other.opts, key=len)}={told}")
            yield [*words, "--", *arguments]


# --- files ----------------------------------------------------------------------------------------------------

JSON_LINES: dict[str, bytes] = {
    "deep arrays": b'{"payload": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    "as deep as the interpreter": b'{"payload": {"a": ' + b"[" * 900 + b"]" * 900 + b"}}",
    "never closed": b"[" * 100_000,
    "lone surrogate": b'{"touchpoint_id": "a.b", "payload": {"text": "\\ud800"}}',
    "lone surrogate as a key": b'{"touchpoint_id": "a.b", "payload": {"\\udfff": 1}}',
    "lone surrogate in UTF-8": b'{"payload": {"text": "\xed\xa0\x80"}}',
    "NaN": b'{"touchpoint_id": "a.b", "payload": {"text": NaN}}',
    "Infinity": b'{"touchpoint_id": "a.b", "payload": {"x": -Infinity}}',
    "a float without end": b'{"touchpoint_id": "a.b", "payload": {"x": 1e999}}',
    "an integer beyond 64 bits": b'{"touchpoint_id": "a.b", "payload": {"x": 18446744073709551616}}',
    "an integer of 5,000 digits": b'{"payload": {"x": ' + b"9" * 5_000 + b"}}",
    "a key twice": b'{"touchpoint_id": "a.b", "touchpoint_id": "c.d", "payload": {}}',
    "UTF-16": '{"touchpoint_id": "a.b"}'.encode("utf-16"),
    "UTF-16 without a mark": '{"touchpoint_id": "a.b"}'.encode("utf-16-le"),
    "UTF-32": '{"touchpoint_id": "a.b"}'.encode("utf-32"),
    "latin-1": '{"touchpoint_id": "é"}'.encode("latin-1"),
    "NUL bytes": b"\x00" * 1_000,
    "null": b"null",
    "a list": b"[]",
    "a text": b'"x"',
    "a number": b"1",
    "an empty object": b"{}",
    "a trailing comma": b'{"a": 1,}',
    "two documents": b"{}{}",
    "wrong kinds": b'{"touchpoint_id": [], "signal_type": {}, "payload": 1, "input": {}, "expected": [], "cluster": 1}',
    "steering": json.dumps(
        {"touchpoint_id": STEERING, "case_id": STEERING, "input": STEERING, "split": STEERING}
    ).encode(),
    "wide": json.dumps({f"k{n}": n for n in range(50_000)}).encode(),
    "nothing": b"",
    "white space": b" \n\t\n\r\n",
    "a mark alone": b"\xef\xbb\xbf",
    "HTML": b"<html>",
    "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
}
CSV: dict[str, bytes] = {
    "NUL": b"text,category\na\x00b,x\n",
    "an open quote": b'text,category\n"a,b\n',
    "a field without end": b"text,category\n" + b"a" * 200_000 + b",x\n",
    "too many fields": b"text,category\n" + b"," * 10_000 + b"\n",
    "steering header": STEERING.encode() + b",category\n",
    "carriage returns": b"text,category\ra,b\rc,d\r",
    "only commas": b",,,\n,,,\n",
    "UTF-16": "text,category\na,b\n".encode("utf-16"),
    "the same column twice": b"text,text,category,category\na,b,c,d\n",
}
YAML: dict[str, bytes] = {
    "deep flow": b"touchpoints: " + b"[" * 5_000 + b"]" * 5_000,
    "deep block": b"".join(b" " * n + b"a:\n" for n in range(1_000)),
    "deep sequences": b"- " * 5_000 + b"x",
    "alias bomb": b"a: &a [x,x]\nb: &b [*a,*a]\ntouchpoints: [*b,*b]\n",
    "lone surrogate": TOUCHPOINTS.replace("x}", '"\\ud800"}').encode(),
    "NUL escape": TOUCHPOINTS.replace("x}", '"\\0"}').encode(),
    "infinite margin": TOUCHPOINTS.replace("}}", "}, suite: {margin: .inf}}").encode(),
    "no number as a margin": TOUCHPOINTS.replace("}}", "}, suite: {margin: .nan}}").encode(),
    "huge integer": TOUCHPOINTS.replace("}}", "}, suite: {margin: " + "9" * 5_000 + "}}").encode(),
    "beyond 64 bits": TOUCHPOINTS.replace("}}", "}, signals: [{scanner: x, every_s: 18446744073709551616}]}").encode(),
    "an option that never ends": TOUCHPOINTS.replace("}}", "}, signals: [{scanner: x, y: .inf}]}").encode(),
    "hex, octal, sexagesimal": b"touchpoints: [0x_, 0o9, 1:60:60, 1__2, 0b2]\n",
    "tags": b"touchpoints: !!python/object/apply:os.system [x]\n",
    "binary": b"touchpoints: !!binary x\n",
    "a set": b"touchpoints: !!set {a, b}\n",
    "merge keys": b"touchpoints:\n  - <<: {id: a}\n",
    "keys of every kind": b"? [a]\n: 1\n? {b: c}\n: 2\nnull: 3\n1: 4\ntrue: 5\n",
    "the same key twice": TOUCHPOINTS.encode() * 2,
    "UTF-16": TOUCHPOINTS.encode("utf-16"),
    "UTF-16 with another mark": b"\xfe\xff" + TOUCHPOINTS.encode("utf-16-be"),
    "bytes": b"\xff\xfe\xfd\x00\x01",
    "tab": b"touchpoints:\n\t- id: a\n",
    "directive": b"%YAML 9.9\n---\ntouchpoints: []\n",
    "steering": f"touchpoints: [{{id: {json.dumps(STEERING)}}}]\n".encode(),
    "no home folder": TOUCHPOINTS.replace("feed_prompts, initial_text: x", "skill_file, repository: ~nouser, path: a").encode(),
    "NUL in a folder": TOUCHPOINTS.replace("feed_prompts, initial_text: x", 'skill_file, repository: "a\\0b", path: a').encode(),
    "a device as text": TOUCHPOINTS.replace("initial_text: x", "initial_text_file: /dev/zero").encode(),
    "NUL in a file": TOUCHPOINTS.replace("initial_text: x", 'initial_text_file: "a\\0b"').encode(),
    "no home file": TOUCHPOINTS.replace("initial_text: x", "initial_text_file: ~nouser/x").encode(),
    "a device as a suite": TOUCHPOINTS.replace("}}", "}, suite: {file: /dev/zero}}").encode(),
    "a surrogate as a suite": TOUCHPOINTS.replace("}}", '}, suite: {file: "\\udcff.csv"}}').encode(),
    "wrong kinds": b"touchpoints:\n  - {id: {}, scope: [], storage: x, suite: 1, signals: y, model: z, owners: 1}\n",
}  # fmt: skip


# --- settings -------------------------------------------------------------------------------------------------

URLS = [
    "localhost", "127.0.0.1:8320", "//h", "http://", "http:///x", "http://h:99999", "http://h:-1", "http://h:x", "http://h:0",
    "ftp://h", "file:///etc/passwd", "http://user:word-of-mine@127.0.0.1:9", "http://word-of-mine@h", "http://[::1",
    "http://[zz]/", "http://é.example:9", "http://" + "a" * 300 + ".example", "http://a..b", "http://xn--\u00e9.example", "http://h/ x",
    "http://h\n", "http://h?x=word-of-mine", "http://h#x", "\udcff", "http://\udcff", "http://127.0.0.1:9/\udcff", "http://%00", " ",
    "http://h\x7f", "http://\u202eh", "HTTP://127.0.0.1:9", "http://0x7f.1:9", "http://127.0.0.1:9//", "javascript:x", "http:h", "\x1b[31m",
]  # fmt: skip
TOKENS = [
    "tökén-of-mine", "日本語のトークン", "a token-of-mine", "token-of-mine\n", "token-of-mine\r\nX-Evil: 1", "token-of-mine" * 10_000,
    "\udcfftoken-of-mine", "token-of-mine\x7f", "Bearer token-of-mine", "\u202etoken-of-mine", " ", "\t", "{\"token-of-mine\": 1}",
]  # fmt: skip
DSNS = [
    "x", "postgresql://", "postgresql://u:word-of-mine@h:99999/d", "postgresql://u:word-of-mine@[::1/d", "mysql://u:word-of-mine@h/d",
    "postgresql://u:word-of-mine@127.0.0.1:9/d?sslmode=nonsense", "postgresql://u:word-of-mine@127.0.0.1:9/d?x=y", "\udcff",
    "postgresql://u:word-of-mine@127.0.0.1:9/d", "postgresql://u:word-of-mine@127.0.0.1:x/d", "host=h password=word-of-mine",
    "postgresql://u:word-of-mine@127.0.0.1:9/\udcff", "postgresql://u:wörd-of-mine@127.0.0.1:9/d", "postgresql://%zz:word-of-mine@h/d",
    "postgresql:///d?host=/nonexistent&password=word-of-mine", "postgresql://u:word-of-mine@127.0.0.1:9/d?sslrootcert=/dev/null&sslmode=verify-full",
]  # fmt: skip
NATS = [
    "x", "nats://", "nats://u:word-of-mine@h:99999", "nats://127.0.0.1:x", "http://127.0.0.1:9", "nats://[::1", "nats://127.0.0.1:9",
    "nats://u:word-of-mine@127.0.0.1:9", "tls://127.0.0.1:9", "ws://127.0.0.1:9", "\udcff", "nats://a,nats://b", "nats://é:9", " ", ":", "[",
]  # fmt: skip
MARKS = ("word-of-mine", "wörd-of-mine", "token-of-mine", "tökén-of-mine", "日本語のトークン")
"""What is in the secrets above, and must be in no output."""

NOTES: dict[str, object] = {
    "a list": [], "null": None, "a number": 1, "empty": {}, "deep": "[" * 100_000, "NaN": '{"pid": NaN}', "no JSON": "{", "bytes": "\udcff",
    "wrong kinds": {"pid": "x", "created": [], "url": 1, "token": {}, "nats_url": 2, "admin_dsn": 3, "services": []},
    "a huge pid": {"pid": 10**30, "created": 1.0, "url": "u", "token": "t", "nats_url": "n", "admin_dsn": "a"},
    "a negative pid": {"pid": -1, "created": 1.0, "url": "u", "token": "t", "nats_url": "n", "admin_dsn": "a"},
}  # fmt: skip


# --- gateways -------------------------------------------------------------------------------------------------


def response(body: bytes, status: str = "200 OK", *more: str) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *more]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


RAW: dict[str, bytes] = {
    "an empty list": response(b"[]"), "null": response(b"null"), "a text": response(b'"x"'), "a number": response(b"1"), "true": response(b"true"),
    "an empty object": response(b"{}"), "nothing": response(b""), "HTML": response(b"<html>\xff</html>", "200 OK", "Content-Type: text/html"),
    "NaN": response(b'{"touchpoints": NaN}'), "1e999": response(b'{"next": 1e999}'), "many digits": response(b"9" * 5_000),
    "deep": response(b"[" * 100_000), "as deep as the interpreter": response(b"[" * 900 + b"]" * 900), "surrogate": response(b'{"detail": "\\ud800"}'),
    "UTF-16": response("{}".encode("utf-16")), "latin-1": response(b'{"a": "\xe9"}'), "zeros": response(b"\x00" * 1_000), "two": response(b"{}{}"),
    "no gzip": response(b"{}", "200 OK", "Content-Encoding: gzip"), "other encoding": response(b"{}", "200 OK", "Content-Encoding: x"),
    "other characters": response(b"{}", "200 OK", "Content-Type: application/json; charset=nonsense"), "cut": response(b"{}" * 100)[:-50],
    "a long promise": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{}", "no length": b"HTTP/1.1 200 OK\r\n\r\n[]",
    "a false length": b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}", "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}",
    "chunks cut": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[1,2", "no chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "hung up": b"", "half a line": b"HTTP/1", "no HTTP": b"SSH-2.0-x\r\n", "a strange status": response(b"{}", "999 \x1b[31mX\xff"),
    "no number": response(b"{}", "abc X"), "a long header": response(b"{}", "200 OK", "X: " + "a" * 200_000), "no content": response(b"", "204 No Content"),
    "created": response(b"{}", "201 Created"), "partial": response(b"{}", "206 Partial"), "continue": b"HTTP/1.1 100 Continue\r\n\r\n" * 5,
    "not modified": response(b"", "304 X"), "to itself": response(b"", "302 Found", "Location: /api/refinement/touchpoints"),
    "elsewhere": response(b"", "301 Moved", "Location: http://word-of-mine.example"), "no place": response(b"", "307 X"),
}  # fmt: skip
REFUSALS: dict[str, bytes] = {
    f"{status} {name}": response(body, f"{status} X")
        for status in (400, 401, 403, 404, 409, 413, 418, 422, 429, 500, 502, 503, 504, 599)
        for name, body in {
            "nothing": b"", "list": b"[]", "null": b"null", "HTML": b"<html>", "deep": b"[" * 100_000, "bytes": b"\xff",
            "problem": json.dumps({"detail": STEERING, "title": STEERING, "code": STEERING, STEERING: STEERING}).encode(),
            "fields": json.dumps({"errors": [{"loc": STEERING, "message": STEERING}]}).encode(),
            "wrong kinds": b'{"detail": {"a": []}, "title": 1, "errors": {"loc": 1}, "status": "x"}',
            "wrong fields": b'{"detail": [], "errors": [null, 1, "x", [], {"loc": [], "message": {}, "hint": 1}, {}]}',
            "other names": b'{"errors": [{"loc": "signals[99999999999999999999].x", "message": "x"}, {"loc": "touchpoints[7].a.b[8]"}, {"loc": "[][]."}]}',
        }.items()
}  # fmt: skip


class RawGateway(socketserver.ThreadingTCPServer):
    """Answers every connection with what `answer` gives for the request's first line, byte for byte."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), RawHandler)
        self.answer: Callable[[str], bytes | Iterator[bytes]] = lambda _: b""
        self.stopping = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """Whoever asks may hang up."""


class RawHandler(socketserver.StreamRequestHandler):
    server: RawGateway

    def handle(self) -> None:
        first = self.rfile.readline().decode("latin-1")
        length = 0
        while (line := self.rfile.readline()).strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        self.rfile.read(length)
        answered = self.server.answer(first)
        for piece in [answered] if isinstance(answered, bytes) else answered:
            self.wfile.write(piece)
            self.wfile.flush()


def example(shape: Any, text: str = "x", at: int = 0) -> Any:
    """A value that has what a shape asks for; every text in it is `text`."""
    origin = get_origin(shape)
    if origin in (NotRequired, Required, Annotated):
        kind = get_args(shape)[0]
        return [example(get_args(kind)[0], text, at)] * 2 if get_origin(kind) is list else example(kind, text, at)
    if is_typeddict(shape):
        return {name: example(kind, text, at + 1) for name, kind in get_type_hints(shape, include_extras=True).items()}
    if origin in (Union, types.UnionType):
        return example(get_args(shape)[0], text, at)
    if origin is Literal:
        return get_args(shape)[-1]
    if origin is list:
        return [example(get_args(shape)[0], text, at)]
    if origin is dict:
        return {text: text}
    return {str: text, int: 3, float: 0.5, bool: True}.get(shape)
