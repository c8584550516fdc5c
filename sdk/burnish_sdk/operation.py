"""One call of the gateway as a value: what is sent, and what comes back. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import pydantic_core
from pydantic import TypeAdapter, ValidationError

from burnish_sdk.errors import ConfigurationError, UnexpectedAnswer

T = TypeVar("T")
API = "/api/refinement"
IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE"})


@dataclass(frozen=True)
class Operation(Generic[T]):
    """`path` is below `/api/refinement`, or begins with `/api/` or `/v2/`. `reply` reads the answer; None any JSON.

    With `gives_bytes` the answer is a file, whatever it is.
    """

    method: str
    path: str
    reply: TypeAdapter[T] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    body: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    content_type: str = "application/json"
    gives_bytes: bool = False

    @property
    def address(self) -> str:
        """The path below the gateway's URL."""
        return self.path if self.path.startswith(("/api/", "/v2/")) else f"{API}{self.path}"

    @property
    def repeatable(self) -> bool:
        """Whether doing it twice is doing it once, so that it may be sent again when nobody knows."""
        return self.method in IDEMPOTENT or "Idempotency-Key" in self.headers

    @property
    def query(self) -> dict[str, str | list[str]]:
        """The parameters as a query has them; those that are None are left out."""
        return {name: _param(value) for name, value in self.params.items() if value is not None}

    def read(self, body: bytes, status: int) -> T:
        """The answer. Raises UnexpectedAnswer, which names fields and quotes nothing."""
        try:
            if self.reply is None:
                anything: T = pydantic_core.from_json(body, allow_inf_nan=False)
                return anything
            return self.reply.validate_json(body)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False, include_context=False)[0]
            if first["type"] == "json_invalid":
                raise UnexpectedAnswer("it is not JSON, or nested too deeply", status=status) from None
            place = ".".join(str(step) for step in first["loc"]) or "the document"
            raise UnexpectedAnswer(f"{place}: {first['msg']}", status=status) from None
        except ValueError:
            raise UnexpectedAnswer("it is not JSON, or nested too deeply", status=status) from None


def document(body: Any) -> bytes:
    """A body as JSON. Raises ConfigurationError for what JSON does not take."""
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError):
        reason = "a value, a text, a number or its depth is not one that JSON takes"
        raise ConfigurationError(f"the body cannot be sent: {reason}") from None


def segment(value: str) -> str:
    """A value as one segment of a path, whatever it holds."""
    if value in ("", ".", ".."):
        raise ConfigurationError("an id is neither empty nor dots")
    try:
        return quote(value, safe="")
    except UnicodeEncodeError:
        raise ConfigurationError("an id is text that can be written as UTF-8") from None


def _param(value: Any) -> str | list[str]:
    if isinstance(value, list | tuple):
        return [str(_param(item)) for item in value]
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
