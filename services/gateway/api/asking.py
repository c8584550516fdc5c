"""What the routers work with: asking owners, saying commands, and both of them once for each Idempotency-Key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeVar
from uuid import UUID, uuid4

from fastapi import Depends, Header, Request
from pydantic import BaseModel

from libs.auth.tokens import Verifier
from libs.contracts.envelope import EventData
from libs.contracts.queries.base import Query, Repeatable, Reply
from libs.contracts.queries.registry import GetTouchpoint, TouchpointView
from libs.service_kit import faults
from libs.service_kit.db import Database
from libs.service_kit.errors import Unavailable
from libs.service_kit.queries import TIMEOUT_S, Asker
from libs.service_kit.requests import reused
from services.gateway import domain, metrics, store
from services.gateway.api.access import CurrentCaller
from services.gateway.api.errors import ServiceDown
from services.gateway.live import Live

ReplyT = TypeVar("ReplyT", bound=Reply)
AnswerT = TypeVar("AnswerT", bound=BaseModel)


class Requested(BaseModel):
    """The request is accepted; what comes of it names this id."""

    request_id: UUID


@dataclass(frozen=True)
class Once:
    """One request and the key it came under. `request_id` is the same at every attempt with that key."""

    caller: str
    key: str | None
    request_id: UUID
    request_sha256: str


@dataclass(frozen=True)
class Gateway:
    """The parts of the gateway that its routers share."""

    db: Database
    asker: Asker
    verifier: Verifier
    live: Live

    async def ask(self, query: Query[ReplyT], *, subject: str | None = None, timeout_s: float = TIMEOUT_S) -> ReplyT:
        """Ask the service that owns the answer. Raises Refused with its status, ServiceDown when it is silent."""
        try:
            return await self.asker.ask(query, subject=subject, timeout_s=timeout_s)
        except Unavailable as error:
            raise ServiceDown((subject or query.subject).split(".")[1]) from error

    async def ask_once(self, once: Once, query: Query[ReplyT], *, timeout_s: float = TIMEOUT_S) -> ReplyT:
        """Ask for a change. The same key again gets the same answer, and the owner changes nothing a second time.

        Should this process die between the answer and the record of it, the owner knows the request by its id.
        """
        if once.key is None:
            return await self.ask(query, timeout_s=timeout_s)
        assert isinstance(query, Repeatable)
        async with self.db.connection() as conn:
            earlier = await store.get(conn, once.caller, once.key)
        if earlier is not None:
            reply: ReplyT = _again(once, earlier, query.reply)
            return reply
        reply = await self.ask(query.model_copy(update={"request_id": once.request_id}), timeout_s=timeout_s)
        faults.point("asked_record")
        async with self.db.transaction() as tx:
            mine = store.Answered(once.request_sha256, reply.model_dump(mode="json"))
            await store.claim(tx.conn, once.caller, once.key, mine)
        return reply

    async def emit_once(self, once: Once, answer: AnswerT, *facts: EventData) -> AnswerT:
        """Say facts; when this returns they are committed and will go out. The same key again says nothing."""
        mine = store.Answered(once.request_sha256, answer.model_dump(mode="json"))
        async with self.db.transaction() as tx:
            taken = mine if once.key is None else await store.claim(tx.conn, once.caller, once.key, mine)
            if taken is mine:
                tx.emit(*facts)
        return answer if taken is mine else _again(once, taken, type(answer))

    async def touchpoint(self, touchpoint_id: str) -> TouchpointView:
        """A registered touchpoint. Raises Refused 404."""
        return await self.ask(GetTouchpoint(touchpoint_id=touchpoint_id))


def _again(once: Once, earlier: store.Answered, model: type[AnswerT]) -> AnswerT:
    if earlier.request_sha256 != once.request_sha256:
        raise reused()
    metrics.REPLAYED.inc()
    return model.model_validate(earlier.answer)


async def _gateway(request: Request) -> Gateway:
    # async, as every dependency: a plain function would be called in a thread of its own
    gateway: Gateway = request.app.state.gateway
    return gateway


async def _once(
    request: Request,
    caller: CurrentCaller,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> Once:
    who = f"{caller.organization}|{caller.subject}"
    if idempotency_key is None:
        return Once(who, None, uuid4(), "")
    scope = request.scope
    sha256 = domain.request_sha256(scope["method"], scope["path"], scope["query_string"], await request.body())
    return Once(who, idempotency_key, domain.request_id(who, idempotency_key), sha256)


GatewayDep = Annotated[Gateway, Depends(_gateway)]
"""The gateway of the app that serves the request."""

OnceDep = Annotated[Once, Depends(_once)]
"""The request in hand with its `Idempotency-Key`, for what changes something."""
