"""What the normaliser does with each event and query: a function each, of the message and its dependencies."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable
from datetime import UTC, datetime

from libs import touchpoints
from libs.contracts.envelope import Event, EventData
from libs.contracts.events.normaliser import SignalCreatedV1, SignalObservedV1, SignalRejectedV1
from libs.contracts.events.pattern_detector import SignalProcessedV1
from libs.service_kit import logging
from libs.service_kit.db import Database
from services.normaliser import domain, store
from services.normaliser.metrics import SIGNALS

log = logging.get(__name__)

REJUDGE_BATCH = 500


async def on_signals_observed(events: list[Event[SignalObservedV1]], db: Database) -> None:
    """Store what was observed; say what is new, what was seen again later, and what does not count."""
    async with db.transaction(inbox=events) as tx:
        if not tx.fresh:
            return
        known = await touchpoints.scopes(tx.conn, {event.data.touchpoint_id for event in tx.fresh})
        accepted, rejected = domain.normalise(tx.fresh, known, datetime.now(UTC))
        judged = [*accepted, *rejected]
        facts = domain.facts(judged, await store.save(tx.conn, judged))
        for fact, cause in facts:
            tx.emit(fact, cause=cause)
        # Last, since batches of one touchpoint wait for each other from here to the commit.
        await store.count_observed(tx.conn, Tally(event.data.touchpoint_id for event in tx.fresh))
    _log_facts(fact for fact, _ in facts)


async def on_signals_processed(events: list[Event[SignalProcessedV1]], db: Database) -> None:
    """Mark the signals that a run of the detector took into account."""
    async with db.transaction(inbox=events) as tx:
        await store.mark_processed(
            tx.conn, [(one, event.data.processed_at) for event in tx.fresh for one in event.data.signal_ids]
        )


async def rejudge(db: Database) -> None:
    """Judge again, in bounded batches, every signal whose touchpoint became known or changed its scope."""
    more = True
    while more:
        async with db.transaction() as tx:
            misjudged = await store.misjudged(tx.conn, REJUDGE_BATCH)
            rejudged = [domain.rejudge(signal) for signal in misjudged]
            transitions = await store.save_rejudged(tx.conn, rejudged)
            facts = [
                fact
                for signal, now in zip(misjudged, rejudged, strict=True)
                if (fact := domain.fact_of_rejudged(signal, now, transitions.get(now.signal_id, 1)))
            ]
            tx.emit(*facts)
        _log_facts(facts)
        more = len(misjudged) == REJUDGE_BATCH


def _log_facts(facts: Iterable[EventData]) -> None:
    said: Tally[tuple[str, str]] = Tally()
    told = log.bind()  # bound once: `log` itself would be bound anew for each line
    for fact in facts:
        if isinstance(fact, SignalCreatedV1):
            said["created", fact.signal_type] += 1
            told.info(
                "refinement.signal.created",
                touchpoint=fact.touchpoint_id,
                signal_type=fact.signal_type,
                severity=fact.severity,
            )
        elif isinstance(fact, SignalRejectedV1):
            said["rejected", fact.reason] += 1
            told.info(
                "refinement.signal.rejected",
                touchpoint=fact.touchpoint_id,
                signal_id=str(fact.signal_id),
                reason=fact.reason,
            )
    for (fact_said, kind), count in said.items():
        SIGNALS.labels(fact_said, kind).inc(count)
