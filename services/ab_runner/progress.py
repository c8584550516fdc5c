"""When a run that is on has come to a standstill: a deadline by progress, never by duration. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Progress:
    """How a running run moves. `moved_at` is when a shard of it was last taken up, answered a case or was done.

    `waits` says that a shard was never taken up: it may be in the queue, behind older runs. `passed_over` that one of
    a younger run was, longer ago than any patience: then it is in no queue.
    """

    run_id: UUID
    dealt_at: datetime
    moved_at: datetime
    waits: bool
    passed_over: bool
    open_shards: tuple[int, ...] = ()
    shards: int = 0


def stalled(running: Sequence[Progress], now: datetime, patience: timedelta, watched_since: datetime) -> list[Progress]:
    """The runs that have not moved for longer than `patience` while somebody watched and could have seen it.

    Work is done in the order in which it was dealt. As long as an older run moves, a younger one may be waiting its
    turn; a model that is away moves a run each time it is tried again.
    """
    still = []
    for run in running:
        moved = [run.moved_at]
        if run.waits and not run.passed_over:
            moved = [other.moved_at for other in running if other.dealt_at <= run.dealt_at]
        if now - max(*moved, watched_since) > patience:
            still.append(run)
    return still


def standstill_reason(run: Progress, patience: timedelta) -> str:
    """Why such a run ends."""
    minutes = patience.total_seconds() / 60
    named = ", ".join(map(str, run.open_shards[:10])) + (" …" if len(run.open_shards) > 10 else "")
    return (
        f"no progress for {minutes:.3g} min: shard {named} of {run.shards} was lost, or what worked on it hangs; "
        "ask for the run again, answers that were paid for are kept"
    )


def buried_reason(shard: int, error: str) -> str:
    """Why a run ends one of whose shards is a dead letter."""
    return f"shard {shard} could not be handled and is with the dead letters: {error}"[:2_000]


def never_begun_reason(error: str) -> str:
    """Why a run ends whose very request is a dead letter."""
    return f"the request could not be handled and is with the dead letters: {error}"[:2_000]
