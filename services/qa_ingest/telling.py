"""Says what an operation did to pairs, in its own transaction: whoever changes pairs calls `tell` before the end."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from libs.service_kit.db import Transaction
from services.qa_ingest.domain import pair_facts
from services.qa_ingest.store import history
from services.qa_ingest.store.operations import Operation


async def tell(tx: Transaction[Any], workspace_id: UUID, operation: Operation) -> None:
    """Put into the outbox the facts about the pairs that this operation changed, and what reviewers say as signals."""
    changes = await history.changes(tx.conn, operation.operation_id)
    if not changes:
        return
    home = await history.home(tx.conn, workspace_id)
    tx.emit(*(pair_facts.version(change, operation.operation_id) for change in changes))
    tx.emit(*(fact for change in changes for fact in pair_facts.said(change, home)))
