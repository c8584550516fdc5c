"""The rules of the ledger and of registration. Pure: no I/O, no clock, no random, no bus."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from libs.contracts.touchpoints import Touchpoint
from libs.contracts.versions import LedgerEntry

GENESIS_SHA256 = "0" * 64
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


def line_sha256(fields: Mapping[str, Any]) -> str:
    """SHA-256 of the line as canonical JSON: keys sorted, no spaces, UTF-8, times in UTC to the microsecond.

    `fields` holds every field of the entry but `entry_sha256`; `previous_sha256` among them is what chains it.
    """
    return canonical_sha256(dict(fields))


def canonical_sha256(value: object) -> str:
    """SHA-256 of a value as canonical JSON."""
    document = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_canonical)
    return hashlib.sha256(document.encode()).hexdigest()


def instant(at: datetime) -> str:
    """A time as the ledger hashes it: ISO 8601 in UTC, to the microsecond."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def _canonical(value: object) -> str:
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no canonical form")


@dataclass(frozen=True)
class Verification:
    """Whether the ledger holds. Of the first thing that does not: `problem`, and where it is.

    `broken_at` is the line that is wrong or that says otherwise than a row, `table`, `row` and `columns` what differs
    from it. `next` is where to go on when not everything was looked at yet; `intact` then holds for what was.
    """

    intact: bool
    entries: int
    head_sha256: str
    broken_at: int | None = None
    problem: str = ""
    table: str = ""
    row: str = ""
    columns: tuple[str, ...] = ()
    next: str | None = None


def verify(
    lines: Iterable[Mapping[str, Any]], *, after: int = 0, previous_sha256: str = GENESIS_SHA256
) -> Verification:
    """Recompute lines in order of `seq`, beginning after line `after`, whose hash is `previous_sha256`."""
    seq, previous = after, previous_sha256
    for line in lines:
        problem = _misfit(line, seq, previous)
        if problem:
            return Verification(False, seq, previous, line["seq"], problem, "ledger_entries", str(line["seq"]))
        seq, previous = line["seq"], line["entry_sha256"]
    return Verification(True, seq, previous)


def _misfit(line: Mapping[str, Any], seq: int, previous: str) -> str:
    number = line["seq"]
    if number != seq + 1:
        return f"entry {seq + 1} is missing"
    if line["previous_sha256"] != previous:
        return f"entry {number} does not follow entry {seq}"
    fields = {name: value for name, value in line.items() if name != "entry_sha256"}
    if line_sha256(fields) != line["entry_sha256"]:
        return f"entry {number} was changed after it was written"
    return ""


# --- the identity of a text -------------------------------------------------------------------------------

CERTIFIED = 8
"""The UUID version of ids that are computed from what they name. Texts of earlier releases have random ids."""


def text_id(
    target: Target,
    version_ref: str,
    parts: Sequence[Mapping[str, Any]],
    *,
    origin: str,
    proposal_id: UUID | None,
    note: str,
    created_by: str,
    created_at: datetime | str,
) -> UUID:
    """The id of a text, computed from all that is kept of it: whoever changes any of it has to change the id.

    The ledger's lines, the version's reference in `feed_prompts`, and people name the text by this id. Of a reference
    that ends in the id, `version_ref` is what stands before it. A UUID of version 8 (RFC 9562) whose bits are those of
    a SHA-256.
    """
    digest = canonical_sha256(
        {
            "touchpoint_id": target.touchpoint_id,
            "workspace_id": target.workspace_id,
            "version_ref": version_ref,
            "parts": list(parts),
            "origin": origin,
            "proposal_id": proposal_id,
            "note": note,
            "created_by": created_by,
            "created_at": created_at,
        }
    )
    bits = int(digest[:32], 16) & ~(0xF << 76) & ~(0x3 << 62)
    return UUID(int=bits | CERTIFIED << 76 | 0x2 << 62)


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


def configuration_sha256(touchpoint: Touchpoint) -> str:
    """SHA-256 of the whole configuration as canonical JSON."""
    document = json.dumps(touchpoint.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(document.encode()).hexdigest()


def branch_name(proposal_id: UUID) -> str:
    """The branch of a proposal's change, below `burnish/`: short enough to type."""
    return proposal_id.hex[:12]
