"""Wiring of the scanner."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from libs import touchpoints
from libs.contracts.events.ab_runner import EvalRegressedV1
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.events.scanner import ScanRequestedV1
from libs.contracts.queries.scanner import ListScanRuns, ResolveEvidence
from libs.service_kit.service import Service
from services.scanner import answers, handlers
from services.scanner.platform import Platform
from services.scanner.runner import Runner
from services.scanner.settings import Settings

HOUR_S = 3600.0


def build(settings: Settings) -> Service:
    """The service, ready to `run()`."""
    service = Service("scanner", settings)
    platform = Platform(
        settings.dsn, pool_size=settings.scan_slots, statement_timeout_s=settings.scan_statement_timeout_s
    )
    runner = Runner(service.db, platform, settings)

    service.consume_batch(
        TouchpointRegisteredV1, touchpoints.on_registered, db=service.db, follow_up=handlers.keep_sources
    )
    service.consume_each(ScanRequestedV1, handlers.on_scan_requested, db=service.db)
    service.consume_batch(EvalRegressedV1, handlers.on_evals_regressed, db=service.db)
    service.answer(ListScanRuns, answers.answer_runs, db=service.db)
    service.answer(
        ResolveEvidence,
        answers.answer_resolve,
        db=service.db,
        platform=platform,
        timeout_s=settings.resolve_timeout_s,
    )
    kept = timedelta(days=settings.scan_runs_kept_days)
    service.every(settings.scan_poll_s, "scan", runner.tick)
    service.every(HOUR_S, "forget-runs", partial(handlers.forget_old_runs, service.db, kept))
    service.on_stop(runner.stop)
    return service
