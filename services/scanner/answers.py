"""What the scanner answers: its runs, and whether evidence still exists where it was found."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

from libs.contracts.queries.scanner import EvidenceStates, ListScanRuns, ResolveEvidence, ScanRuns
from libs.contracts.signals import EvidenceRef
from libs.service_kit import logging
from libs.service_kit.db import Database
from services.scanner import store
from services.scanner.domain import Source
from services.scanner.platform import Platform, PlatformError
from services.scanner.scanners import SCANNERS, BadOptions, scanner_for

log = logging.get(__name__)

RESOLVED, UNRESOLVABLE, UNKNOWN = "resolved", "unresolvable", "unknown"


async def answer_runs(query: ListScanRuns, db: Database) -> ScanRuns:
    """The newest runs."""
    async with db.connection() as conn:
        return ScanRuns(runs=tuple(await store.runs(conn, query)))


async def answer_resolve(query: ResolveEvidence, db: Database, platform: Platform, timeout_s: float) -> EvidenceStates:
    """Look up each reference where it was found.

    What no scanner reads (pushed signals, evaluations) resolves to itself. Where the platform does not answer
    within `timeout_s`, or the touchpoint no longer has the scanner, the state is unknown, which counts against nobody.
    """
    asked: dict[str, set[UUID]] = defaultdict(set)
    tables = {scanner.table for scanner in SCANNERS.values()}
    for ref in query.refs:
        if ref.source in tables and (row_id := _uuid(ref.id)):
            asked[ref.source].add(row_id)
    async with db.connection() as conn:
        sources = await store.sources(conn, query.touchpoint_id)
    look_ups = (_existing(sources, table, ids, platform, timeout_s) for table, ids in asked.items())
    looked_up = dict(zip(asked, await asyncio.gather(*look_ups), strict=True))
    return EvidenceStates(states=tuple(_state(ref, tables, looked_up) for ref in query.refs))


def _state(ref: EvidenceRef, tables: set[str], looked_up: dict[str, tuple[set[UUID], bool]]) -> str:
    if ref.source not in tables:
        return RESOLVED
    row_id = _uuid(ref.id)
    if row_id is None:
        return UNRESOLVABLE
    there, certain = looked_up[ref.source]
    if row_id in there:
        return RESOLVED
    return UNRESOLVABLE if certain else UNKNOWN


async def _existing(
    sources: Sequence[Source], table: str, row_ids: set[UUID], platform: Platform, timeout_s: float
) -> tuple[set[UUID], bool]:
    """The rows found in any of the touchpoint's sources of this table, and whether every one of them answered."""
    there: set[UUID] = set()
    answered = []
    for source in sources:
        if source.scanner not in SCANNERS or SCANNERS[source.scanner].table != table:
            continue
        try:
            scanner = scanner_for(source.scanner, source.options)
            async with asyncio.timeout(timeout_s), platform.connection(scanner.options.dsn_env) as conn:
                there |= await scanner.existing(conn, list(row_ids))
            answered.append(True)
        except (PlatformError, BadOptions, TimeoutError) as error:
            log.warning("evidence.unknown", touchpoint=source.touchpoint_id, error=type(error).__name__)
            answered.append(False)
    return there, bool(answered) and all(answered)


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text or "")
    except ValueError:
        return None
