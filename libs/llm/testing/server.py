"""A small HTTP server that speaks Anthropic's Messages API and OpenAI's Chat Completions API, well or badly.

It writes its answers byte by byte itself, so that it can be slow, stop in the middle, or answer what no framework
would.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

KEY = "sk-test-0123456789-never-shown"


@dataclass(frozen=True)
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def system(self) -> str:
        """The prompt, on either wire."""
        system = self.body.get("system")
        return system if isinstance(system, str) else str(self.body["messages"][0]["content"])

    @property
    def input(self) -> str:
        """The data, on either wire."""
        return str(self.body["messages"][-1]["content"])


@dataclass(frozen=True)
class Written:
    """An answer as it is written. `cut_at`: the connection ends after so many bytes of the body. `drip_s`: every byte
    takes so long. `hold`: nothing is written before this is set."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_at: int | None = None
    drip_s: float = 0.0
    hold: asyncio.Event | None = None


class Wire(Protocol):
    """How one provider's answers look."""

    provider: str

    def said(self, text: str, *, tokens: tuple[int, int] = (100, 20), **changes: Any) -> Written:
        """An ordinary answer; `changes` go into its body."""
        ...

    def refused(self) -> Written:
        """The model declines."""
        ...

    def cut_off(self, text: str) -> Written:
        """The answer ends where its tokens do."""
        ...

    def failed(self, status: int, kind: str, message: str = "", **headers: str) -> Written:
        """An error, with the body that the provider gives it."""
        ...


def _json(status: int, body: object, **headers: str) -> Written:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Written(status, json.dumps(body).encode(), {"content-type": "application/json", **named})


class Messages:
    """Anthropic's Messages API."""

    provider = "anthropic"

    def said(self, text: str, *, tokens: tuple[int, int] = (100, 20), **changes: Any) -> Written:
        body = {
            "id": "msg_01",
            "type": "message",
            "role": "assistant",
            "model": "claude-test",
            "content": [{"type": "thinking", "thinking": "", "signature": "x"}, {"type": "text", "text": text}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": tokens[0], "output_tokens": tokens[1]},
        }
        return _json(200, {**body, **changes})

    def refused(self) -> Written:
        return self.said("", stop_reason="refusal", content=[])

    def cut_off(self, text: str) -> Written:
        return self.said(text, stop_reason="max_tokens")

    def failed(self, status: int, kind: str, message: str = "", **headers: str) -> Written:
        return _json(status, {"type": "error", "error": {"type": kind, "message": message}}, **headers)


class Chat:
    """OpenAI's Chat Completions API."""

    provider = "openai"

    def said(self, text: str, *, tokens: tuple[int, int] = (100, 20), **changes: Any) -> Written:
        return self._said({"role": "assistant", "content": text, "refusal": None}, "stop", tokens, changes)

    def refused(self) -> Written:
        return self._said({"role": "assistant", "content": None, "refusal": "I cannot."}, "stop", (100, 20), {})

    def cut_off(self, text: str) -> Written:
        return self._said({"role": "assistant", "content": text, "refusal": None}, "length", (100, 20), {})

    def failed(self, status: int, kind: str, message: str = "", **headers: str) -> Written:
        error = {"message": message, "type": kind, "param": None, "code": kind}
        return _json(status, {"error": error}, **headers)

    def _said(
        self, message: dict[str, Any], finished: str, tokens: tuple[int, int], changes: Mapping[str, Any]
    ) -> Written:
        body = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-test",
            "choices": [{"index": 0, "message": message, "finish_reason": finished, "logprobs": None}],
            "usage": {
                "prompt_tokens": tokens[0],
                "completion_tokens": tokens[1],
                "total_tokens": sum(tokens),
            },
        }
        return _json(200, {**body, **changes})


class ModelServer:
    """`async with ModelServer(wire) as server`: answers with what is in `answers`, in order, then with `by_rule`."""

    def __init__(self, wire: Wire, by_rule: Callable[[Asked], Written] | None = None) -> None:
        self.wire = wire
        self.answers: deque[Written] = deque()
        self.asked: list[Asked] = []
        self.by_rule = by_rule or (lambda asked: wire.said("yes"))
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """What its provider's base URL is set to."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}" + ("/v1" if self.wire.provider == "openai" else "")

    def environment(self, prices: str = "") -> dict[str, str]:
        """The settings of a process whose models are here; `prices` is a price table's path."""
        prefix = f"BURNISH_{self.wire.provider.upper()}"
        settings = {f"{prefix}_API_KEY": KEY, f"{prefix}_BASE_URL": self.url}
        return {**settings, "BURNISH_MODEL_PRICES": prices} if prices else settings

    async def __aenter__(self) -> ModelServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 24)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            while (asked := await _request(reader)) is not None:
                self.asked.append(asked)
                if not await self._answer(asked, writer):
                    return
        except (ConnectionError, asyncio.CancelledError):
            return
        finally:
            self._open.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer(self, asked: Asked, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        answer = self.answers.popleft() if self.answers else self.by_rule(asked)
        if answer.hold is not None:
            await answer.hold.wait()
        length = {} if "transfer-encoding" in answer.headers else {"content-length": str(len(answer.body))}
        head = {**length, **answer.headers}
        lines = [f"HTTP/1.1 {answer.status} X", *(f"{name}: {value}" for name, value in head.items()), "", ""]
        writer.write("\r\n".join(lines).encode())
        body = answer.body if answer.cut_at is None else answer.body[: answer.cut_at]
        step = 1 if answer.drip_s else len(body) or 1
        for at in range(0, len(body), step):
            writer.write(body[at : at + step])
            await writer.drain()
            await asyncio.sleep(answer.drip_s)
        await writer.drain()
        return answer.cut_at is None


async def _request(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, path, _version = head[0].split(" ", 2)
    pairs = (line.split(":", 1) for line in head[1:] if line)
    headers = {name.lower(): value.strip() for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(method, path, headers, json.loads(body or b"{}"))
