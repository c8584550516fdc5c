"""What people say of results: one verdict a person, query and result."""

from __future__ import annotations

import hashlib
from uuid import UUID

from libs.contracts.queries.qa_ingest import GiveFeedback
from libs.service_kit.connection import Connection, see_only

_RESULT = """
SELECT workspace_id FROM (
    SELECT id, workspace_id, 'curated' AS kind FROM q_a_pairs
    UNION ALL SELECT id, workspace_id, 'extracted' FROM q_a_extractions
    UNION ALL SELECT id, workspace_id, 'chunk' FROM chunks
) AS result WHERE kind = $1 AND id = $2
"""
_WORDS = """
SELECT words FROM (
    SELECT id, 'curated' AS kind, question_text AS words, sensitive FROM q_a_pairs
    UNION ALL SELECT id, 'extracted', question_text, sensitive FROM q_a_extractions
    UNION ALL SELECT id, 'chunk', content, sensitive FROM chunks
) AS result WHERE kind = $1 AND id = $2 AND NOT sensitive
"""
_GIVE = """
INSERT INTO search_feedback AS given (workspace_id, query, query_sha256, kind, result_id, verdict, comment, given_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (workspace_id, kind, result_id, query_sha256, given_by) DO UPDATE SET
    verdict = excluded.verdict, comment = excluded.comment, given_at = now()
WHERE (given.verdict, given.comment) IS DISTINCT FROM (excluded.verdict, excluded.comment)
RETURNING id
"""
_KEPT = """
SELECT id FROM search_feedback
WHERE workspace_id = $1 AND kind = $2 AND result_id = $3 AND query_sha256 = $4 AND given_by = $5
"""


async def workspace_of(conn: Connection, given: GiveFeedback) -> UUID | None:
    """Whose result it is; None where the named workspaces have no such one."""
    await see_only(conn, given.workspace_ids)
    found: UUID | None = await conn.fetchval(_RESULT, given.kind, given.result_id)
    return found


async def give(conn: Connection, workspace_id: UUID, given: GiveFeedback) -> tuple[UUID, bool]:
    """Keep a verdict; its id, and whether it is new or another than before."""
    query = given.query.strip()
    sha = hashlib.sha256(query.encode()).hexdigest()
    told = (query, sha, given.kind, given.result_id, given.verdict, given.comment, given.given_by)
    changed: UUID | None = await conn.fetchval(_GIVE, workspace_id, *told)
    if changed is not None:
        return changed, True
    kept: UUID = await conn.fetchval(_KEPT, workspace_id, given.kind, given.result_id, sha, given.given_by)
    return kept, False


async def words_of(conn: Connection, given: GiveFeedback) -> str | None:
    """What the result asks or says; None of one that is not for everybody."""
    words: str | None = await conn.fetchval(_WORDS, given.kind, given.result_id)
    return words
