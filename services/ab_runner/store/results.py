"""Table `results`: every answer that was paid for, under all that it depends on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import sha256

import asyncpg

from libs.service_kit.db import Connection
from services.ab_runner.domain import Run
from services.ab_runner.store.runs import Work
from services.ab_runner.tasks import Answer, Question
from services.ab_runner.verdicts import PairedCase

_LOCK = "SELECT pg_advisory_lock(hashtextextended($1, 0))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtextextended($1, 0))"
_MISSING = """
SELECT DISTINCT c.input_sha256, c.input AS text FROM cases c
WHERE c.suite_sha256 = $1 AND c.case_id = ANY($2::text[]) AND NOT EXISTS (
    SELECT FROM results r
    WHERE r.prompt_sha256 = $3 AND r.model = $4 AND r.params_sha256 = $5 AND r.repeat = 0
      AND r.input_sha256 = c.input_sha256)
"""
_SAVE = """
INSERT INTO results (prompt_sha256, model, params_sha256, input_sha256, output, usd, latency_ms)
SELECT $1, $2, $3, * FROM unnest($4::text[], $5::text[], $6::numeric[], $7::real[])
ON CONFLICT DO NOTHING
"""
_PAIRS = """
WITH chosen AS (
    SELECT a.case_id, a.prompt_sha256 AS prompt_a, b.prompt_sha256 AS prompt_b
    FROM (SELECT prompt_sha256, unnest(case_ids) AS case_id FROM shards WHERE run_id = $1 AND variant = 'a') AS a,
         (SELECT DISTINCT prompt_sha256 FROM shards WHERE run_id = $1 AND variant = 'b') AS b
)
SELECT c.case_id, c.expected, ra.output AS got_a, rb.output AS got_b, c.cluster
FROM chosen
JOIN cases c ON c.suite_sha256 = $2 AND c.case_id = chosen.case_id
JOIN results ra ON ra.prompt_sha256 = prompt_a AND ra.model = $3 AND ra.params_sha256 = $4 AND ra.repeat = 0
    AND ra.input_sha256 = c.input_sha256
JOIN results rb ON rb.prompt_sha256 = prompt_b AND rb.model = $3 AND rb.params_sha256 = $4 AND rb.repeat = 0
    AND rb.input_sha256 = c.input_sha256
"""


@asynccontextmanager
async def one_at_a_time(conn: Connection, work: Work) -> AsyncIterator[None]:
    """Nobody else answers the same prompt for the same cases meanwhile, in this process or another one.

    Two runs with one variant in common, begun together, would otherwise both pay for it. A session lock: it ends
    with the connection, so a killed process leaves none behind.
    """
    cases = sha256("\n".join(work.case_ids).encode()).hexdigest()
    key = f"answers|{work.prompt_sha256}|{work.model}|{work.params_sha256}|{work.suite_sha256}|{cases}"
    await conn.execute(_LOCK, key)
    try:
        yield
    finally:
        with suppress(asyncpg.InterfaceError):  # the connection is gone, and the lock with it
            await conn.execute(_UNLOCK, key)


async def missing(conn: Connection, work: Work) -> list[Question]:
    """The inputs of a shard that its prompt has no answer for, each once."""
    rows = await conn.fetch(
        _MISSING, work.suite_sha256, work.case_ids, work.prompt_sha256, work.model, work.params_sha256
    )
    return [Question(**row) for row in rows]


async def save(conn: Connection, work: Work, answers: Sequence[Answer]) -> None:
    """Keep answers, in one statement. One that is there already stays."""
    await conn.execute(
        _SAVE,
        work.prompt_sha256,
        work.model,
        work.params_sha256,
        [answer.input_sha256 for answer in answers],
        [answer.output for answer in answers],
        [answer.usd for answer in answers],
        [answer.latency_ms for answer in answers],
    )


async def pairs(conn: Connection, run: Run) -> list[PairedCase]:
    """Every case of a run with both answers. Raises RuntimeError when some are missing: a run is never judged on less
    than was asked for."""
    rows = await conn.fetch(_PAIRS, run.run_id, run.suite_sha256, run.model, run.params_sha256)
    if len(rows) != run.cases:
        raise RuntimeError(f"run {run.run_id} has {len(rows)} of {run.cases} cases answered by both variants")
    return [PairedCase(**row) for row in rows]
