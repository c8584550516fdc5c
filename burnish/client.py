"""The gateway over HTTP, as the command line uses it: where it is, who we are, and refusals as clear errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from burnish_sdk import (
    BurnishError,
    Client,
    ConfigurationError,
    NoHttp,
    Options,
    Problem,
    Retry,
    TimedOut,
    UnexpectedAnswer,
    Unreachable,
    address,
)

from burnish import printer
from burnish.data_folder import DataFolder
from burnish.failure import FAILED, NOT_ALLOWED, NOT_FOUND, REFUSED, UNREACHABLE, USAGE, Failure

T = TypeVar("T")
TIMEOUT_S = 90.0
MAX_ANSWER_BYTES = 100_000_000
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
    """`BURNISH_URL` with `BURNISH_TOKEN`, or the installation that runs in the data folder; asked with the SDK."""

    def __init__(self, data: Path) -> None:
        self.url, token = where(data)
        self._client = _client(self.url, token)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def get(self, path: str, **params: Any) -> Any:
        """GET; parameters that are None are left out."""
        return self._ask("GET", path, params=params)

    def post(
        self,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> Any:
        return self._ask("POST", path, body=body, headers=headers, params=params)

    def send(self, path: str, content: bytes, content_type: str, params: Mapping[str, Any]) -> Any:
        """POST a file."""
        return self._told(lambda: self._client.send(path, content, content_type, params=params))

    def fetch(self, path: str, **params: Any) -> bytes:
        """GET a file."""
        return self._told(lambda: self._client.fetch(path, params=params))

    def put(self, path: str, body: Any) -> Any:
        return self._ask("PUT", path, body=body)

    def patch(self, path: str, body: Any) -> Any:
        return self._ask("PATCH", path, body=body)

    def delete(self, path: str, **params: Any) -> Any:
        return self._ask("DELETE", path, params=params)

    def _ask(self, method: str, path: str, **request: Any) -> Any:
        return self._told(lambda: self._client.request(method, path, **request))

    def _told(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except BurnishError as error:
            raise self._failure(error) from error

    def _failure(self, error: BurnishError) -> Failure:
        match error:
            case Problem():
                return _refusal(error)
            case UnexpectedAnswer():
                code = UNREACHABLE if error.status in range(300, 400) else FAILED
                return Failure(f"{self.url} does not speak like a Burnish gateway: {error.reason}", CHECK_URL, code)
            case NoHttp() | TimedOut():
                return Failure(str(error), code=UNREACHABLE)
            case Unreachable():
                return Failure(str(error), "start it with `burnish up`, or set BURNISH_URL", UNREACHABLE)
            case _:
                return Failure(str(error), code=USAGE)


def _refusal(problem: Problem) -> Failure:
    """problem+json as a message: its detail, or its errors one a line, and whatever else it tells."""
    status = problem.status
    code = UNREACHABLE if status in (502, 503, 504) else CODES.get(status, REFUSED if status < 500 else FAILED)
    if problem.errors:
        return FieldErrors([asdict(error) for error in problem.errors], code)
    more = ", ".join(f"{key}: {value}" for key, value in problem.extra.items())
    return Failure(problem.detail, HINTS.get(status) or more, code)


def _client(url: str, token: str) -> Client:
    """Each verb asks once: whoever typed it sees at once what is wrong, and may ask again."""
    options = Options(
        timeout_s=TIMEOUT_S, max_answer_bytes=MAX_ANSWER_BYTES, retry=Retry(attempts=1), user_agent="burnish"
    )
    return Client(url, token, options)


def url_of(data: Path) -> str:
    """Where the gateway is, whoever asks it: `BURNISH_URL`, or what runs in the data folder. Raises `Failure`."""
    url = os.environ.get("BURNISH_URL")
    if url:
        return _checked_url(url)
    note = DataFolder(data).running()
    if note is None:
        raise _nothing_runs(data)
    return _checked_url(note.url)


def where(data: Path) -> tuple[str, str]:
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
        raise _nothing_runs(data)
    return _checked_url(note.url), token or _checked_token(note.token, "the token in the data folder")


def _nothing_runs(data: Path) -> Failure:
    return Failure(
        f"no installation runs in {data}",
        "start one with `burnish up`, name its folder with --data, or set BURNISH_URL and BURNISH_TOKEN",
        UNREACHABLE,
    )


def _checked_url(url: str) -> str:
    """The URL without a last slash. What is wrong is said without the URL, which may hold a password."""
    try:
        return address.base_url(url)
    except ConfigurationError as error:
        hint = "a URL such as http://127.0.0.1:8320 was expected"
        raise Failure(f"BURNISH_URL cannot be used: {error.reason}", hint, USAGE) from error


def _checked_token(token: str, name: str) -> str:
    """The token, if a header can carry it. It is never shown."""
    printer.keep_secret(token)
    try:
        return address.token(token)
    except ConfigurationError as error:
        raise Failure(
            f"{name} is no token: it has characters that no token has, or too many",
            "set it to one line of letters, digits and . _ - as `burnish token` prints it",
            NOT_ALLOWED,
        ) from error
