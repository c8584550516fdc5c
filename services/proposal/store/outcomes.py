"""Table `ab_outcomes`: every A/B run that was heard of for a proposal."""

from __future__ import annotations

from uuid import UUID

from libs.contracts.proposals import AbOutcome
from libs.service_kit.db import Connection
from libs.service_kit.records import Columns
from services.proposal.domain import sources_of

COUNTS = """
(SELECT to_jsonb(o) FROM ab_outcomes AS o WHERE o.proposal_id = p.proposal_id AND o.b_sha256 = p.content_sha256
 ORDER BY (o.verdict = 'failed'), o.executed_at DESC, o.run_id LIMIT 1)
"""
"""The outcome that counts for the proposal `p`: the newest of its text, one that failed only where no other is."""

_COLUMNS = Columns(
    """
    run_id uuid, proposal_id uuid, verdict text, suite_sha256 text, a_sha256 text, b_sha256 text, gained int, lost int,
    executed_at timestamptz
    """
)
_SAVE = f"""
{_COLUMNS.insert_into("ab_outcomes")} WHERE EXISTS (SELECT FROM proposals WHERE proposal_id = new.proposal_id)
ON CONFLICT (run_id) DO NOTHING
"""
_IN_REVIEW = """
UPDATE proposals SET state = 'in_review'
WHERE proposal_id = $1 AND content_sha256 = $2 AND state = ANY($3::text[])
"""


async def save(conn: Connection, proposal_id: UUID, outcome: AbOutcome) -> None:
    """Keep the outcome with its proposal, which is in review from its first completed run on."""
    await conn.execute(_SAVE, [{"proposal_id": proposal_id, **outcome.model_dump()}])
    if outcome.verdict != "failed":
        await conn.execute(_IN_REVIEW, proposal_id, outcome.b_sha256, list(sources_of("in_review")))
