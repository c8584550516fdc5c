"""The gateway over HTTP, as the command line uses it: where it is, who we are, and refusals as clear errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from burnish.data_folder import DataFolder
from burnish.failure import FAILED, NOT_ALLOWED, NOT_FOUND, REFUSED, UNREACHABLE, USAGE, Failure

API = "/api/refinement"
TIMEOUT_S = 90.0
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
        self._client = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}", "User-Agent": "burnish"},
            timeout=httpx.Timeout(TIMEOUT_S, connect=5.0),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def get(self, path: str, **params: Any) -> Any:
        """GET; parameters that are None are left out."""
        return self._ask("GET", path, params={name: value for name, value in params.items() if value is not None})

    def post(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """POST."""
        return self._ask("POST", path, json=body, headers=headers)

    def put(self, path: str, body: Any) -> Any:
        """PUT."""
        return self._ask("PUT", path, json=body)

    def _ask(self, method: str, path: str, **request: Any) -> Any:
        try:
            answer = self._client.request(method, f"{API}{path}", **request)
        except httpx.TimeoutException as error:
            raise Failure(f"{self.url} did not answer within {TIMEOUT_S:.0f} s", code=UNREACHABLE) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Failure(
                f"{self.url} cannot be reached: {error or type(error).__name__}",
                "start it with `burnish up`, or set BURNISH_URL",
                UNREACHABLE,
            ) from error
        if not answer.is_success:
            raise _refusal(answer)
        try:
            return answer.json()
        except ValueError as error:
            raise Failure(f"{self.url} does not speak like a Burnish gateway", "check BURNISH_URL") from error


def _where(data: Path) -> tuple[str, str]:
    """URL and token. A token of this machine is never sent to another URL than its own."""
    url, token = os.environ.get("BURNISH_URL"), os.environ.get("BURNISH_TOKEN")
    note = DataFolder(data).running() if not url or not token else None
    if url and token:
        return url.rstrip("/"), token
    if url and note is not None and url.rstrip("/") == note.url:
        return note.url, note.token
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
    return note.url, token or note.token


def _refusal(answer: httpx.Response) -> Failure:
    """problem+json as a message: its detail, or its errors one a line, and whatever else it tells."""
    status = answer.status_code
    code = UNREACHABLE if status in (502, 503, 504) else CODES.get(status, REFUSED if status < 500 else FAILED)
    try:
        problem = answer.json()
        told = problem.get("detail") or problem.get("title") or answer.reason_phrase
        errors = problem.get("errors") or []
    except (ValueError, AttributeError):
        return Failure(f"the gateway answered {status} {answer.reason_phrase}", HINTS.get(status, ""), code)
    if errors:
        return FieldErrors(errors, code)
    known = ("type", "title", "status", "detail", "errors", "code")
    more = ", ".join(f"{name}: {value}" for name, value in problem.items() if name not in known and value is not None)
    return Failure(str(told), HINTS.get(status) or more, code)
