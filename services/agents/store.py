"""The only SQL of agents. Functions take a connection and never commit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from libs.contracts.agents import (
    AgentSummary,
    AgentTool,
    AgentVersionSummary,
    AgentVersionView,
    AgentView,
    KnowledgeBase,
    RefineMark,
    SaveAction,
)
from libs.contracts.queries.spending import MAX_DAY_ROWS
from libs.contracts.spending import CallSpending, DaySpending
from libs.contracts.text import without_nul
from libs.llm import Order, Settled, Spent
from libs.service_kit.db import Connection
from services.agents.domain.packs import Json, canonical

# --- agents -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewAgent:
    """An agent that the engine has taken."""

    id: UUID
    workspace_id: UUID
    organization_id: str
    company_id: str
    parameters: Json
    vendor_id: str


_GET = """
SELECT id, organization_id, company_id, parameters::text AS parameters, vendor_ai_agent_id, lock_version, created_at,
       updated_at
FROM agents WHERE id = $1 AND workspace_id = $2
"""
_LOCK = "SELECT FROM agents WHERE id = $1 AND workspace_id = $2 FOR UPDATE"
_INSERT = """
INSERT INTO agents (id, workspace_id, organization_id, company_id, parameters, vendor_ai_agent_id)
VALUES ($1, $2, $3, $4, $5::text::json, $6)
"""
_UPDATE = """
UPDATE agents
SET parameters = $3::text::json, vendor_ai_agent_id = $4, lock_version = lock_version + 1, updated_at = now()
WHERE id = $1 AND workspace_id = $2
"""
_LIST = """
SELECT id, organization_id, company_id, coalesce(left(parameters #>> '{profile,name}', 200), '') AS name,
       (parameters ->> 'engine_version')::int AS engine_version,
       json_array_length(coalesce(parameters -> 'capabilities', '[]')) AS capabilities, lock_version, updated_at
FROM agents WHERE workspace_id = $1 AND ($2::text IS NULL OR company_id = $2)
ORDER BY name, id LIMIT $3 OFFSET $4
"""
_COUNT = "SELECT count(*) FROM agents WHERE workspace_id = $1 AND ($2::text IS NULL OR company_id = $2)"


async def get(conn: Connection, workspace_id: UUID, agent_id: UUID, *, lock: bool = False) -> AgentView | None:
    """One agent; with `lock` nobody else saves it until the end of the transaction."""
    if lock:
        await conn.execute(_LOCK, agent_id, workspace_id)
    row = await conn.fetchrow(_GET, agent_id, workspace_id)
    return None if row is None else AgentView(**{**row, "parameters": json.loads(row["parameters"])})


async def insert(conn: Connection, agent: NewAgent) -> None:
    """A new agent."""
    text = canonical(agent.parameters).decode()
    await conn.execute(
        _INSERT, agent.id, agent.workspace_id, agent.organization_id, agent.company_id, text, agent.vendor_id
    )


async def update(conn: Connection, workspace_id: UUID, agent_id: UUID, parameters: Json, vendor_id: str) -> None:
    """The next version of an agent."""
    await conn.execute(_UPDATE, agent_id, workspace_id, canonical(parameters).decode(), vendor_id)


async def listed(
    conn: Connection, workspace_id: UUID, company_id: str | None, limit: int, offset: int
) -> tuple[list[AgentSummary], int]:
    """One page of agents by name, and how many there are."""
    rows = await conn.fetch(_LIST, workspace_id, company_id, limit, offset)
    return [AgentSummary(**row) for row in rows], await conn.fetchval(_COUNT, workspace_id, company_id)


# --- versions -----------------------------------------------------------------------------------------------------

_ADD_VERSION = """
INSERT INTO agent_versions (agent_id, version, workspace_id, action, actor, before, after, pack_sha256, refine, at)
VALUES ($1, $2, $3, $4, $5, $6::text::json, $7::text::json, $8, $9, $10)
"""
_VERSIONS = """
SELECT version, action, actor, at, pack_sha256, refine FROM agent_versions
WHERE agent_id = $1 ORDER BY version DESC LIMIT $2
"""
_VERSION = """
SELECT version, action, actor, at, pack_sha256, refine, before::text AS before, after::text AS after
FROM agent_versions WHERE agent_id = $1 AND version = $2
"""


@dataclass(frozen=True, slots=True)
class Saved:
    """One save, as its row keeps it."""

    action: SaveAction
    actor: str
    before: Json | None
    after: Json
    pack_sha256: str
    refine: RefineMark | None
    at: datetime


async def add_version(conn: Connection, agent: AgentView, workspace_id: UUID, saved: Saved) -> None:
    """Remember a save."""
    before = None if saved.before is None else canonical(saved.before).decode()
    mark = None if saved.refine is None else saved.refine.model_dump(mode="json")
    await conn.execute(
        _ADD_VERSION,
        *(agent.id, agent.lock_version, workspace_id, saved.action, saved.actor, before),
        *(canonical(saved.after).decode(), saved.pack_sha256, mark, saved.at),
    )


async def versions(conn: Connection, agent_id: UUID, limit: int) -> list[AgentVersionSummary]:
    """An agent's history, newest first."""
    return [AgentVersionSummary.model_validate(dict(row)) for row in await conn.fetch(_VERSIONS, agent_id, limit)]


async def version(conn: Connection, agent_id: UUID, number: int) -> AgentVersionView | None:
    """One version with what it changed."""
    row = await conn.fetchrow(_VERSION, agent_id, number)
    if row is None:
        return None
    before = None if row["before"] is None else json.loads(row["before"])
    told = AgentVersionSummary.model_validate({name: row[name] for name in AgentVersionSummary.model_fields})
    return AgentVersionView(**dict(told), before=before, after=json.loads(row["after"]))


# --- what agents may use ------------------------------------------------------------------------------------------

_TOOLS = """
SELECT tool_id, name, description, args::text AS args FROM agent_tools
WHERE workspace_id = $1 AND company_id = $2 ORDER BY name
"""
_KNOWLEDGE = "SELECT kb_id, name FROM agent_knowledge WHERE workspace_id = $1 AND company_id = $2 ORDER BY kb_id"
_LOCK_CATALOG = "SELECT pg_advisory_xact_lock(hashtextextended('agents.catalog.' || $1::text, 0))"
_FORGET_TOOLS = "DELETE FROM agent_tools WHERE workspace_id = $1 AND company_id = $2"
_FORGET_KNOWLEDGE = "DELETE FROM agent_knowledge WHERE workspace_id = $1 AND company_id = $2"
_ADD_TOOLS = """
INSERT INTO agent_tools (workspace_id, company_id, name, tool_id, description, args)
SELECT $1, $2, tool.name, tool.tool_id, tool.description, tool.args::json
FROM unnest($3::text[], $4::text[], $5::text[], $6::text[]) AS tool (name, tool_id, description, args)
"""
_ADD_KNOWLEDGE = """
INSERT INTO agent_knowledge (workspace_id, company_id, kb_id, name)
SELECT $1, $2, kb.kb_id, kb.name FROM unnest($3::text[], $4::text[]) AS kb (kb_id, name)
"""


async def tools(conn: Connection, workspace_id: UUID, company_id: str) -> list[AgentTool]:
    """The tools of a company."""
    rows = await conn.fetch(_TOOLS, workspace_id, company_id)
    return [AgentTool(**{**row, "args": json.loads(row["args"])}) for row in rows]


async def knowledge(conn: Connection, workspace_id: UUID, company_id: str) -> list[KnowledgeBase]:
    """The knowledge of a company."""
    return [KnowledgeBase(**row) for row in await conn.fetch(_KNOWLEDGE, workspace_id, company_id)]


async def put_catalog(
    conn: Connection,
    workspace_id: UUID,
    company_id: str,
    tools: Sequence[AgentTool],
    knowledge: Sequence[KnowledgeBase],
) -> None:
    """Replace what a company's agents may use."""
    await conn.execute(_LOCK_CATALOG, f"{workspace_id}.{company_id}")
    await conn.execute(_FORGET_TOOLS, workspace_id, company_id)
    await conn.execute(_FORGET_KNOWLEDGE, workspace_id, company_id)
    await conn.execute(
        _ADD_TOOLS,
        *(workspace_id, company_id, [tool.name for tool in tools], [tool.tool_id for tool in tools]),
        *([tool.description for tool in tools], [canonical(tool.args).decode() for tool in tools]),
    )
    ids, names = [each.kb_id for each in knowledge], [each.name for each in knowledge]
    await conn.execute(_ADD_KNOWLEDGE, workspace_id, company_id, ids, names)


# --- pushes whose end is not known --------------------------------------------------------------------------------

_BEGIN_PUSH = "INSERT INTO agent_pushes (id, agent_id, workspace_id, stores) VALUES ($1, $2, $3, $4)"
_HOLD_PUSH = "SELECT true FROM agent_pushes WHERE id = $1 FOR UPDATE"
_END_PUSH = "DELETE FROM agent_pushes WHERE id = $1"
_LEFT_OVER = """
SELECT id, agent_id, workspace_id, stores FROM agent_pushes
WHERE began_at <= now() - $1::interval AND ($2::uuid IS NULL OR id = $2)
ORDER BY began_at LIMIT 1 FOR UPDATE SKIP LOCKED
"""


@dataclass(frozen=True, slots=True)
class Push:
    """A push that began: of which agent, and the stores that it may have made."""

    id: UUID
    agent_id: UUID
    workspace_id: UUID
    stores: Sequence[str] = ()


async def begin_push(conn: Connection, push: Push) -> None:
    """Say that a push begins; committed before it does."""
    await conn.execute(_BEGIN_PUSH, push.id, push.agent_id, push.workspace_id, list(push.stores))


async def hold_push(conn: Connection, push_id: UUID) -> bool:
    """Keep the sweep off until the end of the transaction; whether it has not been there before."""
    return bool(await conn.fetchval(_HOLD_PUSH, push_id))


async def end_push(conn: Connection, push_id: UUID) -> None:
    """The engine and the table are the same again."""
    await conn.execute(_END_PUSH, push_id)


async def left_over(conn: Connection, age_s: float, push_id: UUID | None = None) -> Push | None:
    """A push that nobody holds, which is one whose process is gone; held until the end of the transaction."""
    row = await conn.fetchrow(_LEFT_OVER, timedelta(seconds=age_s), push_id)
    return None if row is None else Push(**row)


# --- flags --------------------------------------------------------------------------------------------------------

_FLAG = "SELECT enabled FROM flags WHERE code = $1"
_SET_FLAG = """
INSERT INTO flags (code, enabled, changed_by) VALUES ($1, $2, $3)
ON CONFLICT (code) DO UPDATE SET enabled = excluded.enabled, changed_by = excluded.changed_by, changed_at = now()
"""


async def flag(conn: Connection, code: str) -> bool:
    """Whether a feature is on; one that nobody set is off."""
    return bool(await conn.fetchval(_FLAG, code))


async def set_flag(conn: Connection, code: str, enabled: bool, actor: str) -> None:
    """Switch a feature."""
    await conn.execute(_SET_FLAG, code, enabled, actor)


# --- what refine turns cost ---------------------------------------------------------------------------------------

CALLER = "agents"
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
    WHERE started_at >= date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
) AS paid
"""
_STARTED = """
INSERT INTO model_calls (agent_id, workspace_id, touchpoint_id, provider, model, most_usd)
VALUES ($1, $2, $3, $4, $5, $6) RETURNING call_id
"""
_SETTLED = """
UPDATE model_calls
SET finished_at = now(), input_tokens = $2, output_tokens = $3, usd = $4, latency_ms = $5, error = $6
WHERE call_id = $1
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
SELECT call_id, touchpoint_id, provider, model, agent_id AS work_id, started_at, finished_at, input_tokens,
       output_tokens, usd, most_usd, error
FROM model_calls WHERE ($1::text IS NULL OR touchpoint_id = $1)
ORDER BY started_at DESC, call_id LIMIT $2
"""


async def spent(conn: Connection, touchpoint_id: str, timeout_s: float) -> Spent:
    """What today's calls cost. One that never ended counts its most, as in flight until it must have timed out."""
    row = await conn.fetchrow(_SPENT, touchpoint_id, timeout_s)
    assert row is not None
    return Spent(**row)


async def call_started(conn: Connection, agent_id: UUID, workspace_id: UUID, touchpoint_id: str, order: Order) -> UUID:
    """Write a call down before it is made; its id."""
    call_id: UUID = await conn.fetchval(
        _STARTED, agent_id, workspace_id, touchpoint_id, order.provider, order.model, order.most_usd
    )
    return call_id


async def call_settled(conn: Connection, call: Settled) -> None:
    """Write down what a call cost, and why it failed where it did."""
    usage, error = call.usage, without_nul(call.error)[:500] if call.error else None
    await conn.execute(
        _SETTLED, call.call_id, usage.input_tokens, usage.output_tokens, usage.usd, call.latency_ms, error
    )


async def spent_by_day(conn: Connection, touchpoint_id: str | None, days: int) -> tuple[DaySpending, ...]:
    """What the last days cost, today included; one row more than an answer holds, where there are more."""
    rows = await conn.fetch(_BY_DAY, days, touchpoint_id, MAX_DAY_ROWS + 1)
    return tuple(DaySpending(caller=CALLER, **row) for row in rows)


async def latest_calls(conn: Connection, touchpoint_id: str | None, limit: int) -> tuple[CallSpending, ...]:
    """The last calls, newest first."""
    rows = await conn.fetch(_LATEST, touchpoint_id, limit)
    return tuple(CallSpending(caller=CALLER, **row) for row in rows)
