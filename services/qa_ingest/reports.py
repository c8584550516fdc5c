"""The report beside a source, where its bucket is bound with `report: true`: an object `NAME.report.json`.

It is written after the version that it tells of has been committed, and the row says so: whoever dies in between, the
next turn writes it. With the source it goes.
"""

from __future__ import annotations

import json
from uuid import UUID

from libs.contracts.library import IngestReport
from libs.service_kit import logging
from libs.service_kit.connection import session_lock
from libs.service_kit.db import Database
from services.qa_ingest import metrics
from services.qa_ingest.buckets.base import MAX_KEY, REPORT_SUFFIX, Away, Unreadable
from services.qa_ingest.ingest import Bound
from services.qa_ingest.store import documents, operations
from services.qa_ingest.store.documents import Unreported

log = logging.get(__name__)
FORMAT = "burnish.qa.report.v1"
A_TURN = 200
MAX_REPORT_BYTES = 10_000_000


class Reports:
    """Writes what is missing, one replica at a time, so that an older report never comes last."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def write_missing(self, bound: Bound) -> None:
        """Write the reports of versions that have none yet, and take away those of sources that are gone."""
        lock = f"qa.reports.{bound.workspace_id}.{bound.bucket.name}"
        async with self._db.connection() as conn, session_lock(conn, lock, wait=False) as mine:
            if not mine:
                return
            async with self._db.connection(workspaces=[bound.workspace_id]) as reading:
                waiting = await documents.unreported(reading, bound.workspace_id, bound.bucket.name, A_TURN)
            try:
                for each in waiting:
                    await self._settle(bound, each)
            except Away as error:
                log.warning("qa.report.waits", bucket=bound.bucket.name, error=str(error))

    async def _settle(self, bound: Bound, one: Unreported) -> None:
        try:
            outcome = await (self._remove(bound, one.object_key) if one.gone else self._write(bound, one))
        except Unreadable as error:
            outcome = error.code
        async with self._db.transaction() as tx:
            await operations.enter(tx.conn, bound.workspace_id)
            await documents.reported(tx.conn, one.id, gone=one.gone)
        metrics.REPORTS.labels(outcome).inc()
        if outcome not in ("written", "removed"):
            # Somebody's own object has the name, or the name is too long: it is left as it is, and said once.
            log.warning("qa.report.not_written", bucket=bound.bucket.name, reason=outcome)

    async def _write(self, bound: Bound, one: Unreported) -> str:
        async with self._db.connection(workspaces=[bound.workspace_id]) as conn:
            report = await documents.report(conn, one.id)
        key = f"{one.object_key}{REPORT_SUFFIX}"
        if report is None or len(key) > MAX_KEY:
            return "no_room"
        there = await bound.bucket.read(key)
        if there is not None and not _is_ours(there):
            return "taken"
        await bound.bucket.write(key, _rendered(bound.workspace_id, report))
        return "written"

    async def _remove(self, bound: Bound, source: str) -> str:
        key = f"{source}{REPORT_SUFFIX}"
        there = await bound.bucket.read(key)
        if there is not None and not _is_ours(there):
            return "taken"
        await bound.bucket.delete(key)
        return "removed"


def _rendered(workspace_id: UUID, report: IngestReport) -> bytes:
    told = {"format": FORMAT, "workspace_id": str(workspace_id), **report.model_dump(mode="json")}
    return (json.dumps(told, ensure_ascii=False, indent=1) + "\n").encode()


def _is_ours(content: bytes) -> bool:
    if len(content) > MAX_REPORT_BYTES:
        return False
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("format") == FORMAT
