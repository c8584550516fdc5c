"""A small service for the kit's own tests: it counts what it hears in a table of its own."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID, uuid4

import asyncpg

from libs.contracts.envelope import Event
from libs.contracts.events.normaliser import SignalCreatedV1, SignalObservedV1
from libs.contracts.signals import EvidenceRef, SignalPayload
from libs.service_kit.db import Database
from libs.service_kit.testing import Installation, event_of

EFFECTS = "CREATE TABLE normaliser.effects (event_id uuid, n int GENERATED ALWAYS AS IDENTITY)"
GRANT = "GRANT ALL ON normaliser.effects TO burnish_normaliser"


def observed(text: str = "hello", key: str | None = None) -> Event[SignalObservedV1]:
    """One observed signal."""
    return event_of(
        SignalObservedV1(
            touchpoint_id="support.intent",
            signal_type="flag",
            evidence_ref=EvidenceRef(source="feed_flags", id="1"),
            payload=SignalPayload(text=text),
            actor_id="user-1",
            actor_kind="human",
            source_key=key or f"feed_flags:{uuid4()}",
            observed_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
    )


def created(event: Event[SignalObservedV1]) -> SignalCreatedV1:
    """What a normaliser would say of it."""
    fields = event.data.model_dump(exclude={"severity", "observed_at"})
    at = event.data.observed_at
    return SignalCreatedV1(**fields, severity="low", first_seen=at, last_seen=at)


async def make_effects_table(admin_dsn: str) -> None:
    """The table in which an effect leaves its mark."""
    conn = await asyncpg.connect(admin_dsn)
    try:
        await conn.execute(EFFECTS)
        await conn.execute(GRANT)
    finally:
        await conn.close()


async def note(events: list[Event[SignalObservedV1]], db: Database) -> None:
    """The handler under test: one row for each fresh event, one fact said of it; `poison` fails."""
    async with db.transaction(inbox=events) as tx:
        for event in tx.fresh:
            if event.data.payload.text == "poison":
                raise ValueError("cannot digest this")
            await tx.conn.execute("INSERT INTO effects (event_id) VALUES ($1)", event.id)
            tx.emit(created(event))


async def effects(db: Database) -> list[UUID]:
    """Every mark that was left, duplicates included."""
    async with db.connection() as conn:
        return [row["event_id"] for row in await conn.fetch("SELECT event_id FROM effects ORDER BY n")]


__all__ = ["Installation", "created", "effects", "make_effects_table", "note", "observed"]
