"""Errors of the command line and of a running installation: what is wrong, and what would be right."""

from __future__ import annotations


class InstallationError(Exception):
    """An installation cannot be used or started: `message` says what is wrong, `hint` what would be right."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message
