"""Logs: JSON lines on stderr, in which nothing stands that a client sent or the library holds."""

from __future__ import annotations

import logging as standard

from libs.service_kit import logging


def configure(level: str = "INFO") -> None:
    """Also for the protocol's library: of what it says only the words of its own are kept, and where it was."""
    logging.configure("mcp", level)
    for handler in standard.getLogger().handlers:
        handler.addFilter(_only_our_own_words)


def _only_our_own_words(record: standard.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        record.msg = f"{record.msg} ({type(error).__name__} at {logging.place(error)})"
    record.args, record.exc_info, record.exc_text = (), None, None
    return True
