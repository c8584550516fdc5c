"""Runs from request to report: cached, resumable, ended once, failing with a reason; baselines and regressions."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest

from libs import touchpoints
from libs.contracts.envelope import Event
from libs.contracts.events.ab_runner import (
    AbExecutedV1,
    AbRequestedV1,
    BaselinePromotedV1,
    EvalRegressedV1,
    ShardRequestedV1,
)
from libs.contracts.events.registry import VersionActivatedV1, VersionRolledBackV1
from libs.contracts.queries.ab_runner import GetRun, GetRunSpending, ListRuns
from libs.contracts.touchpoints import ModelSettings, SuiteSettings
from libs.llm import NOTHING_USED, Budget, ModelError, ModelPool, Settled, Spent
from libs.llm.metrics import BUDGET_LEFT
from libs.service_kit.db import Database
from libs.service_kit.delivery import delivering
from libs.service_kit.errors import Poison, Refused, Unavailable
from libs.service_kit.testing import event_of, outbox_events
from libs.service_kit.testing.plugin import OpenDatabase
from services.ab_runner import answers, handlers, reports
from services.ab_runner.store import baselines, calls, results, runs
from services.ab_runner.tests.support import (
    BUDGET,
    GOOD,
    POOR,
    PRICE,
    TOUCHPOINT,
    RuleModel,
    ab,
    evaluation,
    models,
    now,
    outage,
    prepare,
    report,
    run_ab,
    shards_of,
    suite,
    touchpoint,
    variant,
    work_through,
)

CHANGED = variant("x").model_copy(update={"content_sha256": "0" * 64})


@pytest.fixture
async def db(database: OpenDatabase) -> Database:
    opened = await database("ab_runner")
    await prepare(opened)
    return opened


async def stored(db: Database) -> int:
    async with db.connection() as conn:
        return int(await conn.fetchval("SELECT count(*) FROM results"))


async def until_stored(db: Database, count: int) -> None:
    async with asyncio.timeout(10):
        while await stored(db) < count:
            await asyncio.sleep(0.01)


# --- a run ------------------------------------------------------------------------------------------------


async def test_a_run_from_request_to_report(db: Database) -> None:
    model, event = RuleModel(), ab(b=GOOD)
    with delivering("test", [event]):
        await handlers.on_ab_requested(event, db, models(model), 10)
    waiting = await report(db, event.data.run_id)
    assert (waiting.status, waiting.cases_total, waiting.cases_done, waiting.verdict) == ("queued", 80, 0, None)
    shards = await shards_of(db, event.data.run_id)
    assert len(shards) == 8
    assert {shard.causationid for shard in shards} == {event.id}
    await handlers.on_shard_requested(shards[0], db, models(model))
    halfway = await report(db, event.data.run_id)
    assert (halfway.status, halfway.cases_done, halfway.model_calls) == ("running", 10, 10)
    for shard in shards[1:]:
        with delivering("test", [shard]):
            await handlers.on_shard_requested(shard, db, models(model))

    ended = await report(db, event.data.run_id)
    assert (ended.status, ended.verdict, ended.n, ended.error) == ("completed", "better", 40, None)
    assert (ended.label_a, ended.label_b) == ("current", "proposed")
    assert (ended.cases_done, ended.cases_total) == (80, 80)
    assert (ended.model_calls, ended.cache_hits, ended.usd) == (80, 0, 80 * PRICE)
    assert [(metric.name, metric.a, metric.b) for metric in ended.metrics] == [
        ("accuracy", 0.5, 1.0),
        ("macro_f1", pytest.approx(2 / 3), 1.0),
    ]
    assert ended.flips.gained == tuple(f"t{i:03}" for i in range(40) if i % 4 >= 2)
    assert (ended.gained, ended.lost, ended.flips.lost) == (20, 0, ())
    assert [label.label for label in ended.labels] == ["card", "delivery", "money"]
    assert ended.finished_at is not None
    assert ended.finished_at >= ended.requested_at

    (executed,) = await outbox_events(db, AbExecutedV1)
    assert (executed.data.status, executed.data.verdict) == ("completed", "better")
    assert (executed.data.gained, executed.data.lost, executed.data.n) == (20, 0, 40)
    assert executed.data.suite_sha256 == ended.suite_sha256
    assert executed.correlationid == event.correlationid


async def test_lists_count_flips_and_leave_their_ids_out(db: Database) -> None:
    proposal = uuid4()
    first = await run_ab(db, models(RuleModel()))
    second = await run_ab(db, models(RuleModel()), ab(variant_b=variant(GOOD, proposal_id=proposal)))
    newest, older = (await answers.answer_runs(ListRuns(touchpoint_id=TOUCHPOINT), db)).runs
    assert (newest.run_id, older.run_id) == (second.run_id, first.run_id)
    assert (newest.gained, newest.flips.gained, newest.labels) == (20, (), ())
    assert newest.metrics == second.metrics
    (of_proposal,) = (await answers.answer_runs(ListRuns(proposal_id=proposal), db)).runs
    assert of_proposal.run_id == second.run_id


async def test_lists_hold_runs_of_the_workspaces_asked_for_and_of_none(db: Database) -> None:
    mine, other = uuid4(), uuid4()
    runs = {
        place: (await run_ab(db, models(RuleModel()), ab(workspace_id=place))).run_id for place in (None, mine, other)
    }
    found = (await answers.answer_runs(ListRuns(workspace_ids=(mine,)), db)).runs
    assert {run.run_id: run.workspace_id for run in found} == {runs[None]: None, runs[mine]: mine}
    assert (await answers.answer_runs(ListRuns(workspace_ids=()), db)).runs == found[1:]


async def test_a_run_that_is_not_there_is_refused(db: Database) -> None:
    with pytest.raises(Refused, match="there is no run") as no:
        await answers.answer_run(GetRun(run_id=uuid4()), db)
    assert no.value.status == 404


async def test_a_subset_and_the_dev_split_can_be_run(db: Database) -> None:
    some = await run_ab(db, models(RuleModel()), ab(case_ids=("t002", "t003")))
    assert (some.n, some.flips.gained) == (2, ("t002", "t003"))
    dev = await run_ab(db, models(RuleModel()), ab(split="dev"))
    assert (dev.n, dev.split) == (6, "dev")


async def test_case_ids_may_hold_anything(db: Database) -> None:
    odd = tuple(case.model_copy(update={"case_id": f'{case.case_id}\n,"{{}}\\'}) for case in suite(8, 0))
    await prepare(db, odd)
    assert (await run_ab(db, models(RuleModel()))).n == 8


# --- the cache --------------------------------------------------------------------------------------------


async def test_the_same_run_again_makes_no_call(db: Database) -> None:
    first, again = RuleModel(), RuleModel()
    before = await run_ab(db, models(first))
    after = await run_ab(db, models(again))
    assert (len(first.answered), len(again.answered)) == (80, 0)
    assert (after.model_calls, after.cache_hits, after.usd) == (0, 80, Decimal(0))
    assert (after.verdict, after.metrics, after.flips) == (before.verdict, before.metrics, before.flips)


async def test_a_baseline_is_paid_for_once(db: Database) -> None:
    model = RuleModel()
    await run_ab(db, models(model), ab(b=GOOD))
    await run_ab(db, models(model), ab(b=f"{POOR}parcel: delivery\n"))
    assert len(model.answered) == 120
    assert len(set(model.answered)) == 120


async def test_a_corrected_label_costs_no_call_and_a_changed_input_one(db: Database) -> None:
    model = RuleModel()
    await run_ab(db, models(model))
    cases = list(suite())
    cases[0] = cases[0].model_copy(update={"expected": "other"})
    cases[1] = cases[1].model_copy(update={"input": "my card is gone"})
    await prepare(db, cases)
    again = await run_ab(db, models(model))
    assert (again.model_calls, again.cache_hits) == (2, 78)


async def test_another_parameter_is_another_answer(db: Database) -> None:
    model = RuleModel()
    await run_ab(db, models(model))
    warm = ModelSettings(provider="rules", name="rules", parameters={"temperature": 0.7})
    await touchpoints.on_registered([event_of(touchpoint(2, model=warm))], db)
    assert (await run_ab(db, models(model))).model_calls == 80


async def test_inputs_that_occur_twice_are_asked_once(db: Database) -> None:
    cases = [case.model_copy(update={"input": f"my card {i // 5}"}) for i, case in enumerate(suite(20, 0))]
    await prepare(db, cases)
    ended = await run_ab(db, models(model := RuleModel()), size=50)
    assert (ended.n, len(model.answered), ended.cache_hits) == (20, 8, 32)


async def test_runs_begun_together_do_not_pay_twice_for_what_they_share(database: OpenDatabase, db: Database) -> None:
    other, model = await database("ab_runner"), RuleModel()
    one, two = ab(b=GOOD), ab(b=f"{GOOD}gone: card\n")
    for event in (one, two):
        await handlers.on_ab_requested(event, db, models(model), 10)
    by = (models(model), models(model))
    await asyncio.gather(work_through(db, one.data.run_id, by[0]), work_through(other, two.data.run_id, by[1]))
    assert len(model.answered) == len(set(model.answered)) == 120
    assert {(await report(db, event.data.run_id)).status for event in (one, two)} == {"completed"}


# --- killed anywhere --------------------------------------------------------------------------------------


async def test_killed_among_the_calls_nothing_answered_is_asked_again(db: Database) -> None:
    model, event = RuleModel(hold_after=23), ab()
    await handlers.on_ab_requested(event, db, models(model), 40)
    first, second = await shards_of(db, event.data.run_id)
    task = asyncio.create_task(handlers.on_shard_requested(first, db, models(model)))
    await until_stored(db, 23)
    assert (await report(db, event.data.run_id)).cases_done == 23
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    model.release()
    for shard in (first, second):
        await handlers.on_shard_requested(shard, db, models(model))
    assert len(model.answered) == len(set(model.answered)) == 80
    ended = await report(db, event.data.run_id)
    assert (ended.status, ended.model_calls, ended.cache_hits, ended.usd) == ("completed", 80, 0, 80 * PRICE)


async def test_killed_between_the_last_answer_and_the_outcome(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    model, event = RuleModel(), ab()
    await handlers.on_ab_requested(event, db, models(model), 20)
    *others, last = await shards_of(db, event.data.run_id)
    for shard in others:
        await handlers.on_shard_requested(shard, db, models(model))

    def killed(*_: Any) -> None:
        raise ConnectionError("the process is gone")

    with monkeypatch.context() as patch:
        patch.setattr(reports, "conclude", killed)
        with pytest.raises(ConnectionError):
            await handlers.on_shard_requested(last, db, models(model))
    assert (await report(db, event.data.run_id)).status == "running"
    assert await outbox_events(db, AbExecutedV1) == []
    await handlers.on_shard_requested(last, db, models(model))
    assert (await report(db, event.data.run_id)).status == "completed"
    assert len(model.answered) == 80
    assert len(await outbox_events(db, AbExecutedV1)) == 1


async def test_everything_delivered_again_changes_nothing(db: Database) -> None:
    model, event = RuleModel(), ab()
    ended = await run_ab(db, models(model), event)
    await handlers.on_ab_requested(event, db, models(model), 10)
    await work_through(db, event.data.run_id, models(model))
    assert len(await outbox_events(db, ShardRequestedV1)) == 8
    assert len(await outbox_events(db, AbExecutedV1)) == 1
    assert len(model.answered) == 80
    assert await report(db, event.data.run_id) == ended


async def test_without_an_inbox_a_run_still_ends_once(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(db, "_inbox", False)
    event = ab()
    await run_ab(db, models(RuleModel()), event)
    await work_through(db, event.data.run_id, models(RuleModel()))
    assert len(await outbox_events(db, AbExecutedV1)) == 1


async def test_replicas_that_race_end_a_run_once(database: OpenDatabase, db: Database) -> None:
    other, model, event = await database("ab_runner"), RuleModel(), ab()
    await handlers.on_ab_requested(event, db, models(model), 5)
    shards = await shards_of(db, event.data.run_id)
    twice = [(shard, replica) for shard in shards for replica in (db, other)]
    await asyncio.gather(*(handlers.on_shard_requested(shard, at, models(model)) for shard, at in twice))
    assert len(await outbox_events(db, AbExecutedV1)) == 1
    assert len(model.answered) == len(set(model.answered)) == 80
    assert (await report(db, event.data.run_id)).model_calls == 80


async def test_a_run_is_not_judged_on_less_than_was_asked(db: Database) -> None:
    model, event = RuleModel(), ab()
    await handlers.on_ab_requested(event, db, models(model), 40)
    first, last = await shards_of(db, event.data.run_id)
    await handlers.on_shard_requested(first, db, models(model))
    async with db.connection() as conn:
        await conn.execute("DELETE FROM results WHERE input_sha256 = (SELECT min(input_sha256) FROM results)")
    with pytest.raises(RuntimeError, match="39 of 40 cases"):
        await handlers.on_shard_requested(last, db, models(model))
    assert (await report(db, event.data.run_id)).status == "running"


# --- what it costs ----------------------------------------------------------------------------------------


def limited(usd: str, **fields: Any) -> Budget:
    return Budget(Decimal(1_000), Decimal(usd), at_once=None, **fields)


async def test_every_call_of_a_run_is_in_the_books(db: Database) -> None:
    event = ab()
    await run_ab(db, models(RuleModel()), event)
    async with db.connection() as conn:
        rows = await conn.fetch("SELECT * FROM model_calls")
        spent = await calls.spent(conn, TOUCHPOINT, BUDGET)
        await calls.settled(conn, [Settled(rows[0]["call_id"], NOTHING_USED)])  # once more
        (day,) = await conn.fetch("SELECT * FROM model_spend")
    assert (day["touchpoint_id"], day["calls"], day["usd"], day["input_tokens"]) == (TOUCHPOINT, 80, 80 * PRICE, 800)
    assert {(row["run_id"], row["touchpoint_id"], row["model"]) for row in rows} == {
        (event.data.run_id, TOUCHPOINT, "rules-1")
    }
    assert (len(rows), sum(row["calls"] for row in rows)) == (80, 80)
    assert {(row["usd"], row["input_tokens"], row["output_tokens"]) for row in rows} == {(PRICE, 10, 1)}
    assert spent == Spent(80 * PRICE, 80 * PRICE, 0)


async def test_a_run_beyond_the_budget_ends_with_its_reason(db: Database) -> None:
    model, event = RuleModel(), ab()
    ended = await run_ab(db, models(model, budget=limited("0.030")), event)
    assert ended.status == "failed"
    assert ended.error == (
        "variant B: the touchpoint's model budget of 0.030 USD a day is used up; ask again tomorrow (UTC)"
    )
    (said,) = await outbox_events(db, AbExecutedV1)
    assert (said.data.status, said.data.verdict) == ("failed", None)
    assert len(model.answered) == 30  # a thousandth each, and not one more
    again = await run_ab(db, models(model))  # the next day, as it were: what was bought is not bought again
    assert (again.status, again.model_calls) == ("completed", 50)


async def test_the_budget_is_that_of_all_replicas_together(database: OpenDatabase, db: Database) -> None:
    other, model = await database("ab_runner"), RuleModel()
    budget = limited("0.030")
    one, two = ab(b=GOOD), ab(a=f"{GOOD}gone: card\n", b=f"{GOOD}lost: card\n")
    for event in (one, two):
        await handlers.on_ab_requested(event, db, models(model), 40)

    async def worked(at: Database, event: Event[AbRequestedV1]) -> None:
        for shard in await shards_of(at, event.data.run_id):
            try:
                await handlers.on_shard_requested(shard, at, models(model, budget=budget))
            except Unavailable:  # another replica's calls may use up what is left: the bus brings it back
                await worked(at, event)

    await asyncio.gather(worked(db, one), worked(other, two))
    assert len(model.answered) == 30
    assert {(await report(db, event.data.run_id)).status for event in (one, two)} == {"failed"}


async def test_answers_that_may_have_been_billed_count_until_the_day_is_over(db: Database) -> None:
    model, event = RuleModel(hold_after=10), ab()
    budget = limited("0.030", in_flight_s=0)
    await handlers.on_ab_requested(event, db, models(model), 40)
    first, _ = await shards_of(db, event.data.run_id)
    task = asyncio.create_task(handlers.on_shard_requested(first, db, models(model, budget=budget)))
    await until_stored(db, 10)
    while model.in_flight < 4:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with db.connection() as conn:
        assert await calls.spent(conn, TOUCHPOINT, budget) == Spent(14 * PRICE, 14 * PRICE, 0)
        assert (await calls.spent(conn, TOUCHPOINT, BUDGET)).in_flight == 4
    model.release()
    await handlers.on_shard_requested(first, db, models(model, budget=budget))
    assert len(model.answered) == 30 - 4
    assert "is used up" in ((await report(db, event.data.run_id)).error or "")


async def test_what_yesterday_cost_is_no_matter_today(db: Database) -> None:
    await run_ab(db, models(RuleModel()))
    async with db.connection() as conn:
        await conn.execute("UPDATE model_spend SET day = day - 1")
        await conn.execute("UPDATE model_calls SET started_at = started_at - interval '25 h', finished_at = NULL")
        assert await calls.spent(conn, TOUCHPOINT, BUDGET) == Spent(Decimal(0), Decimal(0), 0)


async def test_spending_is_told_by_day_with_calls_that_have_no_end(db: Database) -> None:
    await run_ab(db, models(RuleModel()))
    async with db.connection() as conn:
        await conn.execute("UPDATE model_spend SET day = day - 1")
        await conn.execute(
            "UPDATE model_calls SET finished_at = NULL WHERE call_id IN (SELECT call_id FROM model_calls LIMIT 3)"
        )
    told = await answers.answer_spending(GetRunSpending(calls=500), db, BUDGET)
    assert [(day.calls, day.usd, day.open_calls, day.open_usd) for day in told.days] == [
        (3, Decimal(0), 3, 3 * PRICE),
        (80, 80 * PRICE, 0, Decimal(0)),
    ]
    assert told.budget.used == 3 * PRICE
    assert len(told.calls) == 80
    one_day = await answers.answer_spending(GetRunSpending(touchpoint_id="other", days=1), db, BUDGET)
    assert not one_day.days
    assert not one_day.calls


async def test_a_model_that_is_free_needs_no_budget(db: Database) -> None:
    prompt = "## Labels\n### money\n### card\n### delivery\n"
    await prepare(db, revision=2, model=ModelSettings())
    none = ModelPool(Budget(Decimal(0), Decimal(0), at_once=None))
    ended = await run_ab(db, none, ab(prompt, f"{prompt}A parcel is late.\n"))
    assert (ended.status, ended.model_calls, ended.usd) == ("completed", 80, Decimal(0))
    async with db.connection() as conn:
        assert await conn.fetchval("SELECT sum(calls) FROM model_calls WHERE free AND usd = 0") == 80


async def test_gauges(db: Database) -> None:
    await run_ab(db, models(RuleModel()))
    await handlers.gauges(db, BUDGET)
    assert BUDGET_LEFT._value.get() == pytest.approx(1_000 - 0.08)


# --- failing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"case_ids": ("t000", "nope")}, "the test split of the current suite has no case 'nope'"),
        (
            {"variant_b": variant("x").model_copy(update={"content_sha256": "0" * 64})},
            "variant B: its text has the hash",
        ),
    ],
)
async def test_what_cannot_run_fails_at_once_with_a_reason(db: Database, fields: dict[str, Any], reason: str) -> None:
    event = ab(**fields)
    await handlers.on_ab_requested(event, db, models(RuleModel()), 10)
    (executed,) = await outbox_events(db, AbExecutedV1)
    assert executed.data.status == "failed"
    assert reason in executed.data.reason
    ended = await report(db, event.data.run_id)
    assert (ended.status, ended.cases_total, ended.verdict) == ("failed", 0, None)
    assert ended.error == executed.data.reason
    assert ended.finished_at is not None
    assert await outbox_events(db, ShardRequestedV1) == []


async def test_a_touchpoint_may_be_registered_a_moment_later(database: OpenDatabase) -> None:
    db, event = await database("ab_runner"), ab()
    with pytest.raises(Unavailable, match="is not registered"):
        await handlers.on_ab_requested(event, db, models(RuleModel()), 10)
    await prepare(db)
    await handlers.on_ab_requested(event, db, models(RuleModel()), 10)
    assert (await report(db, event.data.run_id)).status == "queued"


async def test_an_unknown_touchpoint_fails_the_run_in_the_end(db: Database) -> None:
    asked = ab(touchpoint_id="unknown")
    late = asked.model_copy(update={"time": asked.time - timedelta(minutes=1)})
    await handlers.on_ab_requested(late, db, models(RuleModel()), 10)
    assert (await report(db, late.data.run_id)).error == "touchpoint 'unknown' is not registered"


async def test_without_a_suite_a_run_fails(database: OpenDatabase) -> None:
    db = await database("ab_runner")
    await touchpoints.on_registered([event_of(touchpoint())], db)
    await handlers.on_ab_requested(ab(), db, models(RuleModel()), 10)
    (executed,) = await outbox_events(db, AbExecutedV1)
    assert executed.data.reason == f"touchpoint '{TOUCHPOINT}' has no suite: import one first"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"suite": SuiteSettings(metrics=("rouge",))}, "suite metric 'rouge' is unknown"),
        ({"model": ModelSettings(provider="rules", parameters={"top": 1})}, "model parameter 'top'"),
    ],
)
async def test_settings_are_checked_before_anything_is_paid(db: Database, config: dict[str, Any], reason: str) -> None:
    await touchpoints.on_registered([event_of(touchpoint(2, **config))], db)
    await handlers.on_ab_requested(ab(), db, models(RuleModel()), 10)
    (executed,) = await outbox_events(db, AbExecutedV1)
    assert reason in executed.data.reason


async def test_an_error_that_stays_fails_the_run_once(db: Database) -> None:
    model, event = RuleModel(errors=[ModelError("the key is refused", retryable=False)]), ab()
    ended = await run_ab(db, models(model), event)
    assert (ended.status, ended.error) == ("failed", "variant A: the key is refused")
    (executed,) = await outbox_events(db, AbExecutedV1)
    assert (executed.data.status, executed.data.reason) == ("failed", "variant A: the key is refused")
    assert len(model.answered) < 10
    async with db.connection() as conn:
        assert await conn.fetchval("SELECT count(*) FROM shards WHERE done_at IS NOT NULL") == 0


async def test_an_error_that_passes_brings_the_shard_back(db: Database) -> None:
    model, event = RuleModel(errors=[outage()]), ab()
    await handlers.on_ab_requested(event, db, models(model), 40)
    first, second = await shards_of(db, event.data.run_id)
    with pytest.raises(Unavailable, match="model rules/rules-1: rate limited"):
        await handlers.on_shard_requested(first, db, models(model))
    assert await stored(db) == len(model.answered) > 0
    for shard in (first, second):
        await handlers.on_shard_requested(shard, db, models(model))
    assert len(model.answered) == len(set(model.answered)) == 80
    assert (await report(db, event.data.run_id)).verdict == "better"


async def test_a_model_that_changes_under_a_run_fails_it(db: Database) -> None:
    model, event = RuleModel(), ab()
    await handlers.on_ab_requested(event, db, models(model), 40)
    newer = RuleModel()
    newer.name = "rules-2"
    await work_through(db, event.data.run_id, models(newer))
    assert "the model changed from rules/rules-1" in ((await report(db, event.data.run_id)).error or "")
    assert newer.answered == []


async def test_a_shard_of_no_run_is_poison(db: Database) -> None:
    with pytest.raises(Poison, match="has no shard 3"):
        await handlers.on_shard_requested(event_of(ShardRequestedV1(run_id=uuid4(), shard=3)), db, models(RuleModel()))


async def test_no_lock_outlives_a_shard(db: Database) -> None:
    await run_ab(db, models(RuleModel()))
    async with db.connection() as conn:
        assert await conn.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


# --- baselines and regressions ----------------------------------------------------------------------------


def activated(text: str, **fields: Any) -> VersionActivatedV1:
    live: dict[str, Any] = {
        "activation_id": uuid4(),
        "touchpoint_id": TOUCHPOINT,
        "version_ref": "feed_prompts:1",
        "adapter": "feed_prompts",
        "content_sha256": variant(text).content_sha256,
        "activated_by": "admin",
        "activated_at": now(),
        **fields,
    }
    return VersionActivatedV1(**live)


def rolled_back(text: str, **fields: Any) -> VersionRolledBackV1:
    live: dict[str, Any] = {
        "activation_id": uuid4(),
        "touchpoint_id": TOUCHPOINT,
        "from_version": "feed_prompts:2",
        "to_version": "feed_prompts:1",
        "adapter": "feed_prompts",
        "content_sha256": variant(text).content_sha256,
        "reason": "worse in production",
        "rolled_back_by": "admin",
        "rolled_back_at": now(),
        **fields,
    }
    return VersionRolledBackV1(**live)


async def holds(db: Database) -> str | None:
    async with db.connection() as conn:
        baseline = await baselines.current(conn, TOUCHPOINT, None)
    return baseline.content_sha256 if baseline else None


async def evaluate(db: Database, text: str, by: RuleModel) -> UUID:
    event = evaluation(text)
    await handlers.on_eval_requested(event, db, models(by), 10)
    await work_through(db, event.data.run_id, models(by))
    return event.data.run_id


async def test_activation_promotes_and_rollback_restores(db: Database) -> None:
    ended = await run_ab(db, models(RuleModel()))
    good, poor = variant(GOOD).content_sha256, variant(POOR).content_sha256
    event = event_of(activated(GOOD))
    for _ in range(2):
        await handlers.on_versions_activated([event], db)
    (promoted,) = await outbox_events(db, BaselinePromotedV1)
    assert (promoted.data.run_id, promoted.data.content_sha256) == (ended.run_id, good)
    assert promoted.data.metrics["accuracy"] == 1.0
    assert promoted.causationid == event.id
    assert await holds(db) == good
    await handlers.on_versions_rolled_back([event_of(rolled_back(POOR))], db)
    restored = (await outbox_events(db, BaselinePromotedV1))[-1]
    assert (restored.data.content_sha256, restored.data.metrics["accuracy"]) == (poor, 0.5)
    assert await holds(db) == poor


async def test_a_rollback_heard_before_its_activation_still_holds(db: Database) -> None:
    await run_ab(db, models(RuleModel()))
    then = now()
    await handlers.on_versions_rolled_back([event_of(rolled_back(POOR, rolled_back_at=then))], db)
    late = activated(GOOD, activated_at=then - timedelta(minutes=1))
    await handlers.on_versions_activated([event_of(late)], db)
    assert await holds(db) == variant(POOR).content_sha256


async def test_a_text_without_a_run_promotes_nothing(db: Database) -> None:
    await run_ab(db, models(RuleModel()))
    await handlers.on_versions_activated([event_of(activated(GOOD))], db)
    await handlers.on_versions_activated([event_of(activated("never measured"))], db)
    assert await holds(db) == variant(GOOD).content_sha256
    await handlers.on_versions_rolled_back([event_of(rolled_back("never measured either"))], db)
    assert await holds(db) is None
    assert len(await outbox_events(db, BaselinePromotedV1)) == 1


async def test_a_regression_is_recorded_and_said_by_metric(db: Database) -> None:
    await run_ab(db, models(model := RuleModel()))
    await handlers.on_versions_activated([event_of(activated(GOOD))], db)
    run_id = await evaluate(db, "refund: money\n", model)
    assert len(model.answered) == 120
    ended = await report(db, run_id)
    assert (ended.kind, ended.label_a, ended.status, ended.verdict) == ("eval", "baseline", "completed", "worse")
    fallen = [event.data for event in await outbox_events(db, EvalRegressedV1)]
    assert [(event.metric, event.severity) for event in fallen] == [("accuracy", "critical"), ("macro_f1", "critical")]
    assert (fallen[0].baseline, fallen[0].value) == (1.0, 0.25)
    assert len(fallen[0].failing_case_ids) == 30
    async with db.connection() as conn:
        rows = await conn.fetch("SELECT metric, severity, delta, band FROM eval_regression_events ORDER BY metric")
    assert [row["metric"] for row in rows] == ["accuracy", "macro_f1"]
    assert all(0 < row["band"] < -row["delta"] for row in rows)
    assert len(await outbox_events(db, AbExecutedV1)) == 1


async def test_an_evaluation_that_is_no_worse_says_nothing(db: Database) -> None:
    await run_ab(db, models(model := RuleModel()))
    await handlers.on_versions_activated([event_of(activated(POOR))], db)
    assert (await report(db, await evaluate(db, GOOD, model))).verdict == "better"
    assert await outbox_events(db, EvalRegressedV1) == []
    assert len(model.answered) == 80


async def test_without_a_baseline_an_evaluation_has_figures_and_no_verdict(db: Database) -> None:
    ended = await report(db, await evaluate(db, POOR, model := RuleModel()))
    assert (ended.status, ended.verdict, ended.label_a) == ("completed", None, "no baseline")
    assert ended.metrics[0].b == 0.5
    assert len(model.answered) == 40
    assert await outbox_events(db, EvalRegressedV1) == []


async def test_after_a_new_suite_the_baseline_is_measured_on_it(db: Database) -> None:
    await run_ab(db, models(model := RuleModel()))
    await handlers.on_versions_activated([event_of(activated(GOOD))], db)
    await prepare(db, suite(44))
    ended = await report(db, await evaluate(db, POOR, model))
    assert (ended.n, ended.model_calls, ended.metrics[0].a) == (44, 8, 1.0)


async def test_answers_are_found_by_text_and_not_by_run(db: Database) -> None:
    event = ab()
    await run_ab(db, models(RuleModel()), event)
    async with db.connection() as conn:
        pairs = await results.pairs(conn, await runs.get(conn, event.data.run_id))
    assert {pair.case_id: pair.got_b for pair in pairs} == {
        case.case_id: case.expected for case in suite() if case.split == "test"
    }
