"""What the pattern detector does with each event and question: plain functions of it and their dependencies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from uuid import UUID

from libs.contracts.envelope import Event
from libs.contracts.events.gateway import ExposureRecordedV1
from libs.contracts.events.normaliser import SignalCreatedV1
from libs.contracts.events.pattern_detector import DetectRequestedV1
from libs.contracts.events.proposal import ProposalRejectedV1
from libs.contracts.events.registry import VersionActivatedV1, VersionRolledBackV1
from libs.embeddings import Embedder, EmbedderError
from libs.service_kit import logging
from libs.service_kit.db import Database
from services.pattern_detector.detection import Clock, Detector, log_rejected, rejections
from services.pattern_detector.domain import Projected
from services.pattern_detector.store import patterns, runs, signals, versions
from services.pattern_detector.store.signals import LeftOut, NewSignal

log = logging.get(__name__)


# --- events -----------------------------------------------------------------------------------------------


async def on_signals_created(
    events: list[Event[SignalCreatedV1]], db: Database, embedder: Embedder, clock: Clock
) -> None:
    """Add signals to the projection, embedded; of those seen again, move when they were seen."""
    new = await _embedded([Projected.of(one) for one in _once(event.data for event in events)], db, embedder)
    async with db.transaction(inbox=events) as tx:
        fresh = {event.data.signal_id for event in tx.fresh}
        await signals.count_heard(tx.conn, Counter(event.data.touchpoint_id for event in tx.fresh))
        await signals.save(tx.conn, [one for one in new if one.signal.signal_id in fresh], clock())


async def on_detect_requested(event: Event[DetectRequestedV1], detector: Detector) -> None:
    """Run now; a request that was answered before is not run again."""
    await detector.run(event.data.touchpoint_id, "requested", event)


async def on_proposals_rejected(events: list[Event[ProposalRejectedV1]], db: Database, clock: Clock) -> None:
    """Take signals that a reviewer called bad out of the pool; a plain rejection leaves it as it is."""
    async with db.transaction(inbox=events) as tx:
        left_out: list[LeftOut] = []
        bad = [event.data for event in tx.fresh if event.data.bad_signals]
        for rejected in bad:
            ids = list(rejected.signal_ids)
            if not ids and rejected.pattern_id:
                ids = await patterns.evidence_of(tx.conn, rejected.pattern_id)
            left_out += await signals.leave_out_bad(tx.conn, rejected.touchpoint_id, rejected.workspace_id, ids)
        await runs.run_again(tx.conn, [one.touchpoint_id for one in bad], clock())
        tx.emit(*rejections(left_out, "bad_signals"))
    log_rejected(left_out, "bad_signals")


async def on_versions_activated(events: list[Event[VersionActivatedV1]], db: Database) -> None:
    """Remember what became live, to judge later whether it helped."""
    async with db.transaction(inbox=events) as tx:
        await versions.add_activations(tx.conn, [event.data for event in tx.fresh])


async def on_versions_rolled_back(events: list[Event[VersionRolledBackV1]], db: Database) -> None:
    """Remember what was put back."""
    async with db.transaction(inbox=events) as tx:
        await versions.add_rollbacks(tx.conn, [event.data for event in tx.fresh])


async def on_exposures_recorded(events: list[Event[ExposureRecordedV1]], db: Database) -> None:
    """Remember how often each version was served."""
    async with db.transaction(inbox=events) as tx:
        await versions.add_exposures(tx.conn, [event.data for event in tx.fresh])


# --- parts ------------------------------------------------------------------------------------------------


def _once(said: Iterable[SignalCreatedV1]) -> list[SignalCreatedV1]:
    """Each signal once, first and last seen over all that was said of it."""
    found: dict[UUID, SignalCreatedV1] = {}
    for one in said:
        known = found.get(one.signal_id)
        if known is None:
            found[one.signal_id] = one
        else:
            seen = {
                "first_seen": min(known.first_seen, one.first_seen),
                "last_seen": max(known.last_seen, one.last_seen),
            }
            found[one.signal_id] = known.model_copy(update=seen)
    return list(found.values())


async def _embedded(said: list[Projected], db: Database, embedder: Embedder) -> list[NewSignal]:
    """The signals with their vectors. One that is known already is not embedded again, and neither is any while the
    embedder does not answer: a run makes up for it."""
    async with db.connection() as conn:
        unknown = await signals.unknown(conn, [one.signal_id for one in said])
    texts = {one.signal_id: text for one in said if one.signal_id in unknown and (text := one.words)}
    try:
        made = await embedder.embed(list(texts.values())) if texts else ()
    except EmbedderError as error:
        log.warning("embedding.failed", texts=len(texts), error=error.reason)
        return [NewSignal(one, None, None) for one in said]
    vectors = dict(zip(texts, made, strict=True))
    return [NewSignal(one, vectors.get(one.signal_id), embedder.model) for one in said]
