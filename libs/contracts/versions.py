"""The version ledger: what is live, since when, by whom and why."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from libs.contracts.envelope import Frozen
from libs.contracts.prompts import PromptPart
from libs.contracts.text import JsonObject
from libs.contracts.vocabulary import Adapter, Instant, Name, Sha256, ShortText, TouchpointId, VersionRef


class LivePrompt(Frozen):
    """The prompt that is live for a touchpoint (in a workspace), with its text and hash."""

    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    activation_id: UUID
    version_ref: VersionRef
    adapter: Adapter
    content_sha256: Sha256
    parts: tuple[PromptPart, ...]
    activated_at: Instant


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
    at: Instant
    detail: JsonObject = Field(default_factory=dict)
    previous_sha256: Sha256
    entry_sha256: Sha256


class LedgerHead(Frozen):
    """Where the ledger ended at a time, to be kept elsewhere: any later chain has to go through it.

    `signature` is Ed25519 over `statement()` by the key whose public half is `public_key`, both as base64url; both are
    None where the registry has no key.
    """

    format: Literal["burnish-ledger-head-v1"] = "burnish-ledger-head-v1"
    seq: int = Field(ge=0, le=2**63 - 1)
    entries: int = Field(ge=0, le=2**63 - 1)
    entry_sha256: Sha256
    at: Instant = Field(description="the time of the last entry")
    signed_at: Instant
    public_key: Name | None = None
    signature: Name | None = None

    def statement(self) -> bytes:
        """What is signed: every field but the signature, as canonical JSON with times in UTC to the microsecond."""
        fields = {name: value for name, value in self if name != "signature"}
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), default=_utc).encode()


def _utc(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="microseconds")
