"""Table `proposals`."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from uuid import UUID

import asyncpg

from libs.contracts.proposals import AbOutcome, ProposalSummary
from libs.contracts.queries.proposal import ListProposals
from libs.contracts.text import without_nul
from libs.contracts.vocabulary import ProposalState
from libs.service_kit.db import Connection
from libs.service_kit.records import Columns
from services.proposal.domain import OPEN, Content, Proposal, sources_of
from services.proposal.store import calls, decisions
from services.proposal.store.outcomes import COUNTS

_COLUMNS = Columns(
    """
    proposal_id uuid, touchpoint_id text, workspace_id uuid, pattern_id uuid, pattern_title text, commission text,
    state text, author text, model text, base_version_ref text, base_sha256 text, content_sha256 text, content text,
    hunk_count int, evidence_refs uuid[], flags text[], failure text, created_at timestamptz
    """
)
_INSERT = f"{_COLUMNS.insert_into('proposals')} ON CONFLICT DO NOTHING RETURNING true"
_ELSEWHERE_KEPT = ("content", "evidence_refs", "flags", "ab", "decisions", "spend")
_PLAIN = tuple(field.name for field in fields(Proposal) if field.name not in _ELSEWHERE_KEPT)
"""The columns that are the same in a row and in a `Proposal`."""

_WHOLE = f"SELECT p.*, {COUNTS} AS ab FROM proposals AS p WHERE p.proposal_id = $1"  # noqa: S608
_LIST = f"""
SELECT p.*, {COUNTS} AS ab
FROM proposals AS p
WHERE ($1::text IS NULL OR p.touchpoint_id = $1)
  AND ($2::text IS NULL OR p.state = $2)
  AND ($3::uuid IS NULL OR p.pattern_id = $3)
ORDER BY p.created_at DESC, p.proposal_id DESC
LIMIT $4
"""  # noqa: S608


# --- reading ----------------------------------------------------------------------------------------------


async def get(conn: Connection, proposal_id: UUID, *, lock: bool = False) -> Proposal | None:
    """One proposal, whole; with `lock`, nobody else changes it until the transaction ends."""
    if lock:
        await conn.execute("SELECT FROM proposals WHERE proposal_id = $1 FOR UPDATE", proposal_id)
    row = await conn.fetchrow(_WHOLE, proposal_id)
    return None if row is None else await _whole(conn, row)


async def _whole(conn: Connection, row: asyncpg.Record) -> Proposal:
    return Proposal(
        **{name: row[name] for name in _PLAIN},
        content=Content.model_validate_json(row["content"]),
        evidence_refs=tuple(row["evidence_refs"]),
        flags=tuple(row["flags"]),
        ab=None if row["ab"] is None else AbOutcome.model_validate(row["ab"]),
        decisions=await decisions.of_proposal(conn, row["proposal_id"]),
        spend=await calls.spend_of(conn, row["proposal_id"]),
    )


async def open_of_pattern(conn: Connection, pattern_id: UUID) -> Proposal | None:
    """The open proposal of a pattern, locked; there is at most one."""
    found = await conn.fetchval(
        "SELECT proposal_id FROM proposals WHERE pattern_id = $1 AND state = ANY($2::text[]) FOR UPDATE",
        pattern_id,
        list(OPEN),
    )
    return await get(conn, found) if found is not None else None


_ELSEWHERE = """
SELECT proposal_id FROM proposals
WHERE touchpoint_id = $1 AND workspace_id IS NOT DISTINCT FROM $2 AND state = ANY($3::text[]) AND base_sha256 <> $4
ORDER BY proposal_id
FOR UPDATE
"""


async def open_on_other_base(
    conn: Connection, touchpoint_id: str, workspace_id: UUID | None, live_sha256: str
) -> list[Proposal]:
    """Open proposals of a touchpoint that start from another text than the live one, locked."""
    rows = await conn.fetch(_ELSEWHERE, touchpoint_id, workspace_id, list(OPEN), live_sha256)
    found = [await get(conn, row["proposal_id"]) for row in rows]
    return [one for one in found if one is not None]


async def listed(conn: Connection, query: ListProposals) -> list[ProposalSummary]:
    """Proposals, newest first."""
    rows = await conn.fetch(_LIST, query.touchpoint_id, query.state, query.pattern_id, query.limit)
    return [ProposalSummary(**row) for row in rows]


async def count_by_state(conn: Connection) -> dict[str, int]:
    """How many proposals there are in each state that has any."""
    rows = await conn.fetch("SELECT state, count(*) AS n FROM proposals GROUP BY state")
    return {row["state"]: row["n"] for row in rows}


# --- writing ----------------------------------------------------------------------------------------------


async def insert(conn: Connection, one: Proposal) -> bool:
    """Add a proposal; False when it is there already, or another is open for its pattern."""
    record = {
        **{name: getattr(one, name) for name in _PLAIN},
        "content": one.content.model_dump_json(),
        "hunk_count": len(one.content.hunks),
        "evidence_refs": one.evidence_refs,
        "flags": one.flags,
        "failure": None if one.failure is None else without_nul(one.failure),  # it may quote what a model said
    }
    return bool(await conn.fetchval(_INSERT, [record]))


async def move(conn: Connection, proposal_id: UUID, state: ProposalState) -> bool:
    """Change the state where the table of transitions allows it."""
    moved = await conn.fetchval(
        "UPDATE proposals SET state = $2 WHERE proposal_id = $1 AND state = ANY($3::text[]) RETURNING true",
        proposal_id,
        state,
        list(sources_of(state)),
    )
    return bool(moved)


_LEDGER_SAYS = """
UPDATE proposals SET state = $2, version_at = $3
WHERE proposal_id = $1 AND state = ANY($4::text[]) AND (version_at IS NULL OR version_at < $3)
RETURNING content_sha256
"""


async def ledger_says(conn: Connection, proposal_id: UUID, state: ProposalState, at: datetime) -> str | None:
    """Follow the ledger, whichever of its events comes first; the text's hash, or None when nothing changed."""
    found: str | None = await conn.fetchval(_LEDGER_SAYS, proposal_id, state, at, list(sources_of(state)))
    return found


_REVISE = """
UPDATE proposals
SET state = 'revised', base_version_ref = $2, base_sha256 = $3, content_sha256 = $4, content = $5
WHERE proposal_id = $1
"""


async def revise(conn: Connection, one: Proposal) -> None:
    """Store the text on its new base. Outcomes and approvals of the former text stay, and count no more."""
    await conn.execute(
        _REVISE,
        one.proposal_id,
        one.base_version_ref,
        one.base_sha256,
        one.content_sha256,
        one.content.model_dump_json(),
    )
