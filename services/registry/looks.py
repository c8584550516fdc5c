"""Looks at many stores now and then, each by itself: what one does, or does not do, is nothing to the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
AT_ONCE = 4
PAUSE = 10.0
"""A store in trouble is left alone for this many times as long as the look at it took."""


class Looks:
    """Remembers which stores were in trouble and what looking at them cost, so that a slow one is looked at less."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._again_at: dict[str, float] = {}

    async def over(
        self,
        items: Sequence[T],
        name: Callable[[T], str],
        look: Callable[[T], Awaitable[None]],
        trouble: Callable[[T, Exception], Awaitable[None]],
        *,
        at_once: bool = False,
    ) -> int:
        """Look at every item, a few at a time; whatever one raises goes to `trouble`. How many are in trouble.

        With `at_once`, as when a person asks, none is left out for what it cost before.
        """
        now = self._clock()
        room = asyncio.Semaphore(AT_ONCE)

        async def one(item: T) -> bool:
            if not at_once and self._again_at.get(name(item), now) > now:
                return False
            async with room:
                began = self._clock()
                try:
                    await look(item)
                except Exception as error:
                    self._again_at[name(item)] = self._clock() + PAUSE * (self._clock() - began)
                    await trouble(item, error)
                    return False
                self._again_at.pop(name(item), None)
                return True

        fine = await asyncio.gather(*(one(item) for item in items))
        return fine.count(False)
