"""The books of this service's model calls, in `model_calls`: no request is paid for twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from libs.llm import Budget, ModelReply, Order, Settled
from libs.llm.budget import how_many_may_start
from libs.service_kit.db import Connection, Database
from services.proposal.store import calls

LOCK = "proposal.model_calls"


@dataclass(frozen=True)
class ProposalAccount:
    """An `Account`: the calls of one attempt to write one proposal."""

    db: Database
    touchpoint_id: str
    proposal_id: UUID
    attempt: int

    async def open(self, orders: Sequence[Order], budget: Budget) -> list[UUID | ModelReply]:
        """See `Account.open`. Under a lock, so that no two processes spend the same cent."""
        async with self.db.transaction(lock=LOCK) as tx:
            known = [
                await calls.paid_reply(tx.conn, self.proposal_id, self.attempt, order.request_sha256)
                for order in orders
            ]
            may_start = await self._may_start(tx.conn, orders, known, budget)
            begun: list[UUID | ModelReply] = []
            for order, reply in zip(orders, known, strict=True):
                if reply is None and not order.free:
                    may_start -= 1
                if may_start < 0:
                    break
                begun.append(reply or await self._started(tx.conn, order))
            return begun

    async def close(self, settled: Sequence[Settled]) -> None:
        async with self.db.transaction() as tx:
            for row in settled:
                await calls.settled(tx.conn, row)

    async def _may_start(
        self, conn: Connection, orders: Sequence[Order], known: Sequence[ModelReply | None], budget: Budget
    ) -> int:
        paid = [order for order, reply in zip(orders, known, strict=True) if reply is None and not order.free]
        if not paid:
            return 0
        spent = await calls.spent(conn, self.touchpoint_id, budget.in_flight_s)
        return how_many_may_start(budget, spent, [order.most_usd for order in paid])

    async def _started(self, conn: Connection, order: Order) -> UUID:
        return await calls.started(conn, self.proposal_id, self.touchpoint_id, self.attempt, order)
