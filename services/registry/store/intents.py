"""Table `intents`: changes and rollbacks that a person still has to merge."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from libs.contracts.prompts import PromptPart
from libs.service_kit.db import Connection
from services.registry.domain import Target

State = Literal["recorded", "open", "failed", "confirmed", "closed"]
AT_WORK: tuple[State, ...] = ("recorded", "open", "failed")

_COLUMNS = """intent_id, kind, state, touchpoint_id, workspace_id, proposal_id, from_ref, from_sha256, to_ref, parts,
content_sha256, message, branch, commit_id, diff, error_code, error, confirmed_at, created_by, created_at, updated_at"""
_INSERT = """
INSERT INTO intents (intent_id, kind, state, touchpoint_id, workspace_id, proposal_id, from_ref, from_sha256, to_ref,
                     parts, content_sha256, message, diff, created_by, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, COALESCE($15, now()))
ON CONFLICT DO NOTHING
"""
_ONE = f"SELECT {_COLUMNS} FROM intents WHERE intent_id = $1"  # noqa: S608
_AT_WORK = f"""
SELECT {_COLUMNS} FROM intents
WHERE state IN ('recorded', 'open', 'failed') AND ($1::text IS NULL OR touchpoint_id = $1) ORDER BY created_at
"""  # noqa: S608
_LIST = f"""
SELECT {_COLUMNS} FROM intents WHERE touchpoint_id = $1 AND workspace_id IS NOT DISTINCT FROM $2
ORDER BY created_at DESC LIMIT $3
"""  # noqa: S608
_OPENED = """
UPDATE intents SET state = 'open', branch = $2, commit_id = $3, diff = $4, error_code = NULL, error = NULL,
                   updated_at = now()
WHERE intent_id = $1 AND state IN ('recorded', 'failed')
"""
_FAILED = """
UPDATE intents SET state = 'failed', error_code = $2, error = $3, updated_at = now()
WHERE intent_id = $1 AND state IN ('recorded', 'failed')
"""
_TROUBLED = """
UPDATE intents SET error_code = $2, error = $3, updated_at = now()
WHERE intent_id = $1 AND state IN ('recorded', 'open') AND error_code IS DISTINCT FROM $2 RETURNING true
"""
_CONFIRMED = """
UPDATE intents SET state = 'confirmed', confirmed_at = $2, error_code = NULL, error = NULL, updated_at = now()
WHERE intent_id = $1 AND state IN ('recorded', 'open', 'failed') RETURNING true
"""
_CLOSE_OTHERS = f"""
UPDATE intents SET state = 'closed', error_code = 'superseded', error = $4, updated_at = now()
WHERE touchpoint_id = $1 AND workspace_id IS NOT DISTINCT FROM $2 AND intent_id IS DISTINCT FROM $3
  AND state IN ('recorded', 'open', 'failed') AND ($5::text IS NULL OR kind = $5)
RETURNING {_COLUMNS}
"""  # noqa: S608


@dataclass(frozen=True)
class Intent:
    """A text on its way to being live: `from_ref` is the version that is live as long as the intent is at work."""

    intent_id: UUID
    kind: Literal["activate", "rollback"]
    state: State
    target: Target
    from_ref: str
    from_sha256: str
    parts: tuple[PromptPart, ...]
    content_sha256: str
    message: str
    created_by: str
    proposal_id: UUID | None = None
    to_ref: str | None = None
    branch: str | None = None
    commit: str | None = None
    diff: str | None = None
    error_code: str | None = None
    error: str | None = None
    confirmed_at: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None


async def insert(conn: Connection, intent: Intent) -> None:
    """Keep an intent; the same one again changes nothing."""
    await conn.execute(
        _INSERT,
        intent.intent_id,
        intent.kind,
        intent.state,
        *intent.target,
        intent.proposal_id,
        intent.from_ref,
        intent.from_sha256,
        intent.to_ref,
        [part.model_dump() for part in intent.parts],
        intent.content_sha256,
        intent.message,
        intent.diff,
        intent.created_by,
        intent.created_at,
    )


async def get(conn: Connection, intent_id: UUID) -> Intent | None:
    """One intent."""
    row = await conn.fetchrow(_ONE, intent_id)
    return None if row is None else _intent(row)


async def at_work(conn: Connection, touchpoint_id: str | None = None) -> list[Intent]:
    """Intents that are neither confirmed nor closed, oldest first."""
    return [_intent(row) for row in await conn.fetch(_AT_WORK, touchpoint_id)]


async def listed(conn: Connection, target: Target, limit: int) -> list[Intent]:
    """The target's intents, newest first."""
    return [_intent(row) for row in await conn.fetch(_LIST, *target, limit)]


async def opened(conn: Connection, intent_id: UUID, branch: str | None, commit: str | None, diff: str | None) -> None:
    """The change stands ready for a person to merge."""
    await conn.execute(_OPENED, intent_id, branch, commit, diff)


async def failed(conn: Connection, intent_id: UUID, code: str, error: str) -> None:
    """The change could not be made ready, and why."""
    await conn.execute(_FAILED, intent_id, code, error)


async def troubled(conn: Connection, intent_id: UUID, code: str | None, error: str | None) -> bool:
    """Why its store cannot be looked at, None when it can again; True when that is news. Its state stays."""
    return bool(await conn.fetchval(_TROUBLED, intent_id, code, error))


async def confirmed(conn: Connection, intent_id: UUID, where: str) -> bool:
    """The text was seen where it is served from; False when the intent was settled before."""
    return bool(await conn.fetchval(_CONFIRMED, intent_id, where))


async def close_others(
    conn: Connection, target: Target, keep: UUID | None, why: str, *, kind: str | None = None
) -> list[Intent]:
    """Close what is at work for the target, except `keep`: it was about a version that is no longer live."""
    return [_intent(row) for row in await conn.fetch(_CLOSE_OTHERS, *target, keep, why, kind)]


def _intent(row: Any) -> Intent:
    return Intent(
        intent_id=row["intent_id"],
        kind=row["kind"],
        state=row["state"],
        target=Target(row["touchpoint_id"], row["workspace_id"]),
        from_ref=row["from_ref"],
        from_sha256=row["from_sha256"],
        parts=tuple(PromptPart.model_validate(part) for part in row["parts"]),
        content_sha256=row["content_sha256"],
        message=row["message"],
        created_by=row["created_by"],
        proposal_id=row["proposal_id"],
        to_ref=row["to_ref"],
        branch=row["branch"],
        commit=row["commit_id"],
        diff=row["diff"],
        error_code=row["error_code"],
        error=row["error"],
        confirmed_at=row["confirmed_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )
