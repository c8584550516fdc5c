"""Table `model_calls`: every call of a model, from its start, and what it cost."""

from __future__ import annotations

from uuid import UUID

from libs.contracts.queries.spending import MAX_DAY_ROWS
from libs.contracts.spending import CallSpending, DaySpending
from libs.contracts.text import without_nul
from libs.llm import ModelReply, Order, Settled, Spent
from libs.service_kit.db import Connection
from services.proposal.domain import Spend

CALLER = "proposal"
_SPENT = """
SELECT
    coalesce(sum(cost), 0) AS today,
    coalesce(sum(cost) FILTER (WHERE here), 0) AS touchpoint_today,
    count(*) FILTER (WHERE in_flight) AS in_flight,
    coalesce(sum(cost) FILTER (WHERE in_flight), 0) AS reserved,
    coalesce(sum(cost) FILTER (WHERE in_flight AND here), 0) AS touchpoint_reserved
FROM (
    SELECT coalesce(usd, most_usd) AS cost, touchpoint_id = $1 AS here,
           finished_at IS NULL AND started_at > now() - make_interval(secs => $2) AS in_flight
    FROM model_calls
    WHERE NOT free AND started_at >= date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
) AS paid
"""
_PAID_REPLY = """
SELECT reply FROM model_calls WHERE proposal_id = $1 AND attempt = $2 AND request_sha256 = $3 AND reply IS NOT NULL
ORDER BY started_at LIMIT 1
"""
_STARTED = """
INSERT INTO model_calls (proposal_id, touchpoint_id, attempt, request_sha256, provider, model, free, most_usd)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING call_id
"""
_SETTLED = """
UPDATE model_calls
SET finished_at = now(), input_tokens = $2, output_tokens = $3, usd = $4, latency_ms = $5, reply = $6, error = $7
WHERE call_id = $1
"""
_OF_PROPOSAL = """
SELECT coalesce(sum(input_tokens), 0)::int AS input_tokens, coalesce(sum(output_tokens), 0)::int AS output_tokens,
       coalesce(sum(usd), 0) AS usd
FROM model_calls WHERE proposal_id = $1
"""

_BY_DAY = """
SELECT (started_at AT TIME ZONE 'UTC')::date AS day, touchpoint_id, provider, model,
       count(*) AS calls,
       coalesce(sum(input_tokens), 0)::bigint AS input_tokens,
       coalesce(sum(output_tokens), 0)::bigint AS output_tokens,
       coalesce(sum(usd), 0) AS usd,
       count(*) FILTER (WHERE usd IS NULL) AS open_calls,
       coalesce(sum(most_usd) FILTER (WHERE usd IS NULL), 0) AS open_usd
FROM model_calls
WHERE started_at >= (date_trunc('day', now() AT TIME ZONE 'UTC') - make_interval(days => $1 - 1)) AT TIME ZONE 'UTC'
AND ($2::text IS NULL OR touchpoint_id = $2)
GROUP BY 1, 2, 3, 4 ORDER BY day DESC, usd DESC, touchpoint_id, provider, model LIMIT $3
"""
_LATEST = """
SELECT call_id, touchpoint_id, provider, model, proposal_id AS work_id, started_at, finished_at, input_tokens,
       output_tokens, usd, most_usd, error
FROM model_calls WHERE NOT free AND ($1::text IS NULL OR touchpoint_id = $1)
ORDER BY started_at DESC, call_id LIMIT $2
"""


async def spent(conn: Connection, touchpoint_id: str, timeout_s: float) -> Spent:
    """What today's calls cost. One that never ended counts its most, as in flight until it must have timed out."""
    row = await conn.fetchrow(_SPENT, touchpoint_id, timeout_s)
    assert row is not None
    return Spent(**row)


async def by_day(conn: Connection, touchpoint_id: str | None, days: int) -> tuple[DaySpending, ...]:
    """What the last days cost, today included; one row more than an answer holds, where there are more."""
    rows = await conn.fetch(_BY_DAY, days, touchpoint_id, MAX_DAY_ROWS + 1)
    return tuple(DaySpending(caller=CALLER, **row) for row in rows)


async def latest(conn: Connection, touchpoint_id: str | None, limit: int) -> tuple[CallSpending, ...]:
    """The last calls that could cost money, newest first."""
    rows = await conn.fetch(_LATEST, touchpoint_id, limit)
    return tuple(CallSpending(caller=CALLER, **row) for row in rows)


async def spend_of(conn: Connection, proposal_id: UUID) -> Spend:
    """What the calls of one proposal used."""
    row = await conn.fetchrow(_OF_PROPOSAL, proposal_id)
    assert row is not None
    return Spend(**row)


async def paid_reply(conn: Connection, proposal_id: UUID, attempt: int, request_sha256: str) -> ModelReply | None:
    """The reply to exactly this request, when it was had before."""
    reply = await conn.fetchval(_PAID_REPLY, proposal_id, attempt, request_sha256)
    return ModelReply.model_validate_json(reply) if reply is not None else None


async def started(conn: Connection, proposal_id: UUID, touchpoint_id: str, attempt: int, order: Order) -> UUID:
    """Write the call down before it is made; its id."""
    call_id: UUID = await conn.fetchval(
        _STARTED,
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


async def settled(conn: Connection, call: Settled) -> None:
    """Write down what came back, or why nothing did, and what it cost."""
    await conn.execute(
        _SETTLED,
        call.call_id,
        call.usage.input_tokens,
        call.usage.output_tokens,
        call.usage.usd,
        call.latency_ms,
        call.reply.model_dump_json() if call.reply else None,
        without_nul(call.error)[:500] if call.error else None,
    )
