from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from burnish.client import Gateway
from burnish.commands.verbs import Failure
from burnish.data_folder import DataFolder, RunningNote


class Scripted(ThreadingHTTPServer):
    """Answers every request with `status` and `body`, and keeps what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.body: Any = {}
        self.seen: list[tuple[str, str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Scripted

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.command, self.path, self.headers["Authorization"]))
        body = self.server.body if isinstance(self.server.body, bytes) else json.dumps(self.server.body).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = answer

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Scripted]:
    with Scripted() as scripted:
        thread = threading.Thread(target=scripted.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield scripted
        scripted.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("BURNISH_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def data(tmp_path: Path, server: Scripted) -> Path:
    here = psutil.Process()
    note = RunningNote(here.pid, here.create_time(), server.url, "local-token", "nats://h:1", "postgresql://h/b")
    DataFolder(tmp_path).remember_running(note)
    return tmp_path


def failure(data: Path, method: str = "get") -> Failure:
    with Gateway(data) as api, pytest.raises(Failure) as caught:
        getattr(api, method)("/things")
    return caught.value


def test_the_data_folder_says_where_and_who(data: Path, server: Scripted) -> None:
    server.body = {"a": 1}
    with Gateway(data) as api:
        assert api.get("/things", x=1, y=None, z=True) == {"a": 1}
    assert server.seen == [("GET", "/api/refinement/things?x=1&z=true", "Bearer local-token")]


def test_the_environment_goes_first(data: Path, server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_TOKEN", "mine")
    with Gateway(data) as api:
        api.post("/things", {})
    monkeypatch.setenv("BURNISH_URL", f"{server.url}/")
    with Gateway(data / "nothing") as api:
        api.put("/things", {})
    assert [seen[2] for seen in server.seen] == ["Bearer mine"] * 2


def test_a_local_token_goes_to_its_own_url_only(data: Path, server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_URL", server.url)
    with Gateway(data) as api:
        api.get("/things")
    monkeypatch.setenv("BURNISH_URL", "http://elsewhere.example")
    with pytest.raises(Failure, match="no token"):
        Gateway(data)
    assert [seen[2] for seen in server.seen] == ["Bearer local-token"]


@pytest.mark.parametrize(
    ("status", "code"), [(401, 4), (403, 4), (404, 5), (409, 6), (413, 6), (422, 6), (500, 1), (503, 3)]
)
def test_each_refusal_has_its_exit_code_and_its_detail(data: Path, server: Scripted, status: int, code: int) -> None:
    server.status = status
    server.body = {"title": "T", "status": status, "code": "c", "detail": "because", "live": "git:1"}
    told = failure(data)
    assert (told.exit_code, told.message) == (code, "because")
    if status == 409:
        assert told.hint == "live: git:1"


def test_field_errors_are_told_one_a_line(data: Path, server: Scripted) -> None:
    server.status = 422
    server.body = {"detail": "x", "errors": [{"loc": "signals[0]", "message": "no"}, {"loc": "b", "message": "bad"}]}
    assert failure(data, "post").message == "signals[0]: no\nb: bad"


@pytest.mark.parametrize("body", [b"<html>", b"[]", b""])
def test_what_is_no_gateway_is_told(data: Path, server: Scripted, body: bytes) -> None:
    server.status, server.body = 502, body
    told = failure(data)
    assert told.exit_code == 3
    assert "502" in told.message


def test_a_success_that_is_no_json(data: Path, server: Scripted) -> None:
    server.body = b"<html>"
    assert "does not speak like a Burnish gateway" in failure(data).message
