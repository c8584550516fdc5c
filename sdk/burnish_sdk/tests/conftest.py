"""A gateway that answers what a test tells it to, on a real socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

import pytest

from burnish_sdk import Client, Options, Refreshing, Retry

TOKEN = "head.body-0123456789.signature"
FAST = Options(timeout_s=5, connect_timeout_s=2, retry=Retry(base_s=0.001, cap_s=0.002))
OFTEN = Refreshing(every_s=0.02, away_s=0.05)
LIVE = {
    "touchpoint_id": "support.intent",
    "workspace_id": None,
    "activation_id": "11111111-1111-4111-8111-111111111111",
    "version_ref": "v1",
    "adapter": "feed_prompts",
    "content_sha256": "0" * 64,
    "parts": [{"path": "prompt", "text": "Be kind."}],
    "activated_at": "2026-11-01T00:00:00Z",
}


@dataclass
class Seen:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


@dataclass
class Reply:
    """An answer: bytes as they are, anything else as JSON."""

    body: Any = field(default_factory=dict)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def raw(self) -> bytes:
        """The bytes of the body."""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


Answer: TypeAlias = Callable[[Seen], Reply | None]


class Fake:
    """Answers with `reply`, after what stands in `first`; None breaks the connection off."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.first: list[Reply | None] = []
        self.reply: Answer = lambda _: Reply()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Nobody answers any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, seen: Seen) -> Reply | None:
        """The next answer."""
        self.seen.append(seen)
        return self.first.pop(0) if self.first else self.reply(seen)

    def _handler(fake) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                reply = fake.answer(Seen(self.command, self.path, dict(self.headers.items()), body))
                if reply is None:
                    self.connection.close()
                    return
                self.send_response(reply.status)
                headers = {"Content-Type": "application/json", **reply.headers}
                for name, value in headers.items():
                    self.send_header(name, value)
                if reply.status != 304:
                    self.send_header("Content-Length", str(len(reply.raw)))
                self.end_headers()
                if reply.status != 304:
                    self.wfile.write(reply.raw)

            do_GET = do_POST = do_PUT = do

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


@pytest.fixture
def fake() -> Iterator[Fake]:
    one = Fake()
    yield one
    one.close()


@pytest.fixture
def client(fake: Fake) -> Iterator[Client]:
    with Client(fake.url, TOKEN, FAST, OFTEN) as one:
        yield one


def problem(status: int, code: str = "no", detail: str = "because", **more: Any) -> Reply:
    """A failure as the gateway tells it."""
    headers = more.pop("headers", {})
    body = {"type": "about:blank", "title": "T", "status": status, "code": code, "detail": detail, **more}
    return Reply(body, status, {"Content-Type": "application/problem+json", **headers})
