"""Workspaces, documents, and the runs over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from libs.contracts.library import DocumentSummary, IngestReport
from libs.service_kit.connection import Connection
from services.qa_ingest.domain.envelope import Notice, Reject

_WORKSPACE = """
INSERT INTO workspaces (id, name, touchpoint_id)
SELECT $1, $2, (SELECT touchpoint_id FROM known_touchpoints WHERE touchpoint_id = $3)
ON CONFLICT (id) DO UPDATE SET name = excluded.name,
    touchpoint_id = coalesce(excluded.touchpoint_id, workspaces.touchpoint_id)
"""
_SERVED = """
SELECT id, bucket, object_key, object_version, content_sha256, extractor, extractor_version, listed_version, state
FROM documents
WHERE workspace_id = $1 AND bucket = $2 AND state IN ('live', 'stale')
"""
_NEWEST = """
SELECT DISTINCT ON (object_key)
    id, bucket, object_key, object_version, content_sha256, extractor, extractor_version,
    listed_version, state
FROM documents WHERE workspace_id = $1 AND bucket = $2 ORDER BY object_key, received_at DESC, id DESC
"""
_OF_OBJECT = f"{_SERVED} AND object_key = $3"
_INSERT = """
INSERT INTO documents (workspace_id, bucket, object_key, object_version, content_sha256, bytes, state, rejected,
                       extractor, extractor_version, listed_version, ended_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, CASE WHEN $7 = 'live' THEN NULL ELSE now() END)
ON CONFLICT (workspace_id, bucket, object_key, object_version) DO UPDATE SET
    content_sha256 = excluded.content_sha256, bytes = excluded.bytes, state = excluded.state,
    rejected = excluded.rejected, extractor = excluded.extractor, extractor_version = excluded.extractor_version,
    listed_version = excluded.listed_version, ended_at = excluded.ended_at, received_at = now(),
    reported_at = NULL
RETURNING id
"""
_END = "UPDATE documents SET state = $2, rejected = NULL, ended_at = now() WHERE id = $1"
_END_CHUNKS = "UPDATE chunks SET invalidated_at = now() WHERE document_id = $1 AND invalidated_at IS NULL"
_STALE = "UPDATE documents SET state = 'stale' WHERE id = $1 AND state = 'live'"
_LISTED_AS = "UPDATE documents SET listed_version = $2 WHERE id = $1 AND listed_version IS DISTINCT FROM $2"
_NEWEST_OF = """
SELECT id, bucket, object_key, object_version, content_sha256, extractor, extractor_version, listed_version, state
FROM documents WHERE workspace_id = $1 AND bucket = $2 AND object_key = $3 ORDER BY received_at DESC, id DESC LIMIT 1
"""
_RUN = """
INSERT INTO ingest_runs (workspace_id, document_id, extractor, extractor_version, outcome, code, pairs, rejects, losses,
                         problems, notices, started_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) RETURNING id
"""
_REJECTS = """
INSERT INTO ingest_rejects (run_id, ordinal, workspace_id, reason, message, place, excerpt, characters)
SELECT $1, ordinal, $2, reason, message, place, excerpt, characters
FROM jsonb_to_recordset($3) AS row (ordinal int, reason text, message text, place jsonb, excerpt text, characters int)
"""
_REJECTS_OF = """
SELECT ordinal, reason, message, place, excerpt, characters FROM ingest_rejects WHERE run_id = $1 ORDER BY ordinal
"""
_UNREPORTED = """
SELECT id, object_key, state = 'deleted' AS gone FROM documents AS document
WHERE workspace_id = $1 AND bucket = $2
  AND ((state IN ('live', 'rejected') AND reported_at IS NULL) OR (state = 'deleted' AND reported_at IS NOT NULL))
  AND NOT EXISTS (
    SELECT FROM documents AS newer
    WHERE newer.workspace_id = $1 AND newer.bucket = $2 AND newer.object_key = document.object_key
      AND (newer.received_at, newer.id) > (document.received_at, document.id)
  )
ORDER BY received_at LIMIT $3
"""
_REPORTED = "UPDATE documents SET reported_at = CASE WHEN $2 THEN NULL ELSE now() END WHERE id = $1"
_LISTED = """
SELECT document.*, run.pairs, run.rejects FROM documents AS document
LEFT JOIN LATERAL (SELECT pairs, rejects FROM ingest_runs WHERE document_id = document.id
                   ORDER BY finished_at DESC LIMIT 1) AS run ON true
WHERE ($1::text IS NULL OR document.bucket = $1) ORDER BY document.received_at DESC, document.id LIMIT $2
"""
_REPORT = """
SELECT run.*, document.bucket, document.object_key, document.object_version, document.content_sha256, document.state,
       document.received_at, document.ended_at
FROM ingest_runs AS run JOIN documents AS document ON document.id = run.document_id
WHERE run.document_id = $1 ORDER BY run.finished_at DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Known:
    """A version of an object as the library knows it."""

    id: UUID
    bucket: str
    object_key: str
    object_version: str
    content_sha256: str
    extractor: str | None
    extractor_version: str | None
    listed_version: str | None
    state: str


@dataclass(frozen=True, slots=True)
class Received:
    """A version of an object that came now."""

    workspace_id: UUID
    bucket: str
    object_key: str
    object_version: str
    content_sha256: str
    bytes: int
    extractor: str
    extractor_version: str
    listed_version: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One run over a document. `code` and `problems` where it was refused."""

    outcome: str
    started_at: datetime
    code: str | None = None
    pairs: int = 0
    losses: dict[str, Any] | None = None
    problems: Sequence[dict[str, Any]] = ()
    notices: Sequence[Notice] = ()
    rejects: Sequence[Reject] = ()


@dataclass(frozen=True, slots=True)
class Unreported:
    """The newest version of an object, whose report is not beside it yet; or, with `gone`, still is."""

    id: UUID
    object_key: str
    gone: bool


async def ensure_workspace(conn: Connection, workspace_id: UUID, name: str, touchpoint_id: str | None) -> None:
    """Make the workspace, or give it its name anew; it names the touchpoint once that is registered."""
    await conn.execute(_WORKSPACE, workspace_id, name, touchpoint_id)


async def newest(conn: Connection, workspace_id: UUID, bucket: str) -> dict[str, Known]:
    """The newest version known of each object of a bucket, by key."""
    rows = await conn.fetch(_NEWEST, workspace_id, bucket)
    return {row["object_key"]: Known(**row) for row in rows}


async def newest_of(conn: Connection, workspace_id: UUID, bucket: str, key: str) -> Known | None:
    """The newest version known of one object."""
    row = await conn.fetchrow(_NEWEST_OF, workspace_id, bucket, key)
    return Known(**row) if row else None


async def served(conn: Connection, workspace_id: UUID, bucket: str, key: str) -> Known | None:
    """The version of an object that is served, if one is."""
    row = await conn.fetchrow(_OF_OBJECT, workspace_id, bucket, key)
    return Known(**row) if row else None


async def insert(conn: Connection, received: Received, state: str, rejected: str | None = None) -> UUID:
    """A row for this version; the version that is served must have ended before a `live` one comes."""
    found = await conn.fetchval(
        _INSERT,
        received.workspace_id,
        received.bucket,
        received.object_key,
        received.object_version,
        received.content_sha256,
        received.bytes,
        state,
        rejected,
        received.extractor,
        received.extractor_version,
        received.listed_version,
    )
    assert isinstance(found, UUID)
    return found


async def end(conn: Connection, document_id: UUID, state: str) -> None:
    """The document is no longer served: `replaced` or `deleted`."""
    await conn.execute(_END, document_id, state)
    await conn.execute(_END_CHUNKS, document_id)


async def mark_stale(conn: Connection, document_id: UUID) -> None:
    """A newer version of it failed; this one is served on."""
    await conn.execute(_STALE, document_id)


async def listed_as(conn: Connection, document_id: UUID, listed_version: str | None) -> None:
    """The same content stands under this version in the listing now."""
    await conn.execute(_LISTED_AS, document_id, listed_version)


async def add_run(conn: Connection, workspace_id: UUID, document_id: UUID, received: Received, run: Run) -> UUID:
    """Record a run with everything that it left out."""
    run_id = await conn.fetchval(
        _RUN,
        workspace_id,
        document_id,
        received.extractor,
        received.extractor_version,
        run.outcome,
        run.code,
        run.pairs,
        len(run.rejects),
        run.losses,
        list(run.problems),
        [notice.model_dump(mode="json", exclude_defaults=True) for notice in run.notices],
        run.started_at,
    )
    assert isinstance(run_id, UUID)
    if run.rejects:
        rows = [{"ordinal": n, **reject.model_dump(mode="json")} for n, reject in enumerate(run.rejects)]
        await conn.execute(_REJECTS, run_id, workspace_id, rows)
    return run_id


async def listed(conn: Connection, bucket: str | None, limit: int) -> list[DocumentSummary]:
    """Documents of the workspaces that the connection sees, newest first."""
    return [_summary(row, row["id"], row["rejected"]) for row in await conn.fetch(_LISTED, bucket, limit)]


async def unreported(conn: Connection, workspace_id: UUID, bucket: str, limit: int) -> list[Unreported]:
    """What is to be told beside the sources of a bucket, oldest first."""
    return [Unreported(**row) for row in await conn.fetch(_UNREPORTED, workspace_id, bucket, limit)]


async def reported(conn: Connection, document_id: UUID, *, gone: bool) -> None:
    """The report is where it should be; with `gone` it is away."""
    await conn.execute(_REPORTED, document_id, gone)


async def report(conn: Connection, document_id: UUID) -> IngestReport | None:
    """The newest run over a document."""
    row = await conn.fetchrow(_REPORT, document_id)
    if row is None:
        return None
    rejects = await conn.fetch(_REJECTS_OF, row["id"])
    return IngestReport(
        run_id=row["id"],
        document=_summary(row, document_id, row["code"]),
        outcome=row["outcome"],
        problems=tuple(row["problems"]),
        notices=tuple(row["notices"]),
        rejects=tuple(dict(reject) for reject in rejects),
        losses=row["losses"],
        finished_at=row["finished_at"],
    )


def _summary(row: Any, document_id: UUID, code: str | None) -> DocumentSummary:
    return DocumentSummary(
        document_id=document_id,
        bucket=row["bucket"],
        object_key=row["object_key"],
        object_version=row["object_version"],
        content_sha256=row["content_sha256"],
        state=row["state"],
        extractor=row["extractor"],
        code=code,
        pairs=row["pairs"] or 0,
        rejects=row["rejects"] or 0,
        received_at=row["received_at"],
        ended_at=row["ended_at"],
    )
