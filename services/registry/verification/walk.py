"""The walk over the whole ledger, a page at a time: the chain, what its lines imply, then the rows of each table."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, cast, get_args
from uuid import UUID

from libs.service_kit.db import Connection, Database
from libs.service_kit.errors import Refused
from services.registry.domain import GENESIS_SHA256, Verification, verify
from services.registry.store import verification as store
from services.registry.verification import rules
from services.registry.verification.rules import Fault

Part = Literal["chain", "implied", "unsaid", "texts"]
PARTS: tuple[Part, ...] = get_args(Part)
LINES = 500
TEXTS = 20
"""How many are read at once: a prompt has up to a MiB, so that few of them are in memory together."""

_CURSOR = re.compile(r"([a-z]{1,20})/(\d{1,18})/([0-9a-f]{64})/([0-9a-f -]{0,110})")


class Kept(NamedTuple):
    """A line that somebody kept elsewhere, by number and hash: today's chain has to go through it."""

    seq: int
    entry_sha256: str


@dataclass(frozen=True)
class Cursor:
    """How far the walk is: the part at hand, the last line whose hash was recomputed, the last row looked at."""

    part: Part = "chain"
    seq: int = 0
    sha256: str = GENESIS_SHA256
    row: str = ""

    def __str__(self) -> str:
        return f"{self.part}/{self.seq}/{self.sha256}/{self.row}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """What `str` made. Raises Refused 422."""
        found = _CURSOR.fullmatch(text)
        if found is None or found[1] not in PARTS:
            raise Refused("invalid", "cursor: not one that an answer gave", status=422)
        cursor = cls(cast(Part, found[1]), int(found[2]), found[3], found[4])
        try:
            _require_position(cursor)
        except ValueError as error:
            raise Refused("invalid", "cursor: not one that an answer gave", status=422) from error
        return cursor

    def following(self) -> Cursor | None:
        """The beginning of the next part; None after the last."""
        after = PARTS.index(self.part) + 1
        return replace(self, part=PARTS[after], row="") if after < len(PARTS) else None


class Step(NamedTuple):
    """What one page came to: what is wrong in it, where it ended, and whether the part is done."""

    cursor: Cursor
    done: bool
    wrong: Verification | None = None


async def verify_ledger(
    db: Database, *, cursor: str | None = None, kept: Kept | None = None, budget_s: float | None = None
) -> Verification:
    """Recompute the chain, and compare everything that it implies with what the tables hold, both ways.

    Each page is read on one snapshot, in which lines and rows belong together, so that writers are not held up. It
    stops at the first thing that is wrong. With `budget_s`, it stops after about so many seconds with `next`, where
    the following call goes on. Raises Refused 422 for a cursor that is none.
    """
    at: Cursor | None = Cursor() if cursor is None else Cursor.parse(cursor)
    until = None if budget_s is None else time.monotonic() + budget_s
    last = at
    while at is not None:
        last = at
        if until is not None and time.monotonic() >= until:
            return Verification(True, at.seq, at.sha256, next=str(at))
        async with db.connection() as conn, conn.transaction(isolation="repeatable_read", readonly=True):
            step = await _step(conn, at, kept)
        if step.wrong is not None:
            return step.wrong
        last = step.cursor
        at = step.cursor.following() if step.done else step.cursor
    assert last is not None
    return Verification(True, last.seq, last.sha256)


async def _step(conn: Connection, at: Cursor, kept: Kept | None) -> Step:
    match at.part:
        case "chain":
            return await _chain(conn, at, kept)
        case "implied":
            return await _implied(conn, at)
        case "unsaid":
            return await _unsaid(conn, at)
        case "texts":
            return await _texts(conn, at)


async def _chain(conn: Connection, at: Cursor, kept: Kept | None) -> Step:
    lines = await store.chain(conn, at.seq, LINES)
    outcome = verify(lines, after=at.seq, previous_sha256=at.sha256)
    reached = replace(at, seq=outcome.entries, sha256=outcome.head_sha256)
    if wrong := _not_as_kept(lines, outcome, kept):
        return Step(reached, False, wrong)
    if not outcome.intact:
        return Step(reached, False, outcome)
    if len(lines) == LINES:
        return Step(reached, False)
    fault = rules.of_end(await store.end(conn), reached.seq, reached.sha256)
    if fault is None and kept is not None and kept.seq > reached.seq:
        told = (
            f"the chain ends at entry {reached.seq}; entries {reached.seq + 1} to {kept.seq} of the kept head are gone"
        )
        fault = Fault("ledger_entries", "", told, (), reached.seq + 1)
    return Step(reached, True, None if fault is None else _wrong(reached, fault))


def _not_as_kept(lines: list[store.Row], outcome: Verification, kept: Kept | None) -> Verification | None:
    """The line whose hash was kept, where it is in this page and has another hash now."""
    if kept is None or kept.seq > outcome.entries:
        return None
    if kept.seq == 0 and kept.entry_sha256 == GENESIS_SHA256:
        return None
    found = next((line["entry_sha256"] for line in lines if line["seq"] == kept.seq), None)
    if found is None and kept.seq > 0:
        return None  # in an earlier page
    if found == kept.entry_sha256:
        return None
    told = f"entry {kept.seq} has another hash than in the kept head: the ledger was written anew"
    return replace(
        outcome, intact=False, broken_at=kept.seq, problem=told, table="ledger_entries", columns=("entry_sha256",)
    )


async def _implied(conn: Connection, at: Cursor) -> Step:
    """What the lines of a page imply, against the rows that they speak of."""
    lines = await store.lines(conn, int(at.row or 0), LINES)
    for line in lines:
        if fault := rules.of_line(line):
            return Step(at, False, _wrong(at, fault))
    recording = [line for line in lines if line["kind"] == "intent"]
    for start in range(0, len(recording), TEXTS):
        few = recording[start : start + TEXTS]
        parts = await store.parts_of_intents(conn, [UUID(line["intent.intent_id"]) for line in few])
        for line in few:
            if fault := rules.of_intent_text(line, parts.get(line["intent.intent_id"])):
                return Step(at, False, _wrong(at, fault))
    reached = replace(at, row=str(lines[-1]["seq"])) if lines else at
    return Step(reached, len(lines) < LINES)


async def _unsaid(conn: Connection, at: Cursor) -> Step:
    """Rows that no line speaks of."""
    await store.join_by_hashing(conn)
    for find, told in _STRAYS:
        row = await find(conn)
        if row is not None:
            return Step(at, False, _wrong(at, told(row)))
    return Step(at, True)


Find = Callable[[Connection], Awaitable[store.Row | None]]
_STRAYS: tuple[tuple[Find, Callable[[Mapping[str, Any]], Fault]], ...] = (
    (store.unmade_activation, rules.of_unmade_activation),
    (store.unrecorded_intent, rules.of_unrecorded_intent),
    (store.unsettled_intent, rules.of_unsettled_intent),
    (store.unsaid_finding, rules.of_unsaid_finding),
)


async def _texts(conn: Connection, at: Cursor) -> Step:
    """Each recorded text against its hash, its id and its reference. The cursor names the first that is not seen."""
    texts = await store.texts(conn, UUID(at.row) if at.row else UUID(int=0), TEXTS)
    for text in texts:
        if fault := rules.of_text_row(text):
            return Step(at, False, _wrong(at, fault))
    following = UUID(texts[-1]["row"]).int + 1 if len(texts) == TEXTS else LAST_UUID
    if following >= LAST_UUID:
        return Step(at, True)
    return Step(replace(at, row=str(UUID(int=following))), False)


LAST_UUID = 1 << 128


def _wrong(at: Cursor, fault: Fault) -> Verification:
    return Verification(
        False,
        at.seq,
        at.sha256,
        broken_at=fault.line,
        problem=f"{fault.table} {fault.row}: {fault.problem}" if fault.row else fault.problem,
        table=fault.table,
        row=fault.row,
        columns=fault.columns,
    )


def _require_position(at: Cursor) -> None:
    """Raise ValueError for a row that the part's walk cannot have come to."""
    if at.part == "implied":
        int(at.row or 0)
    elif at.part == "texts" and at.row:
        UUID(at.row)
