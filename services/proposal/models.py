"""Calls of models: each written down before it is made, paid from a budget, and never paid twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import sha256
from uuid import UUID

from libs.contracts.touchpoints import ModelSettings
from libs.llm import Model, ModelError, ModelReply, ModelRequest, model_from
from libs.service_kit.db import Database
from libs.service_kit.errors import Unavailable
from services.proposal import domain, store
from services.proposal.domain import Budget
from services.proposal.metrics import MODEL_CALLS, MODEL_TOKENS, MODEL_USD

FREE_PROVIDERS = frozenset({"offline"})
Provide = Callable[[ModelSettings], Model]


class OverBudget(Exception):
    """No further call may be made today. `reason` names the limit."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Models:
    """The model of each touchpoint, made once for each (provider, name, parameters)."""

    def __init__(self) -> None:
        self._made: dict[str, Model] = {}

    def __call__(self, wanted: ModelSettings) -> Model:
        """Raises `ModelError` naming what is unknown."""
        key = wanted.model_dump_json()
        if key not in self._made:
            options = {} if wanted.provider in FREE_PROVIDERS else {"name": wanted.name, **wanted.parameters}
            self._made[key] = model_from(wanted.provider, **options)
        return self._made[key]


class Meter:
    """Makes calls, one at a time where they cost money, and keeps the books in `model_calls`."""

    def __init__(self, db: Database, budget: Budget, timeout_s: float) -> None:
        self._db = db
        self._budget = budget
        self._timeout_s = timeout_s

    async def complete(
        self, model: Model, request: ModelRequest, *, proposal_id: UUID, touchpoint_id: str, attempt: int
    ) -> ModelReply:
        """The reply, from the books when this very request was answered before.

        Raises `OverBudget`; `ModelError` when asking again cannot help; Unavailable when it can: the provider is
        away, or another paid call is in flight, whose price must be known first.
        """
        digest = sha256(request.model_dump_json().encode()).hexdigest()
        free = model.provider in FREE_PROVIDERS
        async with self._db.transaction(lock="proposal.model_calls") as tx:
            if (known := await store.paid_reply(tx.conn, proposal_id, attempt, digest)) is not None:
                return known
            if not free:
                self._allow(await store.spent(tx.conn, touchpoint_id, self._budget, self._timeout_s))
            call = await store.call_started(
                tx.conn,
                proposal_id,
                touchpoint_id,
                attempt,
                digest,
                provider=model.provider,
                model=model.name,
                free=free,
            )
        reply = await self._call(model, request, call)
        async with self._db.transaction() as tx:
            await store.call_answered(tx.conn, call, reply)
        MODEL_CALLS.labels(reply.provider, "answered").inc()
        MODEL_TOKENS.labels(reply.provider, "input").inc(reply.usage.input_tokens)
        MODEL_TOKENS.labels(reply.provider, "output").inc(reply.usage.output_tokens)
        MODEL_USD.labels(reply.provider).inc(float(reply.usage.usd))
        return reply

    def _allow(self, spent: domain.Spent) -> None:
        verdict = domain.may_spend(self._budget, spent)
        if verdict == "wait":
            raise Unavailable("another model call is in flight; its price must be known before the next")
        if verdict != "yes":
            raise OverBudget(verdict.detail)

    async def _call(self, model: Model, request: ModelRequest, call: UUID) -> ModelReply:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await model.complete(request)
        except TimeoutError:
            # Whether it was billed is not known: the row stays without an end, and counts as lost.
            MODEL_CALLS.labels(model.provider, "timeout").inc()
            raise Unavailable(f"{model.provider} did not answer within {self._timeout_s:g} s") from None
        except ModelError as error:
            MODEL_CALLS.labels(model.provider, "failed").inc()
            async with self._db.transaction() as tx:
                await store.call_failed(tx.conn, call, error.reason)
            if error.retryable:
                raise Unavailable(f"{model.provider}: {error.reason}") from error
            raise
