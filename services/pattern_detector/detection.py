"""One run over a touchpoint: read, ask after the evidence, find and match patterns, judge, write, all or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, Protocol
from uuid import UUID, uuid4

from libs import touchpoints
from libs.contracts.envelope import Event
from libs.contracts.events.normaliser import SignalRejectedV1
from libs.contracts.events.pattern_detector import (
    DetectRequestedV1,
    PatternChangedV1,
    PatternDetectedV1,
    SignalProcessedV1,
)
from libs.contracts.queries.scanner import EvidenceStates, ResolveEvidence
from libs.contracts.touchpoints import Thresholds
from libs.contracts.vocabulary import RejectReason
from libs.embeddings import Embedder, EmbedderError
from libs.service_kit import logging
from libs.service_kit.connection import session_lock
from libs.service_kit.db import Connection, Database, Transaction
from libs.service_kit.errors import Refused, Unavailable
from services.pattern_detector import domain
from services.pattern_detector.analysis import Scope, analyse
from services.pattern_detector.domain import Known, Pattern, Signal, Vector
from services.pattern_detector.store import patterns, runs, signals
from services.pattern_detector.store.runs import Run
from services.pattern_detector.store.signals import LeftOut, Pooled

log = logging.get(__name__)

Clock = Callable[[], datetime]
Trigger = Literal["requested", "arrivals", "refresh"]
IDS_PER_EVENT = 5_000
REFS_PER_QUESTION = 1_000
QUESTIONS_PER_RUN = 3


class Resolver(Protocol):
    """Who can be asked whether evidence still exists: `libs.service_kit.queries.Asker`."""

    async def ask(self, query: ResolveEvidence, /, *, timeout_s: float) -> EvidenceStates:
        """One state a reference. Raises Refused or Unavailable."""
        ...


@dataclass(frozen=True)
class Limits:
    """How patient a detector is and how much one run looks at (see `settings.Settings`)."""

    quiet: timedelta = timedelta(seconds=2)
    max_wait: timedelta = timedelta(seconds=30)
    refresh: timedelta = timedelta(days=1)
    signals: int = 50_000
    text_signals: int = 3_000
    resolve_timeout_s: float = 2.0
    recheck: timedelta = timedelta(minutes=5)


@dataclass(frozen=True)
class _Found:
    """What the scanner said about the evidence it was asked after."""

    asked: tuple[UUID, ...] = ()
    gone: frozenset[UUID] = frozenset()
    back: frozenset[UUID] = frozenset()


@dataclass(frozen=True)
class _Outcome:
    """The patterns of one workspace (or of the touchpoint as a whole) after this run."""

    workspace_id: UUID | None
    patterns: list[Pattern]


@dataclass(frozen=True)
class Detector:
    """Runs detections. One at a time for a touchpoint, over any number of replicas."""

    db: Database
    embedder: Embedder
    resolver: Resolver
    clock: Clock
    limits: Limits = Limits()

    async def run_due(self) -> list[Run]:
        """Run every touchpoint that is due. One that fails, or is being run elsewhere, does not hold up the others."""
        now, limits = self.clock(), self.limits
        async with self.db.connection() as conn:
            due = await runs.due(conn, now - limits.quiet, now - limits.max_wait, now - limits.refresh)
        done: list[Run] = []
        for touchpoint_id, trigger in due.items():
            try:
                run = await self.run(touchpoint_id, "arrivals" if trigger == "arrivals" else "refresh")
            except Exception as error:
                log.warning("detection.failed", touchpoint=touchpoint_id, error=logging.describe(error))
            else:
                done += [run] if run else []
        return done

    async def run(
        self, touchpoint_id: str, trigger: Trigger, request: Event[DetectRequestedV1] | None = None
    ) -> Run | None:
        """One run. None when another one is in progress (unless it was requested: then it waits), or when the
        request was answered before."""
        async with self._alone(touchpoint_id, wait=request is not None) as free:
            if not free or (request and await self._is_done(request)):
                return None
            return await self._run(touchpoint_id, trigger, request)

    async def _run(self, touchpoint_id: str, trigger: Trigger, request: Event[DetectRequestedV1] | None) -> Run | None:
        started, run_id = self.clock(), uuid4()
        async with self.db.connection() as conn:
            touchpoint = await touchpoints.get(conn, touchpoint_id)
            rerun = await runs.rerun_since(conn, touchpoint_id)  # before the pool, so that this holds what it is about
            pool = await signals.pool(conn, touchpoint_id, started - domain.LIVE_FOR, self.limits.signals)
            new = await signals.unprocessed(conn, touchpoint_id)
            trusted = domain.actor_trust(await signals.actors(conn, touchpoint_id))
            known = await patterns.known(conn, touchpoint_id, self.embedder.model, self.embedder.dimensions)
        thresholds = touchpoint.thresholds if touchpoint else Thresholds()
        found = _Found()
        if touchpoint and touchpoint.signals:  # only what a scanner feeds is asked whether its evidence still exists
            found = await self._resolve(touchpoint_id, pool, started, ask_all=request is not None)
        counting = [one for one in pool if _counts(one, found)]
        placed = await self._with_vectors(counting)
        base = Scope(touchpoint_id, None, run_id, thresholds, started, trusted)
        outcomes = await asyncio.to_thread(_outcomes, base, placed, known)
        async with self.db.transaction(inbox=request or ()) as tx:
            if request and not tx.fresh:
                return None
            request_id = request.data.request_id if request else None
            run = Run(run_id, touchpoint_id, trigger, started, started, request_id, signals=len(counting))
            return await self._write(tx, run, outcomes, found, [*new, *found.back], rerun)

    # --- reading ------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _alone(self, touchpoint_id: str, *, wait: bool) -> AsyncIterator[bool]:
        """Hold the touchpoint's lock. False when it is taken and `wait` is not asked for."""
        async with self.db.connection() as conn, session_lock(conn, f"detect.{touchpoint_id}", wait=wait) as locked:
            yield locked

    async def _is_done(self, request: Event[DetectRequestedV1]) -> bool:
        async with self.db.connection() as conn:
            return await runs.is_done(conn, request.data.request_id)

    async def _with_vectors(self, counting: Sequence[Pooled]) -> list[Pooled]:
        """The pool with the vectors of its newest signals; those that lack one of this model get it first."""
        window = [one.signal.signal_id for one in counting[: self.limits.text_signals]]
        model = self.embedder.model
        async with self.db.connection() as conn:
            vectors = await signals.vectors(conn, window, model, self.embedder.dimensions)
            missing = [i for i in window if i not in vectors]
            words = await signals.words_of(conn, missing) if missing else {}
        made = await self._embedded({i: text for i, (t, r) in words.items() if (text := domain.embedded_text(t, r))})
        if made:
            async with self.db.transaction() as tx:
                await signals.save_vectors(tx.conn, made, model)
        vectors |= made
        return [replace(one, signal=replace(one.signal, vector=vectors.get(one.signal.signal_id))) for one in counting]

    async def _embedded(self, texts: dict[UUID, str]) -> dict[UUID, Vector]:
        """Vectors of these texts; none while the embedder does not answer: text is then clustered in a later run."""
        if not texts:
            return {}
        try:
            vectors = await self.embedder.embed(list(texts.values()))
        except EmbedderError as error:
            log.warning("embedding.failed", texts=len(texts), error=error.reason)
            return {}
        return dict(zip(texts, vectors, strict=True))

    async def _resolve(self, touchpoint_id: str, pool: Sequence[Pooled], now: datetime, *, ask_all: bool) -> _Found:
        """Ask the scanner after evidence, the longest unchecked first. Silence is no answer: the signal is kept."""
        oldest = sorted(
            (one for one in pool if ask_all or one.checked_at is None or now - one.checked_at >= self.limits.recheck),
            key=lambda one: (one.checked_at is not None, one.checked_at or now, one.signal.signal_id),
        )
        states: dict[UUID, str] = {}
        for at in range(0, min(len(oldest), REFS_PER_QUESTION * QUESTIONS_PER_RUN), REFS_PER_QUESTION):
            chunk = oldest[at : at + REFS_PER_QUESTION]
            query = ResolveEvidence(touchpoint_id=touchpoint_id, refs=tuple(one.ref for one in chunk))
            try:
                reply = await self.resolver.ask(query, timeout_s=self.limits.resolve_timeout_s)
            except (Unavailable, Refused) as error:
                log.warning("evidence.unknown", touchpoint=touchpoint_id, error=logging.describe(error))
                break
            states |= {one.signal.signal_id: state for one, state in zip(chunk, reply.states, strict=False)}
        left_out = {one.signal.signal_id for one in pool if one.unresolvable}
        told = {i: state for i, state in states.items() if state in ("resolved", "unresolvable")}
        return _Found(
            asked=tuple(told),
            gone=frozenset(i for i, state in told.items() if state == "unresolvable"),
            back=frozenset(i for i, state in told.items() if state == "resolved" and i in left_out),
        )

    # --- writing ------------------------------------------------------------------------------------------

    async def _write(
        self,
        tx: Transaction[DetectRequestedV1],
        run: Run,
        outcomes: Sequence[_Outcome],
        found: _Found,
        new: Sequence[UUID],
        rerun: datetime | None,
    ) -> Run:
        await signals.checked(tx.conn, found.asked, run.started_at)
        await signals.count_again(tx.conn, sorted(found.back))
        rejected = await signals.leave_out_unresolvable(tx.conn, sorted(found.gone))
        tx.emit(*rejections(rejected, "unresolvable"))
        processed = await signals.mark_processed(tx.conn, run.run_id, new)
        tx.emit(*_processed(run, processed, self.clock()))
        found_now = [pattern for outcome in outcomes for pattern in outcome.patterns]
        for outcome in outcomes:
            await patterns.save(
                tx.conn, run.run_id, run.touchpoint_id, outcome.workspace_id, outcome.patterns, self.embedder.model
            )
        changed = [p for p in found_now if p.standing.state is not None and p.standing.state != p.before]
        await patterns.add_history(tx.conn, run.run_id, changed, run.started_at)
        announced = [p for p in found_now if p.announced]
        tx.emit(*[await _detected(tx.conn, run, pattern) for pattern in announced])
        tx.emit(*[_changed(run, pattern) for pattern in changed if not pattern.announced])
        done = replace(
            run,
            finished_at=self.clock(),
            processed=len(processed),
            rejected=len(rejected),
            patterns=sum(1 for p in found_now if p.standing.state not in (None, "resolved")),
            detected=len(announced),
            changed=len(changed),
        )
        await runs.add(tx.conn, done, rerun)
        _log(done, announced, rejected)
        return done


def rejections(left_out: Iterable[LeftOut], reason: RejectReason) -> list[SignalRejectedV1]:
    """One event for each signal that stopped counting."""
    return [
        SignalRejectedV1(
            touchpoint_id=one.touchpoint_id,
            signal_id=one.signal_id,
            source_key=one.source_key,
            reason=reason,
            transition=one.transition,
        )
        for one in left_out
    ]


def log_rejected(left_out: Iterable[LeftOut], reason: RejectReason) -> None:
    """One line for each signal that stopped counting."""
    for one in left_out:
        log.info(
            "refinement.signal.rejected", touchpoint=one.touchpoint_id, signal_id=str(one.signal_id), reason=reason
        )


def _counts(one: Pooled, found: _Found) -> bool:
    if one.signal.signal_id in found.gone:
        return False
    return not one.unresolvable or one.signal.signal_id in found.back


def _outcomes(base: Scope, pool: Sequence[Pooled], known: Sequence[tuple[UUID | None, Known]]) -> list[_Outcome]:
    """Each workspace by itself: evidence of one is never evidence in another."""
    by_place: dict[UUID | None, list[Signal]] = {}
    known_by_place: dict[UUID | None, list[Known]] = {}
    for one in pool:
        by_place.setdefault(one.workspace_id, []).append(one.signal)
    for workspace_id, pattern in known:
        known_by_place.setdefault(workspace_id, []).append(pattern)
    return [
        _Outcome(
            workspace_id,
            analyse(
                replace(base, workspace_id=workspace_id),
                by_place.get(workspace_id, []),
                known_by_place.get(workspace_id, []),
            ),
        )
        for workspace_id in sorted({*by_place, *known_by_place}, key=str)
    ]


def _processed(run: Run, signal_ids: Sequence[UUID], at: datetime) -> list[SignalProcessedV1]:
    return [
        SignalProcessedV1(
            touchpoint_id=run.touchpoint_id,
            run_id=run.run_id,
            part=part,
            signal_ids=tuple(signal_ids[start : start + IDS_PER_EVENT]),
            processed_at=at,
        )
        for part, start in enumerate(range(0, len(signal_ids), IDS_PER_EVENT))
    ]


async def _detected(conn: Connection, run: Run, pattern: Pattern) -> PatternDetectedV1:
    detail = await patterns.detail(conn, pattern.pattern_id)
    assert detail is not None  # it was written in this transaction, and has surfaced
    return PatternDetectedV1(
        touchpoint_id=run.touchpoint_id, run_id=run.run_id, occurrence=pattern.occurrence, pattern=detail
    )


def _changed(run: Run, pattern: Pattern) -> PatternChangedV1:
    assert pattern.before is not None and pattern.standing.state is not None
    return PatternChangedV1(
        touchpoint_id=run.touchpoint_id,
        run_id=run.run_id,
        pattern_id=pattern.pattern_id,
        from_state=pattern.before,
        to_state=pattern.standing.state,
        evidence_count=pattern.counts.evidence,
        score=pattern.score,
    )


def _log(run: Run, announced: Sequence[Pattern], rejected: Sequence[LeftOut]) -> None:
    log_rejected(rejected, "unresolvable")
    for pattern in announced:
        log.info(
            "refinement.pattern.detected",
            touchpoint=run.touchpoint_id,
            pattern_id=str(pattern.pattern_id),
            evidence_count=pattern.counts.evidence,
        )
    log.info(
        "detection.run",
        touchpoint=run.touchpoint_id,
        run_id=str(run.run_id),
        trigger=run.trigger,
        processed=run.processed,
        patterns=run.patterns,
        detected=run.detected,
        duration_ms=round((run.finished_at - run.started_at).total_seconds() * 1000),
    )
