"""Errors of the command line and of a running installation: what is wrong, and what would be right."""

from __future__ import annotations

from libs.hinted import HintedError


class InstallationError(HintedError):
    """An installation cannot be used or started: `message` says what is wrong, `hint` what would be right."""
