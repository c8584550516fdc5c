"""Pairs as bundles have them, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from libs.service_kit.connection import Connection

# Those of a file together, in its order: they were made in one transaction, and so at one time. None of the three ever
# changes, so that a page goes on where the one before it ended, whatever happens in between.
_ORDER = "pair.created_at, coalesce(extraction.ordinal, 0), pair.id"
_PAGE = f"""
SELECT pair.id AS pair_id, pair.version, document.object_key AS file, pair.question_text AS question,
       pair.answer_standard, pair.answer_advanced, pair.source_id_token AS id,
       pair.alternate_question_phrasings AS alternate_phrasings, pair.variant_details, pair.scope_tag AS scope_tags,
       pair.anti_scope_tag AS anti_scope_tags, pair.primary_domain, pair.primary_subtopic, pair.secondary_domain,
       pair.secondary_subtopic, pair.confidence::text::float8 AS confidence, pair.provenance, pair.publication_status,
       pair.valid_from, pair.valid_to, pair.sources, pair.verified_at, pair.verified_by, pair.layer,
       pair.next_review_date, pair.review_cadence_days, pair.sensitive, pair.metadata,
       pair.created_at, coalesce(extraction.ordinal, 0) AS ordinal
FROM q_a_pairs AS pair
LEFT JOIN q_a_extractions AS extraction ON extraction.id = pair.promoted_from_extraction_id
LEFT JOIN documents AS document ON document.id = pair.source_document_id
WHERE pair.superseded_by IS NULL AND (NOT pair.sensitive OR $1)
  AND ($2::timestamptz IS NULL OR ({_ORDER}) > ($2, $3, $4))
ORDER BY {_ORDER} LIMIT $5
"""  # noqa: S608  # constants
_BESIDES = """
SELECT count(*) FILTER (WHERE superseded_by IS NOT NULL) AS superseded,
       count(*) FILTER (WHERE superseded_by IS NULL AND sensitive) AS sensitive
FROM q_a_pairs WHERE superseded_by IS NOT NULL OR sensitive
"""


@dataclass(frozen=True, slots=True)
class After:
    """The last pair of the page before."""

    created_at: datetime
    ordinal: int
    pair_id: UUID

    def __str__(self) -> str:
        return f"{self.created_at.isoformat()}|{self.ordinal}|{self.pair_id}"

    @classmethod
    def read(cls, text: str) -> After:
        """What `str` wrote. Raises ValueError."""
        at, ordinal, pair_id = text.split("|")
        after = cls(datetime.fromisoformat(at), int(ordinal), UUID(pair_id))
        if after.created_at.tzinfo is None or not 0 <= after.ordinal < 2**31:
            raise ValueError(text)
        return after


async def page(conn: Connection, after: After | None, limit: int, *, sensitive: bool) -> Sequence[Any]:
    """The next pairs of the workspace that the connection sees."""
    place = (after.created_at, after.ordinal, after.pair_id) if after else (None, None, None)
    return await conn.fetch(_PAGE, sensitive, *place, limit)


async def besides(conn: Connection) -> tuple[int, int]:
    """How many pairs are superseded, and how many of the others sensitive."""
    row = await conn.fetchrow(_BESIDES)
    assert row is not None
    return row["superseded"], row["sensitive"]
