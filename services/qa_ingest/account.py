"""The books of this service's model calls, in `model_calls`: a workspace pays once for one question, a run never more
than its cap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from libs.llm import Budget, ModelError, ModelReply, Order, PriceUnknownYet, Settled, Usage
from libs.llm.budget import how_many_may_start
from libs.service_kit.connection import Connection
from libs.service_kit.db import Database
from services.qa_ingest.store import calls

LOCK = "qa_ingest.model_calls"


class OverCap(ModelError):
    """The next call could cost more than what is left of the run's cap."""

    def __init__(self, max_usd: Decimal, spent: Decimal) -> None:
        super().__init__(
            f"the cap of {max_usd} USD holds no further call: {spent} USD are spent, calls without a known end counted "
            "at their most",
            retryable=False,
        )


@dataclass(frozen=True)
class ExtractionAccount:
    """An `Account`: the calls of one reading of one file."""

    db: Database
    workspace_id: UUID
    run_id: UUID
    max_usd: Decimal
    touchpoint_id: str = "qa.llm_extraction"
    """No touchpoint pays for it: the label of its metrics."""

    async def open(self, orders: Sequence[Order], budget: Budget) -> list[UUID | ModelReply]:
        """See `Account.open`. Under a lock, so that no two processes spend the same cent. It opens the first call.

        Raises `OverCap`, too, and the error of an earlier call that this run paid for in vain.
        """
        order = orders[0]
        async with self.db.transaction(lock=LOCK) as tx:
            known = await calls.reply(tx.conn, self.workspace_id, order.request_sha256)
            if known is not None:
                return [known]
            earlier = await calls.in_vain(tx.conn, self.run_id, order.request_sha256)
            if earlier is not None:
                usage = Usage(input_tokens=0, output_tokens=0, usd=earlier.usd)
                raise ModelError(earlier.error, retryable=False, usage=usage)
            if not order.free:
                await self._require_room(tx.conn, order, budget)
            return [await calls.started(tx.conn, self.workspace_id, self.run_id, order)]

    async def close(self, settled: Sequence[Settled]) -> None:
        async with self.db.transaction() as tx:
            for row in settled:
                await calls.settled(tx.conn, row)

    async def _require_room(self, conn: Connection, order: Order, budget: Budget) -> None:
        if await calls.is_in_flight(conn, self.workspace_id, order.request_sha256, budget.in_flight_s):
            raise PriceUnknownYet  # and its reply, which serves this run as well
        how_many_may_start(budget, await calls.spent(conn, self.workspace_id, budget.in_flight_s), [order.most_usd])
        spent = await calls.spent_by(conn, self.run_id)
        if spent + order.most_usd > self.max_usd:
            raise OverCap(self.max_usd, spent)
