"""How a call fails. No message and no `repr` holds a token or what was sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class BurnishError(Exception):
    """Any failure of this client."""


class ConfigurationError(BurnishError, ValueError):
    """The base URL, the token or an argument cannot be used. Nothing was sent. `reason` is the part that says why."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


class NoHttp(ConfigurationError):
    """HTTP cannot be set up in this process: the variables that name proxies or certificates are not right."""


class Unreachable(BurnishError):
    """The gateway could not be reached, or the connection broke."""


class TimedOut(Unreachable):
    """The gateway did not answer in time."""


class UnexpectedAnswer(BurnishError):
    """What answered does not speak like a Burnish gateway: no JSON, the wrong shape, too large, a redirection."""

    def __init__(self, reason: str, *, status: int) -> None:
        super().__init__(f"this is no answer of a Burnish gateway ({status}): {reason}")
        self.reason = reason
        self.status = status


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field of a request that is not right: where it is and what would be."""

    loc: str
    message: str
    hint: str = ""


class Problem(BurnishError):
    """The gateway said no (problem+json, RFC 9457).

    `code` is a stable word, `detail` says what would be right, `errors` names fields, `extra` holds what else was
    told, such as the state that holds now. `retry_after` is in seconds.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        title: str = "",
        errors: tuple[FieldError, ...] = (),
        extra: dict[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status = status
        self.code = code
        self.detail = detail
        self.title = title
        self.errors = errors
        self.extra = extra or {}
        self.retry_after = retry_after


class NotAllowed(Problem):
    """401 or 403: the token is missing, has run out, or does not allow this."""


class NotFound(Problem):
    """404."""


class Conflict(Problem):
    """409: the state does not allow it; `extra` tells the one that holds."""


class Invalid(Problem):
    """400, 413 or 422: the request is not right; `errors` says where."""


class Busy(Problem):
    """429: too many requests."""


class Unavailable(Problem):
    """502, 503 or 504: what is needed for the answer does not answer."""


class ServerError(Problem):
    """Any other 5xx: a fault of the gateway."""


KINDS: dict[int, type[Problem]] = {
    400: Invalid,
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    413: Invalid,
    422: Invalid,
    429: Busy,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def kind_of(status: int) -> type[Problem]:
    """The class of errors of a status."""
    return KINDS.get(status, ServerError if status >= 500 else Problem)
