"""The books of this service's model calls, in `model_calls`: what runs cost, over all replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from libs.llm import Budget, ModelReply, Order, Settled
from libs.llm.budget import how_many_may_start
from libs.service_kit.db import Connection
from services.ab_runner.store import calls


@dataclass(frozen=True)
class RunAccount:
    """An `Account`: the calls of one run. What was answered before is in `results` and never asked again.

    It works on the connection that its shard holds: a second one of the same pool for each shard could be waited for
    for ever.
    """

    conn: Connection
    touchpoint_id: str
    run_id: UUID

    async def open(self, orders: Sequence[Order], budget: Budget) -> list[UUID | ModelReply]:
        """See `Account.open`. Under a lock where money is spent, so that no two replicas spend the same cent."""
        async with self.conn.transaction():
            if not all(order.free for order in orders):
                await calls.lock(self.conn)
                spent = await calls.spent(self.conn, self.touchpoint_id, budget)
                orders = orders[: how_many_may_start(budget, spent, [order.most_usd for order in orders])]
            return list(await calls.started(self.conn, self.run_id, self.touchpoint_id, orders))

    async def close(self, settled: Sequence[Settled]) -> None:
        async with self.conn.transaction():
            await calls.settled(self.conn, settled)
