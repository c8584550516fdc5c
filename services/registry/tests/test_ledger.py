"""Activation, rollback and the chain on real Postgres, alone and racing."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import asyncpg
import pytest

from libs.contracts.events.registry import VersionActivatedV1, VersionRolledBackV1
from libs.service_kit.errors import Refused
from libs.service_kit.testing import Installation, outbox_events
from services.registry.domain import Target
from services.registry.tests.support import FIRST, SECOND, THIRD, Parts, in_table
from services.registry.verification import verify_ledger

HERE = Target("summary")


async def test_the_text_found_at_registration_is_live_from_the_first_minute(parts: Parts) -> None:
    await parts.register(in_table())
    live = await parts.live(HERE)
    assert live.parts[0].text == FIRST
    (fact,) = await outbox_events(parts.db, VersionActivatedV1)
    assert (fact.data.version_ref, fact.data.previous_ref) == (live.version_ref, None)
    assert await parts.kinds() == ["registered"]


async def test_activation_replaces_what_was_expected(parts: Parts) -> None:
    await parts.register(in_table())
    first = await parts.live(HERE)
    second = await parts.record(HERE, SECOND)
    switched = await parts.ledger.activate(HERE, second, expected_live=first.version_ref, by="ada", reason="better")
    assert switched.previous is not None
    assert switched.previous.version_ref == first.version_ref
    live = await parts.live(HERE)
    assert (live.version_ref, live.parts[0].text) == (second, SECOND)
    rows = await parts.rows("SELECT * FROM prompt_version_registry ORDER BY activated_at")
    assert [row["rolled_back_at"] for row in rows] == [rows[1]["activated_at"], None]
    assert rows[1]["file_sha256"] == live.content_sha256


async def test_who_saw_an_older_state_is_told_what_holds_now(parts: Parts) -> None:
    await parts.register(in_table())
    first = await parts.live(HERE)
    second, third = await parts.record(HERE, SECOND), await parts.record(HERE, THIRD)
    await parts.ledger.activate(HERE, second, expected_live=first.version_ref, by="ada", reason="better")
    with pytest.raises(Refused) as no:
        await parts.ledger.activate(HERE, third, expected_live=first.version_ref, by="bob", reason="mine")
    assert (no.value.status, no.value.code) == (409, "conflict")
    live = no.value.extra["live"]
    assert isinstance(live, dict)
    assert live["version_ref"] == second
    assert (await parts.live(HERE)).version_ref == second


@pytest.mark.parametrize(
    ("target", "version", "status", "code"),
    [
        (Target("nothing"), "feed_prompts:x", 404, "unknown_touchpoint"),
        (HERE, "feed_prompts:x", 404, "unknown_version"),
        (Target("summary", uuid4()), "feed_prompts:x", 422, "scope"),
    ],
)
async def test_what_is_not_there_is_said(parts: Parts, target: Target, version: str, status: int, code: str) -> None:
    await parts.register(in_table())
    expected = (await parts.live(HERE)).version_ref if target == HERE else None
    with pytest.raises(Refused) as no:
        await parts.ledger.activate(target, version, expected_live=expected, by="ada", reason="x")
    assert (no.value.status, no.value.code) == (status, code)


async def test_activating_the_live_version_again_is_refused(parts: Parts) -> None:
    await parts.register(in_table())
    live = await parts.live(HERE)
    with pytest.raises(Refused, match="is live already"):
        await parts.ledger.activate(HERE, live.version_ref, expected_live=live.version_ref, by="ada", reason="x")


async def test_rollback_leads_to_the_previous_version_and_activates_its_reference_again(parts: Parts) -> None:
    await parts.register(in_table())
    first = await parts.live(HERE)
    second = await parts.record(HERE, SECOND)
    await parts.ledger.activate(HERE, second, expected_live=first.version_ref, by="ada", reason="better")
    switched = await parts.ledger.roll_back(HERE, None, by="bob", reason="worse after all")
    assert switched.live.version_ref == first.version_ref
    assert switched.previous is not None
    assert switched.live.rolled_back_from == switched.previous.id
    (fact,) = await outbox_events(parts.db, VersionRolledBackV1)
    assert (fact.data.from_version, fact.data.to_version) == (second, first.version_ref)
    assert await parts.kinds() == ["registered", "activated", "rolled_back"]
    with pytest.raises(Refused) as no:
        await parts.ledger.roll_back(HERE, None, by="bob", reason="again")
    assert no.value.code == "no_previous_version"
    await parts.ledger.roll_back(HERE, second, by="bob", reason="not so bad")
    assert (await parts.live(HERE)).version_ref == second


async def test_rollback_to_a_version_that_was_never_live_is_refused(parts: Parts) -> None:
    await parts.register(in_table())
    second = await parts.record(HERE, SECOND)
    with pytest.raises(Refused, match="never live"):
        await parts.ledger.roll_back(HERE, second, by="bob", reason="x")


async def test_each_workspace_has_its_own_live_version_from_its_first_use(parts: Parts) -> None:
    await parts.register(in_table(scope="workspace"))
    one, other = Target("summary", uuid4()), Target("summary", uuid4())
    first, _ = await asyncio.gather(parts.live(one), parts.live(one))
    await parts.live(other)
    second = await parts.record(one, SECOND)
    await parts.ledger.activate(one, second, expected_live=first.version_ref, by="ada", reason="better")
    assert (await parts.live(one)).parts[0].text == SECOND
    assert (await parts.live(other)).parts[0].text == FIRST
    assert await parts.kinds() == ["registered", "registered", "activated"]


# --- what the database itself refuses --------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger_entries SET reason = 'x'",
        "DELETE FROM ledger_entries",
        "DELETE FROM ledger_head",
        "UPDATE prompt_versions SET note = 'x'",
        "DELETE FROM prompt_versions",
        "DELETE FROM prompt_version_registry",
        "UPDATE prompt_version_registry SET notes = 'x'",
        "UPDATE prompt_version_registry SET notes = 'x', rolled_back_at = now()",
        "UPDATE prompt_version_registry SET rolled_back_at = NULL",
        "UPDATE touchpoints SET scope = 'workspace'",
    ],
)
async def test_history_cannot_be_changed(parts: Parts, statement: str) -> None:
    await parts.register(in_table())
    with pytest.raises(asyncpg.RestrictViolationError):
        await parts.rows(statement)


async def test_an_activation_is_retired_once(parts: Parts) -> None:
    await parts.register(in_table())
    await parts.rows("UPDATE prompt_version_registry SET rolled_back_at = clock_timestamp()")
    with pytest.raises(asyncpg.RestrictViolationError):
        await parts.rows("UPDATE prompt_version_registry SET rolled_back_at = clock_timestamp()")


async def test_a_second_live_row_is_refused_by_the_index(parts: Parts) -> None:
    await parts.register(in_table())
    copy = """
        INSERT INTO prompt_version_registry
            (touchpoint_id, version_ref, storage_adapter, activated_by, file_sha256, prompt_version_id)
        SELECT touchpoint_id, 'other', storage_adapter, activated_by, file_sha256, prompt_version_id
        FROM prompt_version_registry
    """
    with pytest.raises(asyncpg.UniqueViolationError, match="one_live"):
        await parts.rows(copy)


@pytest.mark.parametrize(("scope", "workspace"), [("global", uuid4()), ("workspace", None)])
async def test_a_row_whose_workspace_does_not_fit_the_scope_is_refused(
    parts: Parts, scope: str, workspace: object
) -> None:
    await parts.register(in_table(scope=scope))
    insert = """
        INSERT INTO prompt_versions
            (touchpoint_id, workspace_id, version_ref, parts, content_sha256, origin, created_by)
        VALUES ('summary', $1, 'x', '[]', repeat('0', 64), 'manual', 'ada')
    """
    with pytest.raises(asyncpg.CheckViolationError, match="summary"):
        await parts.rows(insert, workspace)


# --- the chain -------------------------------------------------------------------------------------------


async def test_the_stored_chain_verifies_and_tampering_by_the_owner_is_found(
    parts: Parts, installation: Installation
) -> None:
    await parts.register(in_table())
    first = await parts.live(HERE)
    second = await parts.record(HERE, SECOND)
    await parts.ledger.activate(HERE, second, expected_live=first.version_ref, by="ada", reason="'ü' \\ \"x\" \n 🙂")
    assert (await verify_ledger(parts.db)).intact
    owner = await asyncpg.connect(installation.admin_dsn)
    await owner.execute("ALTER TABLE registry.ledger_entries DISABLE TRIGGER ALL")
    await owner.execute("UPDATE registry.ledger_entries SET by = 'eve' WHERE seq = 2")
    outcome = await verify_ledger(parts.db)
    assert (outcome.intact, outcome.broken_at) == (False, 2)
    await owner.execute("DELETE FROM registry.ledger_entries WHERE seq = 2")
    await owner.close()
    outcome = await verify_ledger(parts.db)
    assert (outcome.intact, outcome.broken_at, outcome.problem) == (False, 2, "entries 2 to 2 are missing")


async def test_activations_of_different_touchpoints_at_once_all_succeed_in_one_chain(parts: Parts) -> None:
    names = [f"t{n}" for n in range(20)]
    await parts.register(*(in_table(name) for name in names))

    async def change(name: str) -> None:
        target = Target(name)
        second = await parts.record(target, SECOND)
        live = (await parts.live(target)).version_ref
        await parts.ledger.activate(target, second, expected_live=live, by="ada", reason="better")

    await asyncio.gather(*(change(name) for name in names))
    outcome = await verify_ledger(parts.db)
    assert (outcome.intact, outcome.entries) == (True, 40)
