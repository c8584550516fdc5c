"""The history of pairs, read back: what an operation changed."""

from __future__ import annotations

from uuid import UUID

from libs.service_kit.connection import Connection
from services.qa_ingest.domain.pair_facts import Change, Home

_CHANGES = """
SELECT now.pair_id, now.workspace_id, now.version_number AS version, now.change_type, now.change_reason AS reason,
       now.changed_by AS by, now.changed_at AS at, earlier.snapshot AS before, now.snapshot AS after
FROM q_a_pair_history AS now
LEFT JOIN q_a_pair_history AS earlier
    ON earlier.pair_id = now.pair_id AND earlier.version_number = now.version_number - 1
WHERE now.operation_id = $1
ORDER BY now.changed_at, now.pair_id, now.version_number
"""
_HOME = """
SELECT touchpoint.touchpoint_id, touchpoint.scope
FROM workspaces AS workspace JOIN known_touchpoints AS touchpoint USING (touchpoint_id) WHERE workspace.id = $1
"""


async def changes(conn: Connection, operation_id: UUID) -> list[Change]:
    """Every version that an operation made, each with the one before it."""
    return [Change(**row) for row in await conn.fetch(_CHANGES, operation_id)]


async def home(conn: Connection, workspace_id: UUID) -> Home:
    """The touchpoint that the workspace names for its answers."""
    row = await conn.fetchrow(_HOME, workspace_id)
    return Home() if row is None else Home(**row)
