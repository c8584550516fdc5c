"""Table `patterns`: those that surfaced, whether or not a proposal was made for them."""

from __future__ import annotations

from libs.contracts.events.pattern_detector import PatternDetectedV1
from libs.service_kit.db import Connection

_REMEMBER = """
INSERT INTO patterns AS p (pattern_id, touchpoint_id, workspace_id, title, occurrence, automatic)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (pattern_id) DO UPDATE
SET title = excluded.title, occurrence = excluded.occurrence, automatic = excluded.automatic, heard_at = now()
WHERE p.occurrence <= excluded.occurrence
"""


async def remember(conn: Connection, heard: PatternDetectedV1) -> None:
    """Keep that the pattern surfaced."""
    one = heard.pattern
    await conn.execute(
        _REMEMBER, one.pattern_id, heard.touchpoint_id, one.workspace_id, one.title, heard.occurrence, one.automatic
    )
