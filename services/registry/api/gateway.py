"""What the routers work with, and how they ask other services."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from libs.auth.tokens import Verifier
from libs.contracts.envelope import EventData
from libs.contracts.queries.base import Query, Reply
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused, Unavailable
from libs.service_kit.queries import TIMEOUT_S, Asker
from services.registry.api.errors import ServiceDown
from services.registry.ledger import Ledger
from services.registry.pending_merges import PendingMerges
from services.registry.registration import Registration
from services.registry.store import touchpoints
from services.registry.store.touchpoints import Registered

ReplyT = TypeVar("ReplyT", bound=Reply)


@dataclass(frozen=True)
class Gateway:
    """The parts of the registry that its HTTP API is a face of."""

    db: Database
    asker: Asker
    verifier: Verifier
    ledger: Ledger
    pending_merges: PendingMerges
    registration: Registration

    async def ask(self, query: Query[ReplyT], *, subject: str | None = None, timeout_s: float = TIMEOUT_S) -> ReplyT:
        """Ask the service that owns the answer. Raises Refused with its status, ServiceDown when it is silent."""
        try:
            return await self.asker.ask(query, subject=subject, timeout_s=timeout_s)
        except Unavailable as error:
            raise ServiceDown((subject or query.subject).split(".")[1]) from error

    async def emit(self, *facts: EventData) -> None:
        """Say facts; when this returns they are committed and will go out."""
        async with self.db.transaction() as tx:
            tx.emit(*facts)

    async def touchpoint(self, touchpoint_id: str) -> Registered:
        """A registered touchpoint. Raises Refused 404."""
        async with self.db.connection() as conn:
            registered = await touchpoints.get(conn, touchpoint_id)
        if registered is None:
            raise Refused("unknown_touchpoint", f"there is no touchpoint {touchpoint_id}", status=404)
        return registered


def _gateway(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


GatewayDep = Annotated[Gateway, Depends(_gateway)]
"""The gateway of the app that serves the request."""
