"""Table `decisions`: who did what with which text, when and why. Append-only."""

from __future__ import annotations

from uuid import UUID

from libs.service_kit.db import Connection
from services.proposal.domain import Recorded

_RECORD = "INSERT INTO decisions (proposal_id, action, by, reason, content_sha256) VALUES ($1, $2, $3, $4, $5)"
_OF_PROPOSAL = "SELECT action, by, reason, at, content_sha256 FROM decisions WHERE proposal_id = $1 ORDER BY seq"


async def record(conn: Connection, proposal_id: UUID, action: str, by: str, reason: str, content_sha256: str) -> None:
    """Append what was done with a text, by whom and why."""
    await conn.execute(_RECORD, proposal_id, action, by, reason, content_sha256)


async def of_proposal(conn: Connection, proposal_id: UUID) -> tuple[Recorded, ...]:
    """Everything that was decided about a proposal, oldest first."""
    return tuple(Recorded(**row) for row in await conn.fetch(_OF_PROPOSAL, proposal_id))
