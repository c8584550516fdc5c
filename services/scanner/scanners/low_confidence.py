"""LowConfidenceScanner: content that was classified with little confidence (`content_items`)."""

from __future__ import annotations

from decimal import Decimal
from typing import ClassVar

import asyncpg
from pydantic import Field

from libs.contracts.vocabulary import Name, Scope, SignalType
from libs.service_kit.db import Connection
from services.scanner.domain import Finding, Watermark, severity_of_confidence
from services.scanner.scanners.base import SignalSource, SourceOptions, after

_SCAN = """
SELECT id, updated_at, workspace_id, content_type, body, classification, classification_confidence, version_ref
FROM {items}
WHERE classification_confidence < $4 AND (updated_at, id) > ($1, $2)
  AND ($5::text[] IS NULL OR content_type = ANY ($5::text[])) AND {fits}
ORDER BY updated_at, id LIMIT $3
"""


class LowConfidenceOptions(SourceOptions):
    """Which items count as doubtful."""

    threshold: float = Field(default=0.5, gt=0.0, le=1.0, description="below this confidence")
    content_types: tuple[Name, ...] | None = Field(default=None, min_length=1, description="only these; default all")


class LowConfidenceScanner(SignalSource[LowConfidenceOptions]):
    """One item is one signal of the machine that doubted."""

    name: ClassVar[str] = "low_confidence"
    signal_type: ClassVar[SignalType] = "low_confidence"
    table: ClassVar[str] = "content_items"
    options_model: ClassVar[type[SourceOptions]] = LowConfidenceOptions

    async def scan(self, conn: Connection, scope: Scope, since: Watermark, limit: int) -> list[Finding]:
        """Items below the threshold after `since`."""
        sql = _SCAN.format(items=self.relation(self.table), fits=self.fits("workspace_id", scope))
        threshold, types = Decimal(str(self.options.threshold)), self.options.content_types
        rows = await conn.fetch(sql, *after(since), limit, threshold, None if types is None else list(types))
        return [self._finding(row, scope) for row in rows]

    def _finding(self, row: asyncpg.Record, scope: Scope) -> Finding:
        confidence = float(row["classification_confidence"])
        return Finding(
            table=self.table,
            row_id=str(row["id"]),
            changed_at=row["updated_at"],
            signal_type=self.signal_type,
            severity=severity_of_confidence(confidence, self.options.threshold),
            actor_id=f"scanner:{self.name}",
            actor_kind="machine",
            workspace_id=self.workspace(row, scope),
            version_ref=row["version_ref"],
            payload={
                "text": row["body"],
                "got": row["classification"],
                "confidence": confidence,
                "content_type": row["content_type"],
            },
        )
