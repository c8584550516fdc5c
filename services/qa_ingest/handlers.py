"""What the Q&A library does with each event: a function of the events and their dependencies."""

from __future__ import annotations

from libs.contracts.envelope import Event
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.service_kit.db import Database
from services.qa_ingest import domain, store


async def on_touchpoints_registered(events: list[Event[TouchpointRegisteredV1]], db: Database) -> None:
    """Keep what a workspace may name as the touchpoint of its answers."""
    async with db.transaction(inbox=events) as tx:
        await store.keep_touchpoints(tx.conn, domain.newest(event.data for event in tx.fresh))
