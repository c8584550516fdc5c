"""The one way to a model: parameters, limits, budget, books and metrics in one place, the same for every caller."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from hashlib import sha256

from libs.contracts.touchpoints import ModelSettings
from libs.llm import metrics
from libs.llm.account import Account, Order, Settled
from libs.llm.base import (
    Closing,
    Declined,
    ManyAtOnce,
    Model,
    ModelError,
    ModelReply,
    ModelRequest,
    UnknownPrice,
    Usage,
)
from libs.llm.budget import NOTHING, Budget
from libs.llm.many import Begun, Ended, Keep, Many
from libs.llm.parameters import CallParameters, applied, parameters_of
from libs.llm.providers import OpenModel, open_model


class ModelPool:
    """The models of this process, each opened once; all their calls together are bounded and within one budget.

    A call's time limit begins when the call does, not while it waits for its turn.
    """

    def __init__(
        self,
        budget: Budget = NOTHING,
        *,
        concurrency: int = 16,
        timeout_s: float = 120.0,
        opener: OpenModel = open_model,
    ) -> None:
        """Without a budget only free models answer. `opener` gives models another origin than the providers."""
        self._budget = budget
        self._concurrency = concurrency
        self._slots = asyncio.Semaphore(concurrency)
        self._timeout_s = timeout_s
        self._opener = opener
        self._models: dict[tuple[str, str], Model] = {}

    def model(self, settings: ModelSettings) -> Model:
        """The model of these settings. Raises `ModelError` naming what is unknown."""
        key = settings.provider, settings.name
        if key not in self._models:
            self._models[key] = self._opener(*key)
        return self._models[key]

    def key(self, settings: ModelSettings) -> str:
        """What answers are stored under: provider and the model's name with its version."""
        model = self.model(settings)
        return f"{model.provider}/{model.name}"

    def parameters(self, settings: ModelSettings) -> CallParameters:
        """The parameters of the touchpoint's calls. Raises `ModelError` naming the field."""
        return parameters_of(settings.parameters)

    def order(self, settings: ModelSettings, request: ModelRequest) -> Order:
        """What `complete` would write down for a request, and with it the most that it can cost. Raises `ModelError`,
        `UnknownPrice` where no price is known."""
        return _order(self.model(settings), applied(self.parameters(settings), request))

    async def close(self) -> None:
        """Close the connections of models that have some."""
        for model in self._models.values():
            if isinstance(model, Closing):
                await model.close()

    async def complete(self, settings: ModelSettings, request: ModelRequest, account: Account) -> ModelReply:
        """The reply to one request, from the books where this very call was paid for before.

        Raises `OverBudget`, or `ModelError` as the model does; it is retryable, too, when the model did not answer in
        time and when the price of another call must be known first.
        """
        model, asked = self.model(settings), applied(self.parameters(settings), request)
        async with self._slots:
            (opened,) = await account.open([_order(model, asked)], self._budget)
            if isinstance(opened, ModelReply):
                return opened
            ended = await self._call(model, account.touchpoint_id, Begun(0, asked, opened))
        if ended.settled:
            await account.close(ended.settled)
        return ended.result()

    async def complete_many(
        self, settings: ModelSettings, requests: Sequence[ModelRequest], account: Account, keep: Keep
    ) -> None:
        """Every request's reply; `keep` gets them as they come, so that a crash loses only calls in flight.

        Raises the first error (see `complete`), after the calls in flight have ended and their replies were kept.
        """
        model, parameters = self.model(settings), self.parameters(settings)
        asked = [applied(parameters, request) for request in requests]
        if isinstance(model, ManyAtOnce) and _one_prompt(asked):
            await self._in_one_go(model, model, asked, account, keep)
            return

        async def begin(some: Sequence[ModelRequest]) -> list[ModelReply | Begun]:
            opened = await account.open([_order(model, request) for request in some], self._budget)
            return [
                call if isinstance(call, ModelReply) else Begun(number, request, call)
                for number, (request, call) in enumerate(zip(some, opened, strict=False))
            ]

        async def call(begun: Begun) -> Ended:
            return await self._call(model, account.touchpoint_id, begun)

        # Three times the slots are begun: while answers are being kept, the next calls are already waiting.
        many = Many(self._slots, 3 * self._concurrency, begin, call, account.close)
        await many.run(asked, keep)

    async def _call(self, model: Model, touchpoint: str, begun: Begun) -> Ended:
        """One call of a model, timed and counted. A defect is raised as it is, and its call stays open."""
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await model.complete(begun.request)
        except TimeoutError:
            # Whether it was billed is not known: it stays without an end, and counts as lost.
            metrics.CALLS.labels(model.provider, touchpoint, "timeout").inc()
            reason = f"{model.provider} did not answer within {self._timeout_s:g} s"
            return Ended(begun.number, error=ModelError(reason, retryable=True))
        except ModelError as error:
            if isinstance(error, Declined) and begun.request.task == "classify":
                # A case without an answer, as it would be in production: wrong, and no reason to end the run.
                metrics.count(model.provider, touchpoint, "declined", error.usage)
                none = ModelReply(
                    text="", data=None, usage=error.usage, model=model.name, provider=model.provider, latency_ms=0.0
                )
                return Ended(begun.number, reply=none, settled=[Settled(begun.call_id, error.usage, reply=none)])
            metrics.count(model.provider, touchpoint, "failed", error.usage)
            failed = Settled(begun.call_id, error.usage, error=error.reason, retryable=error.retryable)
            return Ended(begun.number, error=error, settled=[failed])
        metrics.count(model.provider, touchpoint, "answered", reply.usage)
        paid = Settled(begun.call_id, reply.usage, latency_ms=reply.latency_ms, reply=reply)
        return Ended(begun.number, reply=reply, settled=[paid])

    async def _in_one_go(
        self, model: Model, batch: ManyAtOnce, asked: Sequence[ModelRequest], account: Account, keep: Keep
    ) -> None:
        async with self._slots:
            (opened,) = await account.open([_order(model, asked[0], calls=len(asked))], self._budget)
            if isinstance(opened, ModelReply):
                raise TypeError("an account knows no reply to a batch")
            replies = await batch.classify_many(asked[0].system, [request.input for request in asked])
        await keep(list(enumerate(replies)))
        usage = _together([reply.usage for reply in replies])
        await account.close([Settled(opened, usage)])
        metrics.count(model.provider, account.touchpoint_id, "answered", usage, len(replies))


def _order(model: Model, request: ModelRequest, calls: int = 1) -> Order:
    most = model.most_usd(request)
    if most is None:
        raise UnknownPrice(model.provider, model.name)
    return Order(
        provider=model.provider,
        model=model.name,
        request_sha256=sha256(request.model_dump_json().encode()).hexdigest(),
        most_usd=most * calls,
        calls=calls,
    )


def _one_prompt(asked: Sequence[ModelRequest]) -> bool:
    return len({(request.task, request.system) for request in asked}) == 1 and asked[0].task == "classify"


def _together(usages: Sequence[Usage]) -> Usage:
    return Usage(
        input_tokens=sum(usage.input_tokens for usage in usages),
        output_tokens=sum(usage.output_tokens for usage in usages),
        usd=sum((usage.usd for usage in usages), Decimal()),
    )
