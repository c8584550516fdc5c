"""What the A/B runner answers when it is asked. The test split has no way out but as counts and verdicts."""

from __future__ import annotations

import asyncio
from functools import lru_cache

from libs.contracts.evaluations import SuiteSummary
from libs.contracts.queries.ab_runner import (
    AbReportReply,
    AbReports,
    CheckLeaks,
    DevCases,
    GetDevCases,
    GetRun,
    GetRunSpending,
    GetSuiteCoverage,
    ImportSuite,
    Leaks,
    ListRuns,
    ListSuites,
    ListWaitingCases,
    SuiteCoverage,
    SuiteReply,
    Suites,
    WaitingCases,
)
from libs.contracts.queries.spending import Spending
from libs.contracts.touchpoints import SuiteSettings
from libs.llm import Budget
from libs.llm.budget import standing
from libs.llm.spending import few_enough
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from services.ab_runner import domain, reports
from services.ab_runner.statistics import smallest_detectable_effect
from services.ab_runner.statistics.planning import DEFAULT_DISCORDANCE
from services.ab_runner.store import calls, runs, suites, waiting_cases
from services.ab_runner.store.suites import Listed


async def answer_import(query: ImportSuite, db: Database) -> SuiteReply:
    """Make these cases the touchpoint's suite. Refused with 422 naming the cases that are wrong."""
    try:
        domain.check_suite(query.cases)
    except domain.SuiteError as error:
        raise Refused("bad_suite", str(error), status=422) from None
    named = domain.suite_sha256(query.cases)
    async with db.transaction(lock=f"suite.{query.touchpoint_id}") as tx:
        summary = await suites.current(tx.conn, query.touchpoint_id)
        if summary is None or summary.suite_sha256 != named:
            summary = await suites.save(tx.conn, query.touchpoint_id, named, query.cases, query.by)
    return SuiteReply(suite=summary)


async def answer_suites(query: ListSuites, db: Database) -> Suites:
    """The current suites, each with the smallest effect that a run over it can see."""
    async with db.connection() as conn:
        found = await suites.listed(conn, query.touchpoint_id)
    return Suites(suites=tuple(await asyncio.to_thread(lambda: [_with_power(suite) for suite in found])))


async def answer_waiting(query: ListWaitingCases, db: Database) -> WaitingCases:
    """Published pairs that wait for the next cut of their touchpoint's suite."""
    async with db.connection(workspaces=query.workspace_ids) as conn:
        return WaitingCases(
            cases=tuple(await waiting_cases.listed(conn, query.touchpoint_id, query.limit)),
            counts=await waiting_cases.counts(conn, query.touchpoint_id),
        )


async def answer_dev_cases(query: GetDevCases, db: Database) -> DevCases:
    """Cases of the dev split of the current suite; none without a suite."""
    async with db.connection() as conn:
        suite = await suites.current(conn, query.touchpoint_id)
        if suite is None:
            return DevCases()
        cases = await suites.dev_cases(conn, suite.suite_sha256, query.limit)
    return DevCases(suite_sha256=suite.suite_sha256, cases=tuple(cases))


async def answer_leaks(query: CheckLeaks, db: Database) -> Leaks:
    """For each text: does it hold an input of the test split?"""
    async with db.connection() as conn:
        inputs = await suites.test_inputs(conn, query.touchpoint_id)
    return Leaks(leaked=await asyncio.to_thread(_leaks, inputs, query.texts))


async def answer_coverage(query: GetSuiteCoverage, db: Database) -> SuiteCoverage:
    """The hash of the suite that holds now."""
    async with db.connection() as conn:
        suite = await suites.current(conn, query.touchpoint_id)
    if suite is None:
        return SuiteCoverage(suite_sha256=None)
    return SuiteCoverage(suite_sha256=suite.suite_sha256, n=suite.test_cases)


async def answer_runs(query: ListRuns, db: Database) -> AbReports:
    """Runs, newest first."""
    async with db.connection(workspaces=query.workspace_ids) as conn:
        found = await runs.reports(conn, query)
    return AbReports(runs=tuple(found))


async def answer_run(query: GetRun, db: Database) -> AbReportReply:
    """One run, also while it is on. Refused with 404 when there is none."""
    async with db.connection() as conn:
        report = await runs.report(conn, query.run_id)
    if report is None:
        raise Refused("not_found", f"there is no run {query.run_id}", status=404)
    return AbReportReply(run=report)


def _leaks(inputs: list[str], texts: tuple[str, ...]) -> tuple[bool, ...]:
    gold = domain.Gold(inputs)
    return tuple(gold.leaks_into(text) for text in texts)


def _with_power(listed: Listed) -> SuiteSummary:
    settings = SuiteSettings.model_validate(listed.settings or {})
    alpha = reports.primary_alpha(settings.metrics, settings.primary_metric)
    # A run without any flip tells nothing about the next one's discordance.
    effect = _detectable(listed.summary.test_cases, listed.discordance or DEFAULT_DISCORDANCE, alpha)
    return listed.summary.model_copy(update={"smallest_detectable_effect": effect})


@lru_cache(maxsize=256)
def _detectable(n: int, discordance: float, alpha: float) -> float:
    return smallest_detectable_effect(n, discordance, alpha=alpha)


async def answer_spending(query: GetRunSpending, db: Database, budget: Budget) -> Spending:
    """What runs cost in the last days, and what is left of today's budget."""
    async with db.connection() as conn:
        spent = await calls.spent(conn, query.touchpoint_id or "", budget)
        return Spending(
            budget=standing(calls.CALLER, budget, spent),
            days=few_enough(await calls.by_day(conn, query.touchpoint_id, query.days)),
            calls=await calls.latest(conn, query.touchpoint_id, query.calls),
        )
