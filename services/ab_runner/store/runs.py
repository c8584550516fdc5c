"""Tables `runs` and `shards`: what was asked, how far it is, what it came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg

from libs.contracts.evaluations import AbReport, Variant
from libs.contracts.queries.ab_runner import ListRuns
from libs.contracts.touchpoints import ModelSettings, SuiteSettings
from libs.service_kit.db import Connection
from libs.service_kit.records import Columns
from services.ab_runner.domain import Run, Shard
from services.ab_runner.progress import Progress
from services.ab_runner.reports import Outcome

_COLUMNS = Columns(
    """
    run_id uuid, kind text, touchpoint_id text, workspace_id uuid, proposal_id uuid, baseline_id uuid, variant_a jsonb,
    variant_b jsonb, a_sha256 text, b_sha256 text, suite_sha256 text, split text, cases int, suite_settings jsonb,
    model_settings jsonb, model text, params_sha256 text, requested_by text, requested_at timestamptz, status text,
    error text
    """
)
_ADD = f"""
{_COLUMNS.insert_into("runs", finished_at="CASE status WHEN 'failed' THEN clock_timestamp() END")}
ON CONFLICT DO NOTHING
RETURNING coalesce(finished_at, requested_at)
"""
_ADD_SHARDS = """
INSERT INTO shards (run_id, shard, variant, prompt_sha256, case_ids)
SELECT $1, shard, variant, CASE variant WHEN 'a' THEN $2 ELSE $3 END, ARRAY(SELECT jsonb_array_elements_text(case_ids))
FROM jsonb_to_recordset($4) AS dealt (shard int, variant text, case_ids jsonb)
"""
_WORK = """
SELECT s.shard, s.variant, s.prompt_sha256, s.case_ids, r.run_id, r.touchpoint_id, r.suite_sha256, r.model,
       r.params_sha256, r.model_settings, CASE s.variant WHEN 'a' THEN r.variant_a ELSE r.variant_b END AS prompt,
       r.status = 'running' AND s.done_at IS NULL AS open
FROM shards s JOIN runs r USING (run_id) WHERE s.run_id = $1 AND s.shard = $2
"""
_TAKE_UP = """
UPDATE shards SET begun_at = coalesce(begun_at, clock_timestamp()), taken_up_at = clock_timestamp()
WHERE run_id = $1 AND shard = $2 AND done_at IS NULL
"""
_COUNT = """
UPDATE shards SET answered = least(answered + $3, cardinality(case_ids)), model_calls = model_calls + $3, usd = usd + $4
WHERE run_id = $1 AND shard = $2
"""
_LOCK = "SELECT true FROM runs WHERE run_id = $1 AND status = 'running' FOR UPDATE"
_RUN = "SELECT * FROM runs WHERE run_id = $1"
_SHARD_DONE = """
UPDATE shards SET done_at = now(), answered = cardinality(case_ids)
WHERE run_id = $1 AND shard = $2 AND done_at IS NULL
RETURNING cardinality(case_ids) AS answers, model_calls, usd
"""
_OPEN = "SELECT EXISTS (SELECT FROM shards WHERE run_id = $1 AND done_at IS NULL)"
_COMPLETE = """
UPDATE runs SET status = 'completed', outcome = $2, finished_at = clock_timestamp() WHERE run_id = $1
RETURNING finished_at
"""
_FAIL = """
UPDATE runs SET status = 'failed', error = $2, finished_at = clock_timestamp() WHERE run_id = $1
RETURNING finished_at
"""
_KNOWN = "SELECT run_id FROM runs WHERE run_id = ANY($1::uuid[])"
_RUNNING = """
SELECT r.run_id, s.dealt_at, s.waits, s.open_shards, s.shards,
       greatest(
           s.moved_at,
           (SELECT max(finished_at) FROM runs AS older
            WHERE s.waits AND older.status = 'completed' AND older.requested_at <= r.requested_at),
           (SELECT max(answered_at) FROM results
            WHERE prompt_sha256 = ANY(s.prompts) AND model = r.model AND params_sha256 = r.params_sha256)
       ) AS moved_at,
       EXISTS (SELECT FROM shards AS later WHERE later.dealt_at > s.dealt_at AND later.begun_at < now() - $1::interval)
           AS passed_over
FROM runs r CROSS JOIN LATERAL (
    SELECT max(dealt_at) AS dealt_at, coalesce(bool_or(begun_at IS NULL AND done_at IS NULL), false) AS waits,
           greatest(max(dealt_at), max(taken_up_at), max(done_at)) AS moved_at, count(*)::int AS shards,
           array_agg(DISTINCT prompt_sha256) AS prompts,
           coalesce(array_agg(shard ORDER BY shard) FILTER (WHERE done_at IS NULL), '{}') AS open_shards
    FROM shards WHERE shards.run_id = r.run_id
) AS s
WHERE r.status = 'running' AND s.shards > 0
"""
_REPORT = """
SELECT r.run_id, r.kind, r.touchpoint_id, r.workspace_id, r.proposal_id, r.variant_a->>'label' AS label_a,
       r.variant_b->>'label' AS label_b, r.a_sha256, r.b_sha256, r.suite_sha256, r.split, r.requested_by,
       r.requested_at, r.finished_at, r.error, {outcome} AS outcome,
       CASE WHEN r.status = 'running' AND s.done = 0 THEN 'queued' ELSE r.status END AS status,
       s.total AS cases_total, s.done AS cases_done, s.model_calls, s.cache_hits, s.usd
FROM runs r CROSS JOIN LATERAL (
    SELECT coalesce(sum(cardinality(case_ids)), 0) AS total, coalesce(sum(answered), 0) AS done,
           coalesce(sum(model_calls), 0) AS model_calls, coalesce(sum(usd), 0) AS usd,
           coalesce(sum(cardinality(case_ids) - model_calls) FILTER (WHERE done_at IS NOT NULL), 0) AS cache_hits
    FROM shards WHERE shards.run_id = r.run_id
) AS s
"""
_GET = _REPORT.format(outcome="r.outcome") + "WHERE r.run_id = $1"
_LIST = _REPORT.format(outcome="r.outcome - '{flips,labels}'::text[]") + (
    "WHERE ($1::text IS NULL OR r.touchpoint_id = $1) AND ($2::uuid IS NULL OR r.proposal_id = $2) "
    "ORDER BY r.requested_at DESC, r.run_id LIMIT $3"
)


@dataclass(frozen=True, slots=True)
class Work:
    """A shard with what is needed to do it. `open` is False when it is done or its run is over."""

    run_id: UUID
    touchpoint_id: str
    shard: int
    open: bool
    variant: str
    prompt: Variant
    prompt_sha256: str
    case_ids: list[str]
    suite_sha256: str
    model: str
    params_sha256: str
    model_settings: ModelSettings


class Done(NamedTuple):
    """What a shard came to when it was marked done."""

    answers: int
    model_calls: int
    usd: Decimal


async def add(
    conn: Connection,
    run: Run,
    shards: Sequence[Shard] = (),
    prompts: tuple[str, str] = ("", ""),
    error: str | None = None,
) -> datetime | None:
    """Record a run with its shards, or one that failed before it began. `prompts` are the hashes of A's and B's
    texts as they are sent. Returns when it was asked for (or failed); None when the run was there already."""
    record = {
        "run_id": run.run_id,
        "kind": run.kind,
        "touchpoint_id": run.touchpoint_id,
        "workspace_id": run.workspace_id,
        "proposal_id": run.variant_b.proposal_id,
        "baseline_id": run.baseline_id,
        "variant_a": run.variant_a.model_dump(mode="json"),
        "variant_b": run.variant_b.model_dump(mode="json"),
        "a_sha256": run.variant_a.content_sha256,
        "b_sha256": run.variant_b.content_sha256,
        "suite_sha256": run.suite_sha256,
        "split": run.split,
        "cases": run.cases,
        "suite_settings": run.suite.model_dump(mode="json"),
        "model_settings": run.model_settings.model_dump(mode="json"),
        "model": run.model,
        "params_sha256": run.params_sha256,
        "requested_by": run.requested_by,
        "requested_at": run.requested_at,
        "status": "running" if error is None else "failed",
        "error": error,
    }
    at: datetime | None = await conn.fetchval(_ADD, [record])
    if at is not None and shards:
        await conn.execute(
            _ADD_SHARDS,
            run.run_id,
            *prompts,
            [asdict(shard) for shard in shards],
        )
    return at


async def work(conn: Connection, run_id: UUID, shard: int) -> Work | None:
    """Take a shard up: the shard and what it needs; None when there is no such shard."""
    await conn.execute(_TAKE_UP, run_id, shard)
    row = await conn.fetchrow(_WORK, run_id, shard)
    if row is None:
        return None
    prompt, settings = Variant.model_validate(row["prompt"]), ModelSettings.model_validate(row["model_settings"])
    return Work(**{**row, "prompt": prompt, "model_settings": settings})


async def count(conn: Connection, run_id: UUID, shard: int, calls: int, usd: Decimal) -> None:
    """So many answers of a shard were bought."""
    await conn.execute(_COUNT, run_id, shard, calls, usd)


async def lock(conn: Connection, run_id: UUID) -> bool:
    """Lock the run until the transaction ends; False when it is over or there is none."""
    return bool(await conn.fetchval(_LOCK, run_id))


async def get(conn: Connection, run_id: UUID) -> Run:
    """A run with its texts. Raises LookupError when there is none."""
    row = await conn.fetchrow(_RUN, run_id)
    if row is None:
        raise LookupError(f"there is no run {run_id}")
    return _run(row)


async def finish_shard(conn: Connection, run_id: UUID, shard: int) -> Done | None:
    """Mark a shard done; None when it was already. Lock the run first."""
    row = await conn.fetchrow(_SHARD_DONE, run_id, shard)
    return None if row is None else Done(row["answers"], row["model_calls"], row["usd"])


async def has_open_shards(conn: Connection, run_id: UUID) -> bool:
    """Whether work is left. Only under the run's lock does the answer stay true."""
    return bool(await conn.fetchval(_OPEN, run_id))


async def complete(conn: Connection, run_id: UUID, outcome: Outcome) -> datetime:
    """Store what the run came to; returns when."""
    at: datetime = await conn.fetchval(_COMPLETE, run_id, outcome.model_dump(mode="json"))
    return at


async def fail(conn: Connection, run_id: UUID, reason: str) -> datetime:
    """Store why the run could not be carried out; returns when."""
    at: datetime = await conn.fetchval(_FAIL, run_id, reason)
    return at


async def running(conn: Connection, patience: timedelta) -> list[Progress]:
    """The runs that are on, and how each moves."""
    rows = await conn.fetch(_RUNNING, patience)
    return [Progress(**{**row, "open_shards": tuple(row["open_shards"])}) for row in rows]


async def known(conn: Connection, run_ids: Sequence[UUID]) -> set[UUID]:
    """Which of these runs are recorded."""
    return {row["run_id"] for row in await conn.fetch(_KNOWN, run_ids)}


async def report(conn: Connection, run_id: UUID) -> AbReport | None:
    """A run as it is shown, also while it is on."""
    row = await conn.fetchrow(_GET, run_id)
    return None if row is None else _report(row)


async def reports(conn: Connection, query: ListRuns) -> list[AbReport]:
    """Runs, newest first, without ids of flips and without figures by label."""
    rows = await conn.fetch(_LIST, query.touchpoint_id, query.proposal_id, query.limit)
    return [_report(row) for row in rows]


def _report(row: asyncpg.Record) -> AbReport:
    fields: dict[str, Any] = dict(row)
    outcome = fields.pop("outcome") or {}
    return AbReport.model_validate({**fields, **outcome})


def _run(row: asyncpg.Record) -> Run:
    return Run(
        run_id=row["run_id"],
        kind=row["kind"],
        touchpoint_id=row["touchpoint_id"],
        workspace_id=row["workspace_id"],
        variant_a=Variant.model_validate(row["variant_a"]),
        variant_b=Variant.model_validate(row["variant_b"]),
        split=row["split"],
        requested_by=row["requested_by"],
        requested_at=row["requested_at"],
        baseline_id=row["baseline_id"],
        suite=SuiteSettings.model_validate(row["suite_settings"]),
        model_settings=ModelSettings.model_validate(row["model_settings"]),
        suite_sha256=row["suite_sha256"],
        cases=row["cases"],
        model=row["model"],
        params_sha256=row["params_sha256"],
    )
