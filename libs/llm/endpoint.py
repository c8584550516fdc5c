"""The way to a provider: one HTTP client with bounds, and tries again where a call was certainly not made.

The SDKs' own retries are off. They try again after a time-out or a cut connection, too, when the call may have been
billed: the second would be paid from a budget that was asked for one.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from email.utils import parsedate_to_datetime
from importlib import import_module
from typing import Any

import httpx2
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from libs.llm.base import ModelError

CONNECT_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 600.0
"""Between two pieces of an answer. The time of the whole call is bounded by the pool."""

NOT_MADE = frozenset({409, 425, 429, 500, 502, 503, 529})
"""Statuses that say that nothing was done, and that it may be later."""
MAYBE_MADE = frozenset({408, 504, 524})
"""Statuses of those in between, who gave up waiting: what they waited for may have been done, and billed."""


class TooLarge(Exception):
    """A response of more bytes than are read."""


class BoundedClient(httpx2.AsyncClient):
    """Reads no more of a response than `max_bytes`, follows no redirect, and unpacks nothing.

    What is packed could become a thousand times its size, so nothing packed is asked for, and none is taken.
    """

    def __init__(self, max_bytes: int) -> None:
        super().__init__(
            follow_redirects=False,
            timeout=httpx2.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx2.Limits(max_connections=1_000, max_keepalive_connections=100, keepalive_expiry=30.0),
        )
        self._max_bytes = max_bytes

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """The response, read as a whole. Raises `TooLarge`, and as httpx does."""
        request.headers["accept-encoding"] = "identity"
        options["follow_redirects"] = False
        response = await super().send(request, stream=True, **options)
        try:
            content = await self._content(response)
        finally:
            await response.aclose()
        headers = [(name, value) for name, value in response.headers.raw if name.lower() not in _OF_THE_WIRE]
        return httpx2.Response(response.status_code, headers=headers, content=content, request=request)

    async def _content(self, response: httpx2.Response) -> bytes:
        packed = response.headers.get("content-encoding", "identity").strip().lower()
        length = response.headers.get("content-length", "0")
        if packed not in ("", "identity") or (length.isdigit() and int(length) > self._max_bytes):
            raise TooLarge
        content = bytearray()
        async with aclosing(response.aiter_raw()) as pieces:
            async for piece in pieces:
                content += piece
                if len(content) > self._max_bytes:
                    raise TooLarge
        return bytes(content)


_OF_THE_WIRE = (b"content-length", b"content-encoding", b"transfer-encoding")


class Attempt(ModelError):
    """A try that ended with an error. `again`: it was certainly not made, and may be; not before `retry_after_s`."""

    def __init__(
        self, reason: str, *, retryable: bool, again: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(reason, retryable=retryable)
        self.again = again
        self.retry_after_s = retry_after_s


class MaybeBilled(ModelError):
    """Nobody can tell whether this call was billed: it counts at its most."""


async def with_retries(call: Callable[[], Awaitable[Any]], retries: int, patience_s: float) -> Any:
    """What the call gives. It is tried again up to `retries` times, after a random time that grows, and never before
    the provider wants it. Raises its error when the tries are used up, or when the wait would exceed the patience."""
    wait = _Wait()
    retrying = AsyncRetrying(
        retry=retry_if_exception(lambda error: isinstance(error, Attempt) and error.again),
        stop=lambda state: state.attempt_number > retries or state.idle_for + wait(state) > patience_s,
        wait=wait,
        reraise=True,
    )

    async def once() -> Any:
        return await call()

    return await retrying(once)


class _Wait:
    """Seconds before the next try, drawn once an attempt: `stop` and `wait` are both asked."""

    def __init__(self) -> None:
        self._growing = wait_random_exponential(multiplier=0.5, max=8.0)
        self._drawn: tuple[int, float] = (0, 0.0)

    def __call__(self, state: RetryCallState) -> float:
        if self._drawn[0] != state.attempt_number:
            error = state.outcome.exception() if state.outcome else None
            least = (error.retry_after_s if isinstance(error, Attempt) else None) or 0.0
            # Jitter on top of what the provider wants: those who were refused together do not come back together.
            self._drawn = state.attempt_number, least + self._growing(state)
        return self._drawn[1]


def retry_after_s(headers: httpx2.Headers) -> float | None:
    """Seconds that a response asks to wait: milliseconds, seconds or a date; None where it asks nothing readable."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * scale
        except (KeyError, ValueError):
            continue
        return seconds if math.isfinite(seconds) and seconds >= 0 else None
    try:
        return max(0.0, parsedate_to_datetime(headers["retry-after"]).timestamp() - time.time())
    except (KeyError, ValueError, TypeError, OverflowError):
        return None


def import_quietly(sdk: str) -> None:
    """Import an SDK, and keep what it and its HTTP client would log to warnings: at DEBUG they log whole prompts."""
    import_module(sdk)
    for name in (sdk, "httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(logging.WARNING)


_WORD = re.compile(r"[a-zA-Z0-9_.\[\]-]{1,60}")


def word(value: object) -> str:
    """A code or the name of a field from an error body, for a message; empty where it may be anything else."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""
