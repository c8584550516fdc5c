"""Tables `model_calls` and `model_spend`: each call, written down before it is made, and what a day cost."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from libs.contracts.queries.spending import MAX_DAY_ROWS
from libs.contracts.spending import CallSpending, DaySpending
from libs.contracts.text import without_nul
from libs.llm import Budget, Order, Settled, Spent
from libs.service_kit.db import Connection

CALLER = "ab_runner"
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('ab_runner.model_calls', 0))"
_SPENT = """
SELECT
    coalesce(sum(cost), 0) AS today,
    coalesce(sum(cost) FILTER (WHERE here), 0) AS touchpoint_today,
    count(*) FILTER (WHERE in_flight) AS in_flight,
    coalesce(sum(cost) FILTER (WHERE in_flight), 0) AS reserved,
    coalesce(sum(cost) FILTER (WHERE in_flight AND here), 0) AS touchpoint_reserved
FROM (
    SELECT usd AS cost, touchpoint_id = $1 AS here, false AS in_flight
    FROM model_spend WHERE day = (now() AT TIME ZONE 'UTC')::date
    UNION ALL
    SELECT most_usd, touchpoint_id = $1,
           started_at > now() - make_interval(secs => $2)
    FROM model_calls
    WHERE finished_at IS NULL AND NOT free
    AND started_at >= date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
) AS paid
"""
_STARTED = """
INSERT INTO model_calls (run_id, touchpoint_id, provider, model, free, calls, most_usd)
SELECT $1, $2, * FROM unnest($3::text[], $4::text[], $5::bool[], $6::int[], $7::numeric[])
RETURNING call_id
"""
_SETTLED = """
WITH ended AS (
    UPDATE model_calls AS c
    SET finished_at = now(), input_tokens = s.input_tokens, output_tokens = s.output_tokens, usd = s.usd,
        error = s.error
    FROM unnest($1::uuid[], $2::int[], $3::int[], $4::numeric[], $5::text[])
        AS s (call_id, input_tokens, output_tokens, usd, error)
    WHERE c.call_id = s.call_id AND c.finished_at IS NULL
    RETURNING c.*
)
INSERT INTO model_spend AS spent
SELECT (started_at AT TIME ZONE 'UTC')::date, touchpoint_id, provider, model,
       sum(calls), sum(input_tokens), sum(output_tokens), sum(usd)
FROM ended GROUP BY 1, 2, 3, 4
ON CONFLICT (day, touchpoint_id, provider, model) DO UPDATE SET
    calls = spent.calls + excluded.calls, input_tokens = spent.input_tokens + excluded.input_tokens,
    output_tokens = spent.output_tokens + excluded.output_tokens, usd = spent.usd + excluded.usd
"""

_BY_DAY = """
SELECT day, touchpoint_id, provider, model, sum(calls)::bigint AS calls, sum(input_tokens)::bigint AS input_tokens,
       sum(output_tokens)::bigint AS output_tokens, sum(usd) AS usd, sum(open_calls)::bigint AS open_calls,
       sum(open_usd) AS open_usd
FROM (
    SELECT day, touchpoint_id, provider, model, calls, input_tokens, output_tokens, usd, 0 AS open_calls, 0 AS open_usd
    FROM model_spend
    UNION ALL
    SELECT (started_at AT TIME ZONE 'UTC')::date, touchpoint_id, provider, model, calls, 0, 0, 0, calls,
           coalesce(most_usd, 0)
    FROM model_calls WHERE finished_at IS NULL AND NOT free
) AS every
WHERE day > (now() AT TIME ZONE 'UTC')::date - $1::int AND ($2::text IS NULL OR touchpoint_id = $2)
GROUP BY day, touchpoint_id, provider, model ORDER BY day DESC, usd DESC, touchpoint_id, provider, model LIMIT $3
"""
_LATEST = """
SELECT call_id, touchpoint_id, provider, model, run_id AS work_id, started_at, finished_at, input_tokens,
       output_tokens, usd, most_usd, error
FROM model_calls WHERE NOT free AND ($1::text IS NULL OR touchpoint_id = $1)
ORDER BY started_at DESC, call_id LIMIT $2
"""


async def lock(conn: Connection) -> None:
    """Until the transaction ends nobody else begins calls that cost money."""
    await conn.execute(_LOCK)


async def spent(conn: Connection, touchpoint_id: str, budget: Budget) -> Spent:
    """What today's calls cost. One that never ended counts its most, as in flight until `budget.in_flight_s`.

    A day's sums and the calls that are open: it takes as long after a million calls as after ten.
    """
    row = await conn.fetchrow(_SPENT, touchpoint_id, budget.in_flight_s)
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


async def started(conn: Connection, run_id: UUID, touchpoint_id: str, orders: Sequence[Order]) -> list[UUID]:
    """Write calls down before they are made; an id for each."""
    rows = await conn.fetch(
        _STARTED,
        run_id,
        touchpoint_id,
        [order.provider for order in orders],
        [order.model for order in orders],
        [order.free for order in orders],
        [order.calls for order in orders],
        [order.most_usd for order in orders],
    )
    return [row["call_id"] for row in rows]


async def settled(conn: Connection, ended: Sequence[Settled]) -> None:
    """Write down how calls ended and what they cost; a second time changes nothing."""
    await conn.execute(
        _SETTLED,
        [row.call_id for row in ended],
        [row.usage.input_tokens for row in ended],
        [row.usage.output_tokens for row in ended],
        [row.usage.usd for row in ended],
        [without_nul(row.error)[:500] if row.error else None for row in ended],
    )
