"""What is said on the bus of extractions: which came with a document, and which are served no more. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from uuid import UUID

from libs.contracts.events.qa_ingest import QaExtractionCreatedV1, QaExtractionInvalidatedV1

AT_ONCE = 1_000
"""Ids in one event: a document may have very many."""


def came(
    document_id: UUID, workspace_id: UUID, extractor: str, ids: Sequence[UUID], at: datetime
) -> list[QaExtractionCreatedV1]:
    """Extractions that are served from now on, in the order of the file."""
    return [
        QaExtractionCreatedV1(
            document_id=document_id, workspace_id=workspace_id, extractor=extractor, extraction_ids=part, at=at
        )
        for part in _parts(ids)
    ]


def invalidated(
    document_id: UUID, workspace_id: UUID, reason: str, ids: Sequence[UUID], at: datetime
) -> list[QaExtractionInvalidatedV1]:
    """Extractions that are served no more."""
    return [
        QaExtractionInvalidatedV1(
            document_id=document_id, workspace_id=workspace_id, reason=reason, extraction_ids=part, at=at
        )
        for part in _parts(ids)
    ]


def _parts(ids: Sequence[UUID]) -> Iterator[tuple[UUID, ...]]:
    for begin in range(0, len(ids), AT_ONCE):
        yield tuple(ids[begin : begin + AT_ONCE])
