"""The only SQL of the proposal service. Functions take a connection and never commit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import asyncpg

from libs.contracts.events.ab_runner import AbExecutedV1
from libs.contracts.events.pattern_detector import PatternDetectedV1
from libs.contracts.proposals import AbOutcome, ProposalSummary
from libs.contracts.queries.proposal import ListProposals
from libs.contracts.text import without_nul
from libs.contracts.vocabulary import ProposalState
from libs.llm import Budget, ModelReply, Order, Settled, Spent
from libs.service_kit.db import Connection
from services.proposal.domain import (
    OPEN,
    Content,
    Proposal,
    Recorded,
    Spend,
    sources_of,
)

# --- patterns ---------------------------------------------------------------------------------------------

_REMEMBER = """
INSERT INTO patterns AS p (pattern_id, touchpoint_id, workspace_id, title, occurrence, automatic)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (pattern_id) DO UPDATE
SET title = excluded.title, occurrence = excluded.occurrence, automatic = excluded.automatic, heard_at = now()
WHERE p.occurrence <= excluded.occurrence
"""


async def remember_pattern(conn: Connection, heard: PatternDetectedV1) -> None:
    """Keep that the pattern surfaced."""
    one = heard.pattern
    await conn.execute(
        _REMEMBER, one.pattern_id, heard.touchpoint_id, one.workspace_id, one.title, heard.occurrence, one.automatic
    )


# --- proposals --------------------------------------------------------------------------------------------

_OUTCOME = """
LEFT JOIN LATERAL (
    SELECT * FROM ab_outcomes AS o WHERE o.proposal_id = p.proposal_id AND o.b_sha256 = p.content_sha256
    ORDER BY (o.verdict = 'failed'), o.executed_at DESC, o.run_id LIMIT 1
) AS ab ON true
"""
_OUTCOME_COLUMNS = (
    "ab.run_id, ab.verdict, ab.suite_sha256, ab.a_sha256, ab.b_sha256, ab.gained, ab.lost, ab.executed_at"
)
_WHOLE = f"SELECT p.*, {_OUTCOME_COLUMNS} FROM proposals AS p {_OUTCOME} WHERE p.proposal_id = $1"  # noqa: S608
_INSERT = """
INSERT INTO proposals (
    proposal_id, touchpoint_id, workspace_id, pattern_id, pattern_title, commission, state, author, model,
    base_version_ref, base_sha256, content_sha256, content, hunk_count, evidence_refs, flags, failure, created_at
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
ON CONFLICT DO NOTHING
RETURNING true
"""


async def insert(conn: Connection, one: Proposal) -> bool:
    """Add a proposal; False when it is there already, or another is open for its pattern."""
    added = await conn.fetchval(
        _INSERT,
        one.proposal_id,
        one.touchpoint_id,
        one.workspace_id,
        one.pattern_id,
        one.pattern_title,
        one.commission,
        one.state,
        one.author,
        one.model,
        one.base_version_ref,
        one.base_sha256,
        one.content_sha256,
        one.content.model_dump_json(),
        len(one.content.hunks),
        list(one.evidence_refs),
        list(one.flags),
        without_nul(one.failure) if one.failure is not None else None,
        one.created_at,
    )
    return bool(added)


async def get(conn: Connection, proposal_id: UUID, *, lock: bool = False) -> Proposal | None:
    """One proposal, whole; with `lock`, nobody else changes it until the transaction ends."""
    if lock:
        await conn.execute("SELECT FROM proposals WHERE proposal_id = $1 FOR UPDATE", proposal_id)
    row = await conn.fetchrow(_WHOLE, proposal_id)
    if row is None:
        return None
    return _proposal(row, await _decisions(conn, proposal_id), await _spend(conn, proposal_id))


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


_LIST = """
SELECT p.*, {outcome_columns}
FROM proposals AS p {outcome}
WHERE ($1::text IS NULL OR p.touchpoint_id = $1)
  AND ($2::text IS NULL OR p.state = $2)
  AND ($3::uuid IS NULL OR p.pattern_id = $3)
ORDER BY p.created_at DESC, p.proposal_id DESC
LIMIT $4
"""


async def listed(conn: Connection, query: ListProposals) -> list[ProposalSummary]:
    """Proposals, newest first."""
    statement = _LIST.format(outcome_columns=_OUTCOME_COLUMNS, outcome=_OUTCOME)
    rows = await conn.fetch(statement, query.touchpoint_id, query.state, query.pattern_id, query.limit)
    return [_summary(row) for row in rows]


# --- decisions and outcomes -------------------------------------------------------------------------------


async def record(conn: Connection, proposal_id: UUID, action: str, by: str, reason: str, content_sha256: str) -> None:
    """Append what was done with a text, by whom and why."""
    await conn.execute(
        "INSERT INTO decisions (proposal_id, action, by, reason, content_sha256) VALUES ($1, $2, $3, $4, $5)",
        proposal_id,
        action,
        by,
        reason,
        content_sha256,
    )


_OUTCOME_HEARD = """
INSERT INTO ab_outcomes (run_id, proposal_id, verdict, suite_sha256, a_sha256, b_sha256, gained, lost, executed_at)
SELECT $1, proposal_id, $3, $4, $5, $6, $7, $8, $9 FROM proposals WHERE proposal_id = $2
ON CONFLICT (run_id) DO NOTHING
"""
_IN_REVIEW = """
UPDATE proposals SET state = 'in_review'
WHERE proposal_id = $1 AND content_sha256 = $2 AND state = ANY($3::text[])
"""


async def save_outcome(conn: Connection, run: AbExecutedV1) -> None:
    """Keep the outcome with its proposal, which is in review from its first completed run on."""
    verdict = run.verdict if run.status == "completed" and run.verdict else "failed"
    await conn.execute(
        _OUTCOME_HEARD,
        run.run_id,
        run.proposal_id,
        verdict,
        run.suite_sha256,
        run.a_sha256,
        run.b_sha256,
        run.gained,
        run.lost,
        run.executed_at,
    )
    if verdict != "failed":
        await conn.execute(_IN_REVIEW, run.proposal_id, run.b_sha256, list(sources_of("in_review")))


# --- model calls ------------------------------------------------------------------------------------------

_SPENT = """
SELECT
    coalesce(sum(cost), 0) AS today,
    coalesce(sum(cost) FILTER (WHERE here), 0) AS touchpoint_today,
    count(*) FILTER (WHERE in_flight) AS in_flight,
    coalesce(sum(cost) FILTER (WHERE in_flight), 0) AS reserved,
    coalesce(sum(cost) FILTER (WHERE in_flight AND here), 0) AS touchpoint_reserved
FROM (
    SELECT coalesce(usd, most_usd, $2) AS cost, touchpoint_id = $1 AS here,
           finished_at IS NULL AND started_at > now() - make_interval(secs => $3) AS in_flight
    FROM model_calls
    WHERE NOT free AND started_at >= date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
) AS paid
"""


async def spent(conn: Connection, touchpoint_id: str, budget: Budget, timeout_s: float) -> Spent:
    """What today's calls cost. One that never ended counts as lost, and as in flight until it must have timed out."""
    row = await conn.fetchrow(_SPENT, touchpoint_id, budget.lost_call, timeout_s)
    assert row is not None
    return Spent(**row)


async def paid_reply(conn: Connection, proposal_id: UUID, attempt: int, request_sha256: str) -> ModelReply | None:
    """The reply to exactly this request, when it was had before."""
    reply = await conn.fetchval(
        "SELECT reply FROM model_calls WHERE proposal_id = $1 AND attempt = $2 AND request_sha256 = $3 "
        "AND reply IS NOT NULL ORDER BY started_at LIMIT 1",
        proposal_id,
        attempt,
        request_sha256,
    )
    return ModelReply.model_validate_json(reply) if reply is not None else None


_CALL_STARTED = """
INSERT INTO model_calls (proposal_id, touchpoint_id, attempt, request_sha256, provider, model, free, most_usd)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING call_id
"""


async def call_started(conn: Connection, proposal_id: UUID, touchpoint_id: str, attempt: int, order: Order) -> UUID:
    """Write the call down before it is made; its id."""
    call_id: UUID = await conn.fetchval(
        _CALL_STARTED,
        proposal_id,
        touchpoint_id,
        attempt,
        order.request_sha256,
        order.provider,
        order.model,
        order.free,
        order.most_usd,
    )
    return call_id


_CALL_SETTLED = """
UPDATE model_calls
SET finished_at = now(), input_tokens = $2, output_tokens = $3, usd = $4, latency_ms = $5, reply = $6, error = $7
WHERE call_id = $1
"""


async def call_settled(conn: Connection, settled: Settled) -> None:
    """Write down what came back, or why nothing did, and what it cost."""
    await conn.execute(
        _CALL_SETTLED,
        settled.call_id,
        settled.usage.input_tokens,
        settled.usage.output_tokens,
        settled.usage.usd,
        settled.latency_ms,
        settled.reply.model_dump_json() if settled.reply else None,
        without_nul(settled.error)[:500] if settled.error else None,
    )


# --- gauges -----------------------------------------------------------------------------------------------


async def count_by_state(conn: Connection) -> dict[str, int]:
    """How many proposals there are in each state that has any."""
    rows = await conn.fetch("SELECT state, count(*) AS n FROM proposals GROUP BY state")
    return {row["state"]: row["n"] for row in rows}


# --- reading rows -----------------------------------------------------------------------------------------


async def _decisions(conn: Connection, proposal_id: UUID) -> tuple[Recorded, ...]:
    rows = await conn.fetch(
        "SELECT action, by, reason, at, content_sha256 FROM decisions WHERE proposal_id = $1 ORDER BY seq", proposal_id
    )
    return tuple(Recorded(**dict(row)) for row in rows)


_USED = """
SELECT coalesce(sum(input_tokens), 0)::int AS input_tokens, coalesce(sum(output_tokens), 0)::int AS output_tokens,
       coalesce(sum(usd), 0) AS usd
FROM model_calls WHERE proposal_id = $1
"""


async def _spend(conn: Connection, proposal_id: UUID) -> Spend:
    row = await conn.fetchrow(_USED, proposal_id)
    assert row is not None
    return Spend(row["input_tokens"], row["output_tokens"], row["usd"])


def _outcome(row: asyncpg.Record) -> AbOutcome | None:
    if row["run_id"] is None:
        return None
    return AbOutcome(
        run_id=row["run_id"],
        verdict=row["verdict"],
        suite_sha256=row["suite_sha256"],
        a_sha256=row["a_sha256"],
        b_sha256=row["b_sha256"],
        gained=row["gained"],
        lost=row["lost"],
        executed_at=row["executed_at"],
    )


def _proposal(row: asyncpg.Record, decisions: Sequence[Recorded], spend: Spend) -> Proposal:
    return Proposal(
        proposal_id=row["proposal_id"],
        touchpoint_id=row["touchpoint_id"],
        workspace_id=row["workspace_id"],
        pattern_id=row["pattern_id"],
        pattern_title=row["pattern_title"],
        commission=row["commission"],
        state=row["state"],
        author=row["author"],
        model=row["model"],
        base_version_ref=row["base_version_ref"],
        base_sha256=row["base_sha256"],
        content_sha256=row["content_sha256"],
        content=Content.model_validate_json(row["content"]),
        evidence_refs=tuple(row["evidence_refs"]),
        flags=tuple(row["flags"]),
        failure=row["failure"],
        created_at=row["created_at"],
        ab=_outcome(row),
        decisions=tuple(decisions),
        spend=spend,
    )


def _summary(row: asyncpg.Record) -> ProposalSummary:
    return ProposalSummary(
        proposal_id=row["proposal_id"],
        touchpoint_id=row["touchpoint_id"],
        workspace_id=row["workspace_id"],
        pattern_id=row["pattern_id"],
        pattern_title=row["pattern_title"],
        state=row["state"],
        author=row["author"],
        hunk_count=row["hunk_count"],
        base_version_ref=row["base_version_ref"],
        base_sha256=row["base_sha256"],
        content_sha256=row["content_sha256"],
        ab=_outcome(row),
        flags=tuple(row["flags"]),
        created_at=row["created_at"],
    )
