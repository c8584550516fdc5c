"""Many calls of one model: bounded, begun as the budget allows, kept as they come, errors told apart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from libs.llm.account import Settled
from libs.llm.base import NOTHING_USED, ModelError, ModelReply, ModelRequest
from libs.llm.budget import PriceUnknownYet

Replies = list[tuple[int, ModelReply]]
"""Replies, each with the number of the request that it answers."""
Keep = Callable[[Replies], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Begun:
    """A call that is written down and may be made."""

    number: int
    request: ModelRequest
    call_id: UUID


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended: a reply or an error, and what the books are told; nothing, where it may have been billed."""

    number: int
    reply: ModelReply | None = None
    error: Exception | None = None
    settled: list[Settled] = field(default_factory=list)

    def result(self) -> ModelReply:
        """The reply. Raises the error."""
        if self.error is not None:
            raise self.error
        if self.reply is None:
            raise ValueError("a call ended with neither a reply nor an error")
        return self.reply


class Many:
    """One piece of work for one model: `run` once.

    Calls are begun and settled a few at a time, so that the books cost little of what the calls do.
    """

    def __init__(
        self,
        slots: asyncio.Semaphore,
        most_begun: int,
        begin: Callable[[Sequence[ModelRequest]], Awaitable[list[ModelReply | Begun]]],
        call: Callable[[Begun], Awaitable[Ended]],
        close: Callable[[Sequence[Settled]], Awaitable[None]],
    ) -> None:
        """`begin` writes down as many of some requests, from the front, as may start now."""
        self._slots = slots
        self._most_begun = most_begun
        self._at_least = max(1, most_begun // 6)
        self._begin = begin
        self._call = call
        self._close = close
        self._running: set[asyncio.Task[Ended]] = set()
        self._unsent: set[UUID] = set()
        self._unsettled: list[Settled] = []
        self._next = 0
        self._failure: Exception | None = None

    async def run(self, requests: Sequence[ModelRequest], keep: Keep) -> None:
        """See `ModelPool.complete_many`. Replies are kept before they are settled: a kill in between counts a call
        as lost, and does not buy it again."""
        try:
            while self._running or (self._next < len(requests) and self._failure is None):
                if known := await self._start(requests):
                    await keep(known)
                ended = await self._finished()
                if replies := [(one.number, one.reply) for one in ended if one.reply is not None]:
                    await keep(replies)
                self._unsettled += [row for one in ended for row in one.settled]
                if len(self._unsettled) >= self._at_least:
                    await self._settle()
                self._failure = self._failure or next((one.error for one in ended if one.error), None)
        finally:
            await self._cancel()
            self._unsettled += [Settled(call_id, NOTHING_USED, error="never sent") for call_id in self._unsent]
            await self._settle()
        if self._failure is not None:
            raise self._failure

    async def _start(self, requests: Sequence[ModelRequest]) -> Replies:
        """Begin what there is room for; the replies that were paid for before."""
        first, room = self._next, self._most_begun - len(self._running)
        some = requests[first : first + room]
        if self._failure is not None or not some or (self._running and room < self._at_least):
            return []
        begun = await self._begun(some)
        self._next += len(begun)
        for call in begun:
            if isinstance(call, Begun):
                self._unsent.add(call.call_id)
                self._running.add(asyncio.create_task(self._one(replace(call, number=first + call.number))))
        return [(first + number, reply) for number, reply in enumerate(begun) if isinstance(reply, ModelReply)]

    async def _begun(self, some: Sequence[ModelRequest]) -> list[ModelReply | Begun]:
        """Those that may start now; none while calls in flight may use the budget up, and none once it is."""
        begin = asyncio.ensure_future(self._begin(some))
        try:
            return await asyncio.shield(begin)
        except asyncio.CancelledError:
            # Written down or not: only its end tells. What was written down is given back as never sent.
            (begun,) = await asyncio.gather(begin, return_exceptions=True)
            if not isinstance(begun, BaseException):
                self._unsent |= {call.call_id for call in begun if isinstance(call, Begun)}
            raise
        except PriceUnknownYet as error:
            if self._unsettled:  # their price is known, to us
                await self._settle()
                return await self._begun(some)
            if not self._running:
                self._failure = error
        except ModelError as error:
            self._failure = error
        return []

    async def _settle(self) -> None:
        settled, self._unsettled = self._unsettled, []
        if settled:
            await self._close(settled)

    async def _one(self, begun: Begun) -> Ended:
        async with self._slots:
            self._unsent.discard(begun.call_id)
            return await self._call(begun)

    async def _finished(self) -> list[Ended]:
        """The calls that have ended, once one has."""
        if not self._running:
            return []
        finished, self._running = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
        return [_ended(task) for task in finished]

    async def _cancel(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


def _ended(task: asyncio.Task[Ended]) -> Ended:
    """How it ended; an exception that is no `ModelError` is a defect, whose call stays open."""
    defect = task.exception()
    if defect is None:
        return task.result()
    if isinstance(defect, Exception):
        return Ended(-1, error=defect)
    raise defect
