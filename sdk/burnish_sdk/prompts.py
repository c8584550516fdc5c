"""Live prompts from a warm cache: read from memory, checked in the background, kept while the gateway is away."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from uuid import UUID

from burnish_sdk import operations
from burnish_sdk.errors import BurnishError, NotFound, Problem
from burnish_sdk.models import LivePrompt, PromptPart
from burnish_sdk.retry import NEVER
from burnish_sdk.transport import Transport

log = logging.getLogger("burnish_sdk")

Key = tuple[str, UUID | None]


@dataclass(frozen=True, slots=True)
class Prompt:
    """The live prompt of a touchpoint. `text` is its parts as a model is sent them.

    `stale` says that the gateway could not be asked lately (or no longer lets this token ask): this is the last known
    text, and another may be live.
    """

    touchpoint_id: str
    workspace_id: UUID | None
    version_ref: str
    content_sha256: str
    text: str
    parts: tuple[PromptPart, ...]
    activation_id: UUID
    stale: bool = False

    @classmethod
    def of(cls, live: LivePrompt) -> Prompt:
        """What is served of an answer of the gateway."""
        return cls(
            live.touchpoint_id,
            live.workspace_id,
            live.version_ref,
            live.content_sha256,
            live.text,
            live.parts,
            live.activation_id,
        )


@dataclass
class Known:
    """What is known of one live prompt. `used` is set by whoever reads it, and taken back by the refresher."""

    prompt: Prompt
    etag: str
    used_at: float
    used: bool = True
    failures: int = 0
    next_at: float = 0.0


@dataclass(frozen=True)
class Refreshing:
    """A prompt is checked every `every_s` seconds; while checks fail, ever later up to `away_s`. One that nobody has
    read for `forget_s` is no longer checked, and asked for anew when it is read."""

    every_s: float = 0.5
    away_s: float = 5.0
    forget_s: float = 600.0
    at_once: int = 8


@dataclass
class PromptCache:
    """One for a client; its coroutines run in one event loop, `warm` in any thread."""

    transport: Transport
    refreshing: Refreshing = field(default_factory=Refreshing)
    clock: Callable[[], float] = time.monotonic
    known: dict[Key, Known] = field(default_factory=dict)
    _asking: dict[Key, asyncio.Task[Prompt]] = field(default_factory=dict)
    _refresher: asyncio.Task[None] | None = None
    _random: random.Random = field(default_factory=random.Random)

    def warm(self, touchpoint_id: str, workspace_id: UUID | None) -> Prompt | None:
        """The prompt, if it is in memory."""
        known = self.known.get((touchpoint_id, workspace_id))
        if known is None:
            return None
        known.used = True
        return known.prompt

    async def get(self, touchpoint_id: str, workspace_id: UUID | None) -> Prompt:
        """The prompt. Asks the gateway for one that is not in memory, once for all who wait; raises as it does."""
        known = self.warm(touchpoint_id, workspace_id)
        if known is not None:
            return known
        key = (touchpoint_id, workspace_id)
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._first(key))
            task.add_done_callback(lambda done: self._asked(key, done))
        return await asyncio.shield(task)

    async def close(self) -> None:
        tasks = [*self._asking.values(), *([self._refresher] if self._refresher else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _asked(self, key: Key, task: asyncio.Task[Prompt]) -> None:
        self._asking.pop(key, None)
        if not task.cancelled():
            task.exception()  # whoever waited has it; nobody may have

    async def _first(self, key: Key) -> Prompt:
        operation = operations.live_prompt(*key)
        answer = await self.transport.answer(operation)
        now = self.clock()
        prompt = Prompt.of(operation.read(answer.body, answer.status))
        self.known[key] = Known(prompt, answer.headers.get("etag", ""), now, next_at=now + self.refreshing.every_s)
        if self._refresher is None or self._refresher.done():
            self._refresher = asyncio.create_task(self._refresh_for_ever())
        return prompt

    # --- in the background --------------------------------------------------------------------------------

    async def _refresh_for_ever(self) -> None:
        turns = asyncio.Semaphore(self.refreshing.at_once)

        async def one(key: Key, known: Known) -> None:
            async with turns:
                await self._refresh(key, known)

        while True:
            await asyncio.sleep(self._soon())
            now = self.clock()
            due = [(key, known) for key, known in self.known.items() if self._kept(known, now) and known.next_at <= now]
            for key in [key for key, known in self.known.items() if not self._kept(known, now)]:
                del self.known[key]
            await asyncio.gather(*(one(key, known) for key, known in due))

    def _soon(self) -> float:
        """A moment before the next is due, so that none waits for a whole interval more."""
        first = min((known.next_at for known in self.known.values()), default=self.clock() + self.refreshing.every_s)
        return min(max(first - self.clock(), self.refreshing.every_s / 20), self.refreshing.every_s)

    def _kept(self, known: Known, now: float) -> bool:
        if known.used:
            known.used, known.used_at = False, now
        return now - known.used_at < self.refreshing.forget_s

    async def _refresh(self, key: Key, known: Known) -> None:
        """Ask whether it still holds. Whatever goes wrong, the last known one is served, and says that it is stale."""
        operation = operations.live_prompt(*key, etag=known.etag)
        try:
            answer = await self.transport.answer(operation, NEVER)
            fresh = known.prompt if answer.status == 304 else Prompt.of(operation.read(answer.body, answer.status))
        except NotFound:
            self.known.pop(key, None)
            log.warning("touchpoint %s has no live prompt any more", key[0])
        except Exception as error:
            self._failed(key, known, error)
        else:
            self._confirmed(key, known, fresh, answer.headers.get("etag", known.etag))

    def _confirmed(self, key: Key, known: Known, fresh: Prompt, etag: str) -> None:
        if known.prompt.stale:
            log.info("the gateway answers again: the prompt of %s is live", key[0])
            fresh = replace(fresh, stale=False)
        known.prompt, known.etag, known.failures = fresh, etag, 0
        known.next_at = self.clock() + self.refreshing.every_s * (1 - self._random.random() / 10)

    def _failed(self, key: Key, known: Known, error: Exception) -> None:
        if not known.prompt.stale:
            why = str(error) if isinstance(error, BurnishError) else type(error).__name__
            log.warning("the prompt of %s is served from memory and may not be live: %s", key[0], why)
            known.prompt = replace(known.prompt, stale=True)
        known.failures += 1
        wait = min(self.refreshing.away_s, self.refreshing.every_s * 2 ** min(known.failures, 20))
        asked = error.retry_after if isinstance(error, Problem) and error.retry_after else 0.0
        longest = max(wait * (1 - self._random.random() / 2), min(asked, self.refreshing.away_s))
        known.next_at = self.clock() + longest
