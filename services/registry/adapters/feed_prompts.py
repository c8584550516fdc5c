"""Prompts in the registry's own table: a version is live the moment the ledger's transaction says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Self
from uuid import UUID

from libs.contracts.touchpoints import Storage, Touchpoint
from libs.service_kit.db import Connection
from services.registry.adapters.base import (
    CurrentPrompt,
    ImmediateStore,
    Misfit,
    PromptPart,
    StorageError,
    content_sha256,
    text_bytes,
)
from services.registry.domain import Target
from services.registry.store import versions

PART = "prompt"
"""The path of the one part that a prompt has which was given as a plain text."""


class FeedPrompts(ImmediateStore):
    """The texts of every target, in `prompt_versions`."""

    def __init__(self, initial_text: str | None) -> None:
        self._initial_text = initial_text

    @classmethod
    def of(cls, storage: Storage, roots: Sequence[Path]) -> Self:
        return cls(storage.initial_text)

    @classmethod
    def misfits(cls, touchpoint: Touchpoint) -> Iterator[Misfit]:
        """A global touchpoint begins with a text. What belongs to files has no meaning here."""
        storage = touchpoint.storage
        if touchpoint.scope == "global" and storage.initial_text is None:
            yield Misfit("storage.initial_text", "There is no text to begin with.", "Give the text that is live now.")
        if storage.paths:
            yield Misfit("storage.paths", "Its text is in the registry's table.", "Leave out the paths.")

    @classmethod
    def location(cls, storage: Storage) -> tuple[object, ...]:
        """There is one table. The initial text only matters at first."""
        return ()

    def initial(self) -> tuple[PromptPart, ...]:
        """The initial text as its one part."""
        return (PromptPart(path=PART, text=self._initial_text or ""),)

    async def current(self, conn: Connection, target: Target) -> CurrentPrompt:
        live = await versions.live(conn, target)
        if live is None:
            raise StorageError("unknown_version", f"{target} has no live version.", "Activate one first.")
        parts = tuple(await versions.parts_of(conn, live.prompt_version_id))
        return CurrentPrompt(parts, content_sha256(parts), live.version_ref)

    async def record(
        self,
        conn: Connection,
        target: Target,
        parts: Sequence[PromptPart],
        *,
        by: str,
        origin: versions.Origin,
        proposal_id: UUID | None = None,
        note: str = "",
    ) -> versions.Text:
        """As `feed_prompts:<id>`. Raises `not_utf8` and `text_too_large`."""
        text_bytes(parts)
        text = versions.Text.new(
            target,
            "feed_prompts:",
            parts,
            origin=origin,
            created_by=by,
            created_at=datetime.now(UTC),
            proposal_id=proposal_id,
            note=note,
        )
        return await versions.record(conn, text)
