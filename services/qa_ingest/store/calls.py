"""Table `model_calls`: every call of a model that reads prose, from its start, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from libs.contracts.text import without_nul
from libs.llm import ModelReply, Order, Settled, Spent
from libs.service_kit.connection import Connection

_SPENT = """
SELECT
    coalesce(sum(cost), 0) AS today,
    coalesce(sum(cost) FILTER (WHERE here), 0) AS touchpoint_today,
    count(*) FILTER (WHERE in_flight) AS in_flight,
    coalesce(sum(cost) FILTER (WHERE in_flight), 0) AS reserved,
    coalesce(sum(cost) FILTER (WHERE in_flight AND here), 0) AS touchpoint_reserved
FROM (
    SELECT coalesce(usd, most_usd) AS cost, workspace_id = $1 AS here,
           finished_at IS NULL AND started_at > now() - make_interval(secs => $2) AS in_flight
    FROM model_calls
    WHERE NOT free AND started_at >= date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
) AS paid
"""
_OF_RUN = "SELECT coalesce(sum(coalesce(usd, most_usd)), 0) FROM model_calls WHERE run_id = $1"
_REPLY = """
SELECT reply FROM model_calls WHERE workspace_id = $1 AND request_sha256 = $2 AND reply IS NOT NULL
ORDER BY started_at LIMIT 1
"""
_REPLIED = """
SELECT DISTINCT request_sha256 FROM model_calls
WHERE workspace_id = $1 AND request_sha256 = ANY ($2) AND reply IS NOT NULL
"""
_IN_FLIGHT = """
SELECT EXISTS (
    SELECT FROM model_calls WHERE workspace_id = $1 AND request_sha256 = $2 AND finished_at IS NULL
    AND started_at > now() - make_interval(secs => $3)
)
"""
_IN_VAIN = """
SELECT usd, error FROM model_calls
WHERE run_id = $1 AND request_sha256 = $2 AND in_vain ORDER BY started_at LIMIT 1
"""
_STARTED = """
INSERT INTO model_calls (workspace_id, run_id, request_sha256, provider, model, free, most_usd)
VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING call_id
"""
_SETTLED = """
UPDATE model_calls
SET finished_at = now(), input_tokens = $2, output_tokens = $3, usd = $4, latency_ms = $5, reply = $6, error = $7,
    in_vain = $8
WHERE call_id = $1
"""


@dataclass(frozen=True, slots=True)
class InVain:
    """A call that was billed and said nothing."""

    usd: Decimal
    error: str


async def spent(conn: Connection, workspace_id: UUID, timeout_s: float) -> Spent:
    """What today's calls cost, of all workspaces and of this one. One that never ended counts its most, as in flight
    until it must have timed out."""
    row = await conn.fetchrow(_SPENT, workspace_id, timeout_s)
    assert row is not None
    return Spent(**row)


async def spent_by(conn: Connection, run_id: UUID) -> Decimal:
    """What the calls of one run cost so far, those without an end at their most."""
    usd: Decimal = await conn.fetchval(_OF_RUN, run_id)
    return usd


async def reply(conn: Connection, workspace_id: UUID, request_sha256: str) -> ModelReply | None:
    """The reply to exactly this request, when the workspace has had it before."""
    found = await conn.fetchval(_REPLY, workspace_id, request_sha256)
    return ModelReply.model_validate_json(found) if found is not None else None


async def replied(conn: Connection, workspace_id: UUID, request_sha256: Sequence[str]) -> set[str]:
    """Those of these requests that the workspace has had a reply to."""
    rows = await conn.fetch(_REPLIED, workspace_id, list(request_sha256))
    return {row["request_sha256"] for row in rows}


async def in_vain(conn: Connection, run_id: UUID, request_sha256: str) -> InVain | None:
    """The call of this run that was billed for this request and said nothing."""
    row = await conn.fetchrow(_IN_VAIN, run_id, request_sha256)
    return None if row is None else InVain(row["usd"], row["error"])


async def is_in_flight(conn: Connection, workspace_id: UUID, request_sha256: str, timeout_s: float) -> bool:
    """Whether somebody waits for the reply to this very request."""
    return bool(await conn.fetchval(_IN_FLIGHT, workspace_id, request_sha256, timeout_s))


async def started(conn: Connection, workspace_id: UUID, run_id: UUID, order: Order) -> UUID:
    """Write the call down before it is made; its id."""
    call_id: UUID = await conn.fetchval(
        _STARTED,
        workspace_id,
        run_id,
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
        call.error is not None and not call.retryable and call.usage.usd > 0,
    )
