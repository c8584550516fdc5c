"""How a verb fails: a message, what would be right, and a documented exit code."""

from __future__ import annotations

from typing import Any

import click

from burnish import printer

DONE, FAILED, USAGE, UNREACHABLE, NOT_ALLOWED, NOT_FOUND, REFUSED = 0, 1, 2, 3, 4, 5, 6
FAULT, UNWRITABLE, INTERRUPTED, NOBODY_READS = 70, 74, 130, 141
EXITS = {
    DONE: "done",
    FAILED: "it failed; stderr says why",
    USAGE: "wrong usage, or a file that cannot be read",
}
GATEWAY_EXITS = {
    **EXITS,
    USAGE: "wrong usage, or a file or field that is not right; stderr names it",
    UNREACHABLE: "the gateway cannot be reached",
    NOT_ALLOWED: "the token is missing, has run out, or does not allow this",
    NOT_FOUND: "there is no such thing",
    REFUSED: "refused: the state does not allow it; stderr says which holds",
}
COMMON_EXITS = {
    FAULT: "a fault of Burnish itself; BURNISH_TRACEBACK=1 shows where",
    UNWRITABLE: "the answer cannot be written to stdout",
    INTERRUPTED: "stopped with Ctrl-C",
    NOBODY_READS: "nobody reads stdout any more",
}


class Failure(click.ClickException):
    """Ends the verb with a message, a hint and an exit code."""

    def __init__(self, message: str, hint: str = "", code: int = FAILED) -> None:
        super().__init__(message)
        self.hint = hint
        self.exit_code = code  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: Any = None) -> None:
        """`error: …` on stderr, then what would be right."""
        printer.error(self.message, self.hint)
