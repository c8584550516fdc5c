"""Tables `baselines` and `eval_regression_events`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import NamedTuple
from uuid import UUID

import asyncpg

from libs.contracts.evaluations import Variant
from libs.service_kit.db import Connection
from libs.service_kit.records import Columns
from services.ab_runner.domain import Arm, Run
from services.ab_runner.reports import Baseline, Outcome, Regression

_COLUMNS = Columns(
    """
    baseline_id uuid, touchpoint_id text, workspace_id uuid, run_id uuid, variant jsonb, content_sha256 text,
    suite_sha256 text, metrics jsonb, promoted_by text, holds_since timestamptz
    """
)
_ADD = f"{_COLUMNS.insert_into('baselines')} ON CONFLICT DO NOTHING RETURNING true"
_HISTORY = f"""
SELECT {_COLUMNS.names} FROM baselines WHERE touchpoint_id = $1 AND workspace_id IS NOT DISTINCT FROM $2
ORDER BY holds_since DESC, recorded_at DESC LIMIT $3
"""  # noqa: S608
_RESULT_OF_TEXT = """
SELECT run_id, suite_sha256, outcome, b_sha256 = $2 AS is_b,
       CASE WHEN b_sha256 = $2 THEN variant_b ELSE variant_a END AS variant
FROM runs
WHERE status = 'completed' AND touchpoint_id = $1 AND (b_sha256 = $2 OR a_sha256 = $2)
ORDER BY (proposal_id = $3) DESC NULLS LAST, finished_at DESC LIMIT 1
"""
_REGRESSION = Columns(
    """
    run_id uuid, touchpoint_id text, workspace_id uuid, baseline_id uuid, version_ref text, metric text,
    baseline float8, value float8, delta float8, band float8, severity text
    """
)
_ADD_REGRESSIONS = f"{_REGRESSION.insert_into('eval_regression_events')} ON CONFLICT DO NOTHING"


class ResultOfText(NamedTuple):
    """What a completed run says about a text."""

    run_id: UUID
    suite_sha256: str
    variant: Variant
    metrics: dict[str, float]


async def add(conn: Connection, baseline: Baseline) -> bool:
    """Record a baseline; False when it was recorded before."""
    variant = baseline.variant.model_dump(mode="json") if baseline.variant else None
    added = await conn.fetchval(_ADD, [{**asdict(baseline), "variant": variant}])
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
    of_run = {
        "run_id": run.run_id,
        "touchpoint_id": run.touchpoint_id,
        "workspace_id": run.workspace_id,
        "baseline_id": run.baseline_id,
        "version_ref": run.variant_b.version_ref,
    }
    await conn.execute(_ADD_REGRESSIONS, [{**of_run, **asdict(regression)} for regression in regressions])


def _baseline(row: asyncpg.Record) -> Baseline:
    variant = None if row["variant"] is None else Variant.model_validate(row["variant"])
    return Baseline(**{**row, "variant": variant})
