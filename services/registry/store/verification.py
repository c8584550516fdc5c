"""Reads for `ledger verify`: the ledger's lines with the rows that they speak of, and the rows with their lines.

Everything is read as bounded text, times in the form in which they are hashed: whatever an owner of the database put
into a column, it can be read and compared.
"""

from __future__ import annotations

import json
import re
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

_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


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


def _neighbour(side: str, order: str) -> str:
    """The next activation line of the same target on one side of `e`.

    A branch for those with a workspace and one for those without: only so can row-level security and the index agree.
    """
    of_target = f"a.touchpoint_id = e.touchpoint_id AND a.kind IN {ACTIVATIONS} AND a.seq {side} e.seq"
    said = ", ".join(f"a.detail ->> '{name}' AS {name}" for name in ("activation_id", "content_sha256"))
    found = f"a.version_ref, {said}, a.at"
    return f"""
    (SELECT {found} FROM ledger_entries a WHERE {of_target} AND a.workspace_id = e.workspace_id
     ORDER BY a.seq {order} LIMIT 1)
    UNION ALL
    (SELECT {found} FROM ledger_entries a WHERE {of_target} AND a.workspace_id IS NULL AND e.workspace_id IS NULL
     ORDER BY a.seq {order} LIMIT 1)"""  # noqa: S608


_LINES = f"""
SELECT e.seq, {_columns("e", LINE_TEXTS, ("at",), "")}, {_bounded("e.detail", MAX_DETAIL_BYTES)} AS detail,
       {_text("p.version_ref")} AS "before.version_ref", p.activation_id AS "before.id",
       p.content_sha256 AS "before.content_sha256", {_instant("n.at")} AS "after.at"
FROM (SELECT * FROM ledger_entries WHERE seq > $1 ORDER BY seq LIMIT $2) e
LEFT JOIN LATERAL ({_neighbour("<", "DESC")}) p ON true
LEFT JOIN LATERAL ({_neighbour(">", "ASC")}) n ON e.kind IN {ACTIVATIONS}
ORDER BY e.seq
"""  # noqa: S608

# Looked up by values, not joined to what a line's detail says: row-level security lets an index be used for the former
# alone.
_ACTIVATIONS = f"""
SELECT {_columns("r", ACTIVATION_TEXTS, ACTIVATION_INSTANTS, "activation.")},
       {_columns("v", TEXT_TEXTS, ("created_at",), "text.")}
FROM prompt_version_registry r LEFT JOIN prompt_versions v ON v.id = r.prompt_version_id
WHERE r.id = ANY($1::uuid[])
"""  # noqa: S608
_INTENTS = f"""
SELECT {_columns("i", INTENT_TEXTS, ("created_at",), "intent.")}, {_sha256("i.diff")} AS "intent.diff_sha256"
FROM intents i WHERE i.intent_id = ANY($1::uuid[])
"""  # noqa: S608
_INTENT_PARTS = f"""
SELECT i.intent_id::text AS row, {_bounded("i.parts", MAX_PARTS_BYTES)} AS parts
FROM intents i WHERE i.intent_id = ANY($1::uuid[])
"""  # noqa: S608
_FINDINGS = f"""
SELECT f.activation_id::text AS "finding.activation_id", {_text("f.found_sha256")} AS "finding.found_sha256",
       {_instant("f.found_at")} AS "finding.found_at"
FROM drift_findings f WHERE f.activation_id = ANY($1::uuid[])
"""  # noqa: S608
_SCOPES = "SELECT touchpoint_id, scope FROM touchpoints WHERE touchpoint_id = ANY($1::text[])"

_END = f"""
SELECT h.seq, h.entry_sha256, {_instant("h.at")} AS at,
       (SELECT count(*) FROM ledger_entries) AS lines, {_instant("e.at")} AS last_at
FROM ledger_head h LEFT JOIN ledger_entries e ON e.seq = h.seq
WHERE h.only_one
"""  # noqa: S608

_CHAIN = f"""
SELECT e.seq, {_columns("e", LINE_TEXTS, ("at",), "")}, {_bounded("e.detail", MAX_DETAIL_BYTES)} AS detail
FROM ledger_entries e WHERE e.seq > $1 ORDER BY e.seq LIMIT $2
"""  # noqa: S608

_TEXT_ROWS = f"""
SELECT v.id::text AS row, {_columns("v", TEXT_TEXTS, ("created_at",), "")},
       {_bounded("v.parts", MAX_PARTS_BYTES)} AS parts, t.scope
FROM (SELECT * FROM prompt_versions WHERE id >= $1 ORDER BY id LIMIT $2) v
LEFT JOIN touchpoints t ON t.touchpoint_id = v.touchpoint_id
ORDER BY v.id
"""  # noqa: S608

# Rows that no line speaks of: each of these is one pass over the ledger, and gives the first row.
_BY_HASHING = "SELECT set_config('enable_nestloop', 'off', true)"
"""The planner knows nothing about what is in a document, and would look for each row in all of the ledger."""
_UNMADE = f"""
SELECT r.id::text AS row, count(e.seq) AS lines
FROM prompt_version_registry r
LEFT JOIN ledger_entries e ON e.kind IN {ACTIVATIONS} AND e.detail ->> 'activation_id' = r.id::text
GROUP BY r.id HAVING count(e.seq) <> 1 ORDER BY r.id LIMIT 1
"""  # noqa: S608
_UNRECORDED = """
SELECT i.intent_id::text AS row FROM intents i
WHERE NOT EXISTS (
    SELECT FROM ledger_entries e WHERE e.kind = 'intent' AND e.detail ->> 'intent_id' = i.intent_id::text)
ORDER BY i.intent_id LIMIT 1
"""
_UNSETTLED = f"""
SELECT i.intent_id::text AS row, {_text("i.state")} AS state FROM intents i
WHERE (COALESCE(i.state, '') NOT IN ('recorded', 'open', 'failed') OR i.confirmed_at IS NOT NULL) AND NOT EXISTS (
    SELECT FROM ledger_entries e
    WHERE e.kind IN ('confirmed', 'intent_closed') AND e.detail ->> 'intent_id' = i.intent_id::text)
ORDER BY i.intent_id LIMIT 1
"""  # noqa: S608
_UNSAID = """
SELECT f.activation_id::text AS row FROM drift_findings f
WHERE NOT EXISTS (
    SELECT FROM ledger_entries e
    WHERE e.kind = 'drift' AND e.detail ->> 'activation_id' = f.activation_id::text
      AND COALESCE(e.detail ->> 'found_sha256', '') = COALESCE(f.found_sha256, ''))
ORDER BY f.activation_id LIMIT 1
"""


async def chain(conn: Connection, after: int, limit: int) -> list[Row]:
    """Lines in order, as they are hashed."""
    return [_with(row, "detail") for row in await conn.fetch(_CHAIN, after, limit)]


async def lines(conn: Connection, after: int, limit: int) -> list[Row]:
    """Lines in order; beside each, under names with a dot, what is kept about the things that it speaks of."""
    found = [_with(row, "detail") for row in await conn.fetch(_LINES, after, limit)]
    activations = _by(await conn.fetch(_ACTIVATIONS, _named(found, "activation_id")), "activation.id")
    intents = _by(await conn.fetch(_INTENTS, _named(found, "intent_id")), "intent.intent_id")
    findings = _by(await conn.fetch(_FINDINGS, _named(found, "activation_id")), *_FINDING)
    scoped = await conn.fetch(_SCOPES, list({row["touchpoint_id"] for row in found}))
    scopes = {record["touchpoint_id"]: record["scope"] for record in scoped}
    for row in found:
        activation_id, intent_id = detail_of(row, "activation_id"), detail_of(row, "intent_id")
        row.update(activations.get((activation_id,), _NO_ACTIVATION))
        row.update(intents.get((intent_id,), _NO_INTENT))
        row.update(findings.get((activation_id, detail_of(row, "found_sha256")), _NO_FINDING))
        row["touchpoint.scope"] = scopes.get(row["touchpoint_id"])
    return found


async def parts_of_intents(conn: Connection, intent_ids: Sequence[UUID]) -> dict[str, Any]:
    """The texts of these intents by id, as JSON: few at a time, since each has up to a MiB."""
    return {row["row"]: _with(row, "parts")["parts"] for row in await conn.fetch(_INTENT_PARTS, list(intent_ids))}


async def end(conn: Connection) -> Row | None:
    """The recorded end of the chain, the number of lines there are, and the time of the last; None without a row."""
    row = await conn.fetchrow(_END)
    return None if row is None else dict(row)


async def texts(conn: Connection, first: UUID, limit: int) -> list[Row]:
    """Recorded texts by id, from that one on."""
    return [_with(row, "parts") for row in await conn.fetch(_TEXT_ROWS, first, limit)]


async def join_by_hashing(conn: Connection) -> None:
    """For the rest of the transaction: what follows are joins of whole tables."""
    await conn.execute(_BY_HASHING)


async def unmade_activation(conn: Connection) -> Row | None:
    """The first activation that not exactly one line made, with how many did."""
    return _row(await conn.fetchrow(_UNMADE))


async def unrecorded_intent(conn: Connection) -> Row | None:
    """The first intent that no line recorded."""
    return _row(await conn.fetchrow(_UNRECORDED))


async def unsettled_intent(conn: Connection) -> Row | None:
    """The first intent that counts as confirmed or closed, which no line says."""
    return _row(await conn.fetchrow(_UNSETTLED))


async def unsaid_finding(conn: Connection) -> Row | None:
    """The first drift finding that no line says."""
    return _row(await conn.fetchrow(_UNSAID))


def detail_of(line: Row, name: str) -> Any:
    """One thing that a line's detail says; None where there is none."""
    detail = line["detail"]
    return detail.get(name) if isinstance(detail, dict) else None


_FINDING = ("finding.activation_id", "finding.found_sha256")
_NO_FINDING = dict.fromkeys((*_FINDING, "finding.found_at"))
_NO_INTENT = dict.fromkeys(f"intent.{name}" for name in (*INTENT_TEXTS, "created_at", "diff_sha256"))
_NO_ACTIVATION = dict.fromkeys(
    (
        *(f"activation.{name}" for name in (*ACTIVATION_TEXTS, *ACTIVATION_INSTANTS)),
        *(f"text.{name}" for name in (*TEXT_TEXTS, "created_at")),
    )
)


def _named(lines: Sequence[Row], name: str) -> list[UUID]:
    """The ids of this name that the lines' details have."""
    texts = {text for line in lines if isinstance(text := detail_of(line, name), str) and _UUID.fullmatch(text)}
    return [UUID(text) for text in texts]


def _by(records: Sequence[Record], *names: str) -> dict[tuple[Any, ...], Row]:
    return {tuple(record[name] for name in names): dict(record) for record in records}


def _row(record: Record | None) -> Row | None:
    return None if record is None else dict(record)


def _with(record: Record, document: str) -> Row:
    """The row with one column of JSON read; what cannot be read is a text of its own, which equals nothing."""
    row = dict(record)
    try:
        row[document] = json.loads(row[document])
    except (ValueError, TypeError, RecursionError):
        row[document] = UNREADABLE
    return row
