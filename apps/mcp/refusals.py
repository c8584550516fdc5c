"""What an agent is told when a call comes to nothing: the gateway's own words, and of faults only that there is one."""

from __future__ import annotations

from burnish_sdk import (
    BurnishError,
    ConfigurationError,
    NotAllowed,
    Problem,
    ServerError,
    UnexpectedAnswer,
    Unreachable,
)

from libs.contracts import printable

LONGEST = 2_000
FAULT = "this is a fault of the server; it is written down there, and trying again may help"
AWAY = "the gateway cannot be reached now; nothing is known to have changed. Try again in a moment"
TOO_LARGE = "too_large: the filters and the query are too long together"


def no_token(error: ConfigurationError) -> str:
    """Why there is no token to ask with."""
    return f"not_authenticated: {printable.one_line(error.reason)}"[:LONGEST]


def told(error: BurnishError) -> str:
    """What an agent may know of a failed call."""
    match error:
        case ServerError():
            return FAULT
        case NotAllowed(status=401):
            return "not_authenticated: the gateway does not accept this token; it may have run out. Get a new one"
        case Problem():
            return _problem(error)
        case UnexpectedAnswer(status=status) if status in (400, 414, 431):
            return TOO_LARGE
        case Unreachable():
            return AWAY
        case ConfigurationError():  # the arguments are right and the token was read: what is left is no URL's length
            return TOO_LARGE
        case _:
            return FAULT


def _problem(problem: Problem) -> str:
    """Its stable word, what would be right, each field, and what else was told, such as the state that holds now."""
    lines = [f"{problem.code}: {problem.detail}"]
    lines += [f"{one.loc}: {one.message} {one.hint}".rstrip() for one in problem.errors[:20]]
    lines += [f"{key}: {value}" for key, value in problem.extra.items() if isinstance(value, str | int | float)]
    return printable.lines("\n".join(lines))[:LONGEST]
