"""The size of a request's body, and the texts in it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from libs.contracts.vocabulary import ShortText
from services.registry.api.errors import problem

MAX_BODY_BYTES = 4 * 1024 * 1024


class BodyLimit:
    """Refuses a body over 4 MiB with 413, before it is read where its length is given, else while it is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count what comes in."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > MAX_BODY_BYTES:
            await _too_large()(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAX_BODY_BYTES:
                raise _TooLarge
            return message

        try:
            await self._app(scope, counted, send)
        except _TooLarge:
            await _too_large()(scope, receive, send)


class _TooLarge(BaseException):
    """Passes every handler of exceptions on its way out."""


def _too_large() -> Any:
    return problem(413, "too_large", f"a request's body is at most {MAX_BODY_BYTES:,} bytes")


def without_nul(value: Any) -> Any:
    """The same value without NUL characters, which Postgres cannot hold in a text."""
    if isinstance(value, str):
        return value.replace("\x00", "")
    if isinstance(value, list):
        return [without_nul(item) for item in value]
    if isinstance(value, dict):
        return {without_nul(key): without_nul(item) for key, item in value.items()}
    return value


class RequestBody(BaseModel):
    """A body a person or a tool writes: an unknown key is a mistake."""

    model_config = ConfigDict(extra="forbid")


Reason = Annotated[str, StringConstraints(min_length=1, max_length=2_000), BeforeValidator(without_nul)]
Note = Annotated[ShortText, BeforeValidator(without_nul)]
