"""The walk over the whole ledger, a page at a time: the chain, what its lines imply, then the rows of each table."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, cast
from uuid import UUID

from libs.service_kit.db import Connection, Database
from libs.service_kit.errors import Refused
from services.registry.domain import GENESIS_SHA256, Verification, verify
from services.registry.store import verification as store
from services.registry.verification import rules
from services.registry.verification.rules import Fault

Part = Literal["chain", "implied", "activations", "intents", "texts", "findings"]
PARTS: tuple[Part, ...] = ("chain", "implied", "activations", "intents", "texts", "findings")
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
            _position(cursor)
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
            step = await (_chain(conn, at, kept) if at.part == "chain" else _rows(conn, at))
        if step.wrong is not None:
            return step.wrong
        last = step.cursor
        at = step.cursor.following() if step.done else step.cursor
    assert last is not None
    return Verification(True, last.seq, last.sha256)


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


Look = Callable[[Mapping[str, Any]], Fault | None]


async def _rows(conn: Connection, at: Cursor) -> Step:
    rows, limit, look, name = await _page(conn, at)
    for row in rows:
        if fault := look(row):
            return Step(at, False, _wrong(at, fault))
    reached = replace(at, row=str(rows[-1][name])) if rows else at
    return Step(reached, len(rows) < limit)


async def _page(conn: Connection, at: Cursor) -> tuple[list[store.Row], int, Look, str]:
    """The rows after the cursor, how many were asked for, what looks at one, and the name of its position."""
    after = _position(at)
    match after:
        case int():
            return await store.lines(conn, after, LINES), LINES, rules.of_line, "seq"
        case str():
            return await store.findings(conn, after, LINES), LINES, rules.of_finding_row, "row"
    read, limit, look = _BY_ID[at.part]
    return await read(conn, after, limit), limit, look, "row"


_BY_ID: dict[str, tuple[Callable[[Connection, UUID | None, int], Awaitable[list[store.Row]]], int, Look]] = {
    "activations": (store.activations, LINES, rules.of_activation_row),
    "intents": (store.intents, TEXTS, rules.of_intent_row),
    "texts": (store.texts, TEXTS, rules.of_text_row),
}


def _position(at: Cursor) -> int | str | UUID | None:
    """Where the part's rows go on. Raises ValueError."""
    if at.part == "implied":
        return int(at.row or 0)
    if at.part == "findings":
        return at.row
    return UUID(at.row) if at.row else None


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
