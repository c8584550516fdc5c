"""The only SQL on the table `known_touchpoints`. Functions take a connection and never commit."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.touchpoints import Touchpoint
from libs.contracts.vocabulary import Scope
from libs.service_kit.db import Connection
from libs.touchpoints.model import KnownTouchpoint

# In order of id, so that two replicas do not deadlock.
_KEEP = """
INSERT INTO known_touchpoints AS t (touchpoint_id, revision, scope, config)
SELECT DISTINCT ON (touchpoint_id) touchpoint_id, revision, scope, config
FROM jsonb_to_recordset($1) AS heard (touchpoint_id text, revision int, scope text, config jsonb)
ORDER BY touchpoint_id, revision DESC
ON CONFLICT (touchpoint_id) DO UPDATE
SET revision = excluded.revision, scope = excluded.scope, config = excluded.config
WHERE t.revision < excluded.revision
RETURNING touchpoint_id, revision
"""
_GET = "SELECT * FROM known_touchpoints WHERE touchpoint_id = $1"
_SCOPES = """
SELECT touchpoint_id, scope FROM known_touchpoints WHERE touchpoint_id = ANY($1::text[]) AND scope IS NOT NULL
"""


async def keep(conn: Connection, registered: Sequence[TouchpointRegisteredV1]) -> list[Touchpoint]:
    """Keep the newest revision of each, in any order; return those that were newer than the ones known, by id."""
    if not registered:
        return []
    rows = [
        {
            "touchpoint_id": one.touchpoint.id,
            "revision": one.revision,
            "scope": one.touchpoint.scope,
            "config": one.touchpoint.model_dump(mode="json", exclude={"storage"}),
        }
        for one in registered
    ]
    by_revision = {(one.touchpoint.id, one.revision): one.touchpoint for one in registered}
    kept = sorted((row["touchpoint_id"], row["revision"]) for row in await conn.fetch(_KEEP, rows))
    return [by_revision[key] for key in kept]


async def get(conn: Connection, touchpoint_id: str) -> KnownTouchpoint | None:
    """What is known of a touchpoint; None for one whose registration was not heard yet."""
    row = await conn.fetchrow(_GET, touchpoint_id)
    return None if row is None else KnownTouchpoint.of_row(row)


async def scopes(conn: Connection, touchpoint_ids: Collection[str]) -> dict[str, Scope]:
    """The scope of each of these touchpoints that is known."""
    return {row["touchpoint_id"]: row["scope"] for row in await conn.fetch(_SCOPES, list(touchpoint_ids))}
