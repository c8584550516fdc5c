"""Table `touchpoints`: what this service needs to know of them."""

from __future__ import annotations

from collections.abc import Iterable

from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.touchpoints import Touchpoint
from libs.service_kit.db import Connection

_SAVE = """
INSERT INTO touchpoints (touchpoint_id, revision, config)
SELECT DISTINCT ON (id) id, revision, config
FROM unnest($1::text[], $2::int[], $3::jsonb[]) AS heard (id, revision, config)
ORDER BY id, revision DESC
ON CONFLICT (touchpoint_id) DO UPDATE SET revision = EXCLUDED.revision, config = EXCLUDED.config
WHERE touchpoints.revision < EXCLUDED.revision
"""
_GET = "SELECT config FROM touchpoints WHERE touchpoint_id = $1"


async def save(conn: Connection, heard: Iterable[TouchpointRegisteredV1]) -> None:
    """Keep the newest revision of each; an older one than is known changes nothing."""
    events = list(heard)
    await conn.execute(
        _SAVE,
        [event.touchpoint.id for event in events],
        [event.revision for event in events],
        [event.touchpoint.model_dump(mode="json") for event in events],
    )


async def get(conn: Connection, touchpoint_id: str) -> Touchpoint | None:
    """The configuration of a touchpoint, or None."""
    config = await conn.fetchval(_GET, touchpoint_id)
    return None if config is None else Touchpoint.model_validate(config)
