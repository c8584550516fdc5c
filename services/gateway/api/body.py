"""A request's body: its size, what JSON is, and the characters that no service can store."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import pydantic_core
from fastapi import Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, StringConstraints
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from libs.contracts import text
from libs.contracts.queries.qa_forms import MAX_FORM_BYTES
from libs.contracts.vocabulary import ShortText
from services.gateway.api.errors import problem

MAX_BODY_BYTES = 4 * 1024 * 1024
LARGER = {"/api/qa/match": MAX_FORM_BYTES + 64 * 1024}
"""What a path takes that takes files, with what a multipart body has around one."""
# A number that may be more than a float holds: an exponent of three digits, or that many digits in a row.
_HUGE = re.compile(rb"[eE]\+?\d{3}|\d{300}")


class BodyLimit:
    """Refuses a body over its path's limit with 413, before it is read where its length is given, else while it is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count what comes in."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        most = LARGER.get(path, MAX_BODY_BYTES)
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > most:
            await too_large(most, path)(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > most:
                raise _TooLarge
            return message

        try:
            await self._app(scope, counted, send)
        except _TooLarge:
            await too_large(most, path)(scope, receive, send)


class _TooLarge(BaseException):
    """Passes every handler of exceptions on its way out."""


def too_large(most: int = MAX_BODY_BYTES, path: str = "") -> Any:
    """413 with what would be right; below `/v2`, 400 in its shape."""
    detail = f"a request's body is at most {most:,} bytes"
    if path.startswith("/v2/"):
        return JSONResponse({"error": {"messages": [detail]}}, status_code=400)
    return problem(413, "too_large", detail)


def parsed(body: bytes) -> Any:
    """The JSON document that every service can store: without NUL. Raises ValueError.

    Lone surrogates, NaN, numbers beyond a float and nesting beyond 200 are not JSON here.
    """
    document = pydantic_core.from_json(body, allow_inf_nan=False)
    if _HUGE.search(body):
        _require_finite(document)
    return _without_nul(document) if b"\\u0000" in body else document


def _require_finite(value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is out of range")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _require_finite(item)


def _without_nul(value: Any) -> Any:
    """The same value without NUL characters, which Postgres cannot hold in a text."""
    if isinstance(value, str):
        return text.without_nul(value)
    if isinstance(value, list):
        return [_without_nul(item) for item in value]
    if isinstance(value, dict):
        return {_without_nul(key): _without_nul(item) for key, item in value.items()}
    return value


class _JsonRequest(Request):
    async def json(self) -> Any:
        """The body, parsed strictly. Raises as the framework expects it."""
        try:
            return parsed(await self.body())
        except ValueError as error:
            raise json.JSONDecodeError("this is not JSON", "", 0) from error


class JsonRoute(APIRoute):
    """A route whose body is parsed by `parsed`: every router's."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            return await handle(_JsonRequest(request.scope, request.receive))

        return handled


class RequestBody(BaseModel):
    """A body a person or a tool writes: an unknown key is a mistake."""

    model_config = ConfigDict(extra="forbid")


Reason = Annotated[str, StringConstraints(min_length=1, max_length=2_000)]
Note = ShortText
