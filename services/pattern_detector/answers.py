"""What the pattern detector answers: lists of patterns, one pattern, and how far it is."""

from __future__ import annotations

from datetime import UTC

from libs.contracts.queries.pattern_detector import (
    DetectorStatus,
    GetDetectorStatus,
    GetPattern,
    ListPatterns,
    PatternReply,
    Patterns,
)
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from services.pattern_detector.store import patterns, runs


async def answer_list_patterns(query: ListPatterns, db: Database) -> Patterns:
    """The top patterns, highest score first. A `since` without a zone is taken as UTC."""
    since = query.since if query.since is None or query.since.tzinfo else query.since.replace(tzinfo=UTC)
    async with db.connection(workspaces=query.workspace_ids) as conn:
        found = await patterns.top(
            conn,
            touchpoint_id=query.touchpoint_id,
            since=since,
            include_resolved=query.include_resolved,
            limit=query.limit,
        )
    return Patterns(patterns=tuple(found))


async def answer_get_pattern(query: GetPattern, db: Database) -> PatternReply:
    """One pattern with its evidence. Refused with 404 when there is none, or it has not surfaced."""
    async with db.connection() as conn:
        found = await patterns.detail(conn, query.pattern_id)
    if found is None:
        raise Refused("not_found", f"there is no pattern {query.pattern_id}", status=404)
    return PatternReply(pattern=found)


async def answer_get_detector_status(query: GetDetectorStatus, db: Database) -> DetectorStatus:
    """How far the detector is."""
    all_of_them = query.workspace_ids is None
    async with db.connection(workspaces=query.workspace_ids) as conn:
        return await runs.status(conn, query.touchpoint_id, every_workspace=all_of_them)
