"""Serves live prompts from memory, and asks the registry when what is known is not fresh."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from libs.contracts.queries.registry import GetPrompt
from libs.service_kit import logging
from libs.service_kit.errors import Refused, Unavailable
from libs.service_kit.queries import Asker
from services.gateway import metrics
from services.gateway.domain import Known, LivePrompts, Mark, Target

log = logging.get(__name__)


class Live:
    """One question at a time for each target, however many wait for its answer."""

    def __init__(
        self,
        prompts: LivePrompts,
        asker: Asker,
        *,
        fresh_s: float,
        stale_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.prompts = prompts
        self._asker = asker
        self._fresh_s = fresh_s
        self._stale_s = stale_s
        self._clock = clock
        self._asking: dict[tuple[Target, Mark], asyncio.Task[Known]] = {}

    def known(self, target: Target) -> Known | None:
        """What may be served without asking anybody."""
        known = self.prompts.get(target)
        if known is None or self._clock() - known.at >= self._fresh_s:
            return None
        metrics.LIVE.labels("memory").inc()
        return known

    async def get(self, target: Target) -> Known:
        """The live prompt. Raises Refused as the registry does, Unavailable when it has been silent for too long."""
        known = self.known(target)
        if known is not None:
            return known
        try:
            asked = await self._ask(target)
        except (Refused, Unavailable) as error:
            last = self._while_away(target, error)
            if last is None:
                raise
            return last
        metrics.LIVE.labels("registry").inc()
        return asked

    def forget(self) -> None:
        """Facts may have been missed."""
        metrics.LIVE_FORGOTTEN.inc()
        self.prompts.forget()

    def _while_away(self, target: Target, error: Refused | Unavailable) -> Known | None:
        """The last known one while the registry cannot answer: nothing can become live without it."""
        if isinstance(error, Refused) and error.status != 503:
            return None
        known = self.prompts.get(target)
        if known is None or self._clock() - known.at >= self._fresh_s + self._stale_s:
            return None
        metrics.LIVE.labels("stale").inc()
        log.warning("live.stale", touchpoint=target.touchpoint_id, age_s=round(self._clock() - known.at, 1))
        return known

    async def _ask(self, target: Target) -> Known:
        # Who comes after a change must not get the answer to a question from before it.
        key = (target, self.prompts.mark(target))
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._asked(*key))
            task.add_done_callback(partial(self._done, key))
        return await asyncio.shield(task)

    def _done(self, key: tuple[Target, Mark], task: asyncio.Task[Known]) -> None:
        self._asking.pop(key, None)
        if not task.cancelled():
            task.exception()  # whoever waited has it; nobody may have

    async def _asked(self, target: Target, mark: Mark) -> Known:
        at = self._clock()
        reply = await self._asker.ask(GetPrompt(touchpoint_id=target.touchpoint_id, workspace_id=target.workspace_id))
        known = Known(
            etag=f'"{reply.prompt.activation_id}"',
            body=reply.prompt.model_dump_json().encode(),
            seq=reply.ledger_seq or 0,
            at=at,
        )
        self.prompts.take(target, known, mark)
        return known
