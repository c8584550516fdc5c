"""Tables `baselines` and `eval_regression_events`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import asyncpg

from libs.contracts.evaluations import Variant
from libs.service_kit.db import Connection
from services.ab_runner.domain import Arm, Run
from services.ab_runner.reports import Baseline, Outcome, Regression

_ADD = """
INSERT INTO baselines (baseline_id, touchpoint_id, workspace_id, run_id, variant, content_sha256, suite_sha256,
    metrics, promoted_by, holds_since)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT DO NOTHING
RETURNING true
"""
_HISTORY = """
SELECT baseline_id, touchpoint_id, workspace_id, run_id, variant, content_sha256, suite_sha256, metrics,
       promoted_by, holds_since
FROM baselines WHERE touchpoint_id = $1 AND workspace_id IS NOT DISTINCT FROM $2
ORDER BY holds_since DESC, recorded_at DESC LIMIT $3
"""
_RESULT_OF_TEXT = """
SELECT run_id, suite_sha256, outcome, b_sha256 = $2 AS is_b,
       CASE WHEN b_sha256 = $2 THEN variant_b ELSE variant_a END AS variant
FROM runs
WHERE status = 'completed' AND touchpoint_id = $1 AND (b_sha256 = $2 OR a_sha256 = $2)
ORDER BY (proposal_id = $3) DESC NULLS LAST, finished_at DESC LIMIT 1
"""
_ADD_REGRESSIONS = """
INSERT INTO eval_regression_events
    (run_id, touchpoint_id, workspace_id, baseline_id, version_ref, metric, baseline, value, delta, band, severity)
SELECT $1, $2, $3, $4, $5, *
FROM unnest($6::text[], $7::float8[], $8::float8[], $9::float8[], $10::float8[], $11::text[])
ON CONFLICT DO NOTHING
"""


class ResultOfText(NamedTuple):
    """What a completed run says about a text."""

    run_id: UUID
    suite_sha256: str
    variant: Variant
    metrics: dict[str, float]


async def add(conn: Connection, baseline: Baseline) -> bool:
    """Record a baseline; False when it was recorded before."""
    added = await conn.fetchval(
        _ADD,
        baseline.baseline_id,
        baseline.touchpoint_id,
        baseline.workspace_id,
        baseline.run_id,
        baseline.variant.model_dump(mode="json") if baseline.variant else None,
        baseline.content_sha256,
        baseline.suite_sha256,
        baseline.metrics,
        baseline.promoted_by,
        baseline.holds_since,
    )
    return bool(added)


async def history(conn: Connection, touchpoint_id: str, workspace_id: UUID | None, limit: int = 100) -> list[Baseline]:
    """Baselines, newest first; the first is the one that holds."""
    return [_baseline(row) for row in await conn.fetch(_HISTORY, touchpoint_id, workspace_id, limit)]


async def current(conn: Connection, touchpoint_id: str, workspace_id: UUID | None) -> Baseline | None:
    """The baseline that holds, or None."""
    newest = await history(conn, touchpoint_id, workspace_id, 1)
    return newest[0] if newest and newest[0].run_id is not None else None


async def result_of_text(
    conn: Connection, touchpoint_id: str, content_sha256: str, proposal_id: UUID | None
) -> ResultOfText | None:
    """The completed run in which this text was a variant: that of the proposal, else the newest."""
    row = await conn.fetchrow(_RESULT_OF_TEXT, touchpoint_id, content_sha256, proposal_id)
    if row is None:
        return None
    arm: Arm = "b" if row["is_b"] else "a"
    values = Outcome.model_validate(row["outcome"]).values(arm)
    return ResultOfText(row["run_id"], row["suite_sha256"], Variant.model_validate(row["variant"]), values)


async def add_regressions(conn: Connection, run: Run, regressions: Sequence[Regression]) -> None:
    """Record the metrics that fell, one row each."""
    await conn.execute(
        _ADD_REGRESSIONS,
        run.run_id,
        run.touchpoint_id,
        run.workspace_id,
        run.baseline_id,
        run.variant_b.version_ref,
        [r.metric for r in regressions],
        [r.baseline for r in regressions],
        [r.value for r in regressions],
        [r.delta for r in regressions],
        [r.band for r in regressions],
        [r.severity for r in regressions],
    )


def _baseline(row: asyncpg.Record) -> Baseline:
    variant = None if row["variant"] is None else Variant.model_validate(row["variant"])
    return Baseline(**{**row, "variant": variant})
