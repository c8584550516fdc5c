"""The books of refine turns, in `model_calls`: what they cost, and no word of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

from libs.llm import Budget, ModelReply, Order, Settled
from libs.llm.budget import how_many_may_start
from libs.service_kit.db import Database
from services.agents import store

LOCK = "agents.model_calls"


@dataclass(frozen=True)
class RefineAccount:
    """An `Account`: the calls of one agent's turns. A turn asked again is another call: nothing of it is kept.

    A free call leaves no row, so that refining without a paid model writes nothing at all.
    """

    db: Database
    agent_id: UUID
    workspace_id: UUID

    @property
    def touchpoint_id(self) -> str:
        """The agent, as the touchpoint that it is."""
        return touchpoint_of(self.agent_id)

    async def open(self, orders: Sequence[Order], budget: Budget) -> list[UUID | ModelReply]:
        """See `Account.open`. Under a lock, so that no two processes spend the same cent."""
        if all(order.free for order in orders):
            return [uuid4() for _ in orders]
        async with self.db.transaction(lock=LOCK) as tx:
            spent = await store.spent(tx.conn, self.touchpoint_id, budget.in_flight_s)
            may_start = how_many_may_start(budget, spent, [order.most_usd for order in orders])
            return [
                await store.call_started(tx.conn, self.agent_id, self.workspace_id, self.touchpoint_id, order)
                for order in orders[:may_start]
            ]

    async def close(self, settled: Sequence[Settled]) -> None:
        """See `Account.close`."""
        async with self.db.transaction() as tx:
            for call in settled:
                await store.call_settled(tx.conn, call)


def touchpoint_of(agent_id: UUID) -> str:
    """What an agent is called as a touchpoint."""
    return f"agent-{agent_id}"
