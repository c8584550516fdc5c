"""Reads for `ledger verify`: the ledger's lines with the rows that they speak of, and the rows with their lines.

Everything is read as bounded text, times in the form in which they are hashed: whatever an owner of the database put
into a column, it can be read and compared.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from asyncpg import Record

from libs.contracts.versions import LedgerEntry
from libs.service_kit.db import Connection

MAX_TEXT = 2_100
MAX_DETAIL_BYTES = 65_536
MAX_PARTS_BYTES = 8 * 1024 * 1024
UNREADABLE = "(unreadable)"
ACTIVATIONS = "('registered', 'activated', 'rolled_back')"
Row = dict[str, Any]

_NOWHERE = "'00000000-0000-0000-0000-000000000000'::uuid"
_UUID = "'^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$'"


def _text(column: str) -> str:
    return f"left({column}::text, {MAX_TEXT})"


def _instant(column: str) -> str:
    shown = f"""to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')"""
    era = f"CASE WHEN {column} < '0001-01-01T00:00:00Z' THEN ' BC' ELSE '' END"
    return f"CASE WHEN isfinite({column}) THEN {shown} || {era} ELSE {column}::text END"


def _bounded(column: str, limit: int) -> str:
    return f"CASE WHEN octet_length({column}::text) <= {limit} THEN {column}::text ELSE '{UNREADABLE}' END"


def _sha256(column: str) -> str:
    return f"encode(sha256(convert_to({column}, 'UTF8')), 'hex')"


def _columns(alias: str, texts: Sequence[str], instants: Sequence[str], prefix: str) -> str:
    named = [*((name, _text(f"{alias}.{name}")) for name in texts)]
    named += [(name, _instant(f"{alias}.{name}")) for name in instants]
    return ", ".join(f'{expression} AS "{prefix}{name}"' for name, expression in named)


LINE_TEXTS = tuple(name for name in LedgerEntry.model_fields if name not in ("seq", "at", "detail"))
ACTIVATION_TEXTS = (
    "id",
    "touchpoint_id",
    "version_ref",
    "storage_adapter",
    "activated_by",
    "rolled_back_from",
    "file_sha256",
    "notes",
    "workspace_id",
    "prompt_version_id",
    "proposal_id",
)
ACTIVATION_INSTANTS = ("activated_at", "rolled_back_at")
TEXT_TEXTS = (
    "id",
    "touchpoint_id",
    "workspace_id",
    "version_ref",
    "content_sha256",
    "origin",
    "proposal_id",
    "note",
    "created_by",
)
INTENT_TEXTS = (
    "intent_id",
    "kind",
    "state",
    "touchpoint_id",
    "workspace_id",
    "proposal_id",
    "from_ref",
    "from_sha256",
    "to_ref",
    "content_sha256",
    "message",
    "error_code",
    "error",
    "confirmed_at",
    "created_by",
)

_LINES = f"""
SELECT e.seq, {_columns("e", LINE_TEXTS, ("at",), "")}, {_bounded("e.detail", MAX_DETAIL_BYTES)} AS detail,
       t.scope AS "touchpoint.scope",
       p.version_ref AS "before.version_ref", p.detail ->> 'activation_id' AS "before.id",
       p.detail ->> 'content_sha256' AS "before.content_sha256", {_instant("n.at")} AS "after.at",
       {_columns("r", ACTIVATION_TEXTS, ACTIVATION_INSTANTS, "activation.")},
       {_columns("v", TEXT_TEXTS, ("created_at",), "text.")},
       {_columns("i", INTENT_TEXTS, ("created_at",), "intent.")}, {_sha256("i.diff")} AS "intent.diff_sha256",
       s.seq AS "settled.seq", s.kind AS "settled.kind", {_text("s.reason")} AS "settled.reason",
       f.activation_id::text AS "finding.activation_id", {_text("f.found_sha256")} AS "finding.found_sha256",
       {_instant("f.found_at")} AS "finding.found_at"
FROM (SELECT * FROM ledger_entries WHERE seq > $1 ORDER BY seq LIMIT $2) e
LEFT JOIN touchpoints t ON t.touchpoint_id = e.touchpoint_id
LEFT JOIN LATERAL (
    SELECT * FROM ledger_entries b
    WHERE b.touchpoint_id = e.touchpoint_id AND b.kind IN {ACTIVATIONS} AND b.seq < e.seq
      AND COALESCE(b.workspace_id, {_NOWHERE}) = COALESCE(e.workspace_id, {_NOWHERE})
    ORDER BY b.seq DESC LIMIT 1) p ON true
LEFT JOIN LATERAL (
    SELECT a.at FROM ledger_entries a
    WHERE a.touchpoint_id = e.touchpoint_id AND a.kind IN {ACTIVATIONS} AND a.seq > e.seq
      AND COALESCE(a.workspace_id, {_NOWHERE}) = COALESCE(e.workspace_id, {_NOWHERE})
    ORDER BY a.seq LIMIT 1) n ON e.kind IN {ACTIVATIONS}
LEFT JOIN prompt_version_registry r ON e.kind IN {ACTIVATIONS}
    AND r.id = CASE WHEN e.detail ->> 'activation_id' ~ {_UUID} THEN (e.detail ->> 'activation_id')::uuid END
LEFT JOIN prompt_versions v ON v.id = r.prompt_version_id
LEFT JOIN intents i ON e.kind IN ('intent', 'confirmed', 'intent_closed')
    AND i.intent_id = CASE WHEN e.detail ->> 'intent_id' ~ {_UUID} THEN (e.detail ->> 'intent_id')::uuid END
LEFT JOIN LATERAL (
    SELECT c.seq, c.kind, c.reason FROM ledger_entries c
    WHERE c.detail ? 'intent_id' AND c.detail ->> 'intent_id' = e.detail ->> 'intent_id'
      AND c.kind IN ('confirmed', 'intent_closed') AND c.seq > e.seq
    ORDER BY c.seq LIMIT 1) s ON e.kind = 'intent'
LEFT JOIN drift_findings f ON e.kind = 'drift' AND f.found_sha256 IS NOT DISTINCT FROM e.detail ->> 'found_sha256'
    AND f.activation_id = CASE WHEN e.detail ->> 'activation_id' ~ {_UUID} THEN (e.detail ->> 'activation_id')::uuid END
ORDER BY e.seq
"""  # noqa: S608

_END = f"""
SELECT h.seq, h.entry_sha256, {_instant("h.at")} AS at,
       (SELECT count(*) FROM ledger_entries) AS lines, {_instant("e.at")} AS last_at
FROM ledger_head h LEFT JOIN ledger_entries e ON e.seq = h.seq
WHERE h.only_one
"""  # noqa: S608

_ACTIVATION_ROWS = f"""
SELECT r.id::text AS row, r.touchpoint_id,
       (SELECT count(*) FROM ledger_entries e
        WHERE e.detail ? 'activation_id' AND e.detail ->> 'activation_id' = r.id::text AND e.kind IN {ACTIVATIONS}
       ) AS lines
FROM prompt_version_registry r WHERE ($1::uuid IS NULL OR r.id > $1::uuid) ORDER BY r.id LIMIT $2
"""  # noqa: S608

_INTENT_ROWS = f"""
SELECT i.intent_id::text AS row, i.content_sha256, {_bounded("i.parts", MAX_PARTS_BYTES)} AS parts,
       l.seq AS line, l.detail ->> 'parts_sha256' AS parts_sha256
FROM (SELECT * FROM intents WHERE ($1::uuid IS NULL OR intent_id > $1::uuid) ORDER BY intent_id LIMIT $2) i
LEFT JOIN LATERAL (
    SELECT e.seq, e.detail FROM ledger_entries e
    WHERE e.detail ? 'intent_id' AND e.detail ->> 'intent_id' = i.intent_id::text AND e.kind = 'intent'
    ORDER BY e.seq LIMIT 1) l ON true
ORDER BY i.intent_id
"""  # noqa: S608

_TEXT_ROWS = f"""
SELECT v.id::text AS row, {_columns("v", TEXT_TEXTS, ("created_at",), "")},
       {_bounded("v.parts", MAX_PARTS_BYTES)} AS parts, t.scope
FROM (SELECT * FROM prompt_versions WHERE ($1::uuid IS NULL OR id > $1::uuid) ORDER BY id LIMIT $2) v
LEFT JOIN touchpoints t ON t.touchpoint_id = v.touchpoint_id
ORDER BY v.id
"""  # noqa: S608

_FINDING_ROWS = f"""
SELECT f.row,
       (SELECT count(*) FROM ledger_entries e
        WHERE e.detail ? 'activation_id' AND e.detail ->> 'activation_id' = f.activation_id::text AND e.kind = 'drift'
          AND e.detail ->> 'found_sha256' IS NOT DISTINCT FROM f.found_sha256) AS lines
FROM (SELECT *, activation_id::text || ' ' || COALESCE({_text("found_sha256")}, '') COLLATE "C" AS row
      FROM drift_findings) f
WHERE f.row > $1 ORDER BY f.row LIMIT $2
"""  # noqa: S608

_CHAIN = f"""
SELECT e.seq, {_columns("e", LINE_TEXTS, ("at",), "")}, {_bounded("e.detail", MAX_DETAIL_BYTES)} AS detail
FROM ledger_entries e WHERE e.seq > $1 ORDER BY e.seq LIMIT $2
"""  # noqa: S608


async def chain(conn: Connection, after: int, limit: int) -> list[Row]:
    """Lines in order, as they are hashed."""
    return [_with(row, "detail") for row in await conn.fetch(_CHAIN, after, limit)]


async def lines(conn: Connection, after: int, limit: int) -> list[Row]:
    """Lines in order; beside each, under names with a dot, what is kept about the things that it speaks of."""
    return [_with(row, "detail") for row in await conn.fetch(_LINES, after, limit)]


async def end(conn: Connection) -> Row | None:
    """The recorded end of the chain, the number of lines there are, and the time of the last; None without a row."""
    row = await conn.fetchrow(_END)
    return None if row is None else dict(row)


async def activations(conn: Connection, after: UUID | None, limit: int) -> list[Row]:
    """Activations by id, each with the number of lines that made it."""
    return [dict(row) for row in await conn.fetch(_ACTIVATION_ROWS, after, limit)]


async def intents(conn: Connection, after: UUID | None, limit: int) -> list[Row]:
    """Intents by id with their texts, each with the line that recorded it."""
    return [_with(row, "parts") for row in await conn.fetch(_INTENT_ROWS, after, limit)]


async def texts(conn: Connection, after: UUID | None, limit: int) -> list[Row]:
    """Recorded texts by id."""
    return [_with(row, "parts") for row in await conn.fetch(_TEXT_ROWS, after, limit)]


async def findings(conn: Connection, after: str, limit: int) -> list[Row]:
    """Drift findings in order, each with the number of lines that say it."""
    return [dict(row) for row in await conn.fetch(_FINDING_ROWS, after, limit)]


def _with(record: Record, document: str) -> Row:
    """The row with one column of JSON read; what cannot be read is a text of its own, which equals nothing."""
    row = dict(record)
    try:
        row[document] = json.loads(row[document])
    except (ValueError, TypeError, RecursionError):
        row[document] = UNREADABLE
    return row
