"""Gives every question and chunk its vector, in the background; after a change of the model, one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

import numpy as np
from pgvector import Vector

from libs.embeddings import Embedder
from libs.embeddings.base import Vectors, pad
from libs.service_kit import logging
from libs.service_kit.db import Database
from services.qa_ingest import duplicates, metrics
from services.qa_ingest.domain.tuning import Tuning
from services.qa_ingest.store import operations, vectors
from services.qa_ingest.store.vectors import Unembedded

log = logging.get(__name__)
BATCH = 256


class Embedding:
    """Embeds what has no vector of the model in use, and compares what it embedded with the rest."""

    def __init__(
        self,
        db: Database,
        embedder: Embedder,
        workspaces: Callable[[], Sequence[UUID]],
        tuning: Tuning | None = None,
    ) -> None:
        """`tuning`: from when on pairs are near-duplicates; None compares nothing."""
        self._db = db
        self._embedder = embedder
        self._workspaces = workspaces
        self._tuning = tuning
        self._compared: set[UUID] = set()

    async def embed_missing(self) -> int:
        """Embed until nothing is left; how many texts got their vector."""
        done = 0
        for workspace_id in self._workspaces():
            embedded = await self.embed_workspace(workspace_id)
            done += embedded
            # Once after a start, for whoever was here before may have ended between the two.
            if self._tuning is not None and (embedded or workspace_id not in self._compared):
                await duplicates.suggest(self._db, workspace_id, self._embedder.model, self._tuning)
                self._compared.add(workspace_id)
        return done

    async def embed_workspace(self, workspace_id: UUID) -> int:
        """The same for one workspace."""
        done, after = 0, ""
        while True:
            async with self._db.connection(workspaces=[workspace_id]) as conn:
                waiting = await vectors.missing(conn, self._embedder.model, after, BATCH)
            done += await self._embed(workspace_id, waiting)
            if len(waiting) < BATCH:
                return done
            after = waiting[-1].sha  # a text that gets no vector must not keep the others from theirs

    async def _embed(self, workspace_id: UUID, waiting: Sequence[Unembedded]) -> int:
        """How many of these texts have their vector now. Nothing is locked while the model works."""
        if not waiting:
            return 0
        model = self._embedder.model
        async with self._db.transaction() as tx:
            await operations.enter(tx.conn, workspace_id)
            known = await vectors.cached(tx.conn, workspace_id, model, [each.sha for each in waiting])
        new = [each for each in waiting if each.sha not in known]
        made = await self._embedder.embed([each.text for each in new]) if new else np.zeros((0, 1), np.float32)
        found = {**known, **dict(zip((each.sha for each in new), written(made), strict=True))}
        # A text without a single known token has no direction: it is found by its words.
        usable = {sha: vector for sha, vector in found.items() if vector is not None}
        if usable:
            async with self._db.transaction() as tx:
                await operations.enter(tx.conn, workspace_id)
                await vectors.write(tx.conn, workspace_id, model, usable)
        metrics.EMBEDDED.inc(len(usable))
        return len(usable)


def written(made: Vectors) -> list[Vector | None]:
    """Vectors as pgvector takes them, padded to what is stored; None for one without length or with a NaN in it."""
    padded = pad(made) if len(made) else made
    return [Vector(row) if np.isfinite(row).all() and row.any() else None for row in padded]
