"""The wiring of the pattern detector: what it hears, answers and does by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from libs import touchpoints
from libs.contracts.events.gateway import ExposureRecordedV1
from libs.contracts.events.normaliser import SignalCreatedV1
from libs.contracts.events.pattern_detector import DetectRequestedV1
from libs.contracts.events.proposal import ProposalRejectedV1
from libs.contracts.events.registry import TouchpointRegisteredV1, VersionActivatedV1, VersionRolledBackV1
from libs.contracts.queries.pattern_detector import GetDetectorStatus, GetPattern, ListPatterns
from libs.embeddings import embedder_from
from libs.service_kit.service import Service
from services.pattern_detector import answers, handlers
from services.pattern_detector.detection import Clock, Detector, Limits
from services.pattern_detector.settings import Settings


def build(settings: Settings, clock: Clock = lambda: datetime.now(UTC)) -> Service:
    """The service, ready to `run()`."""
    service = Service("pattern_detector", settings)
    db, embedder = service.db, embedder_from(settings.embedder)
    detector = Detector(db, embedder, service.asker, clock, limits(settings))

    service.consume_batch(TouchpointRegisteredV1, touchpoints.on_registered, db=db)
    service.consume_batch(SignalCreatedV1, handlers.on_signals_created, db=db, embedder=embedder, clock=clock)
    service.consume_each(DetectRequestedV1, handlers.on_detect_requested, detector=detector)
    service.consume_batch(ProposalRejectedV1, handlers.on_proposals_rejected, db=db, clock=clock)
    service.consume_batch(VersionActivatedV1, handlers.on_versions_activated, db=db)
    service.consume_batch(VersionRolledBackV1, handlers.on_versions_rolled_back, db=db)
    service.consume_batch(ExposureRecordedV1, handlers.on_exposures_recorded, db=db)

    service.answer(ListPatterns, answers.answer_list_patterns, db=db)
    service.answer(GetPattern, answers.answer_get_pattern, db=db)
    service.answer(GetDetectorStatus, answers.answer_get_detector_status, db=db)

    service.every(settings.detect_every_s, "detect", detector.run_due)
    return service


def limits(settings: Settings) -> Limits:
    """The limits of a run, as configured."""
    return Limits(
        quiet=timedelta(seconds=settings.detect_quiet_s),
        max_wait=timedelta(seconds=settings.detect_max_wait_s),
        refresh=timedelta(seconds=settings.detect_refresh_s),
        signals=settings.detect_max_signals,
        text_signals=settings.detect_max_text_signals,
        resolve_timeout_s=settings.resolve_timeout_s,
        recheck=timedelta(seconds=settings.resolve_recheck_s),
    )
