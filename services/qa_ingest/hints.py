"""Hints that an object may have changed: from a store's events, and from buckets that tell by themselves."""

from __future__ import annotations

import asyncio

from libs.service_kit import logging
from services.qa_ingest import metrics
from services.qa_ingest.buckets.base import Away
from services.qa_ingest.ingest import Bound, Ingest

log = logging.get(__name__)
AGAIN_AFTER_S = 5.0


class Hints:
    """Follows what is told of. Nothing is lost with a hint: the next listing finds what it was about."""

    def __init__(self, ingest: Ingest) -> None:
        self._ingest = ingest
        self._listening: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Listen to every bucket that tells by itself."""
        self._listening = [asyncio.create_task(self._listen(each)) for each in self._ingest.bound]

    async def stop(self) -> None:
        for task in self._listening:
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)

    async def follow_meant(self, store: str, key: str) -> None:
        """Follow an object of the bucket that its store calls `store`, where one of ours is that bucket."""
        meant = [each for each in self._ingest.bound if each.bucket.meant(store, key)]
        if not meant:
            metrics.HINTS.labels("store", "not_ours").inc()
        for bound in meant:
            await self.follow(bound, key, "store")

    async def follow(self, bound: Bound, key: str, by: str) -> None:
        """Follow one object; a bucket that is away is left to its next listing."""
        try:
            outcome = await self._ingest.follow(bound, key)
        except Away as error:
            outcome = "away"
            log.warning("qa.hint.waits", bucket=bound.bucket.name, error=str(error))
        metrics.HINTS.labels(by, outcome).inc()

    async def _listen(self, bound: Bound) -> None:
        while True:
            telling = bound.bucket.changes()
            if telling is None:
                return
            try:
                async with telling as keys:
                    async for key in keys:
                        await self.follow(bound, key, "bucket")
            except Away as error:
                log.warning("qa.bucket.silent", bucket=bound.bucket.name, error=str(error))
                await asyncio.sleep(AGAIN_AFTER_S)
            except Exception as error:
                # A hint that comes to nothing, as when the database is away, must not end the listening.
                log.warning("qa.hint.failed", bucket=bound.bucket.name, error=logging.describe(error))
                await asyncio.sleep(AGAIN_AFTER_S)
