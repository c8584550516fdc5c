"""The exceptions that the kit gives a meaning to."""

from __future__ import annotations


class Poison(Exception):
    """Raised by a handler: this message can never succeed; put it with the dead letters at once."""


class Refused(Exception):
    """An answer that says no. `status` is an HTTP status, `code` a stable word, `detail` says what would be right."""

    def __init__(self, code: str, detail: str, *, status: int = 409, **extra: object) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.status = status
        self.extra = extra


class NotOpen(RuntimeError):
    """A connection was asked for before it was there, or after it was closed."""


class Unavailable(Exception):
    """The service that was asked did not answer in time, or is not there."""
