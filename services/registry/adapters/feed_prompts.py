"""Prompts in the registry's own table: a version is live the moment the ledger's transaction says so."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from libs.service_kit.db import Connection
from services.registry.adapters.base import (
    Activation,
    CurrentPrompt,
    Draft,
    PromptPart,
    StorageError,
    StoredVersion,
    Tier,
    content_sha256,
    text_bytes,
)
from services.registry.domain import Target
from services.registry.store import versions

PART = "prompt"
"""The path of the one part that a prompt has which was given as a plain text."""


class FeedPromptsAdapter:
    """The texts of one target, on the connection of a transaction: what is written here stands or falls with it.

    `activate` and `rollback_to` say which version the ledger makes live; being live is a row of the ledger's.
    """

    def __init__(
        self,
        conn: Connection,
        target: Target,
        *,
        by: str,
        origin: versions.Origin = "manual",
        proposal_id: UUID | None = None,
        note: str = "",
    ) -> None:
        self._conn = conn
        self._target = target
        self._by = by
        self._origin: versions.Origin = origin
        self._proposal_id = proposal_id
        self._note = note

    @property
    def tier(self) -> Tier:
        return 1

    async def current_version(self) -> CurrentPrompt:
        """The live text, its hash taken anew from what the table holds."""
        live = await versions.live(self._conn, self._target)
        if live is None:
            raise StorageError("unknown_version", f"{self._target} has no live version.", "Activate one first.")
        parts = tuple(await versions.parts_of(self._conn, live.prompt_version_id))
        return CurrentPrompt(parts, content_sha256(parts), live.version_ref)

    async def list_versions(self, limit: int = 20) -> list[StoredVersion]:
        """Every text that was recorded, live or not, newest first."""
        texts = await versions.recorded(self._conn, self._target, limit)
        return [
            StoredVersion(text.version_ref, text.content_sha256, text.created_at, text.created_by, text.note)
            for text in texts
        ]

    async def propose_change(
        self, parts: Sequence[PromptPart], *, message: str, name: str, expected_current_sha256: str
    ) -> Draft:
        """Check the text; nothing is written before it is activated. Raises `conflict` when the live text moved."""
        current = await self.current_version()
        if current.content_sha256 != expected_current_sha256:
            raise StorageError("conflict", f"The live text of {self._target} is no longer the one this was made for.")
        text_bytes(parts)
        return Draft(tuple(parts), content_sha256(parts))

    async def activate(self, draft: Draft) -> Activation:
        """Record the text as a new version."""
        text = await self.record(draft.parts)
        return Activation(True, text.content_sha256, text.version_ref)

    async def rollback_to(
        self, version_ref: str, *, activated_sha256: str, parts: Sequence[PromptPart] | None = None
    ) -> Activation:
        """The recorded version of that reference; raises `unknown_version`."""
        text = await versions.by_ref(self._conn, self._target, version_ref)
        if text is None:
            raise StorageError("unknown_version", f"{self._target} has no version {version_ref}.")
        return Activation(True, text.content_sha256, text.version_ref)

    async def record(self, parts: Sequence[PromptPart]) -> versions.Text:
        """Keep a text as a version of its own, `feed_prompts:<id>`, not live yet."""
        text = versions.Text.new(
            self._target,
            "feed_prompts:",
            parts,
            origin=self._origin,
            created_by=self._by,
            created_at=datetime.now(UTC),
            proposal_id=self._proposal_id,
            note=self._note,
        )
        return await versions.record(self._conn, text)


def initial_parts(text: str) -> tuple[PromptPart, ...]:
    """The one part that a touchpoint's initial text makes."""
    return (PromptPart(path=PART, text=text),)
