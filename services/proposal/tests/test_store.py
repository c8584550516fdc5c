"""The store on a real Postgres: exact texts, one open proposal, final decisions, races, spend."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from libs import touchpoints
from libs.contracts.events.ab_runner import AbExecutedV1
from libs.contracts.queries.proposal import ListProposals
from libs.llm import NOTHING_USED, ModelReply, Order, Settled, Spent, Usage
from libs.service_kit.db import Connection, Database
from services.proposal import domain
from services.proposal.store import calls, decisions, outcomes, proposals
from services.proposal.tests.factories import (
    AT,
    PATTERN,
    PROMPT,
    TOUCHPOINT,
    executed,
    hunk_of,
    live_of,
    now,
    proposal_of,
    registered,
    saved,
)


async def test_a_proposal_comes_back_as_it_went_in(db: Database) -> None:
    one = await saved(db)
    back = await now(db, one.proposal_id)
    assert replace(back, decisions=()) == one
    assert [decision.action for decision in back.decisions] == ["created"]


@pytest.mark.parametrize("odd", ["\\u0000 written out", "\\\\u0000", "tab\tand\r\n", "\u2028", "𝒳 \ud7ff", '"\\'])
async def test_texts_are_kept_byte_for_byte(db: Database, odd: str) -> None:
    live = live_of(f"{PROMPT}\n{odd}\n")
    one = await saved(db, proposal_of(hunk_of(odd, f"{odd} and more"), live=live))
    assert (await now(db, one.proposal_id)).content == one.content


async def test_one_open_proposal_a_pattern(db: Database) -> None:
    first = await saved(db)
    second = replace(first, proposal_id=uuid4())
    async with db.transaction() as tx:
        assert not await proposals.insert(tx.conn, second)
        assert await proposals.move(tx.conn, first.proposal_id, "rejected")
        assert await proposals.insert(tx.conn, second)
        assert not await proposals.insert(tx.conn, second)


@pytest.mark.parametrize("statement", ["UPDATE decisions SET by = 'x'", "DELETE FROM decisions", "TRUNCATE decisions"])
async def test_decisions_are_final(db: Database, statement: str) -> None:
    await saved(db)
    with pytest.raises((asyncpg.RestrictViolationError, asyncpg.InsufficientPrivilegeError)):
        async with db.connection() as conn:
            await conn.execute(statement)


@pytest.mark.parametrize("state", sorted(domain.TRANSITIONS))
async def test_states_move_as_the_table_says(db: Database, state: Any) -> None:
    one = await saved(db)
    for target in domain.TRANSITIONS:
        async with db.transaction() as tx:
            set_state = "UPDATE proposals SET state = $1, failure = CASE $1 WHEN 'failed' THEN 'x' END"
            await tx.conn.execute(set_state, state)
            if target != "failed":
                assert await proposals.move(tx.conn, one.proposal_id, target) == (target in domain.TRANSITIONS[state])


async def test_one_approval_a_person_and_text(db: Database) -> None:
    one = await saved(db)
    async with db.connection() as conn:
        await decisions.record(conn, one.proposal_id, "approved", "ann", "", one.content_sha256)
        await decisions.record(conn, one.proposal_id, "approved", "bob", "", one.content_sha256)
        await decisions.record(conn, one.proposal_id, "approved", "ann", "", "another text")
        with pytest.raises(asyncpg.UniqueViolationError):
            await decisions.record(conn, one.proposal_id, "approved", "ann", "", one.content_sha256)
    assert (await now(db, one.proposal_id)).approvers == ("ann", "bob")


# --- outcomes ---------------------------------------------------------------------------------------------


async def save_outcome(conn: Connection, run: AbExecutedV1) -> None:
    assert run.proposal_id is not None
    await outcomes.save(conn, run.proposal_id, domain.outcome_of(run))


async def test_the_newest_completed_run_of_this_text_counts(db: Database) -> None:
    one = await saved(db)
    runs = [
        executed(one, "undecided", executed_at=AT + timedelta(hours=1)),
        executed(one, "better", executed_at=AT),
        executed(one, "worse", executed_at=AT + timedelta(hours=2), b_sha256="1" * 64),
        executed(one, None, executed_at=AT + timedelta(hours=3), status="failed"),
        executed(one, proposal_id=uuid4()),
    ]
    async with db.transaction() as tx:
        await save_outcome(tx.conn, runs[3])
    assert (await now(db, one.proposal_id)).state == "generated"
    async with db.transaction() as tx:
        for run in [*runs, *runs]:
            await save_outcome(tx.conn, run)
    back = await now(db, one.proposal_id)
    assert back.state == "in_review"
    assert back.ab is not None
    assert (back.ab.run_id, back.ab.verdict) == (runs[0].run_id, "undecided")


async def test_the_ledgers_events_may_come_in_any_order(db: Database) -> None:
    one = await saved(db)
    async with db.transaction() as tx:
        said = [("activated", AT), ("rolled_back", AT + timedelta(hours=1)), ("activated", AT + timedelta(hours=2))]
        assert await proposals.ledger_says(tx.conn, one.proposal_id, "activated", AT) is None  # nobody approved it
        await proposals.move(tx.conn, one.proposal_id, "approved")
        for state, at in (said[1], said[0]):
            await proposals.ledger_says(tx.conn, one.proposal_id, state, at)  # type: ignore[arg-type]
        assert await tx.conn.fetchval("SELECT state FROM proposals") == "rolled_back"
        assert await proposals.ledger_says(tx.conn, one.proposal_id, "activated", said[2][1]) == one.content_sha256


# --- lists ------------------------------------------------------------------------------------------------


async def test_lists_are_filtered_and_newest_first(db: Database) -> None:
    here, there = uuid4(), uuid4()
    made = [
        replace(
            proposal_of(pattern_id=UUID(int=number + 100)),
            workspace_id=workspace,
            created_at=AT + timedelta(minutes=number),
        )
        for number, workspace in enumerate((None, here, there))
    ]
    for one in made:
        await saved(db, one)

    async def ids(**query: Any) -> list[UUID]:
        async with db.connection(workspaces=query.get("workspace_ids")) as conn:
            return [one.proposal_id for one in await proposals.listed(conn, ListProposals(**query))]

    newest_first = [one.proposal_id for one in reversed(made)]
    assert await ids() == newest_first
    assert await ids(limit=1) == newest_first[:1]
    assert await ids(workspace_ids=(here,)) == [made[1].proposal_id, made[0].proposal_id]
    assert await ids(workspace_ids=()) == [made[0].proposal_id]
    assert await ids(pattern_id=UUID(int=102)) == [made[2].proposal_id]
    assert await ids(touchpoint_id=TOUCHPOINT, state="generated") == newest_first
    assert await ids(state="approved") == []
    assert await ids() == newest_first  # the limit of one transaction does not stay on the connection


async def test_touchpoints_keep_the_newest_revision(db: Database) -> None:
    async with db.transaction() as tx:
        await touchpoints.keep(tx.conn, [registered(2, description="two"), registered(1, description="one")])
        await touchpoints.keep(tx.conn, [registered(1, description="one")])
        kept = await touchpoints.get(tx.conn, TOUCHPOINT)
        assert kept is not None
        assert kept.description == "two"
        assert await touchpoints.get(tx.conn, "unknown") is None


# --- spend ------------------------------------------------------------------------------------------------


def reply(usd: str) -> ModelReply:
    usage = Usage(input_tokens=10, output_tokens=5, usd=Decimal(usd))
    return ModelReply(text="{}", data={}, usage=usage, model="m", provider="p", latency_ms=2.0)


async def call(db: Database, touchpoint: str = TOUCHPOINT, most_usd: Decimal = Decimal("0.25")) -> UUID:
    order = Order(provider="p", model="m", request_sha256="digest", most_usd=most_usd)
    async with db.connection() as conn:
        return await calls.started(conn, PATTERN, touchpoint, 1, order)


def answered(call_id: UUID, usd: str) -> Settled:
    return Settled(call_id, reply(usd).usage, latency_ms=2.0, reply=reply(usd))


async def test_spend_is_what_todays_calls_cost_and_lost_ones_count(db: Database) -> None:
    async with db.connection() as conn:
        await calls.settled(conn, answered(await call(db), "0.40"))
        await calls.settled(conn, answered(await call(db, "other"), "0.10"))
        await calls.settled(conn, answered(await call(db, most_usd=Decimal(0)), "9"))
        await calls.settled(conn, Settled(await call(db), NOTHING_USED, error="said no"))
        yesterday = await call(db)
        await conn.execute("UPDATE model_calls SET started_at = now() - interval '25 h' WHERE call_id = $1", yesterday)
        assert await calls.spent(conn, TOUCHPOINT, 60) == Spent(Decimal("0.50"), Decimal("0.40"), 0)
        await call(db)
        lost = Decimal("0.25")
        assert await calls.spent(conn, TOUCHPOINT, 60) == Spent(
            Decimal("0.75"), Decimal("0.65"), 1, reserved=lost, touchpoint_reserved=lost
        )
        assert await calls.spent(conn, TOUCHPOINT, 0) == Spent(Decimal("0.75"), Decimal("0.65"), 0)
        await call(db, "other", most_usd=Decimal("0.02"))  # one with a price list counts the most it can cost
        assert await calls.spent(conn, TOUCHPOINT, 60) == Spent(
            Decimal("0.77"), Decimal("0.65"), 2, reserved=Decimal("0.27"), touchpoint_reserved=lost
        )


async def test_spending_is_told_by_day_and_call_by_call(db: Database) -> None:
    async with db.connection() as conn:
        first = await call(db)
        await calls.settled(conn, answered(first, "0.40"))
        await calls.settled(conn, answered(await call(db), "0.02"))
        lost = await call(db, "other")
        free = await call(db, most_usd=Decimal(0))
        await calls.settled(conn, answered(free, "0"))
        await conn.execute(
            "UPDATE model_calls SET started_at = started_at - interval '1 day' WHERE call_id = $1", first
        )
        here = [(row.calls, row.input_tokens, row.usd, row.open_usd) for row in await calls.by_day(conn, TOUCHPOINT, 7)]
        assert here == [(2, 20, Decimal("0.02"), Decimal(0)), (1, 10, Decimal("0.40"), Decimal(0))]
        everywhere = await calls.by_day(conn, None, 1)
        assert [(row.touchpoint_id, row.usd, row.open_calls, row.open_usd) for row in everywhere] == [
            (TOUCHPOINT, Decimal("0.02"), 0, Decimal(0)),
            ("other", Decimal(0), 1, Decimal("0.25")),
        ]
        told = await calls.latest(conn, None, 2)
        assert told[0].call_id == lost
        assert (told[0].finished_at, told[0].usd, told[0].most_usd) == (None, None, Decimal("0.25"))
        assert free not in {one.call_id for one in await calls.latest(conn, None, 9)}


async def test_a_reply_is_found_by_its_request(db: Database) -> None:
    async with db.connection() as conn:
        assert await calls.paid_reply(conn, PATTERN, 1, "digest") is None
        await calls.settled(conn, answered(await call(db), "0.1"))
        assert await calls.paid_reply(conn, PATTERN, 1, "digest") == reply("0.1")
        assert await calls.paid_reply(conn, PATTERN, 2, "digest") is None
        assert await calls.paid_reply(conn, PATTERN, 1, "other") is None


async def test_a_locked_proposal_waits_for_its_turn(db: Database) -> None:
    one = await saved(db)
    order: list[str] = []
    held = asyncio.Event()

    async def first() -> None:
        async with db.transaction() as tx:
            await proposals.get(tx.conn, one.proposal_id, lock=True)
            held.set()
            await tx.conn.execute("SELECT pg_sleep(0.1)")
            await proposals.move(tx.conn, one.proposal_id, "rejected")
            order.append("first")

    async def second() -> None:
        await held.wait()
        async with db.transaction() as tx:
            seen = await proposals.get(tx.conn, one.proposal_id, lock=True)
            order.append(seen.state if seen else "gone")

    await asyncio.gather(first(), second())
    assert order == ["first", "rejected"]
