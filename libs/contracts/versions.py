"""The version ledger: what is live, since when, by whom and why."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from pydantic import AwareDatetime, Field

from libs.contracts.envelope import Frozen
from libs.contracts.prompts import PromptPart
from libs.contracts.text import JsonObject
from libs.contracts.vocabulary import Adapter, Name, Sha256, ShortText, TouchpointId, VersionRef


class LivePrompt(Frozen):
    """The prompt that is live for a touchpoint (in a workspace), with its text and hash."""

    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    activation_id: UUID
    version_ref: VersionRef
    adapter: Adapter
    content_sha256: Sha256
    parts: tuple[PromptPart, ...]
    activated_at: AwareDatetime


class LedgerEntry(Frozen):
    """One line of the hash-chained ledger. `entry_sha256` covers the line and the hash of the line before."""

    seq: int
    kind: Literal["registered", "activated", "rolled_back", "intent", "confirmed", "intent_closed", "drift", "waiver"]
    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    version_ref: VersionRef | None = None
    previous_ref: VersionRef | None = None
    proposal_id: UUID | None = None
    by: Name
    reason: ShortText = ""
    at: AwareDatetime
    detail: JsonObject = Field(default_factory=dict)
    previous_sha256: Sha256
    entry_sha256: Sha256
