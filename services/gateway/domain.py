"""The rules of the gateway: what a request is, and which live prompts may be served from memory. Pure."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID, uuid5

REQUESTS = UUID("b6f5b7b2-6f5e-5d0c-8a86-0c2d6b9b1b7e")
MOST_CHANGES = 10_000


def request_id(caller: str, key: str) -> UUID:
    """The id under which a caller's request with this key is known everywhere: the same at every attempt."""
    return uuid5(REQUESTS, f"{len(caller)}|{caller}|{key}")


def request_sha256(method: str, path: str, query: bytes, body: bytes) -> str:
    """What makes two requests the same one."""
    parts = (method.encode(), path.encode(), query, body)
    return hashlib.sha256(b"".join(b"%d:%b" % (len(part), part) for part in parts)).hexdigest()


def matches(etag: str, if_none_match: str | None) -> bool:
    """Whether a caller that sent this header has what the ETag names."""
    return etag in [given.strip().removeprefix("W/") for given in (if_none_match or "").split(",")]


# --- limits -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Limit:
    """At most so many requests of a kind in any window, for one subject over all replicas."""

    kind: str
    most: int
    window_s: float = 60.0


def admitted(times: Sequence[datetime], now: datetime, limit: Limit) -> tuple[list[datetime], float | None]:
    """The requests that count with this one; and where it is one too many, the seconds until the next is not."""
    window = timedelta(seconds=limit.window_s)
    kept = sorted(time for time in times if now - window < time <= now)
    if len(kept) < limit.most:
        return [*kept, now], None
    return kept, (kept[-limit.most] + window - now).total_seconds()


# --- live prompts -----------------------------------------------------------------------------------------


class Target(NamedTuple):
    """What has one live version."""

    touchpoint_id: str
    workspace_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """A live prompt as it is served. `seq` is how far the ledger was, at least; `at` when the registry was asked."""

    etag: str
    body: bytes
    seq: int
    at: float


class Mark(NamedTuple):
    """When a question was asked: an answer to one from before a change, or before a gap, is not kept."""

    gaps: int = 0
    changes: int = 0


class LivePrompts:
    """What is known to be live, with times given by the caller. An older answer never takes the place of a newer.

    A fact says of a target: what was read before the ledger's entry `seq` holds no more. It may come while an answer
    from before it is on its way, or after one that knows of it already: the mark tells the one, the number the other.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._known: OrderedDict[Target, Known] = OrderedDict()
        self._changes: dict[Target, int] = {}
        self._floors: dict[Target, int] = {}
        self._gaps = 0

    def get(self, target: Target) -> Known | None:
        """What is known of the target, however old."""
        known = self._known.get(target)
        if known is not None:
            self._known.move_to_end(target)
        return known

    def mark(self, target: Target) -> Mark:
        """The present, for `take`."""
        return Mark(self._gaps, self._changes.get(target, 0))

    def take(self, target: Target, known: Known, mark: Mark) -> None:
        """Keep the answer to a question asked at that mark, unless more is known by now."""
        before = self._known.get(target)
        if mark != self.mark(target) or known.seq < self._floors.get(target, 0) or (before and known.seq < before.seq):
            return
        self._drop(target)
        self._known[target] = known
        self._bytes += len(known.body)
        while self._bytes > self._most_bytes:
            self._drop(next(iter(self._known)))

    def changed(self, target: Target, seq: int | None = None) -> None:
        """Another version became live, with the ledger's entry `seq`; None where that is not known."""
        if len(self._changes) >= MOST_CHANGES:
            self.forget()
        self._changes[target] = self._changes.get(target, 0) + 1
        floor = self._floors[target] = max(seq or 0, self._floors.get(target, 0))
        known = self._known.get(target)
        if known is not None and (seq is None or known.seq < floor):
            self._drop(target)

    def configured(self, touchpoint_id: str) -> None:
        """The touchpoint was registered anew."""
        for target in [each for each in self._known if each.touchpoint_id == touchpoint_id]:
            self.changed(target)

    def forget(self) -> None:
        """Facts may have been missed: nothing is known, nor is what is on its way."""
        for table in (self._known, self._changes, self._floors):
            table.clear()
        self._bytes = 0
        self._gaps += 1

    def _drop(self, target: Target) -> None:
        known = self._known.pop(target, None)
        if known is not None:
            self._bytes -= len(known.body)
