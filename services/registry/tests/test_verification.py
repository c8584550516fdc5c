"""The owner of the database changes what is kept, with every trigger off: `ledger verify` finds it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio

from libs.auth.statements import StatementKey, holds
from libs.contracts.touchpoints import Touchpoint
from libs.contracts.versions import LedgerHead
from libs.service_kit.errors import Refused
from libs.service_kit.testing import Installation, event_of
from services.registry.domain import Target, Verification, line_sha256
from services.registry.drift import DriftCheck
from services.registry.tests.support import SECOND, SKILL, THIRD, Parts, Repository, approved, in_table
from services.registry.verification import Kept, load_key, signed_head, verify_ledger
from services.registry.verification.rules import AT_WORK, NOT_COVERED

TABLE, GIT, SHARED = Target("summary"), Target("support.intent"), "shared"
HERE, THERE = Target(SHARED, UUID(int=1)), Target(SHARED, UUID(int=2))
APART = {
    "touchpoints": "the configuration: replaced by `apply`; the ledger holds what became live by it",
    "judgements": "the detector's verdicts, as they were heard",
    "idempotency_keys": "answers to pushes, forgotten after a day",
}
"""The registry's own tables that the ledger says nothing about."""


@dataclass(frozen=True)
class Owner:
    """The database's owner at work, with triggers and foreign keys off."""

    conn: asyncpg.Connection[asyncpg.Record]
    parts: Parts

    async def run(self, statement: str, *args: Any) -> None:
        await self.conn.execute(statement, *args)

    async def rows(self, statement: str, *args: Any) -> list[dict[str, Any]]:
        return [dict(row) for row in await self.conn.fetch(statement, *args)]

    async def verdict(self, kept: Kept | None = None) -> Verification:
        return await verify_ledger(self.parts.db, kept=kept)

    async def head(self) -> Kept:
        (row,) = await self.rows("SELECT seq, entry_sha256 FROM ledger_head")
        return Kept(row["seq"], row["entry_sha256"])

    @asynccontextmanager
    async def put_back(self) -> AsyncIterator[None]:
        """Everything as it was before, at the end of the block."""
        tables = (*NOT_COVERED, "touchpoints")
        for table in tables:
            await self.run(f"CREATE TABLE IF NOT EXISTS aside_{table} AS TABLE {table}")
        yield
        for table in tables:
            await self.run(f"TRUNCATE {table} CASCADE")
        for table in tables:
            await self.run(f"INSERT INTO {table} TABLE aside_{table}")
            await self.run(f"DROP TABLE aside_{table}")

    async def write_anew(self) -> None:
        """Give every line the hash that it would have, and the chain the end that it then has."""
        previous = "0" * 64
        for row in await self.rows("SELECT * FROM ledger_entries ORDER BY seq"):
            fields = {name: value for name, value in row.items() if name != "entry_sha256"}
            fields["detail"], fields["previous_sha256"] = json.loads(row["detail"]), previous
            previous = line_sha256(fields)
            await self.run(
                "UPDATE ledger_entries SET previous_sha256 = $2, entry_sha256 = $3 WHERE seq = $1",
                row["seq"], fields["previous_sha256"], previous,
            )  # fmt: skip
        await self.run(
            "UPDATE ledger_head SET (seq, entry_sha256, at) = "
            "(SELECT seq, entry_sha256, at FROM ledger_entries ORDER BY seq DESC LIMIT 1)"
        )


@pytest_asyncio.fixture
async def owner(
    parts: Parts, installation: Installation, in_git: Touchpoint, repository: Repository
) -> AsyncIterator[Owner]:
    """A ledger in which everything has happened, and its owner."""
    await _history(parts, in_git, repository)
    conn = await asyncpg.connect(installation.admin_dsn)
    await conn.execute("SET search_path = registry; SET session_replication_role = replica")
    made = Owner(conn, parts)
    assert (await made.verdict()).intact
    yield made
    await conn.close()


async def _history(parts: Parts, in_git: Touchpoint, repository: Repository) -> None:
    await parts.register(in_table(), in_table(SHARED, "workspace"), in_git)
    first = await parts.live(TABLE)
    second = await parts.record(TABLE, SECOND)
    await parts.record(TABLE, "never live")
    await parts.ledger.activate(TABLE, second, expected_live=first.version_ref, by="ada", reason="better")
    await parts.ledger.roll_back(TABLE, None, by="bob", reason="worse after all")
    await parts.live(THERE)
    here = await parts.live(HERE)
    other = await parts.record(HERE, THIRD)
    await parts.ledger.activate(HERE, other, expected_live=here.version_ref, by="eve", reason="ours")

    live = await parts.live(GIT)
    merged = approved("support.intent", live, SECOND, waiver="no suite yet")
    rival = approved("support.intent", live, THIRD)
    for approval in (merged, rival):
        await parts.pending_merges.take_up(event_of(approval))
    repository.git("merge", "-q", f"burnish/{merged.proposal_id.hex[:12]}")
    await parts.pending_merges.check()
    await parts.pending_merges.take_up(event_of(approved("support.intent", await parts.live(GIT), THIRD)))
    await parts.pending_merges.propose_rollback(GIT, live.version_ref, by="bob", reason="worse")
    repository.commit(SKILL, "edited by hand\n")
    await DriftCheck(parts.db, parts.ledger, parts.pending_merges, parts.stores).check()
    repository.git("rm", "-q", SKILL)
    repository.git("commit", "-q", "-m", "Gone")
    await DriftCheck(parts.db, parts.ledger, parts.pending_merges, parts.stores).check()


# --- every column of every row ----------------------------------------------------------------------------

KEYS = {
    "ledger_entries": "seq",
    "ledger_head": "only_one",
    "prompt_version_registry": "id",
    "prompt_versions": "id",
    "intents": "intent_id",
    "drift_findings": "ctid",
}


def others(kind: str, column: str, value: Any) -> Iterator[Any]:
    """Values of a column's type that differ from `value`; more than one, since constraints refuse some."""
    if kind == "boolean":
        yield from (not value, None)
    elif kind == "uuid":
        yield from (uuid4(), UUID(int=0), None)
    elif kind == "bigint":
        yield from (value + 1, value + 1_000, -1, None)
    elif kind == "timestamp with time zone":
        shown = value or datetime.now(UTC)
        yield from (shown + timedelta(microseconds=1), shown + timedelta(days=9), None)
    elif kind == "jsonb":
        yield from ("[]", "null", '"x"', '[{"path": "prompt", "text": "other"}]', "[" * 900 + "]" * 900)
        yield from _edited(json.loads(value))
    else:
        yield from ((value or "") + "x", "x" * 5_000, None)
        if column in ("kind", "state"):
            yield from ("confirmed", "closed", "activate", "rollback", "activated", "rolled_back", "waiver")


def _edited(value: Any) -> Iterator[str]:
    """The document with each single leaf of it changed, left out or added to."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            for edited in _edited(item):
                yield json.dumps([*value[:index], json.loads(edited), *value[index + 1 :]])
        yield json.dumps([*value, *value])
    elif isinstance(value, dict):
        for name, item in value.items():
            yield json.dumps({**value, name: f"{item}x"})
            yield json.dumps({key: kept for key, kept in value.items() if key != name})
        yield json.dumps({**value, "more": 1})


def innocent(table: str, column: str, row: dict[str, Any], other: Any) -> bool:
    """What the ledger says nothing about: how far the work on an intent's branch is."""
    if table == "intents" and column in ("error_code", "error"):
        return bool(row["state"] != "closed")
    return table == "intents" and column == "state" and row["state"] in AT_WORK and other in AT_WORK


async def columns(owner: Owner, table: str) -> list[tuple[str, str]]:
    found = await owner.rows(
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_schema = 'registry' AND table_name = $1 ORDER BY ordinal_position",
        table,
    )
    return [(row["column_name"], row["data_type"]) for row in found]


@pytest.mark.parametrize("table", sorted(NOT_COVERED))
@pytest.mark.timeout(300)
async def test_every_column_of_every_row_is_covered_or_listed_with_a_reason(owner: Owner, table: str) -> None:
    key = KEYS[table]
    await unconstrained(owner, table)
    for column, kind in await columns(owner, table):
        if column in NOT_COVERED[table] and column not in ("error", "error_code"):
            continue
        tried = 0
        for row in await owner.rows(f"SELECT {key}::text AS at_row, * FROM {table}"):
            for other in others(kind, column, row[column]):
                if other == row[column] or innocent(table, column, row, other):
                    continue
                tried += await tampered(owner, table, column, kind, row, other)
        assert tried, f"{table}.{column}: nothing could be changed, so nothing was tested"
    assert (await owner.verdict()).intact


async def unconstrained(owner: Owner, table: str) -> None:
    """Drop what the owner can drop: checks, and NOT NULL of all but the key."""
    for row in await owner.rows(
        "SELECT c.conname FROM pg_constraint c LEFT JOIN pg_constraint k ON k.conrelid = c.conrelid "
        "AND k.contype = 'p' AND k.conkey @> c.conkey WHERE c.conrelid = $1::regclass "
        "AND (c.contype = 'c' OR (c.contype = 'n' AND k.oid IS NULL))",
        table,
    ):
        await owner.run(f'ALTER TABLE {table} DROP CONSTRAINT "{row["conname"]}"')


async def tampered(owner: Owner, table: str, column: str, kind: str, row: dict[str, Any], other: Any) -> bool:
    """Change one value, see that it is found, and put it back; False when a constraint refuses the value."""
    key = KEYS[table]
    where = f"{key}::text = ${{}}"
    try:
        changed = await owner.conn.fetchval(
            f"UPDATE {table} SET {column} = $1::{kind} WHERE {where.format(2)} RETURNING {key}::text",
            other,
            row["at_row"],
        )
    except (asyncpg.IntegrityConstraintViolationError, asyncpg.ProgramLimitExceededError):
        return False
    assert changed is not None
    verdict = await owner.verdict()
    told = f"{table}.{column} of {row['at_row']} was changed to {str(other)[:80]!r}"
    assert not verdict.intact, told
    assert verdict.problem, told
    assert verdict.table or verdict.broken_at, told
    row["at_row"] = await owner.conn.fetchval(
        f"UPDATE {table} SET {column} = $1::{kind} WHERE {where.format(2)} RETURNING {key}::text",
        row[column],
        changed,
    )
    return True


async def test_every_table_of_the_registry_is_covered_or_listed_with_a_reason(owner: Owner) -> None:
    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = $1 AND table_type = 'BASE TABLE'"
    own, kit = [{row["table_name"] for row in await owner.rows(tables, name)} for name in ("registry", "scanner")]
    assert own - kit <= set(NOT_COVERED) | set(APART)
    assert all(reason for reasons in NOT_COVERED.values() for reason in reasons.values())


# --- rows that come, go, or change places -----------------------------------------------------------------


@pytest.mark.parametrize("table", sorted(NOT_COVERED))
async def test_each_row_that_is_taken_away_is_missed(owner: Owner, table: str) -> None:
    key = KEYS[table]
    for row in await owner.rows(f"SELECT {key}::text AS at_row FROM {table}"):
        await owner.run(f"CREATE TABLE aside AS TABLE {table}")
        await owner.run(f"DELETE FROM {table} WHERE {key}::text = $1", row["at_row"])
        verdict = await owner.verdict()
        never_live = table == "prompt_versions" and not await owner.rows(
            "SELECT FROM prompt_version_registry WHERE prompt_version_id::text = $1", row["at_row"]
        )
        assert verdict.intact == never_live, row
        await owner.run(f"INSERT INTO {table} SELECT * FROM aside ON CONFLICT DO NOTHING")
        await owner.run("DROP TABLE aside")
    assert (await owner.verdict()).intact


COPY = """
INSERT INTO prompt_version_registry (touchpoint_id, version_ref, storage_adapter, activated_by, file_sha256,
    prompt_version_id, rolled_back_at)
SELECT touchpoint_id, version_ref, storage_adapter, 'eve', file_sha256, prompt_version_id, now() + interval '1 day'
FROM prompt_version_registry LIMIT 1
"""
STATEMENTS = {
    "the live row is re-pointed": """
        UPDATE prompt_version_registry r SET (prompt_version_id, version_ref, file_sha256) =
            (SELECT id, version_ref, content_sha256 FROM prompt_versions v
             WHERE v.touchpoint_id = 'summary' AND v.id <> r.prompt_version_id LIMIT 1)
        WHERE touchpoint_id = 'summary' AND rolled_back_at IS NULL""",
    "the live row shows another text": """
        UPDATE prompt_version_registry r SET prompt_version_id =
            (SELECT id FROM prompt_versions v WHERE v.touchpoint_id = 'summary' AND v.id <> r.prompt_version_id LIMIT 1)
        WHERE touchpoint_id = 'summary' AND rolled_back_at IS NULL""",
    "an approver is forged": "UPDATE prompt_version_registry SET activated_by = 'eve' WHERE activated_by = 'bob'",
    "history is deleted": "DELETE FROM prompt_version_registry WHERE rolled_back_at IS NOT NULL",
    "a text is replaced": """UPDATE prompt_versions SET parts = '[{"path": "prompt", "text": "evil"}]'""",
    "a text is replaced with its hash": """
        UPDATE prompt_versions SET parts = '[{"path": "prompt", "text": "evil"}]',
            content_sha256 = encode(sha256('evil'), 'hex')""",
    "a text that was never live is replaced with its hash": """
        UPDATE prompt_versions SET parts = '[{"path": "prompt", "text": "evil"}]',
            content_sha256 = encode(sha256('evil'), 'hex')
        WHERE id NOT IN (SELECT prompt_version_id FROM prompt_version_registry)""",
    "an intent's text is replaced with its hash": """
        UPDATE intents SET parts = '[{"path": "prompts/intent.md", "text": "evil"}]',
            content_sha256 = encode(sha256('evil'), 'hex')""",
    "an intent's text goes to another file": """
        UPDATE intents SET parts = jsonb_set(parts, '{0,path}', '"other.md"')""",
    "the patch of a rollback is another": "UPDATE intents SET diff = diff || '+evil' WHERE kind = 'rollback'",
    "an activation is inserted": COPY,
    "an intent is inserted": """
        INSERT INTO intents (intent_id, kind, state, touchpoint_id, from_ref, from_sha256, parts, content_sha256,
            message, created_by)
        SELECT gen_random_uuid(), 'activate', 'open', touchpoint_id, from_ref, from_sha256, parts, content_sha256,
            message, created_by FROM intents LIMIT 1""",
    "a finding is inserted": """
        INSERT INTO drift_findings SELECT activation_id, repeat('f', 64), now() FROM drift_findings LIMIT 1""",
    "a line is inserted before the first": """
        INSERT INTO ledger_entries SELECT 0, kind, touchpoint_id, workspace_id, version_ref, previous_ref, proposal_id,
            by, reason, at, detail, repeat('e', 64), repeat('f', 64) FROM ledger_entries LIMIT 1""",
    "two activations change places": """
        UPDATE prompt_version_registry a SET (version_ref, file_sha256, prompt_version_id) =
            (SELECT b.version_ref, b.file_sha256, b.prompt_version_id FROM prompt_version_registry b
             WHERE b.touchpoint_id = a.touchpoint_id AND b.version_ref <> a.version_ref LIMIT 1)
        WHERE touchpoint_id = 'summary'""",
    "an activation moves to another workspace": """
        UPDATE prompt_version_registry SET workspace_id = gen_random_uuid() WHERE touchpoint_id = 'shared'""",
    "an activation moves to another touchpoint": """
        UPDATE prompt_version_registry SET touchpoint_id = 'support.intent' WHERE touchpoint_id = 'summary'
            AND rolled_back_at IS NOT NULL""",
    "a touchpoint is taken away": "DELETE FROM touchpoints WHERE touchpoint_id = 'summary'",
    "a touchpoint gets another scope": "UPDATE touchpoints SET scope = 'workspace' WHERE touchpoint_id = 'summary'",
    "the end is taken away": "DELETE FROM ledger_head",
    "times that are none": """UPDATE prompt_version_registry SET activated_at = '-infinity'""",
    "times before our era": """
        UPDATE prompt_version_registry SET activated_at = activated_at - interval '4000 years'""",
    "a line's time is none": "UPDATE ledger_entries SET at = 'infinity' WHERE seq = 2",
    "a text is very large": """
        UPDATE prompt_versions SET parts = jsonb_build_array(jsonb_build_object('path', 'prompt', 'text',
            repeat('x', 20000000)))""",
    "a line's detail is very large": """
        UPDATE ledger_entries SET detail = jsonb_build_object('more', repeat('x', 20000000)) WHERE seq = 2""",
    "numbers beyond all measure": """UPDATE ledger_entries SET detail = '{"n": 1e9999}' WHERE seq = 2""",
}


async def test_what_the_owner_changed_is_found_and_named(owner: Owner) -> None:
    for name, statement in STATEMENTS.items():
        async with owner.put_back():
            assert not (await owner.conn.execute(statement)).endswith(" 0"), name
            verdict = await owner.verdict()
            assert not verdict.intact, name
            assert verdict.problem, name
            assert verdict.table, name
    assert (await owner.verdict()).intact


async def test_a_tail_that_is_cut_with_its_head_leaves_rows_without_a_line(owner: Owner) -> None:
    kept = await owner.head()
    await owner.run("DELETE FROM ledger_entries WHERE seq > $1", kept.seq - 3)
    await owner.write_anew()
    assert not (await owner.verdict()).intact


# --- what the owner writes anew, chain and all ------------------------------------------------------------


async def test_a_chain_that_was_written_anew_over_one_changed_line_is_found_by_the_rows(owner: Owner) -> None:
    changes = [
        "UPDATE ledger_entries SET by = 'eve' WHERE kind IN ('registered', 'activated', 'rolled_back', 'intent')",
        "UPDATE ledger_entries SET reason = 'x' WHERE kind IN ('activated', 'confirmed', 'intent_closed')",
        "UPDATE ledger_entries SET proposal_id = gen_random_uuid() WHERE kind = 'intent'",
        "UPDATE ledger_entries SET at = at + interval '1 second'",
        "UPDATE ledger_entries SET previous_ref = 'x' WHERE kind = 'activated'",
        "UPDATE ledger_entries SET version_ref = 'x' WHERE kind = 'activated'",
        "UPDATE ledger_entries SET touchpoint_id = 'support.intent'",
        "UPDATE ledger_entries SET workspace_id = gen_random_uuid() WHERE workspace_id IS NOT NULL",
        "UPDATE ledger_entries SET kind = 'rolled_back' WHERE kind = 'activated'",
        "UPDATE ledger_entries SET kind = 'waiver' WHERE kind = 'activated'",
        "UPDATE ledger_entries SET kind = 'waiver' WHERE kind = 'confirmed'",
        "UPDATE ledger_entries SET kind = 'waiver' WHERE kind = 'drift'",
    ]  # fmt: skip
    for change in changes:
        async with owner.put_back():
            await owner.run(change)
            await owner.write_anew()
            verdict = await owner.verdict()
            assert not verdict.intact, change
            assert "was changed" not in verdict.problem, change
    assert (await owner.verdict()).intact


async def test_lines_and_rows_written_anew_together_are_found_by_a_head_that_was_kept(owner: Owner) -> None:
    kept = await owner.head()
    assert (await owner.verdict(kept)).intact
    await owner.run("UPDATE ledger_entries SET by = 'eve' WHERE by = 'bob' AND kind = 'rolled_back'")
    await owner.run("UPDATE prompt_version_registry SET activated_by = 'eve' WHERE activated_by = 'bob'")
    await owner.write_anew()
    assert (await owner.verdict()).intact  # the control: without a head that was kept nobody can tell
    verdict = await owner.verdict(kept)
    assert (verdict.intact, verdict.broken_at) == (False, kept.seq)


async def test_a_head_that_was_kept_is_a_prefix_of_the_chain_that_went_on(owner: Owner) -> None:
    kept = await owner.head()
    live = await owner.parts.live(TABLE)
    third = await owner.parts.record(TABLE, THIRD)
    await owner.parts.ledger.activate(TABLE, third, expected_live=live.version_ref, by="ada", reason="once more")
    verdict = await owner.verdict(kept)
    assert (verdict.intact, verdict.entries) == (True, kept.seq + 1)
    assert (await owner.verdict(Kept(0, "0" * 64))).intact
    assert not (await owner.verdict(Kept(0, "1" * 64))).intact
    for seq in (1, 2, kept.seq):
        assert (await owner.verdict(Kept(seq, "f" * 64))).broken_at == seq
    longer = await owner.verdict(Kept(kept.seq + 5, "f" * 64))
    assert (longer.intact, longer.broken_at) == (False, kept.seq + 2)


# --- the head, signed -------------------------------------------------------------------------------------


async def test_a_head_is_signed_and_every_field_of_it_counts(owner: Owner) -> None:
    key, now = StatementKey.new(), datetime.now(UTC)
    head = await signed_head(owner.parts.db, key, now)
    kept = await owner.head()
    assert (head.seq, head.entries, head.entry_sha256, head.public_key) == (kept.seq, kept.seq, *kept[1:], key.public)
    again = LedgerHead.model_validate_json(head.model_dump_json())
    assert again == head
    assert holds(key.public, str(again.signature), again.statement())
    for change in (
        {"seq": head.seq + 1},
        {"entries": 0},
        {"entry_sha256": "0" * 64},
        {"at": now},
        {"signed_at": now + timedelta(seconds=1)},
        {"public_key": StatementKey.new().public},
    ):
        assert not holds(key.public, str(head.signature), head.model_copy(update=change).statement())
    assert set(LedgerHead.model_fields) - {"signature", "format"} == {
        "seq", "entries", "entry_sha256", "at", "signed_at", "public_key"
    }  # fmt: skip


async def test_without_a_key_a_head_is_not_signed(parts: Parts) -> None:
    head = await signed_head(parts.db, None, datetime.now(UTC))
    assert (head.seq, head.public_key, head.signature) == (0, None, None)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE ledger_head SET seq = seq - 1",
        "UPDATE ledger_head SET entry_sha256 = repeat('f', 64)",
        "UPDATE ledger_entries SET by = 'eve' WHERE seq = (SELECT seq FROM ledger_head)",
        "DELETE FROM ledger_entries WHERE seq = 2",
        "DELETE FROM ledger_entries",
        "DELETE FROM ledger_head",
        "UPDATE ledger_head SET seq = -5",
    ],
)
async def test_a_head_that_does_not_fit_its_chain_is_not_signed(owner: Owner, change: str) -> None:
    await owner.run(change)
    with pytest.raises(Refused) as no:
        await signed_head(owner.parts.db, StatementKey.new(), datetime.now(UTC))
    assert (no.value.status, no.value.code) == (409, "ledger_broken")


def test_a_setting_that_names_no_key_is_told(tmp_path: Path) -> None:
    assert load_key(None) is None
    with pytest.raises(ValueError, match="BURNISH_LEDGER_KEY"):
        load_key(tmp_path / "none.pem")


# --- pages ------------------------------------------------------------------------------------------------


async def test_a_walk_in_steps_comes_to_the_same_whatever_the_pages(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = await owner.verdict()
    for size in (1, 2, 3):
        monkeypatch.setattr("services.registry.verification.walk.LINES", size)
        monkeypatch.setattr("services.registry.verification.walk.TEXTS", size)
        assert await owner.verdict() == whole
    await owner.run("DELETE FROM drift_findings WHERE found_sha256 IS NULL")
    verdict = await owner.verdict()
    assert (verdict.intact, verdict.table) == (False, "drift_findings")


async def test_what_has_no_time_left_goes_on_from_its_cursor(owner: Owner) -> None:
    kept = await owner.head()
    verdict = await verify_ledger(owner.parts.db, budget_s=0)
    assert verdict.next is not None
    steps = 0
    cursor: str | None = verdict.next
    while cursor is not None:
        verdict = await verify_ledger(owner.parts.db, cursor=cursor, kept=kept, budget_s=0.000_001)
        cursor, steps = (verdict.next, steps + 1) if verdict.next != cursor else (None, steps)
        if verdict.next == cursor:
            verdict = await verify_ledger(owner.parts.db, cursor=cursor, kept=kept)
            break
    assert (verdict.intact, verdict.entries) == (True, kept.seq)


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        f"chain/-1/{'0' * 64}/",
        f"nothing/0/{'0' * 64}/",
        f"texts/0/{'0' * 64}/abc",
        f"implied/0/{'0' * 64}/a",
        "chain/1/x/" * 99,
    ],
)
async def test_a_cursor_that_is_none_is_refused(parts: Parts, cursor: str) -> None:
    with pytest.raises(Refused, match="cursor"):
        await verify_ledger(parts.db, cursor=cursor)


async def test_an_empty_ledger_is_intact(parts: Parts) -> None:
    assert await verify_ledger(parts.db) == Verification(True, 0, "0" * 64)
