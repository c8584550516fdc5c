"""Sends one operation and reads its answer: bounded in time and size, failures told apart, tried again if allowed."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx
import pydantic_core

from burnish_sdk import address
from burnish_sdk.errors import (
    BurnishError,
    ConfigurationError,
    FieldError,
    NoHttp,
    TimedOut,
    UnexpectedAnswer,
    Unreachable,
    kind_of,
)
from burnish_sdk.operation import Operation
from burnish_sdk.retry import Retry

T = TypeVar("T")
Token = str | Callable[[], str]
log = logging.getLogger("burnish_sdk")

_KNOWN = frozenset({"type", "title", "status", "code", "detail", "errors", "instance"})
_LONGEST_DETAIL = 4_000
_LONGEST_REASON = 200


@dataclass(frozen=True)
class Options:
    """How patient a client is, and how much it takes."""

    timeout_s: float = 30.0
    connect_timeout_s: float = 5.0
    max_answer_bytes: int = 16 * 1024 * 1024
    retry: Retry = field(default_factory=Retry)
    trust_env: bool = True
    user_agent: str = "burnish-sdk"


@dataclass(frozen=True)
class Answer:
    """What came back, whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport:
    """One gateway, one caller. Used in one event loop."""

    def __init__(self, url: str, token: Token, options: Options) -> None:
        self.url = address.base_url(url)
        self._token = token if callable(token) else address.token(token)
        self._options = options
        self._random = random.Random()
        self._http = _http(self.url, options)

    def __repr__(self) -> str:
        return f"<burnish_sdk of {self.url}>"

    async def close(self) -> None:
        await self._http.aclose()

    async def call(self, operation: Operation[T]) -> T:
        """What the operation answers. Raises BurnishError."""
        answer = await self.answer(operation)
        return operation.read(answer.body, answer.status)

    async def answer(self, operation: Operation[Any], retry: Retry | None = None) -> Answer:
        """A success, or 304. Tried again where the retry policy allows it."""
        attempt, policy = 0, retry or self._options.retry
        while True:
            attempt += 1
            sent = _Sent()
            try:
                return await self._once(operation, sent)
            except BurnishError as error:
                chance = self._random.random()
                wait = policy.wait(error, attempt, operation.repeatable, sent.sent, chance)
                if wait is None:
                    raise
                told = type(error).__name__
                log.debug("%s %s: %s, once more in %.2f s", operation.method, operation.path, told, wait)
            await asyncio.sleep(wait)

    async def _once(self, operation: Operation[Any], sent: _Sent) -> Answer:
        request = self._request(operation)
        options = self._options
        try:
            async with asyncio.timeout(options.timeout_s):
                answer = await self._whole(request, sent)
        except (TimeoutError, httpx.TimeoutException) as error:
            if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
                sent.sent = False
            raise TimedOut(f"{self.url} did not answer within {options.timeout_s:g} s") from None
        except httpx.LocalProtocolError:
            raise ConfigurationError("the request cannot be sent: a header is none that HTTP takes") from None
        except httpx.HTTPError as error:
            if isinstance(error, httpx.ConnectError):
                sent.sent = False
            # What the other side sent may be quoted in it, however long.
            reason = (str(error) or type(error).__name__)[:_LONGEST_REASON]
            raise Unreachable(f"{self.url} cannot be reached: {reason}") from None
        if 200 <= answer.status < 300 or (answer.status == 304 and "If-None-Match" in operation.headers):
            if not operation.gives_bytes and (answer.body or answer.status not in (204, 304)):
                _require_json(answer)
            return answer
        raise _refusal(answer)

    def _request(self, operation: Operation[Any]) -> httpx.Request:
        token = address.token(self._token()) if callable(self._token) else self._token
        headers = {"Authorization": f"Bearer {token}", **operation.headers}
        if operation.body is not None:
            headers["Content-Type"] = operation.content_type
        try:
            return self._http.build_request(
                operation.method,
                operation.address,
                params=operation.query,
                content=operation.body,
                headers=headers,
            )
        except (httpx.InvalidURL, UnicodeError, ValueError):
            raise ConfigurationError("the request cannot be sent: a parameter or header is none HTTP takes") from None

    async def _whole(self, request: httpx.Request, sent: _Sent) -> Answer:
        pieces: list[bytes] = []
        size, most = 0, self._options.max_answer_bytes
        sent.sent = True
        answer = await self._http.send(request, stream=True)
        try:
            # As it comes: a small body that unpacks into a huge one is not unpacked.
            if answer.headers.get("Content-Encoding", "identity") != "identity":
                raise UnexpectedAnswer("it is compressed, which was not asked for", status=answer.status_code)
            async for piece in answer.aiter_raw():
                size += len(piece)
                if size > most:
                    raise UnexpectedAnswer(f"it is larger than {most:,} bytes", status=answer.status_code)
                pieces.append(piece)
        finally:
            await answer.aclose()
        return Answer(answer.status_code, answer.headers, b"".join(pieces))


@dataclass
class _Sent:
    """Whether the gateway may have seen the request."""

    sent: bool = False


def _http(url: str, options: Options) -> httpx.AsyncClient:
    try:
        return httpx.AsyncClient(
            base_url=url,
            headers={"User-Agent": options.user_agent, "Accept": "application/json", "Accept-Encoding": "identity"},
            timeout=httpx.Timeout(options.timeout_s, connect=options.connect_timeout_s),
            trust_env=options.trust_env,
        )
    except (httpx.InvalidURL, OSError, ValueError, ImportError) as error:
        names = "HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE, SSL_CERT_DIR"
        raise NoHttp(f"HTTP cannot be set up here ({type(error).__name__}): check {names}") from None


def _require_json(answer: Answer) -> None:
    """It says that it is JSON, or does not say what it is."""
    kind = answer.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind not in ("", "application/json") and not kind.endswith("+json"):
        raise UnexpectedAnswer("its content type is not JSON", status=answer.status)


def _refusal(answer: Answer) -> BurnishError:
    """problem+json as a typed error; a failure that is none of ours keeps its status."""
    status = answer.status
    if status < 400:
        return UnexpectedAnswer("it leads elsewhere", status=status)
    told = _flat(_object(answer.body))
    if told is None or not any(key in told for key in ("detail", "title", "code", "errors")):
        told = {}
    detail = told.get("detail") or told.get("title") or f"the gateway answered {status}"
    return kind_of(status)(
        status,
        str(told.get("code") or "unknown")[:200],
        str(detail)[:_LONGEST_DETAIL],
        title=str(told.get("title") or "")[:200],
        errors=_fields(told.get("errors")),
        extra={key: value for key, value in told.items() if key not in _KNOWN and value is not None},
        retry_after=_seconds(answer.headers.get("retry-after")),
    )


def _flat(told: dict[str, Any] | None) -> dict[str, Any] | None:
    """The shape of `/v2`, `{"error": {"messages": [...]}}`, as the other one."""
    error = told.get("error") if told else None
    if not isinstance(error, dict) or not isinstance(error.get("messages"), list):
        return told
    more = {key: value for key, value in error.items() if key != "messages"}
    return {"detail": "; ".join(str(message) for message in error["messages"][:20]), **more}


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        found = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _fields(errors: Any) -> tuple[FieldError, ...]:
    if not isinstance(errors, list):
        return ()
    known = ("loc", "message", "hint")
    return tuple(
        FieldError(*(str(one.get(name) or "")[:_LONGEST_DETAIL] for name in known))
        for one in errors[:1_000]
        if isinstance(one, dict)
    )


def _seconds(value: str | None) -> float | None:
    """Retry-After: seconds, or the time of day until which to wait."""
    if not value:
        return None
    if value.strip().isdecimal() and value.isascii() and len(value) < 10:
        return float(value)
    try:
        at = parsedate_to_datetime(value)
        return max(0.0, (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
