"""Wiring of the A/B runner."""

from __future__ import annotations

from functools import partial

from libs import touchpoints
from libs.contracts.events.ab_runner import AbRequestedV1, AbRequestedV2, EvalRequestedV1, ShardRequestedV1
from libs.contracts.events.qa_ingest import (
    QaPairArchivedV1,
    QaPairPublishedV1,
    QaPairSupersededV1,
    QaPairUnpublishedV1,
)
from libs.contracts.events.registry import TouchpointRegisteredV1, VersionActivatedV1, VersionRolledBackV1
from libs.contracts.queries.ab_runner import (
    CheckLeaks,
    GetDevCases,
    GetRun,
    GetRunSpending,
    GetSuiteCoverage,
    ImportSuite,
    ListRuns,
    ListSuites,
    ListWaitingCases,
)
from libs.llm import ModelPool, OpenModel, open_model
from libs.service_kit.service import Service
from services.ab_runner import answers, handlers
from services.ab_runner.settings import Settings
from services.ab_runner.watch import Watch

GAUGES_EVERY_S = 15.0


def build(settings: Settings, opener: OpenModel = open_model) -> Service:
    """The service, ready to `run()`. `opener` gives models another origin than their providers."""
    service = Service("ab_runner", settings)
    db = service.db
    pool = ModelPool(
        settings.budget,
        concurrency=settings.model_concurrency,
        timeout_s=settings.ab_call_timeout_s,
        opener=opener,
    )
    service.on_stop(pool.close)

    service.consume_batch(TouchpointRegisteredV1, touchpoints.on_registered, db=db)
    service.consume_each(AbRequestedV1, handlers.on_ab_requested, db=db, pool=pool, shard_cases=settings.shard_cases)
    service.consume_each(
        EvalRequestedV1, handlers.on_eval_requested, db=db, pool=pool, shard_cases=settings.shard_cases
    )
    service.consume_each(
        AbRequestedV2,
        handlers.on_ab_requested_by_reference,
        db=db,
        pool=pool,
        shard_cases=settings.shard_cases,
        asker=service.asker,
    )
    service.consume_each(ShardRequestedV1, handlers.on_shard_requested, db=db, pool=pool)
    service.consume_batch(VersionActivatedV1, handlers.on_versions_activated, db=db)
    service.consume_batch(VersionRolledBackV1, handlers.on_versions_rolled_back, db=db)

    service.consume_batch(QaPairPublishedV1, handlers.on_pairs_published, db=db)
    service.consume_batch(QaPairArchivedV1, handlers.on_pairs_archived, db=db)
    service.consume_batch(QaPairSupersededV1, handlers.on_pairs_superseded, db=db)
    service.consume_batch(QaPairUnpublishedV1, handlers.on_pairs_unpublished, db=db)

    watch = Watch(db, service.bus.ping, settings.run_patience, settings.runs_watched_every_s)
    service.every(settings.runs_watched_every_s, "runs", watch.turn)

    service.answer(ImportSuite, answers.answer_import, db=db)
    service.answer(ListSuites, answers.answer_suites, db=db)
    service.answer(GetDevCases, answers.answer_dev_cases, db=db)
    service.answer(CheckLeaks, answers.answer_leaks, db=db)
    service.answer(GetSuiteCoverage, answers.answer_coverage, db=db)
    service.answer(ListRuns, answers.answer_runs, db=db)
    service.answer(GetRun, answers.answer_run, db=db)
    service.answer(ListWaitingCases, answers.answer_waiting, db=db)
    service.answer(GetRunSpending, answers.answer_spending, db=db, budget=settings.budget)
    service.every(GAUGES_EVERY_S, "ab-gauges", partial(handlers.gauges, db, settings.budget))
    return service
