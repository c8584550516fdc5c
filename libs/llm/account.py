"""Where a service keeps what its calls of models cost: written down before a call is made, and settled after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol
from uuid import UUID, uuid4

from libs.llm.base import ModelError, ModelReply, Usage
from libs.llm.budget import Budget


@dataclass(frozen=True, slots=True)
class Order:
    """A call that is about to be made, or a batch that its model takes in one go. `most_usd` is as `Model` says."""

    provider: str
    model: str
    request_sha256: str
    most_usd: Decimal
    calls: int = 1

    @property
    def free(self) -> bool:
        """Whether no budget is asked."""
        return self.most_usd == 0


@dataclass(frozen=True, slots=True)
class Settled:
    """How a call ended: with a reply, or with an error that may have been billed, and after which the same request may
    still succeed or not."""

    call_id: UUID
    usage: Usage
    latency_ms: float | None = None
    reply: ModelReply | None = None
    error: str | None = None
    retryable: bool = False


class Account(Protocol):
    """Who pays for calls, and what for. A service implements it on a table that all its processes share."""

    @property
    def touchpoint_id(self) -> str:
        """The touchpoint whose budget pays."""
        ...

    async def open(self, orders: Sequence[Order], budget: Budget) -> list[UUID | ModelReply]:
        """Write calls down before they are made: as many from the front as the budget allows, at least one.

        A call's id for each; or the reply, where this very call was made and paid for before. Raises `OverBudget` or
        `PriceUnknownYet` when not even the first may start. What is written down counts until it is settled, so that
        a process that is killed in between cannot overspend.
        """
        ...

    async def close(self, settled: Sequence[Settled]) -> None:
        """Write down how calls ended. Never runs at the same time as `open` of the same account."""
        ...


class FreeModelsOnly:
    """For callers that keep no books: whatever costs money is refused."""

    def __init__(self, touchpoint_id: str) -> None:
        self.touchpoint_id = touchpoint_id

    async def open(self, orders: Sequence[Order], budget: Budget) -> list[UUID | ModelReply]:
        """Ids for free calls. Raises `ModelError` for others."""
        if not all(order.free for order in orders):
            raise ModelError("calls of this model cost money, and there is no account to pay from", retryable=False)
        return [uuid4() for _ in orders]

    async def close(self, settled: Sequence[Settled]) -> None: ...
