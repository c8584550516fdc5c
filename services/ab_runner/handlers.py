"""What the A/B runner does when it hears something: plain functions of an event and their dependencies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from libs import touchpoints
from libs.contracts.envelope import Event
from libs.contracts.evaluations import VariantRef
from libs.contracts.events.ab_runner import AbRequestedV1, AbRequestedV2, EvalRequestedV1, ShardRequestedV1
from libs.contracts.events.qa_ingest import (
    QaPairArchivedV1,
    QaPairPublishedV1,
    QaPairSupersededV1,
    QaPairUnpublishedV1,
)
from libs.contracts.events.registry import VersionActivatedV1, VersionRolledBackV1
from libs.contracts.touchpoints import SuiteSettings
from libs.llm import Budget, ModelError, ModelPool
from libs.llm.budget import left
from libs.llm.metrics import BUDGET_LEFT
from libs.service_kit import logging
from libs.service_kit.db import Connection, Database, Transaction
from libs.service_kit.errors import Poison, Unavailable
from libs.service_kit.queries import Asker
from services.ab_runner import domain, metrics, reports, tasks, texts, waiting
from services.ab_runner.account import RunAccount
from services.ab_runner.domain import CannotRun, Run
from services.ab_runner.reports import Baseline, Outcome
from services.ab_runner.store import baselines, calls, results, runs, suites, waiting_cases
from services.ab_runner.store.runs import Done, Work
from services.ab_runner.tasks import Answer

log = logging.get(__name__)

PATIENCE = timedelta(seconds=20)
"""How long a request may be ahead of the registration of its touchpoint, which comes by a durable of its own."""


# --- a run is asked for -----------------------------------------------------------------------------------


async def on_ab_requested(event: Event[AbRequestedV1], db: Database, pool: ModelPool, shard_cases: int) -> None:
    """Deal both variants and the cases into shards, or say at once why the run cannot be carried out."""
    run = ab_run(event)
    async with db.transaction(inbox=event) as tx:
        if not tx.fresh:
            return
        refusal = await _start(tx, run, event.data.case_ids, pool, shard_cases)
    log_ended(run, refusal)


async def on_ab_requested_by_reference(
    event: Event[AbRequestedV2], db: Database, pool: ModelPool, shard_cases: int, asker: Asker
) -> None:
    """The same with texts that are fetched from their owners, and refused when they are not the ones asked for."""
    run, refusal = ab_run(event), None
    try:
        variants = [
            await texts.fetched(asker, event.data, each) for each in (event.data.variant_a, event.data.variant_b)
        ]
        run = replace(run, variant_a=variants[0], variant_b=variants[1])
    except CannotRun as no:
        refusal = str(no)
    async with db.transaction(inbox=event) as tx:
        if not tx.fresh:
            return
        if refusal is None:
            refusal = await _start(tx, run, event.data.case_ids, pool, shard_cases)
        else:
            await _refuse(tx, run, refusal)
    log_ended(run, refusal)


async def on_eval_requested(event: Event[EvalRequestedV1], db: Database, pool: ModelPool, shard_cases: int) -> None:
    """The same with the baseline's text as variant A: its answers are in the cache, unless the suite has changed."""
    asked = event.data
    async with db.transaction(inbox=event) as tx:
        if not tx.fresh:
            return
        baseline = await baselines.current(tx.conn, asked.touchpoint_id, asked.workspace_id)
        before = baseline.variant if baseline and baseline.variant else asked.variant
        run = replace(
            eval_run(event),
            variant_a=before.model_copy(update={"label": "baseline" if baseline else "no baseline"}),
            baseline_id=baseline.baseline_id if baseline else None,
        )
        refusal = await _start(tx, run, (), pool, shard_cases)
    log_ended(run, refusal)


def ab_run(event: Event[AbRequestedV1] | Event[AbRequestedV2]) -> Run:
    """The run that is asked for, as far as the request tells."""
    asked = event.data
    variants = (asked.variant_a, asked.variant_b)
    variant_a, variant_b = (texts.unread(each) if isinstance(each, VariantRef) else each for each in variants)
    return Run(
        run_id=asked.run_id,
        kind="ab",
        touchpoint_id=asked.touchpoint_id,
        workspace_id=asked.workspace_id,
        variant_a=variant_a,
        variant_b=variant_b,
        split=asked.split,
        requested_by=asked.requested_by,
        requested_at=event.time,
    )


def eval_run(event: Event[EvalRequestedV1]) -> Run:
    """The same for an evaluation; its text stands on both sides until the baseline is known."""
    asked = event.data
    return Run(
        run_id=asked.run_id,
        kind="eval",
        touchpoint_id=asked.touchpoint_id,
        workspace_id=asked.workspace_id,
        variant_a=asked.variant,
        variant_b=asked.variant,
        split=asked.split,
        requested_by=asked.requested_by,
        requested_at=event.time,
    )


async def _start(
    tx: Transaction[Any], run: Run, case_ids: tuple[str, ...], pool: ModelPool, shard_cases: int
) -> str | None:
    """Record the run and say its shards. Returns why it cannot be carried out, when it cannot."""
    try:
        run, chosen = await _prepare(tx.conn, run, case_ids, pool)
    except (CannotRun, ModelError) as no:
        await _refuse(tx, run, str(no))
        return str(no)
    shards = domain.deal(chosen, shard_cases)
    prompts = tasks.prompt_sha256(run.variant_a), tasks.prompt_sha256(run.variant_b)
    if await runs.add(tx.conn, run, shards, prompts) is not None:
        tx.emit(*(ShardRequestedV1(run_id=run.run_id, shard=shard.shard) for shard in shards))
    return None


async def _refuse(tx: Transaction[Any], run: Run, why: str) -> None:
    if (at := await runs.add(tx.conn, run, error=why)) is not None and run.kind == "ab":
        tx.emit(reports.failed(run, why, at))


async def _prepare(conn: Connection, run: Run, case_ids: tuple[str, ...], pool: ModelPool) -> tuple[Run, list[str]]:
    """The run with everything that is declared before it begins, and its cases as dealt."""
    domain.check_variant("A", run.variant_a)
    domain.check_variant("B", run.variant_b)
    touchpoint = await touchpoints.get(conn, run.touchpoint_id)
    if touchpoint is None:
        unknown = f"touchpoint {run.touchpoint_id!r} is not registered"
        raise Unavailable(unknown) if datetime.now(UTC) - run.requested_at < PATIENCE else CannotRun(unknown)
    settings = touchpoint.suite or SuiteSettings()
    domain.check_metrics(settings)
    suite = await suites.current(conn, run.touchpoint_id)
    if suite is None:
        raise CannotRun(f"touchpoint {run.touchpoint_id!r} has no suite: import one first")
    chosen = domain.choose(await suites.dealt(conn, suite.suite_sha256, run.split), case_ids, run.split)
    prepared = replace(
        run,
        suite=settings,
        suite_sha256=suite.suite_sha256,
        cases=len(chosen),
        model_settings=touchpoint.model,
        model=pool.key(touchpoint.model),
        params_sha256=tasks.params_sha256(pool.parameters(touchpoint.model)),
    )
    return prepared, chosen


# --- a shard is worked on ---------------------------------------------------------------------------------


async def on_shard_requested(event: Event[ShardRequestedV1], db: Database, pool: ModelPool) -> None:
    """Buy the answers that are missing; whoever finishes a run's last shard compares and says so.

    Answers are committed as they come, so that this can be killed anywhere and done again: nothing is bought twice.
    Shard, inbox, outcome and event are one transaction, so that the end of a run happens once.
    """
    asked = event.data
    async with db.connection() as conn:
        work = await runs.work(conn, asked.run_id, asked.shard)
    if work is None:
        raise Poison(f"run {asked.run_id} has no shard {asked.shard}")
    refusal = await _buy_missing(db, work, pool) if work.open else None
    await _finish(event, db, refusal)


async def _buy_missing(db: Database, work: Work, pool: ModelPool) -> str | None:
    """Ask the model whatever has no answer yet. Returns why that can never succeed, when it cannot."""
    try:
        if pool.key(work.model_settings) != work.model:
            return f"the model changed from {work.model} while the run was on: ask for the run again"
        async with db.connection() as conn, results.one_at_a_time(conn, work):
            questions = await results.missing(conn, work)

            async def keep(answers: list[Answer]) -> None:
                async with conn.transaction():
                    await results.save(conn, work, answers)
                    await runs.count(
                        conn, work.run_id, work.shard, len(answers), sum((a.usd for a in answers), Decimal())
                    )

            if questions:
                account = RunAccount(conn, work.touchpoint_id, work.run_id)
                system = tasks.system_text(work.prompt)
                await tasks.answer(pool, work.model_settings, system, questions, account, keep)
    except ModelError as error:
        if error.retryable:
            raise Unavailable(f"model {work.model}: {error.reason}") from error
        return f"variant {work.variant.upper()}: {error.reason}"
    return None


async def _finish(event: Event[ShardRequestedV1], db: Database, refusal: str | None) -> None:
    run_id, done, ending = event.data.run_id, None, None
    async with db.transaction(inbox=event) as tx:
        if not tx.fresh or not await runs.lock(tx.conn, run_id):
            return
        if refusal is None:
            done = await runs.finish_shard(tx.conn, run_id, event.data.shard)
            if await runs.has_open_shards(tx.conn, run_id):
                _count(done)
                return
        run = await runs.get(tx.conn, run_id)
        ending = refusal or await _compare(tx.conn, run)
        await end(tx, run, ending)
    _count(done)
    log_ended(run, ending)


async def _compare(conn: Connection, run: Run) -> Outcome | str:
    """The comparison of a run whose answers are all there, or why there cannot be one."""
    answered = await results.pairs(conn, run)
    try:
        return await asyncio.to_thread(reports.conclude, run, answered)
    except ValueError as error:
        return str(error)


async def end(tx: Transaction[Any], run: Run, ending: Outcome | str) -> None:
    """Store how a run ended and say it. The run is locked."""
    if isinstance(ending, str):
        at = await runs.fail(tx.conn, run.run_id, ending)
        if run.kind == "ab":
            tx.emit(reports.failed(run, ending, at))
        return
    at = await runs.complete(tx.conn, run.run_id, ending)
    if run.kind == "ab":
        tx.emit(reports.executed(run, ending, at))
    elif run.baseline_id is not None:
        fallen = reports.regressions(ending)
        await baselines.add_regressions(tx.conn, run, fallen)
        tx.emit(*(reports.regressed(run, ending, regression) for regression in fallen))


def _count(done: Done | None) -> None:
    if done is not None:
        metrics.ANSWERS.labels("model").inc(done.model_calls)
        metrics.ANSWERS.labels("cache").inc(max(done.answers - done.model_calls, 0))
        metrics.USD.inc(float(done.usd))


def log_ended(run: Run, ending: Outcome | str | None) -> None:
    """Log and count a run that ended. Variants are named by hash: a label may quote what a person typed."""
    if ending is None:
        return
    outcome = "failed" if isinstance(ending, str) else ending.verdict or "measured"
    metrics.RUNS.labels(run.kind, outcome).inc()
    log.info(
        "refinement.ab.executed" if run.kind == "ab" else "refinement.eval.executed",
        touchpoint=run.touchpoint_id,
        variant_a=run.variant_a.content_sha256,
        variant_b=run.variant_b.content_sha256,
        outcome=outcome,
        run_id=str(run.run_id),
    )


# --- another version is live ------------------------------------------------------------------------------


async def on_versions_activated(events: list[Event[VersionActivatedV1]], db: Database) -> None:
    """Make the approved run's result the baseline. Without a completed run of that text the baseline stays."""
    async with db.transaction(inbox=events) as tx:
        for event in tx.fresh:
            live = event.data
            await _promote(tx, event, live.activated_by, live.activated_at)


async def on_versions_rolled_back(events: list[Event[VersionRolledBackV1]], db: Database) -> None:
    """Put the restored text's result back as the baseline; without one, no baseline holds."""
    async with db.transaction(inbox=events) as tx:
        for event in tx.fresh:
            live = event.data
            if not await _promote(tx, event, live.rolled_back_by, live.rolled_back_at):
                await baselines.add(tx.conn, reports.no_baseline(live))


async def _promote(
    tx: Transaction[Any],
    event: Event[VersionActivatedV1] | Event[VersionRolledBackV1],
    by: str,
    since: datetime,
) -> bool:
    """Record and say the baseline of the text that is live now. False when no run tells about it."""
    live = event.data
    known = await baselines.result_of_text(tx.conn, live.touchpoint_id, live.content_sha256, live.proposal_id)
    if known is None:
        return False
    baseline = Baseline(
        baseline_id=reports.baseline_id(live.activation_id),
        touchpoint_id=live.touchpoint_id,
        workspace_id=live.workspace_id,
        run_id=known.run_id,
        variant=known.variant,
        content_sha256=live.content_sha256,
        suite_sha256=known.suite_sha256,
        metrics=known.metrics,
        promoted_by=by,
        holds_since=since,
    )
    if await baselines.add(tx.conn, baseline):
        tx.emit(reports.promoted(baseline), cause=event)
    return True


# --- pairs of the library wait to be cases -----------------------------------------------------------------


async def on_pairs_published(events: list[Event[QaPairPublishedV1]], db: Database) -> None:
    """Let the pairs wait for the next cut of their touchpoint's suite, in their newest words."""
    await _keep_waiting(events, db)


async def on_pairs_archived(events: list[Event[QaPairArchivedV1]], db: Database) -> None:
    """They wait no more."""
    await _keep_waiting(events, db)


async def on_pairs_superseded(events: list[Event[QaPairSupersededV1]], db: Database) -> None:
    """They wait no more; what took their place is a pair of its own."""
    await _keep_waiting(events, db)


async def on_pairs_unpublished(events: list[Event[QaPairUnpublishedV1]], db: Database) -> None:
    """They wait no more, until they are published again."""
    await _keep_waiting(events, db)


async def _keep_waiting(events: Sequence[Event[Any]], db: Database) -> None:
    async with db.transaction(inbox=events) as tx:
        await waiting_cases.keep(tx.conn, waiting.newest(event.data for event in tx.fresh))


# --- gauges -----------------------------------------------------------------------------------------------


async def gauges(db: Database, budget: Budget) -> None:
    """What is left of today's budget."""
    async with db.connection() as conn:
        spent = await calls.spent(conn, "", budget)
    BUDGET_LEFT.set(float(left(budget, spent)))
