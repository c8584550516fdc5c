"""Times, ids and hashes as people read them."""

from __future__ import annotations

from datetime import datetime


def when(at: str | datetime | None) -> str:
    """A time in the reader's zone, to the second; as it came where it is none that a zone can show."""
    if at is None:
        return "–"
    try:
        moment = datetime.fromisoformat(at) if isinstance(at, str) else at
        return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(at)


def short(identity: object) -> str:
    """The first eight characters of an id or hash."""
    return str(identity)[:8] if identity else "–"
