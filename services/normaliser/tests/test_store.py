from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from libs import touchpoints
from libs.contracts.envelope import Event
from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.queries.normaliser import ListSignals, StoredSignal
from libs.contracts.vocabulary import Scope
from libs.service_kit.db import Connection, Database
from services.normaliser import store
from services.normaliser.domain import Outcome, normalise
from services.normaliser.tests.support import NOON, WORKSPACE, at, observed, registered

OpenDatabase = Callable[[str], Awaitable[Database]]
KNOWN: dict[str, Scope] = {"support.intent": "global", "si.relevance-scorer": "workspace"}
BIG = 10**9


@pytest.fixture
async def db(database: OpenDatabase) -> Database:
    return await database("normaliser")


async def save(conn: Connection, *events: Event[SignalObservedV1], known: dict[str, Scope] = KNOWN) -> list[Outcome]:
    accepted, rejected = normalise(events, known, now=at(600))
    return await store.save(conn, [*accepted, *rejected])


async def only(conn: Connection) -> StoredSignal:
    [signal], more = await store.listed(conn, ListSignals(), None, BIG)
    assert not more
    return signal


async def test_a_new_signal_is_created_and_kept_whole(db: Database) -> None:
    event = observed(payload={"text": "café ☕", "entity": {"type": "org", "n": [1, 2.5]}}, version_ref="git:abc")
    async with db.connection() as conn:
        [outcome] = await save(conn, event)
        signal = await only(conn)
    assert (outcome.fact, outcome.first_seen, outcome.last_seen) == ("created", NOON, NOON)
    assert signal.payload == {"text": "café ☕", "entity": {"type": "org", "n": [1, 2.5]}}
    assert signal.evidence_ref == {"source": "feed_flags", "id": "1"}
    assert (signal.signal_id, signal.version_ref, signal.rejected) == (event.data.signal_id, "git:abc", None)


@pytest.mark.parametrize("text", [r"typed \u0000 by hand", "a\x00b", r"\\", "\\\x00", '"', "\ufeff\u202e"])
async def test_any_text_can_be_stored(db: Database, text: str) -> None:
    async with db.connection() as conn:
        await save(conn, observed(payload={"text": text}))
        assert (await only(conn)).payload == {"text": text.replace("\x00", "")}


async def test_seen_again_it_moves_and_is_said_again_and_is_still_one(db: Database) -> None:
    async with db.connection() as conn:
        await save(conn, observed(actor_id="first"))
        [outcome] = await save(conn, observed(minutes=5, actor_id="second", payload={"text": "newer words"}))
        signal = await only(conn)
    assert (outcome.fact, outcome.first_seen, outcome.last_seen) == ("created", NOON, at(5))
    assert (outcome.actor_id, signal.actor_id) == ("first", "first")
    assert signal.payload == {"text": "newer words"}


async def test_seen_at_the_same_time_or_earlier_nothing_is_said(db: Database) -> None:
    async with db.connection() as conn:
        await save(conn, observed(minutes=5))
        assert await save(conn, observed(minutes=5)) == []
        assert await save(conn, observed(minutes=1, payload={"text": "older words"})) == []
        signal = await only(conn)
    assert (signal.first_seen, signal.last_seen) == (at(1), at(5))
    assert signal.payload["text"] == "where is my refund"


async def test_a_rejection_is_said_once_a_transition(db: Database) -> None:
    async with db.connection() as conn:
        [unknown] = await save(conn, observed(), known={})
        assert await save(conn, observed(minutes=1), known={}) == []
        [scope] = await save(conn, observed(minutes=2), known={"support.intent": "workspace"})
        [created] = await save(conn, observed(minutes=3))
        [again] = await save(conn, observed(minutes=4), known={})
        signal = await only(conn)
    assert [one.fact for one in (unknown, scope, created, again)] == ["rejected", "rejected", "created", "rejected"]
    assert [one.transition for one in (unknown, scope, again)] == [1, 2, 3]
    assert (signal.rejected, signal.first_seen, signal.last_seen) == ("unknown_touchpoint", NOON, at(4))


async def test_an_invalid_observation_changes_nothing_of_a_signal_that_counts(db: Database) -> None:
    async with db.connection() as conn:
        await save(conn, observed())
        assert await save(conn, observed(minutes=10_000)) == []
        assert (await only(conn)).last_seen == NOON


async def test_invalid_is_kept_and_counts_when_it_is_observed_right(db: Database) -> None:
    async with db.connection() as conn:
        [no] = await save(conn, observed(minutes=10_000, payload={"text": "t", "n": float("nan")}))
        kept = await only(conn)
        [yes] = await save(conn, observed())
        signal = await only(conn)
    assert (no.fact, kept.rejected, kept.payload) == ("rejected", "invalid", {"text": "t"})
    assert (yes.fact, signal.rejected, signal.payload["got"]) == ("created", None, "card_charge")


async def test_nul_is_left_out_wherever_it_was(db: Database) -> None:
    async with db.connection() as conn:
        dirty = observed("a\x00", actor_id="\x00b", version_ref="c\x00", payload={"k\x00": ["\x00v"]})
        [yes] = await save(conn, dirty)
        signal = await only(conn)
    assert (yes.fact, signal.rejected) == ("created", None)
    assert (signal.source_key, signal.actor_id, signal.version_ref, signal.payload) == ("a", "b", "c", {"k": ["v"]})


async def test_the_same_key_in_two_workspaces_is_two_signals(db: Database) -> None:
    async with db.connection() as conn:
        for workspace in (WORKSPACE, uuid4()):
            await save(conn, observed(touchpoint_id="si.relevance-scorer", workspace_id=workspace))
        [count] = await store.counts(conn, None)
    assert (count.touchpoint_id, count.stored, count.unprocessed) == ("si.relevance-scorer", 2, 2)


async def test_the_database_enforces_scope_and_the_seed_s_words(db: Database) -> None:
    async with db.connection() as conn:
        await save(conn, observed())
        for broken in (
            "workspace_id = gen_random_uuid()",
            "signal_type = 'rumour'",
            "severity = 'dire'",
            "actor_kind = 'ghost'",
            "last_seen = first_seen - interval '1 s'",
            "rejected = 'boring'",
        ):
            with pytest.raises(asyncpg.CheckViolationError):
                await conn.execute(f"UPDATE prompt_quality_signals SET {broken}")
        with pytest.raises(asyncpg.UniqueViolationError):
            await conn.execute(
                "INSERT INTO prompt_quality_signals (id, touchpoint_id, signal_type, severity, evidence_ref, payload,"
                " first_seen, last_seen, actor_id, actor_kind, source_key, judged_scope)"
                " SELECT gen_random_uuid(), touchpoint_id, signal_type, severity, evidence_ref, payload, first_seen,"
                " last_seen, actor_id, actor_kind, source_key, judged_scope FROM prompt_quality_signals"
            )


async def test_processed_moves_forward_only(db: Database) -> None:
    event = observed()
    async with db.connection() as conn:
        await save(conn, event)
        identity = event.data.signal_id
        await store.mark_processed(conn, [(identity, at(2)), (identity, at(3)), (uuid4(), at(9))])
        await store.mark_processed(conn, [(identity, at(1))])
        assert (await only(conn)).processed_at == at(3)
        [count] = await store.counts(conn, "support.intent")
    assert (count.stored, count.unprocessed, count.rejected) == (1, 0, 0)


async def test_an_older_revision_of_a_touchpoint_changes_nothing(db: Database) -> None:
    async with db.connection() as conn:
        await touchpoints.keep(conn, [registered(scope="global", revision=2).data])
        await touchpoints.keep(conn, [registered(scope="workspace", revision=1).data])
        assert await touchpoints.scopes(conn, ["support.intent", "no.such"]) == {"support.intent": "global"}


# --- reading ----------------------------------------------------------------------------------------------


async def listed(db: Database, after: store.Cursor | None = None, most: int = BIG, **query: Any) -> list[StoredSignal]:
    async with db.connection(workspaces=query.get("workspace_ids")) as conn:
        signals, _ = await store.listed(conn, ListSignals(**query), after, most)
    return signals


async def test_pages_follow_each_other_without_gap_or_repeat(db: Database) -> None:
    async with db.connection() as conn:
        for n in range(4):  # each statement is a transaction: its rows share created_at
            await save(conn, *(observed(f"k:{n}-{m}") for m in range(3)))
    everything = await listed(db, limit=500)
    assert [one.created_at for one in everything] == sorted((one.created_at for one in everything), reverse=True)
    seen: list[StoredSignal] = []
    after = None
    while page := await listed(db, after, limit=5):
        seen += page
        after = store.Cursor(page[-1].created_at, page[-1].signal_id)
    assert seen == everything
    assert len(seen) == 12


async def test_a_page_ends_early_where_payloads_are_large(db: Database) -> None:
    async with db.connection() as conn:
        await save(conn, *(observed(f"k:{n}", payload={"text": "x" * 1000}) for n in range(5)))
    assert len(await listed(db, most=2_500)) == 2
    assert len(await listed(db, most=1)) == 1


async def test_filters(db: Database) -> None:
    done, other = observed("k:done"), observed("k:other", touchpoint_id="no.such")
    async with db.connection() as conn:
        await save(conn, done, other, observed("k:open"))
        await store.mark_processed(conn, [(done.data.signal_id, NOON)])
    keys = {
        "touchpoint": [one.source_key for one in await listed(db, touchpoint_id="no.such")],
        "rejected": [one.source_key for one in await listed(db, rejected=True)],
        "open": [one.source_key for one in await listed(db, rejected=False, unprocessed=True)],
        "done": [one.source_key for one in await listed(db, unprocessed=False)],
        "id": [one.source_key for one in await listed(db, signal_id=done.data.signal_id)],
    }
    assert keys == {
        "touchpoint": ["k:other"],
        "rejected": ["k:other"],
        "open": ["k:open"],
        "done": ["k:done"],
        "id": ["k:done"],
    }


async def test_a_reader_sees_the_workspaces_it_names_and_what_has_none(db: Database) -> None:
    async with db.connection() as conn:
        await save(conn, observed("global:1"))
        for key, workspace in (("mine:1", WORKSPACE), ("theirs:1", uuid4())):
            await save(conn, observed(key, touchpoint_id="si.relevance-scorer", workspace_id=workspace))
    assert {one.source_key for one in await listed(db, workspace_ids=(WORKSPACE,))} == {"global:1", "mine:1"}
    assert {one.source_key for one in await listed(db, workspace_ids=())} == {"global:1"}
    assert len(await listed(db)) == 3


@pytest.mark.parametrize("text", ["", "x", "2025-06-01T12:00:00~", "2025-06-01T12:00:00~" + str(WORKSPACE), "~~~"])
def test_a_cursor_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        store.Cursor.parse(text)
