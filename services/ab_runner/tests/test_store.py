"""Suites, baselines and answers on real Postgres."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from libs import touchpoints
from libs.contracts.evaluations import Case
from libs.contracts.queries.ab_runner import CheckLeaks, GetDevCases, GetSuiteCoverage, ImportSuite, ListSuites
from libs.contracts.touchpoints import SuiteSettings
from libs.service_kit.errors import Refused
from libs.service_kit.testing import event_of
from libs.service_kit.testing.plugin import OpenDatabase
from services.ab_runner import answers
from services.ab_runner.reports import Baseline
from services.ab_runner.store import baselines
from services.ab_runner.tests.support import TOUCHPOINT, now, prepare, suite, touchpoint


def imported(cases: tuple[Case, ...], touchpoint_id: str = TOUCHPOINT) -> ImportSuite:
    return ImportSuite(touchpoint_id=touchpoint_id, cases=cases, by="admin")


async def test_the_same_content_again_changes_nothing(database: OpenDatabase) -> None:
    db = await database("ab_runner")
    first = (await answers.answer_import(imported(suite()), db)).suite
    again = (await answers.answer_import(imported(suite()[::-1]), db)).suite
    assert again == first
    assert (first.cases, first.test_cases, first.dev_cases, first.labels) == (46, 40, 6, 3)


async def test_older_suites_are_kept_and_can_hold_again(database: OpenDatabase) -> None:
    db = await database("ab_runner")
    old = (await answers.answer_import(imported(suite(8)), db)).suite
    new = (await answers.answer_import(imported(suite(12)), db)).suite
    assert (await answers.answer_coverage(GetSuiteCoverage(touchpoint_id=TOUCHPOINT), db)).n == 12
    async with db.connection() as conn:
        assert await conn.fetchval("SELECT count(DISTINCT suite_sha256) FROM cases") == 2
    back = (await answers.answer_import(imported(suite(8)), db)).suite
    assert back == old != new
    coverage = await answers.answer_coverage(GetSuiteCoverage(touchpoint_id=TOUCHPOINT), db)
    assert (coverage.suite_sha256, coverage.split, coverage.n) == (old.suite_sha256, "test", 8)


async def test_two_touchpoints_may_have_the_same_suite(database: OpenDatabase) -> None:
    db = await database("ab_runner")
    await answers.answer_import(imported(suite(8)), db)
    await answers.answer_import(imported(suite(8), "other"), db)
    listed = (await answers.answer_suites(ListSuites(), db)).suites
    assert [each.touchpoint_id for each in listed] == ["other", TOUCHPOINT]
    assert len({each.suite_sha256 for each in listed}) == 1
    assert (await answers.answer_suites(ListSuites(touchpoint_id="nobody"), db)).suites == ()


async def test_the_smallest_detectable_effect_is_that_of_the_touchpoints_settings(database: OpenDatabase) -> None:
    db = await database("ab_runner")
    await answers.answer_import(imported(suite(40)), db)
    effects: list[float] = []
    for revision, metrics in enumerate((("accuracy",), ("accuracy", "macro_f1", "macro_recall")), 1):
        registered = touchpoint(revision, suite=SuiteSettings(metrics=metrics))
        await touchpoints.on_registered([event_of(registered)], db)
        [listed] = (await answers.answer_suites(ListSuites(), db)).suites
        assert listed.smallest_detectable_effect is not None
        effects.append(listed.smallest_detectable_effect)
    # The more metrics are judged, the larger a difference of the primary one must be.
    assert effects[0] < effects[1]


async def test_a_bad_suite_is_refused_with_both_case_ids(database: OpenDatabase) -> None:
    db = await database("ab_runner")
    leaking = (
        Case(case_id="t", input="Same text", expected="x"),
        Case(case_id="d", input="same  TEXT", expected="x", split="dev"),
    )
    with pytest.raises(Refused, match=r"dev case 'd' and test case 't'") as no:
        await answers.answer_import(imported(leaking), db)
    assert no.value.status == 422
    assert (await answers.answer_suites(ListSuites(), db)).suites == ()


async def test_the_smallest_effect_shrinks_with_the_suite(database: OpenDatabase) -> None:
    db = await database("ab_runner")
    await answers.answer_import(imported(suite(50)), db)
    await answers.answer_import(imported(suite(200), "larger"), db)
    larger, smaller = (await answers.answer_suites(ListSuites(), db)).suites
    assert larger.smallest_detectable_effect is not None
    assert smaller.smallest_detectable_effect is not None
    assert 0.05 < larger.smallest_detectable_effect < smaller.smallest_detectable_effect < 0.3


async def test_only_dev_cases_ever_leave(database: OpenDatabase) -> None:
    db = await database("ab_runner")
    assert (await answers.answer_dev_cases(GetDevCases(touchpoint_id=TOUCHPOINT), db)).cases == ()
    await answers.answer_import(imported(suite()), db)
    reply = await answers.answer_dev_cases(GetDevCases(touchpoint_id=TOUCHPOINT), db)
    assert sorted(case.case_id for case in reply.cases) == [f"d{i:03}" for i in range(6)]
    assert {case.split for case in reply.cases} == {"dev"}
    assert len((await answers.answer_dev_cases(GetDevCases(touchpoint_id=TOUCHPOINT, limit=2), db)).cases) == 2


async def test_leaks_are_told_text_by_text(database: OpenDatabase) -> None:
    db = await database("ab_runner")
    texts = ("- Where is my REFUND number 0", "a refund question 0", "where is my lawyer")
    assert (await answers.answer_leaks(CheckLeaks(touchpoint_id=TOUCHPOINT, texts=texts), db)).leaked == (False,) * 3
    await answers.answer_import(imported(suite()), db)
    reply = await answers.answer_leaks(CheckLeaks(touchpoint_id=TOUCHPOINT, texts=texts), db)
    assert reply.leaked == (True, False, False)


async def test_an_older_revision_of_a_touchpoint_changes_nothing(database: OpenDatabase) -> None:
    db = await database("ab_runner")
    revisions = [touchpoint(revision, description=f"r{revision}") for revision in (2, 3, 1)]
    await touchpoints.on_registered([event_of(each) for each in revisions], db)
    await touchpoints.on_registered([event_of(touchpoint(2, description="late"))], db)
    async with db.connection() as conn:
        known = await touchpoints.get(conn, TOUCHPOINT)
        assert known is not None
        assert known.description == "r3"
        assert await touchpoints.get(conn, "nobody") is None


def no_run(**fields: Any) -> Baseline:
    common: dict[str, Any] = {
        "baseline_id": uuid4(),
        "touchpoint_id": TOUCHPOINT,
        "workspace_id": None,
        "run_id": None,
        "variant": None,
        "content_sha256": "0" * 64,
        "suite_sha256": None,
        "metrics": {},
        "promoted_by": "admin",
        "holds_since": now(),
    }
    return Baseline(**{**common, **fields})


async def test_the_newest_baseline_holds_whatever_the_order_of_arrival(database: OpenDatabase) -> None:
    db = await database("ab_runner")
    await prepare(db)
    later, earlier = no_run(), no_run(holds_since=now() - timedelta(hours=1))
    async with db.connection() as conn:
        assert await baselines.add(conn, later)
        assert await baselines.add(conn, earlier)
        assert not await baselines.add(conn, later)
        assert await baselines.add(conn, no_run(workspace_id=uuid4(), holds_since=now() + timedelta(hours=1)))
        found = await baselines.history(conn, TOUCHPOINT, None)
        assert [each.baseline_id for each in found] == [later.baseline_id, earlier.baseline_id]
        assert await baselines.current(conn, TOUCHPOINT, None) is None
