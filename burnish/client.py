"""The gateway over HTTP, as the command line uses it: where it is, who we are, and refusals as clear errors."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self
from urllib.parse import urlsplit

import httpx

from burnish import printer
from burnish.data_folder import DataFolder
from burnish.failure import FAILED, NOT_ALLOWED, NOT_FOUND, REFUSED, UNREACHABLE, USAGE, Failure
from burnish.json_text import NotJson, parsed

API = "/api/refinement"
TIMEOUT_S = 90.0
MAX_ANSWER_BYTES = 100_000_000
TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,16000}", re.ASCII)
CODES = {
    400: USAGE,
    401: NOT_ALLOWED,
    403: NOT_ALLOWED,
    404: NOT_FOUND,
    413: USAGE,
    422: USAGE,
}
HINTS = {
    401: "set BURNISH_TOKEN to a token that holds here; `burnish token` prints one on the machine it runs on",
    403: "use a token of an admin; `burnish token` prints one on the machine it runs on",
}
CHECK_URL = "check BURNISH_URL"


class FieldErrors(Failure):
    """The gateway names fields; whoever knows what they were read from says where each stands (`at`)."""

    def __init__(self, errors: Sequence[Mapping[str, str]], code: int, hint: str = "") -> None:
        self.errors = errors
        super().__init__(self._told(lambda field: field), hint, code)

    def at(self, place: Callable[[str], str], hint: str = "") -> Failure:
        """The same with `place(field)`, e.g. a file and a line, instead of each field."""
        return Failure(self._told(place), hint or self.hint, self.exit_code)

    def _told(self, place: Callable[[str], str]) -> str:
        lines = (f"{place(one.get('loc', ''))}: {one.get('message', '')} {one.get('hint', '')}" for one in self.errors)
        return "\n".join(line.rstrip() for line in lines)


class Gateway:
    """`BURNISH_URL` with `BURNISH_TOKEN`, or the installation that runs in the data folder."""

    def __init__(self, data: Path) -> None:
        self.url, token = _where(data)
        self._client = _client(self.url, token)
        self._loop = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._client.aclose())
        self._loop.close()

    def get(self, path: str, **params: Any) -> Any:
        """GET; parameters that are None are left out."""
        return self._ask("GET", path, params={name: value for name, value in params.items() if value is not None})

    def post(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """POST."""
        return self._ask("POST", path, body, headers=headers)

    def put(self, path: str, body: Any) -> Any:
        """PUT."""
        return self._ask("PUT", path, body)

    def _ask(self, method: str, path: str, body: Any = None, **request: Any) -> Any:
        if body is not None:
            request["headers"] = {**(request.get("headers") or {}), "Content-Type": "application/json"}
            request["content"] = _document(body)
        try:
            answer, whole = self._loop.run(self._answered(method, f"{API}{path}", request))
        except (TimeoutError, httpx.TimeoutException) as error:
            raise Failure(f"{self.url} did not answer within {TIMEOUT_S:g} s", code=UNREACHABLE) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Failure(
                f"{self.url} cannot be reached: {error or type(error).__name__}",
                "start it with `burnish up`, or set BURNISH_URL",
                UNREACHABLE,
            ) from error
        if not answer.is_success:
            raise self._refusal(answer, whole)
        try:
            return parsed(whole)
        except NotJson as error:
            raise Failure(f"{self.url} does not speak like a Burnish gateway: {error}", CHECK_URL) from error

    async def _answered(self, method: str, path: str, request: dict[str, Any]) -> tuple[httpx.Response, bytes]:
        """The answer and its body: bounded in size, and as a whole in time, however slowly it comes."""
        pieces: list[bytes] = []
        size = 0
        async with asyncio.timeout(TIMEOUT_S), self._client.stream(method, path, **request) as answer:
            async for piece in answer.aiter_bytes():
                size += len(piece)
                if size > MAX_ANSWER_BYTES:
                    raise Failure(f"{self.url} answered with more than {MAX_ANSWER_BYTES:,} bytes", CHECK_URL)
                pieces.append(piece)
        return answer, b"".join(pieces)

    def _refusal(self, answer: httpx.Response, body: bytes) -> Failure:
        """problem+json as a message: its detail, or its errors one a line, and whatever else it tells."""
        status = answer.status_code
        if status < 400:
            return Failure(f"{self.url} answered {status} and leads elsewhere", CHECK_URL, UNREACHABLE)
        code = UNREACHABLE if status in (502, 503, 504) else CODES.get(status, REFUSED if status < 500 else FAILED)
        problem = _problem(body)
        if problem is None:
            return Failure(f"the gateway answered {status} {answer.reason_phrase}", HINTS.get(status, ""), code)
        if errors := _field_errors(problem.get("errors")):
            return FieldErrors(errors, code)
        told = problem.get("detail") or problem.get("title") or f"{status} {answer.reason_phrase}"
        known = ("type", "title", "status", "detail", "errors", "code")
        more = ", ".join(f"{key}: {value}" for key, value in problem.items() if key not in known and value is not None)
        return Failure(str(told), HINTS.get(status) or more, code)


def _client(url: str, token: str) -> httpx.AsyncClient:
    try:
        return httpx.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {token}", "User-Agent": "burnish"},
            timeout=httpx.Timeout(TIMEOUT_S, connect=5.0),
        )
    except (httpx.InvalidURL, OSError, ValueError, ImportError) as error:
        raise Failure(
            f"HTTP cannot be set up ({type(error).__name__})",
            "check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR",
            UNREACHABLE,
        ) from error


def _document(body: Any) -> bytes:
    """What is sent. Whoever made it has looked at it; this is the last look."""
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, RecursionError) as error:
        raise Failure(
            "it cannot be sent: a text, a number or its depth is not one that JSON takes", code=USAGE
        ) from error


def _where(data: Path) -> tuple[str, str]:
    """URL and token. A token of this machine is never sent to another URL than its own."""
    url, token = os.environ.get("BURNISH_URL"), os.environ.get("BURNISH_TOKEN")
    url = _checked_url(url) if url else None
    token = _checked_token(token, "BURNISH_TOKEN") if token else None
    note = DataFolder(data).running() if not url or not token else None
    if url and token:
        return url, token
    if url and note is not None and url == note.url:
        return url, _checked_token(note.token, "the token in the data folder")
    if url:
        raise Failure(
            f"there is no token for {url}", "set BURNISH_TOKEN; `burnish token` prints one on that machine", NOT_ALLOWED
        )
    if note is None:
        raise Failure(
            f"no installation runs in {data}",
            "start one with `burnish up`, name its folder with --data, or set BURNISH_URL and BURNISH_TOKEN",
            UNREACHABLE,
        )
    return _checked_url(note.url), token or _checked_token(note.token, "the token in the data folder")


def _checked_url(url: str) -> str:
    """The URL without a last slash. What is wrong is said without the URL where it may hold a password."""
    try:
        parts = urlsplit(url)
        port = parts.port
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL) as error:
        _no_url(f"it is no URL ({error})" if "@" not in url else "it is no URL")
    if parts.username is not None or parts.password is not None:
        _no_url("it holds a name or a password; leave it out, BURNISH_TOKEN says who you are")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        _no_url("it begins with http:// or https:// and a host")
    if port == 0:
        _no_url("its port is between 1 and 65535")
    if parts.query or parts.fragment or any(character.isspace() for character in url):
        _no_url("it ends with the host, the port, or the path before /api")
    return url.rstrip("/")


def _no_url(why: str) -> NoReturn:
    raise Failure(f"BURNISH_URL cannot be used: {why}", "a URL such as http://127.0.0.1:8320 was expected", USAGE)


def _checked_token(token: str, name: str) -> str:
    """The token, if a header can carry it. It is never shown."""
    printer.keep_secret(token)
    if not TOKEN.fullmatch(token):
        raise Failure(
            f"{name} is no token: it has characters that no token has, or too many",
            "set it to one line of letters, digits and . _ - as `burnish token` prints it",
            NOT_ALLOWED,
        )
    return token


def _problem(body: bytes) -> dict[str, Any] | None:
    try:
        problem = parsed(body)
    except NotJson:
        return None
    return problem if isinstance(problem, dict) else None


def _field_errors(errors: Any) -> list[dict[str, str]]:
    if not isinstance(errors, list):
        return []
    return [{str(key): str(value) for key, value in one.items()} for one in errors if isinstance(one, dict)]
