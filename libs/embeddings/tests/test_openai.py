"""The openai embedder against a real HTTP server that speaks the wire format."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import numpy as np
import pytest

from libs.embeddings import EmbedderError, StaticEmbedder
from libs.embeddings.openai import OpenAIEmbedder


@dataclass
class Endpoint:
    """An embeddings endpoint on the loopback: static vectors, shuffled order, failures on demand."""

    server: ThreadingHTTPServer
    requests: list[dict[str, Any]] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)
    width: int = 256
    missing: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1"

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.requests.append({"path": path, **body})
        if self.failures:
            return self.failures.pop(), {"error": {"message": "no", "type": "server_error", "code": None}}
        vectors = StaticEmbedder().embed_now(body["input"])[:, : self.width] * 3
        data = [
            {"object": "embedding", "index": index, "embedding": vector.tolist()}
            for index, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        data = list(reversed(data[self.missing :]))
        return 200, {"object": "list", "model": body["model"], "data": data, "usage": usage}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, reply = served.answer(self.path, body)
            text = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served = Endpoint(server)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield served
        server.shutdown()
        thread.join()


def embedder(endpoint: Endpoint, **options: Any) -> OpenAIEmbedder:
    settings: dict[str, Any] = {"dimensions": 256, "max_retries": 0, **options}
    return OpenAIEmbedder("any-model", base_url=endpoint.url, api_key="k", **settings)


async def test_batches_are_asked_in_the_wire_format_and_answered_in_order(endpoint: Endpoint) -> None:
    texts = ["card lost", "", "exchange rate", "top up", "refund"]
    ours = embedder(endpoint, batch=2)
    vectors = await ours.embed(texts)
    await ours.close()
    np.testing.assert_allclose(vectors, StaticEmbedder().embed_now(texts), atol=1e-6)
    assert {request["path"] for request in endpoint.requests} == {"/v1/embeddings"}
    assert sorted(len(request["input"]) for request in endpoint.requests) == [2, 2]
    assert all(request["model"] == "any-model" and request["dimensions"] == 256 for request in endpoint.requests)


async def test_only_blank_texts_ask_nothing(endpoint: Endpoint) -> None:
    ours = embedder(endpoint)
    assert not (await ours.embed(["", " "])).any()
    assert (await ours.embed([])).shape == (0, 256)
    await ours.close()
    assert endpoint.requests == []


async def test_a_passing_failure_is_retried(endpoint: Endpoint) -> None:
    endpoint.failures = [500]
    ours = embedder(endpoint, max_retries=1)
    assert (await ours.embed(["card"])).any()
    await ours.close()
    assert len(endpoint.requests) == 2


@pytest.mark.parametrize(("status", "retryable"), [(429, True), (503, True), (400, False), (401, False)])
async def test_a_lasting_failure_says_whether_to_try_again(endpoint: Endpoint, status: int, retryable: bool) -> None:
    endpoint.failures = [status]
    ours = embedder(endpoint)
    with pytest.raises(EmbedderError, match=f"HTTP {status}") as failed:
        await ours.embed(["a canary text"])
    await ours.close()
    assert failed.value.retryable is retryable
    assert "canary" not in str(failed.value)


async def test_wrong_dimensions_and_missing_vectors_are_refused(endpoint: Endpoint) -> None:
    ours = embedder(endpoint)
    endpoint.width = 8
    with pytest.raises(EmbedderError, match=r"\[8\] dimensions, expected 256"):
        await ours.embed(["card"])
    endpoint.width, endpoint.missing = 256, 1
    with pytest.raises(EmbedderError, match="answered 1 of 2 texts"):
        await ours.embed(["card", "fee"])
    await ours.close()


async def test_an_unreachable_endpoint_may_be_tried_again(endpoint: Endpoint) -> None:
    ours = OpenAIEmbedder(base_url="http://127.0.0.1:9/v1", api_key="k", max_retries=0)
    with pytest.raises(EmbedderError, match="cannot be reached") as failed:
        await ours.embed(["card"])
    await ours.close()
    assert failed.value.retryable


def test_without_a_key_it_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(EmbedderError, match="OPENAI_API_KEY"):
        OpenAIEmbedder()
