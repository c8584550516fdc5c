"""Ends runs that cannot end by themselves: a shard is a dead letter, never came, or its worker hangs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from pydantic import ValidationError

from libs.contracts.envelope import Event, EventData, event_id
from libs.contracts.events.ab_runner import AbRequestedV1, AbRequestedV2, EvalRequestedV1, ShardRequestedV1
from libs.contracts.topology import durable
from libs.service_kit import dead_letters
from libs.service_kit.db import Database
from services.ab_runner import handlers, progress, reports
from services.ab_runner.domain import Run
from services.ab_runner.progress import Progress
from services.ab_runner.store import runs

DataT = TypeVar("DataT", bound=EventData)
GAP_TURNS, GAP_S = 3, 30.0
"""Turns this far apart mean that nobody watched in between: the machine slept, or a server was away."""


class Watch:
    """Looks at the runs that are on, every few seconds.

    A dead letter ends its run at once. Otherwise a run ends when it made no progress for `patience`, counted only
    while this watch, the database and the bus were there: what nobody could have worked on is not lost.
    """

    def __init__(self, db: Database, bus: Callable[[], Awaitable[object]], patience: timedelta, every_s: float) -> None:
        self._db = db
        self._bus = bus
        self._patience = patience
        self._gap = timedelta(seconds=max(GAP_S, every_s * GAP_TURNS))
        self._since: datetime | None = None
        self._last: datetime | None = None

    async def turn(self) -> None:
        """End what has to be ended now."""
        try:
            await self._bus()
            await self._turn()
        except Exception:
            self._since = None
            raise

    async def _turn(self) -> None:
        now = datetime.now(UTC)
        if self._since is None or self._last is None or now - self._last > self._gap:
            self._since = now
        self._last = now
        async with self._db.connection() as conn:
            running = await runs.running(conn, self._patience)
        buried = await self._buried(running) if running else {}
        still = progress.stalled(running, now, self._patience, self._since)
        reasons = {run.run_id: progress.standstill_reason(run, self._patience) for run in still} | buried
        for run_id, reason in reasons.items():
            await self._end(run_id, reason)
        for run, reason in await self._never_begun():
            await self._record(run, reason)

    async def _buried(self, running: list[Progress]) -> dict[UUID, str]:
        """The runs one of whose open shards is a dead letter that nobody has replayed, and why each ends."""
        async with self._db.connection() as conn:
            letters = await dead_letters.waiting(conn, durable("ab_runner", ShardRequestedV1).name)
        errors = {letter.event_id: letter.error for letter in letters}
        found = {}
        for run in running if errors else []:
            for shard in run.open_shards:
                error = errors.get(event_id(ShardRequestedV1(run_id=run.run_id, shard=shard)))
                if error is not None:
                    found[run.run_id] = progress.buried_reason(shard, error)
        return found

    async def _never_begun(self) -> list[tuple[Run, str]]:
        """Runs whose very request is a dead letter: nobody else would ever hear of them."""
        async with self._db.connection() as conn:
            asked = await dead_letters.waiting(conn, durable("ab_runner", AbRequestedV1).name)
            by_reference = await dead_letters.waiting(conn, durable("ab_runner", AbRequestedV2).name)
            evals = await dead_letters.waiting(conn, durable("ab_runner", EvalRequestedV1).name)
        found = [
            *((handlers.ab_run(event), error) for event, error in _readable(AbRequestedV1, asked)),
            *((handlers.ab_run(event), error) for event, error in _readable(AbRequestedV2, by_reference)),
            *((handlers.eval_run(event), error) for event, error in _readable(EvalRequestedV1, evals)),
        ]
        if not found:
            return []
        async with self._db.connection() as conn:
            known = await runs.known(conn, [run.run_id for run, _ in found])
        return [(run, progress.never_begun_reason(error)) for run, error in found if run.run_id not in known]

    async def _end(self, run_id: UUID, reason: str) -> None:
        async with self._db.transaction() as tx:
            if not await runs.lock(tx.conn, run_id):
                return
            run = await runs.get(tx.conn, run_id)
            await handlers.end(tx, run, reason)
        handlers.log_ended(run, reason)

    async def _record(self, run: Run, reason: str) -> None:
        async with self._db.transaction() as tx:
            at = await runs.add(tx.conn, run, error=reason)
            if at is None:
                return
            if run.kind == "ab":
                tx.emit(reports.failed(run, reason, at))
        handlers.log_ended(run, reason)


def _readable(kind: type[DataT], letters: list[dead_letters.Waiting]) -> list[tuple[Event[DataT], str]]:
    """Those that are events of the contract; what is none tells of no run."""
    model: Any = Event[kind]  # type: ignore[valid-type]
    found = []
    for letter in letters:
        try:
            found.append((model.model_validate_json(letter.body), letter.error))
        except ValidationError:
            continue
    return found
