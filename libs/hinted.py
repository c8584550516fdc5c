"""An error that a person reads: what is wrong, and what would be right."""

from __future__ import annotations


class HintedError(Exception):
    """`message` says what is wrong, `hint` what would be right; the printer shows each on a line of its own."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message
