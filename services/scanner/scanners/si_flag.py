"""SiFlagScanner: what users flagged and nobody has resolved yet (`feed_flags`, with its `feed_articles` row)."""

from __future__ import annotations

from typing import ClassVar

import asyncpg

from libs.contracts.vocabulary import Scope, SignalType
from libs.service_kit.db import Connection
from services.scanner.domain import Finding, Watermark, severity_of_flag
from services.scanner.scanners.base import SignalSource, SourceOptions, after

_SCAN = """
SELECT f.id, f.updated_at, f.workspace_id, f.flagged_by, f.category, f.reason, f.expected,
       a.body, a.label, a.label_confidence, a.version_ref
FROM {flags} AS f LEFT JOIN {articles} AS a ON a.id = f.article_id
WHERE f.resolved_at IS NULL AND (f.updated_at, f.id) > ($1, $2) AND {fits}
ORDER BY f.updated_at, f.id LIMIT $3
"""


class SiFlagScanner(SignalSource[SourceOptions]):
    """One flag is one signal of the person who raised it; changed again, it is seen again."""

    name: ClassVar[str] = "si_flag"
    signal_type: ClassVar[SignalType] = "flag"
    table: ClassVar[str] = "feed_flags"
    options_model: ClassVar[type[SourceOptions]] = SourceOptions

    async def scan(self, conn: Connection, scope: Scope, since: Watermark, limit: int) -> list[Finding]:
        """Unresolved flags after `since`."""
        sql = _SCAN.format(
            flags=self.relation(self.table),
            articles=self.relation("feed_articles"),
            fits=self.fits("f.workspace_id", scope),
        )
        return [self._finding(row, scope) for row in await conn.fetch(sql, *after(since), limit)]

    def _finding(self, row: asyncpg.Record, scope: Scope) -> Finding:
        confidence = row["label_confidence"]
        return Finding(
            table=self.table,
            row_id=str(row["id"]),
            changed_at=row["updated_at"],
            signal_type=self.signal_type,
            severity=severity_of_flag(row["category"], row["expected"]),
            actor_id=row["flagged_by"],
            actor_kind="human",
            workspace_id=self.workspace(row, scope),
            version_ref=row["version_ref"],
            payload={
                "text": row["body"],
                "reason": row["reason"],
                "category": row["category"],
                "expected": row["expected"],
                "got": row["label"],
                "confidence": None if confidence is None else float(confidence),
            },
        )
