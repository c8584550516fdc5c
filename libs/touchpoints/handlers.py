"""What every service does when a touchpoint is registered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from libs.contracts.envelope import Event
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.touchpoints import Touchpoint
from libs.service_kit.db import Database, Transaction
from libs.touchpoints import store

FollowUp: TypeAlias = Callable[[Transaction[TouchpointRegisteredV1], Sequence[Touchpoint]], Awaitable[None]]
"""What a service does of its own with the touchpoints that are new or changed, in the same transaction."""


async def on_registered(
    events: list[Event[TouchpointRegisteredV1]], db: Database, follow_up: FollowUp | None = None
) -> None:
    """Keep the newest configuration of each touchpoint; an older revision than the one known changes nothing."""
    async with db.transaction(inbox=events) as tx:
        newer = await store.keep(tx.conn, [event.data for event in tx.fresh])
        if follow_up is not None and newer:
            await follow_up(tx, newer)
