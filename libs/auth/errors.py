"""What is wrong with a token."""

from __future__ import annotations


class NotAuthenticated(Exception):
    """The token is missing or is not one that holds here. The message is for a log, never for the caller.

    It says what kind of thing is wrong, and holds nothing out of the token.
    """
