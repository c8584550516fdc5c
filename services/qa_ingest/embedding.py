"""Gives every question its vector, in the background; after a change of the model, one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

import numpy as np

from libs.embeddings import Embedder
from libs.embeddings.base import Vectors, pad
from libs.service_kit import logging
from libs.service_kit.db import Database
from services.qa_ingest import metrics
from services.qa_ingest.store import operations, vectors

log = logging.get(__name__)
BATCH = 256


class Embedding:
    """Embeds what has no vector of the model in use."""

    def __init__(self, db: Database, embedder: Embedder, workspaces: Callable[[], Sequence[UUID]]) -> None:
        self._db = db
        self._embedder = embedder
        self._workspaces = workspaces

    async def embed_missing(self) -> int:
        """Embed until nothing is left; how many texts there were."""
        done = 0
        for workspace_id in self._workspaces():
            more = True
            while more:
                count, more = await self._batch(workspace_id)
                done += count
        return done

    async def _batch(self, workspace_id: UUID) -> tuple[int, bool]:
        """How many texts got a vector, and whether there may be more."""
        model = self._embedder.model
        async with self._db.connection(workspaces=[workspace_id]) as conn:
            waiting = await vectors.missing(conn, model, BATCH)
            known = await vectors.cached(conn, model, [each.sha for each in waiting])
        new = [each for each in waiting if each.sha not in known]
        made = await self._embedder.embed([each.question for each in new]) if new else np.zeros((0, 1), np.float32)
        found = {**known, **dict(zip((each.sha for each in new), written(made), strict=True))}
        # A text without a single known token has no direction: it is found by its words.
        usable = {sha: vector for sha, vector in found.items() if vector}
        if not usable:
            return 0, False
        async with self._db.transaction() as tx:
            await operations.enter(tx.conn, workspace_id)
            await vectors.write(tx.conn, workspace_id, model, usable)
        metrics.EMBEDDED.inc(len(usable))
        return len(usable), len(waiting) == BATCH


def written(made: Vectors) -> list[str]:
    """Vectors as pgvector reads them, padded to what is stored; empty for one without length or with a NaN in it."""
    return [
        "[" + ",".join(f"{value:.7g}" for value in row) + "]" if np.isfinite(row).all() and row.any() else ""
        for row in (pad(made) if len(made) else made)
    ]
