"""Wiring of the A/B runner."""

from __future__ import annotations

from libs import touchpoints
from libs.contracts.events.ab_runner import AbRequestedV1, EvalRequestedV1, ShardRequestedV1
from libs.contracts.events.registry import TouchpointRegisteredV1, VersionActivatedV1, VersionRolledBackV1
from libs.contracts.queries.ab_runner import (
    CheckLeaks,
    GetDevCases,
    GetRun,
    GetSuiteCoverage,
    ImportSuite,
    ListRuns,
    ListSuites,
)
from libs.service_kit.service import Service
from services.ab_runner import answers, handlers
from services.ab_runner.settings import Settings
from services.ab_runner.tasks import Models
from services.ab_runner.watch import Watch


def build(settings: Settings, models: Models | None = None) -> Service:
    """The service, ready to `run()`. `models` only where others than the configured ones answer."""
    service = Service("ab_runner", settings)
    db = service.db
    models = models or Models(settings.model_concurrency)

    service.consume_batch(TouchpointRegisteredV1, touchpoints.on_registered, db=db)
    service.consume_each(
        AbRequestedV1, handlers.on_ab_requested, db=db, models=models, shard_cases=settings.shard_cases
    )
    service.consume_each(
        EvalRequestedV1, handlers.on_eval_requested, db=db, models=models, shard_cases=settings.shard_cases
    )
    service.consume_each(ShardRequestedV1, handlers.on_shard_requested, db=db, models=models)
    service.consume_batch(VersionActivatedV1, handlers.on_versions_activated, db=db)
    service.consume_batch(VersionRolledBackV1, handlers.on_versions_rolled_back, db=db)

    watch = Watch(db, service.bus.ping, settings.run_patience, settings.runs_watched_every_s)
    service.every(settings.runs_watched_every_s, "runs", watch.turn)

    service.answer(ImportSuite, answers.answer_import, db=db)
    service.answer(ListSuites, answers.answer_suites, db=db)
    service.answer(GetDevCases, answers.answer_dev_cases, db=db)
    service.answer(CheckLeaks, answers.answer_leaks, db=db)
    service.answer(GetSuiteCoverage, answers.answer_coverage, db=db)
    service.answer(ListRuns, answers.answer_runs, db=db)
    service.answer(GetRun, answers.answer_run, db=db)
    return service
