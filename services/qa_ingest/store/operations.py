"""Whose rows a transaction sees, and what it says about the pairs that it changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID, uuid4

from libs.service_kit.connection import Connection, see_only

_SAY = """
SELECT set_config('burnish.changed_by', $1, true), set_config('burnish.change_type', $2, true),
       set_config('burnish.change_reason', $3, true), set_config('burnish.operation_id', $4, true)
"""


@dataclass(frozen=True, slots=True)
class Operation:
    """Who changes pairs, how and why. One id for everything that is changed together."""

    by: str
    change_type: str
    reason: str = ""
    operation_id: UUID = field(default_factory=uuid4)


async def enter(conn: Connection, workspace_id: UUID) -> None:
    """See and write the rows of this workspace until the transaction ends."""
    await see_only(conn, [workspace_id])


async def say(conn: Connection, operation: Operation) -> None:
    """Let the history of every pair that this transaction changes from here on carry this operation."""
    await conn.execute(
        _SAY, operation.by[:200], operation.change_type, operation.reason[:2000], str(operation.operation_id)
    )
