"""A gateway that answers as a test says, in the data folder of an installation that seems to run."""

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

from burnish.data_folder import DataFolder, RunningNote


class Scripted(ThreadingHTTPServer):
    """Answers every request with `status` and `body` (or what `answers` gives next), and keeps what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.body: Any = {}
        self.answers: list[tuple[int, Any]] = []
        self.seen: list[tuple[str, str, str]] = []
        self.bodies: list[Any] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Scripted

    def answer(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.bodies.append(json.loads(sent) if sent else None)
        self.server.seen.append((self.command, self.path, self.headers["Authorization"]))
        answers = self.server.answers
        status, told = answers.pop(0) if answers else (self.server.status, self.server.body)
        body = told if isinstance(told, bytes) else json.dumps(told).encode()
        self.send_response(status)
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
