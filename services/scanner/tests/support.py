"""Builders for the scanner's tests, and the platform's tables of the example to scan."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from libs import touchpoints
from libs.contracts.envelope import Event
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.queries.scanner import ListScanRuns, ScanRun
from libs.contracts.touchpoints import SignalSource, Storage, Touchpoint
from libs.contracts.vocabulary import Scope
from libs.service_kit.db import Database
from libs.service_kit.testing import event_of
from services.scanner import answers, handlers
from services.scanner.platform import Platform
from services.scanner.runner import Runner
from services.scanner.settings import Settings

PLATFORM_SQL = Path(__file__).parents[3] / "examples" / "support_desk" / "platform.sql"
MORE_TABLES = """
"""
"""Tables of the schema `platform` that scanners read and the example does not have: put yours here."""
WORKSPACE = UUID("6b8e1c52-7a5c-4d5e-9a90-3c0e6a6e2f11")
LONG_AGO = datetime(2025, 6, 1, 12, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return LONG_AGO + timedelta(minutes=minutes)


def source(scanner: str = "si_flag", every_s: float = 60.0, **options: Any) -> dict[str, Any]:
    return {"scanner": scanner, "every_s": every_s, "options": options}


def touchpoint(*sources: dict[str, Any], scope: Scope = "global", active: bool = True) -> Touchpoint:
    return Touchpoint(
        id="support.intent",
        scope=scope,
        active=active,
        storage=Storage(adapter="feed_prompts", initial_text="x"),
        signals=tuple(SignalSource(**one) for one in sources or (source(),)),
    )


def registered(
    *sources: dict[str, Any], scope: Scope = "global", revision: int = 1, active: bool = True
) -> Event[TouchpointRegisteredV1]:
    one = touchpoint(*sources, scope=scope, active=active)
    return event_of(TouchpointRegisteredV1(touchpoint=one, revision=revision, registered_by="admin"))


class PlatformTables:
    """The platform as its own application sees it: it writes, the scanner reads."""

    def __init__(self, conn: asyncpg.Connection[asyncpg.Record]) -> None:
        self.conn = conn

    async def flag(
        self,
        minutes: float = 0,
        *,
        workspace_id: UUID | None = None,
        body: str = "where is my refund",
        reason: str = "this is about a refund",
        expected: str | None = "refund_status",
        category: str = "wrong_label",
        flagged_by: str = "user-1",
        version_ref: str | None = "git:abc",
        changed_at: datetime | None = None,
    ) -> UUID:
        article, flag = uuid4(), uuid4()
        await self.conn.execute(
            "INSERT INTO platform.feed_articles (id, workspace_id, body, label, label_confidence, version_ref)"
            " VALUES ($1, $2, $3, 'card_charge', 0.41, $4)",
            article,
            workspace_id,
            body,
            version_ref,
        )
        await self.conn.execute(
            "INSERT INTO platform.feed_flags"
            " (id, article_id, workspace_id, flagged_by, category, reason, expected, updated_at)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            flag,
            article,
            workspace_id,
            flagged_by,
            category,
            reason,
            expected,
            changed_at or at(minutes),
        )
        return flag

    async def items(self, *confidences: float | None, content_type: str = "ticket") -> list[UUID]:
        ids = [uuid4() for _ in confidences]
        await self.conn.executemany(
            "INSERT INTO platform.content_items"
            " (id, content_type, body, classification, classification_confidence, updated_at)"
            " VALUES ($1, $2, 'hm', 'other', $3, $4)",
            [(one, content_type, c, at(n)) for n, (one, c) in enumerate(zip(ids, confidences, strict=True))],
        )
        return ids

    async def many_flags(self, count: int, changed_at: datetime) -> None:
        article = uuid4()
        await self.conn.execute("INSERT INTO platform.feed_articles (id, body) VALUES ($1, 'the same')", article)
        await self.conn.execute(
            "INSERT INTO platform.feed_flags (article_id, flagged_by, category, reason, updated_at)"
            " SELECT $1, 'user-' || n, 'other', 'r', $3 FROM generate_series(1, $2::int) AS n",
            article,
            count,
            changed_at,
        )


@dataclass
class Scanning:
    """A runner with what it works on."""

    db: Database
    platform: Platform
    settings: Settings
    runner: Runner

    def another(self, **changes: Any) -> Scanning:
        """A second replica, with other settings where given."""
        settings = self.settings.model_copy(update=changes)
        return Scanning(self.db, self.platform, settings, Runner(self.db, self.platform, settings))

    async def register(self, *events: Event[TouchpointRegisteredV1]) -> None:
        await touchpoints.on_registered(list(events), self.db, handlers.keep_sources)

    async def scan(self) -> list[ScanRun]:
        """Run every source now, and return the runs this made."""
        async with self.db.connection() as conn:
            await conn.execute("UPDATE sources SET next_run_at = now() WHERE enabled")
        before = {run.run_id for run in await self.runs()}
        await self.runner.tick()
        await self.runner.idle()
        return [run for run in await self.runs() if run.run_id not in before]

    async def runs(self) -> list[ScanRun]:
        return list((await answers.answer_runs(ListScanRuns(limit=500), self.db)).runs)
