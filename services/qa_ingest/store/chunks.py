"""Passages of documents."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from uuid import UUID

from libs.service_kit.connection import Connection
from libs.service_kit.records import Columns
from services.qa_ingest.domain.chunks import Chunk

_COLUMNS = Columns("ordinal int, section_path text[], content text, content_sha256 text")
_FORGET = "DELETE FROM chunks WHERE document_id = $1"
_ADD = _COLUMNS.insert_into("chunks", workspace_id="$2", document_id="$3", sensitive="$4")


async def add(
    conn: Connection, workspace_id: UUID, document_id: UUID, chunks: Sequence[Chunk], *, sensitive: bool
) -> None:
    """The passages of a document that is served from now on, instead of those it had."""
    await conn.execute(_FORGET, document_id)
    rows = [
        {
            "ordinal": n,
            "section_path": list(chunk.section_path),
            "content": chunk.content,
            "content_sha256": hashlib.sha256(chunk.content.encode()).hexdigest(),
        }
        for n, chunk in enumerate(chunks)
    ]
    if rows:
        await conn.execute(_ADD, rows, workspace_id, document_id, sensitive)
