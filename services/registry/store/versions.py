"""Tables `prompt_versions` (immutable texts) and `prompt_version_registry` (which of them is, or was, live)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from libs.contracts.prompts import PromptPart, content_sha256
from libs.contracts.vocabulary import Adapter, Scope
from libs.service_kit.db import Connection
from services.registry.domain import Step, Target, text_id

Origin = Literal["initial", "repository", "proposal", "manual"]

_RECORD = """
INSERT INTO prompt_versions
    (id, touchpoint_id, workspace_id, version_ref, parts, content_sha256, origin, proposal_id, note, created_by,
     created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT DO NOTHING
"""
_TEXT = """
SELECT id, touchpoint_id, workspace_id, version_ref, parts, content_sha256, origin, proposal_id, note, created_by,
       created_at
FROM prompt_versions
"""
_OF_TARGET = "WHERE touchpoint_id = $1 AND workspace_id IS NOT DISTINCT FROM $2"
_BY_REF = f"{_TEXT} {_OF_TARGET} AND version_ref = $3 ORDER BY created_at DESC, id LIMIT 1"
_EXACT = f"{_TEXT} {_OF_TARGET} AND version_ref = $3 AND content_sha256 = $4"
_RECORDED = f"{_TEXT} {_OF_TARGET} ORDER BY created_at DESC, id LIMIT $3"

_STAMP = """
SELECT t.scope, t.config->'storage'->>'adapter' AS adapter, v.id, v.content_sha256, v.proposal_id
FROM touchpoints t
LEFT JOIN prompt_versions v ON v.touchpoint_id = t.touchpoint_id AND v.version_ref = $3
    AND COALESCE(v.workspace_id, '00000000-0000-0000-0000-000000000000'::uuid)
      = COALESCE($2::uuid, '00000000-0000-0000-0000-000000000000'::uuid)
WHERE t.touchpoint_id = $1
ORDER BY v.created_at DESC LIMIT 1
"""

_ROW = """
SELECT r.id, r.touchpoint_id, r.workspace_id, r.version_ref, r.storage_adapter, r.activated_at, r.activated_by,
       r.rolled_back_from, r.rolled_back_at, r.file_sha256, r.notes, r.proposal_id, r.prompt_version_id
FROM prompt_version_registry r
"""
_OF_ROW = "WHERE r.touchpoint_id = $1 AND r.workspace_id IS NOT DISTINCT FROM $2"
_LIVE_FOR_UPDATE = f"{_ROW} {_OF_ROW} AND r.rolled_back_at IS NULL FOR UPDATE"
_LIVE = f"{_ROW} {_OF_ROW} AND r.rolled_back_at IS NULL"
_AT = f"{_ROW} {_OF_ROW} AND r.activated_at <= $3 AND (r.rolled_back_at IS NULL OR r.rolled_back_at > $3)"
_HISTORY = f"{_ROW} {_OF_ROW} ORDER BY r.activated_at DESC LIMIT $3"
_ALL_LIVE = f"{_ROW} WHERE r.rolled_back_at IS NULL ORDER BY r.touchpoint_id, r.workspace_id"
_ONE = f"{_ROW} WHERE r.id = $1"
_NEWEST = f"{_ROW} {_OF_ROW} AND r.version_ref = $3 ORDER BY r.activated_at DESC LIMIT 1"
_STEPS = f"""
SELECT version_ref, rolled_back_from IS NOT NULL AS rollback FROM prompt_version_registry
{_OF_TARGET} ORDER BY activated_at
"""  # noqa: S608
_RETIRE = "UPDATE prompt_version_registry SET rolled_back_at = $2 WHERE id = $1 AND rolled_back_at IS NULL"
_ACTIVATE = """
INSERT INTO prompt_version_registry
    (id, touchpoint_id, workspace_id, version_ref, storage_adapter, activated_at, activated_by, rolled_back_from,
     file_sha256, notes, proposal_id, prompt_version_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
"""
_PARTS = "SELECT parts FROM prompt_versions WHERE id = $1"


@dataclass(frozen=True)
class Text:
    """One immutable prompt text and where it came from."""

    id: UUID
    target: Target
    version_ref: str
    parts: tuple[PromptPart, ...]
    content_sha256: str
    origin: Origin
    created_by: str
    created_at: datetime
    proposal_id: UUID | None = None
    note: str = ""

    @classmethod
    def new(
        cls,
        target: Target,
        version_ref: str,
        parts: Sequence[PromptPart],
        *,
        origin: Origin,
        created_by: str,
        created_at: datetime,
        proposal_id: UUID | None = None,
        note: str = "",
    ) -> Text:
        """A text to be kept, with its hash and the id that is computed from all of it.

        A `version_ref` that ends in a colon gets the id behind it.
        """
        kept = [part.model_dump() for part in parts]
        made_of_id = version_ref.endswith(":")
        identity = text_id(
            target,
            version_ref,
            kept,
            origin=origin,
            proposal_id=proposal_id,
            note=note,
            created_by=created_by,
            created_at=created_at,
        )
        return cls(
            id=identity,
            target=target,
            version_ref=f"{version_ref}{identity}" if made_of_id else version_ref,
            parts=tuple(parts),
            content_sha256=content_sha256(parts),
            origin=origin,
            created_by=created_by,
            created_at=created_at,
            proposal_id=proposal_id,
            note=note,
        )

    @property
    def version(self) -> Version:
        """The text's id and hash, without the text."""
        return Version(self.id, self.version_ref, self.content_sha256, self.proposal_id)


@dataclass(frozen=True)
class Activation:
    """One row of the registry: a version that is live, or was from `activated_at` to `rolled_back_at`."""

    id: UUID
    target: Target
    version_ref: str
    adapter: Adapter
    activated_at: datetime
    activated_by: str
    content_sha256: str
    prompt_version_id: UUID
    rolled_back_from: UUID | None = None
    rolled_back_at: datetime | None = None
    notes: str = ""
    proposal_id: UUID | None = None


@dataclass(frozen=True)
class Stamp:
    """A version without its text. `version` is None where the touchpoint has no version of that reference."""

    scope: Scope
    adapter: Adapter
    version: Version | None


@dataclass(frozen=True)
class Version:
    """Which text a version reference names, by id and hash."""

    id: UUID
    version_ref: str
    content_sha256: str
    proposal_id: UUID | None = None


async def record(conn: Connection, text: Text) -> Text:
    """Keep a text; the one that is kept already when this version of the target has this very text."""
    parts = [part.model_dump() for part in text.parts]
    await conn.execute(
        _RECORD,
        text.id,
        *text.target,
        text.version_ref,
        parts,
        text.content_sha256,
        text.origin,
        text.proposal_id,
        text.note,
        text.created_by,
        text.created_at,
    )
    row = await conn.fetchrow(_EXACT, *text.target, text.version_ref, text.content_sha256)
    assert row is not None
    return _text(row)


async def by_ref(conn: Connection, target: Target, version_ref: str) -> Text | None:
    """The text a version reference names."""
    row = await conn.fetchrow(_BY_REF, *target, version_ref)
    return None if row is None else _text(row)


async def stamp(conn: Connection, target: Target, version_ref: str) -> Stamp | None:
    """Scope and adapter of a touchpoint, with the version of that reference; None when it is not registered."""
    row = await conn.fetchrow(_STAMP, *target, version_ref)
    if row is None:
        return None
    version = Version(row["id"], version_ref, row["content_sha256"], row["proposal_id"]) if row["id"] else None
    return Stamp(row["scope"], row["adapter"], version)


async def recorded(conn: Connection, target: Target, limit: int) -> list[Text]:
    """Texts of the target, newest first, live or not."""
    return [_text(row) for row in await conn.fetch(_RECORDED, *target, limit)]


async def parts_of(conn: Connection, prompt_version_id: UUID) -> tuple[PromptPart, ...]:
    """The parts of one text."""
    return _parts(await conn.fetchval(_PARTS, prompt_version_id))


async def live_for_update(conn: Connection, target: Target) -> Activation | None:
    """The live row, locked until the transaction ends."""
    row = await conn.fetchrow(_LIVE_FOR_UPDATE, *target)
    return None if row is None else _activation(row)


async def live(conn: Connection, target: Target) -> Activation | None:
    """The live row."""
    row = await conn.fetchrow(_LIVE, *target)
    return None if row is None else _activation(row)


async def live_at(conn: Connection, target: Target, at: datetime) -> Activation | None:
    """The row that was live at a time."""
    row = await conn.fetchrow(_AT, *target, at)
    return None if row is None else _activation(row)


async def newest_activation(conn: Connection, target: Target, version_ref: str) -> Activation | None:
    """The last time a version became live."""
    row = await conn.fetchrow(_NEWEST, *target, version_ref)
    return None if row is None else _activation(row)


async def all_live(conn: Connection) -> list[Activation]:
    """Every live row."""
    return [_activation(row) for row in await conn.fetch(_ALL_LIVE)]


async def get(conn: Connection, activation_id: UUID) -> Activation | None:
    """One activation."""
    row = await conn.fetchrow(_ONE, activation_id)
    return None if row is None else _activation(row)


async def history(conn: Connection, target: Target, limit: int) -> list[Activation]:
    """The target's activations, newest first."""
    return [_activation(row) for row in await conn.fetch(_HISTORY, *target, limit)]


async def steps(conn: Connection, target: Target) -> Sequence[Step]:
    """The target's whole history in short, oldest first."""
    return [Step(row["version_ref"], row["rollback"]) for row in await conn.fetch(_STEPS, *target)]


async def retire(conn: Connection, activation_id: UUID, at: datetime) -> None:
    """The row stops being live at `at`."""
    await conn.execute(_RETIRE, activation_id, at)


async def activate(conn: Connection, row: Activation) -> None:
    """Insert a row that is live. The partial unique index refuses a second one for the same target."""
    await conn.execute(
        _ACTIVATE,
        row.id,
        *row.target,
        row.version_ref,
        row.adapter,
        row.activated_at,
        row.activated_by,
        row.rolled_back_from,
        row.content_sha256,
        row.notes,
        row.proposal_id,
        row.prompt_version_id,
    )


def _target(row: Any) -> Target:
    return Target(row["touchpoint_id"], row["workspace_id"])


def _parts(value: Any) -> tuple[PromptPart, ...]:
    return tuple(PromptPart.model_validate(part) for part in value)


def _text(row: Any) -> Text:
    return Text(
        id=row["id"],
        target=_target(row),
        version_ref=row["version_ref"],
        parts=_parts(row["parts"]),
        content_sha256=row["content_sha256"],
        origin=row["origin"],
        created_by=row["created_by"],
        proposal_id=row["proposal_id"],
        note=row["note"],
        created_at=row["created_at"],
    )


def _activation(row: Any) -> Activation:
    return Activation(
        id=row["id"],
        target=_target(row),
        version_ref=row["version_ref"],
        adapter=row["storage_adapter"],
        activated_at=row["activated_at"],
        activated_by=row["activated_by"],
        content_sha256=row["file_sha256"],
        prompt_version_id=row["prompt_version_id"],
        rolled_back_from=row["rolled_back_from"],
        rolled_back_at=row["rolled_back_at"],
        notes=row["notes"],
        proposal_id=row["proposal_id"],
    )
