"""The only SQL of the Q&A library. Functions take a connection and never commit."""

from __future__ import annotations

from collections.abc import Sequence

from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.service_kit.db import Connection

_KEEP = """
INSERT INTO touchpoints AS t (touchpoint_id, scope, revision)
SELECT * FROM unnest($1::text[], $2::text[], $3::int[])
ON CONFLICT (touchpoint_id) DO UPDATE SET scope = excluded.scope, revision = excluded.revision
WHERE t.revision < excluded.revision
"""


async def keep_touchpoints(conn: Connection, registered: Sequence[TouchpointRegisteredV1]) -> None:
    """One row a touchpoint (each id once in `registered`); an older revision than the one kept changes nothing."""
    if registered:
        await conn.execute(
            _KEEP,
            [one.touchpoint.id for one in registered],
            [one.touchpoint.scope for one in registered],
            [one.revision for one in registered],
        )
