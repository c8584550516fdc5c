"""What a person should look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

from libs.service_kit.connection import Connection

_ADD = """
INSERT INTO suggestions (workspace_id, kind, pair_id, other_pair_id, extraction_id, natural_key, detail, created_by)
SELECT workspace_id, kind, pair_id, other_pair_id, extraction_id, natural_key, detail, created_by
FROM jsonb_populate_recordset(NULL::suggestions, $1)
ON CONFLICT (workspace_id, kind, natural_key) DO NOTHING
RETURNING id
"""
_OUTDATED = """
UPDATE suggestions SET state = 'outdated', decided_at = now(), decided_by = 'ingest'
WHERE extraction_id = ANY($1::uuid[]) AND state = 'open'
"""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One suggestion; the same natural key again is the same suggestion."""

    workspace_id: UUID
    kind: str
    natural_key: str
    created_by: str = "ingest"
    pair_id: UUID | None = None
    other_pair_id: UUID | None = None
    extraction_id: UUID | None = None
    detail: dict[str, Any] = field(default_factory=dict)


async def add(conn: Connection, suggestions: Sequence[Suggestion]) -> int:
    """Keep those that are new; how many were."""
    if not suggestions:
        return 0
    return len(await conn.fetch(_ADD, [asdict(each) for each in suggestions]))


async def outdate(conn: Connection, extraction_ids: Sequence[UUID]) -> None:
    """Nobody need look at suggestions whose extraction is no longer served."""
    if extraction_ids:
        await conn.execute(_OUTDATED, list(extraction_ids))
