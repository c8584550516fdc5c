"""The rules of the ledger and of registration. Pure: no I/O, no clock, no random, no bus."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from libs.contracts.touchpoints import Touchpoint
from libs.contracts.versions import LedgerEntry

GENESIS_SHA256 = "0" * 64
SUPPORTED_ADAPTERS = ("feed_prompts", "skill_file")
Action = Literal["create", "update", "unchanged"]


class Target(NamedTuple):
    """What has one live version: a touchpoint, and for one of scope `workspace` the workspace."""

    touchpoint_id: str
    workspace_id: UUID | None = None

    def __str__(self) -> str:
        return self.touchpoint_id if self.workspace_id is None else f"{self.touchpoint_id} in {self.workspace_id}"


# --- the chain --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """What one ledger entry says, before it has its place in the chain."""

    kind: str
    target: Target
    by: str
    reason: str = ""
    version_ref: str | None = None
    previous_ref: str | None = None
    proposal_id: UUID | None = None
    detail: dict[str, Any] | None = None


def chained(line: Line, *, seq: int, at: datetime, previous_sha256: str) -> LedgerEntry:
    """The entry that `line` becomes at place `seq`."""
    fields: dict[str, Any] = {
        "seq": seq,
        "kind": line.kind,
        "touchpoint_id": line.target.touchpoint_id,
        "workspace_id": line.target.workspace_id,
        "version_ref": line.version_ref,
        "previous_ref": line.previous_ref,
        "proposal_id": line.proposal_id,
        "by": line.by,
        "reason": line.reason,
        "at": at,
        "detail": line.detail or {},
        "previous_sha256": previous_sha256,
    }
    return LedgerEntry(**fields, entry_sha256=line_sha256(fields))


def line_sha256(fields: dict[str, Any]) -> str:
    """SHA-256 of the line as canonical JSON: keys sorted, no spaces, UTF-8, times in UTC to the microsecond.

    `fields` holds every field of the entry but `entry_sha256`; `previous_sha256` among them is what chains it.
    """
    document = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_canonical)
    return hashlib.sha256(document.encode()).hexdigest()


def _canonical(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no canonical form")


@dataclass(frozen=True)
class Verification:
    """Whether the chain holds; `broken_at` is the first entry that does not fit, `problem` says how."""

    intact: bool
    entries: int
    head_sha256: str
    broken_at: int | None = None
    problem: str = ""


def verify(entries: Iterable[LedgerEntry], *, after: int = 0, previous_sha256: str = GENESIS_SHA256) -> Verification:
    """Recompute entries in order of `seq`, beginning after entry `after`, whose hash is `previous_sha256`."""
    seq, previous = after, previous_sha256
    for entry in entries:
        problem = _misfit(entry, seq, previous)
        if problem:
            return Verification(False, seq, previous, entry.seq, problem)
        seq, previous = entry.seq, entry.entry_sha256
    return Verification(True, seq, previous)


def _misfit(entry: LedgerEntry, seq: int, previous: str) -> str:
    if entry.seq != seq + 1:
        return f"entry {seq + 1} is missing"
    if entry.previous_sha256 != previous:
        return f"entry {entry.seq} does not follow entry {seq}"
    if line_sha256(entry.model_dump(exclude={"entry_sha256"})) != entry.entry_sha256:
        return f"entry {entry.seq} was changed after it was written"
    return ""


# --- what was live before ---------------------------------------------------------------------------------


class Step(NamedTuple):
    """One activation in a target's history, oldest first; `rollback` when it put an earlier version back."""

    version_ref: str
    rollback: bool


def previous_version(history: Sequence[Step]) -> str | None:
    """The version a rollback leads to unless another is named; None when there is none.

    It is the one that stands below the live version once every rollback has taken away what it undid: after
    A, B, rollback to A, the previous version of A is what was live before A, not B, which somebody gave up.
    """
    standing: list[str] = []
    for step in history:
        if step.rollback and step.version_ref in standing:
            while standing[-1] != step.version_ref:
                standing.pop()
        elif not standing or standing[-1] != step.version_ref:
            standing.append(step.version_ref)
    return standing[-2] if len(standing) > 1 else None


# --- registration -----------------------------------------------------------------------------------------


class FieldChange(NamedTuple):
    """One configuration field that an `apply` changes; prompt text is told by its size."""

    field: str
    before: Any
    after: Any


def field_changes(before: Touchpoint | None, after: Touchpoint) -> list[FieldChange]:
    """Every field that differs, in order of its dotted name; for a new touchpoint every field that is set."""
    old = _flat(before.model_dump(mode="json")) if before else {}
    new = _flat(after.model_dump(mode="json", exclude_defaults=before is None))
    fields = sorted(old.keys() | new.keys())
    return [
        FieldChange(field, _shown(field, old.get(field)), _shown(field, new.get(field)))
        for field in fields
        if old.get(field) != new.get(field)
    ]


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and value:
        return {k: v for key, item in value.items() for k, v in _flat(item, f"{name}.{key}" if name else key).items()}
    return {name: value}


def _shown(field: str, value: Any) -> Any:
    if field == "storage.initial_text" and isinstance(value, str):
        return f"text of {len(value)} characters, sha256 {hashlib.sha256(value.encode()).hexdigest()}"
    return value


def storage_moved(before: Touchpoint, after: Touchpoint) -> bool:
    """Whether the prompt is read from somewhere else now. The initial text only matters at first."""
    return _location(before) != _location(after)


def _location(touchpoint: Touchpoint) -> tuple[object, ...]:
    storage = touchpoint.storage
    if storage.adapter == "feed_prompts":
        return (storage.adapter,)
    return storage.adapter, storage.repository, storage.branch, storage.paths


def configuration_sha256(touchpoint: Touchpoint) -> str:
    """SHA-256 of the whole configuration as canonical JSON."""
    document = json.dumps(touchpoint.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(document.encode()).hexdigest()


def branch_name(proposal_id: UUID) -> str:
    """The branch of a proposal's change, below `burnish/`: short enough to type."""
    return proposal_id.hex[:12]
