"""Structured logs: one JSON document a line on stderr. Never text of prompts, signals, tokens or DSNs."""

from __future__ import annotations

import logging
import sys
import traceback
from contextlib import suppress
from io import TextIOBase
from pathlib import Path
from typing import TextIO, cast

import asyncpg
import structlog
from pydantic import ValidationError


class _Stderr(TextIOBase):
    """Standard error that never fails: whoever logs is often in trouble already, e.g. since the disk is full."""

    def write(self, text: str, /) -> int:
        """Write, or leave out."""
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush; what cannot be written now is tried again with what comes next."""
        with suppress(OSError, ValueError):
            sys.stderr.flush()


def configure(service: str, level: str = "INFO") -> None:
    """Send structlog and the standard library's loggers to stderr as JSON lines with the service's name."""
    stderr = cast("TextIO", _Stderr())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            *shared,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=stderr),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(service=service)
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
    )
    handler = logging.StreamHandler(stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)


def get(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger; call it with an event name and plain fields."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(part=name)
    return logger


def describe(error: BaseException) -> str:
    """An error for a log line or a dead letter: its class and the first line, cut, without any input values.

    Validation errors are told by location and kind only, and the database's complaints about values by their class
    and constraint, since their text repeats what was sent.
    """
    if isinstance(error, ValidationError):
        told = [f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['type']}" for e in error.errors(include_input=False)[:5]]
        return f"{error.title}: " + "; ".join(told)
    if isinstance(error, (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError)):
        return f"{type(error).__name__}: {getattr(error, 'constraint_name', None) or 'a value does not fit its column'}"
    text = str(error).splitlines()[0] if str(error) else ""
    return plain(f"{type(error).__name__}: {text}")[:500]


def plain(text: str) -> str:
    """The text without what Postgres and UTF-8 cannot hold: NUL characters and lone surrogates."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()


def place(error: BaseException) -> str:
    """File and line in our own code where an error was raised: what may be told of one whose message nobody knows."""
    frames = traceback.extract_tb(error.__traceback__)
    files = [frame for frame in frames if frame.filename.endswith(".py")]
    ours = [frame for frame in files if "site-packages" not in frame.filename] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "nowhere"
