"""Pairs of an older platform, written with their own ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from libs.contracts.library import LegacyPair
from libs.service_kit.connection import Connection

_COLUMNS = (
    "id, workspace_id, question_text, answer_standard, answer_advanced, origin_kind, ingest_source, sources,"
    " alternate_question_phrasings, variant_details, provenance, confidence, version, sensitive, anti_scope_tag,"
    " primary_domain, primary_subtopic, secondary_domain, secondary_subtopic, classification_confidence, scope_tag,"
    " valid_from, valid_to, publication_status, superseded_by, layer, verified_at, verified_by,"
    " governance_review_status, governance_review_due, governance_reviewer, next_review_date, review_cadence_days,"
    " metadata, created_at, updated_at, created_by, updated_by, archived_at, archived_by, archive_reason"
)
_ADD = f"""
INSERT INTO q_a_pairs ({_COLUMNS})
SELECT {_COLUMNS} FROM jsonb_populate_recordset(NULL::q_a_pairs, $1)
ON CONFLICT (id) DO NOTHING RETURNING id
"""  # noqa: S608  # a constant
_KNOWN = "SELECT id FROM q_a_pairs WHERE id = ANY($1::uuid[])"
_SAME = (
    *("answer_standard", "answer_advanced", "sources", "primary_domain", "primary_subtopic", "secondary_domain"),
    *("secondary_subtopic", "classification_confidence", "valid_to", "publication_status", "superseded_by", "layer"),
    *("verified_at", "verified_by", "governance_review_status", "governance_review_due", "governance_reviewer"),
    *("next_review_date", "review_cadence_days", "metadata", "created_at", "archived_at", "archived_by"),
    "archive_reason",
)


async def workspaces(conn: Connection) -> set[UUID]:
    """The workspaces that the connection sees and that are there."""
    return {row["id"] for row in await conn.fetch("SELECT id FROM workspaces")}


async def known(conn: Connection, ids: Sequence[UUID]) -> set[UUID]:
    """Which of these pairs are in the workspaces that the connection sees."""
    return {row["id"] for row in await conn.fetch(_KNOWN, list(ids))}


async def add(conn: Connection, pairs: Sequence[LegacyPair], by: str) -> set[UUID]:
    """Write them in this order; the ids of those that were not there, in whatever workspace."""
    rows = [_row(pair, by) for pair in pairs]
    return {row["id"] for row in await conn.fetch(_ADD, rows)} if rows else set()


def _row(pair: LegacyPair, by: str) -> dict[str, Any]:
    said = pair.model_dump(mode="json")
    return {
        "id": said["id"],
        "workspace_id": said["workspace_id"],
        "question_text": pair.question,
        "origin_kind": "imported_legacy",
        "ingest_source": pair.ingest_source or "qa_import_legacy",
        "alternate_question_phrasings": [],
        "variant_details": {},
        "provenance": "EXTRACTED",
        "confidence": 1.0,
        "version": 1,
        "sensitive": False,
        "scope_tag": said["scope_tags"],
        "anti_scope_tag": [],
        "valid_from": said["created_at"],
        "updated_at": said["created_at"],
        "created_by": pair.created_by or by,
        "updated_by": pair.updated_by or pair.created_by or by,
        **{name: said[name] for name in _SAME},
    }
