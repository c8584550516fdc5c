"""The caller's token: whoever calls a tool is who asks the gateway. The server has none of its own, and keeps none."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from burnish_sdk import ConfigurationError, address

_CURRENT: ContextVar[str] = ContextVar("token")
MISSING = "this needs the header `Authorization: Bearer <token>`, once"
OVER = "the token has run out; get a new one"


class NoToken(Exception):
    """A request does not say who asks, or says it with a token that has run out."""


def current() -> str:
    """The token of the call in hand, for the client of the gateway."""
    try:
        return _CURRENT.get()
    except LookupError:
        raise ConfigurationError("nobody calls now", "no token was given") from None


@contextmanager
def calling_with(token: str) -> Iterator[None]:
    """Ask with this token meanwhile."""
    before = _CURRENT.set(token)
    try:
        yield
    finally:
        _CURRENT.reset(before)


def of_headers(headers: Sequence[tuple[bytes, bytes]], now: float) -> str:
    """The token of a request. Raises `NoToken`. Whether it holds, the gateway says."""
    values = [value for name, value in headers if name.lower() == b"authorization"]
    scheme, _, token = values[0].decode("latin-1").partition(" ") if len(values) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not address.TOKEN.fullmatch(token.strip()):
        raise NoToken(MISSING)
    if _is_over(token.strip(), now):
        raise NoToken(OVER)
    return token.strip()


def _is_over(token: str, now: float) -> bool:
    """Whether the token says of itself that it has run out. One that cannot be read is left to the gateway."""
    try:
        claims = token.split(".")[1]
        expires = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
        return bool(expires <= now)
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return False


TokenSource = Callable[[], str]
"""Gives the token that holds now. Raises ConfigurationError, whose `reason` may be told."""
