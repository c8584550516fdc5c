"""What the A/B runner answers."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from pydantic import Field

from libs.contracts.evaluations import AbReport, Case, SuiteSummary, WaitingCase
from libs.contracts.queries.base import Query, Reply
from libs.contracts.queries.spending import Spending, SpendingQuery
from libs.contracts.vocabulary import (
    LongText,
    Name,
    Split,
    TouchpointId,
)


class SuiteReply(Reply):
    """One suite as it is listed."""

    suite: SuiteSummary


class ImportSuite(Query[SuiteReply]):
    """Make these cases the touchpoint's suite; the same content again changes nothing."""

    subject: ClassVar[str] = "ask.ab_runner.suites.import.v1"
    reply: ClassVar[type[Reply]] = SuiteReply

    touchpoint_id: TouchpointId
    cases: tuple[Case, ...] = Field(min_length=1, max_length=20_000)
    by: Name


class Suites(Reply):
    """Every touchpoint's current suite."""

    suites: tuple[SuiteSummary, ...]


class ListSuites(Query[Suites]):
    """The current suites."""

    subject: ClassVar[str] = "ask.ab_runner.suites.list.v1"
    reply: ClassVar[type[Reply]] = Suites

    touchpoint_id: TouchpointId | None = None


class DevCases(Reply):
    """Cases of the dev split only."""

    suite_sha256: Name | None = None
    cases: tuple[Case, ...] = ()


class GetDevCases(Query[DevCases]):
    """The dev split, for the writer of proposals. There is no query for the test split."""

    subject: ClassVar[str] = "ask.ab_runner.suites.dev_cases.v1"
    reply: ClassVar[type[Reply]] = DevCases

    touchpoint_id: TouchpointId
    limit: int = Field(default=2_000, ge=1, le=5_000)


class Leaks(Reply):
    """For each text asked about: does it hold a case of the test split?"""

    leaked: tuple[bool, ...]


class CheckLeaks(Query[Leaks]):
    """Ask whether texts contain gold cases, without ever seeing the gold."""

    subject: ClassVar[str] = "ask.ab_runner.suites.check_leaks.v1"
    reply: ClassVar[type[Reply]] = Leaks

    touchpoint_id: TouchpointId
    texts: tuple[LongText, ...] = Field(max_length=500)


class AbReports(Reply):
    """Runs, newest first."""

    runs: tuple[AbReport, ...]


class ListRuns(Query[AbReports]):
    """Runs by touchpoint and proposal, without the ids of their flips and without figures by label."""

    subject: ClassVar[str] = "ask.ab_runner.runs.list.v1"
    reply: ClassVar[type[Reply]] = AbReports

    touchpoint_id: TouchpointId | None = None
    workspace_ids: tuple[UUID, ...] | None = None
    proposal_id: UUID | None = None
    limit: int = Field(default=50, ge=1, le=500)


class AbReportReply(Reply):
    """One run."""

    run: AbReport


class GetRun(Query[AbReportReply]):
    """One run by id; refused with 404 when there is none."""

    subject: ClassVar[str] = "ask.ab_runner.runs.get.v1"
    reply: ClassVar[type[Reply]] = AbReportReply

    run_id: UUID


class SuiteCoverage(Reply):
    """The hash of the touchpoint's current suite, which an approval must match."""

    suite_sha256: Name | None
    split: Split = "test"
    n: int = 0


class GetSuiteCoverage(Query[SuiteCoverage]):
    """Which suite holds now."""

    subject: ClassVar[str] = "ask.ab_runner.suites.coverage.v1"
    reply: ClassVar[type[Reply]] = SuiteCoverage

    touchpoint_id: TouchpointId


class WaitingCases(Reply):
    """Those that wait, by touchpoint, newest first; `counts` counts all of them."""

    cases: tuple[WaitingCase, ...] = ()
    counts: dict[TouchpointId, int] = Field(default_factory=dict)


class ListWaitingCases(Query[WaitingCases]):
    """Published pairs that wait to be cases of their touchpoint's next suite, in these workspaces; None is all."""

    subject: ClassVar[str] = "ask.ab_runner.suites.waiting.v1"
    reply: ClassVar[type[Reply]] = WaitingCases

    touchpoint_id: TouchpointId | None = None
    workspace_ids: tuple[UUID, ...] | None = None
    limit: int = Field(default=100, ge=1, le=200)


class GetRunSpending(SpendingQuery):
    """What runs cost."""

    subject: ClassVar[str] = "ask.ab_runner.spending.get.v1"
    reply: ClassVar[type[Reply]] = Spending
