"""Table `results`: every answer that was paid for, under all that it depends on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256

from libs.service_kit.connection import session_lock
from libs.service_kit.db import Connection
from services.ab_runner.domain import ARMS, Run
from services.ab_runner.store.runs import Work
from services.ab_runner.tasks import Answer, Question
from services.ab_runner.verdicts import PairedCase

_INPUTS = "SELECT input_sha256, input FROM cases WHERE suite_sha256 = $1 AND case_id = ANY($2::text[])"
_ANSWERS = """
SELECT input_sha256, output FROM results
WHERE prompt_sha256 = $1 AND model = $2 AND params_sha256 = $3 AND repeat = 0 AND input_sha256 = ANY($4::text[])
"""
_SAVE = """
INSERT INTO results (prompt_sha256, model, params_sha256, input_sha256, output, usd, latency_ms)
SELECT $1, $2, $3, * FROM unnest($4::text[], $5::text[], $6::numeric[], $7::real[])
ON CONFLICT DO NOTHING
"""
_CHOSEN = """
SELECT variant, prompt_sha256, array_agg(case_id) AS case_ids
FROM shards CROSS JOIN unnest(case_ids) AS case_id WHERE run_id = $1 GROUP BY variant, prompt_sha256
"""
_CASES = """
SELECT case_id, expected, cluster, input_sha256 FROM cases WHERE suite_sha256 = $1 AND case_id = ANY($2::text[])
"""


@asynccontextmanager
async def one_at_a_time(conn: Connection, work: Work) -> AsyncIterator[None]:
    """Nobody else answers the same prompt for the same cases meanwhile, in this process or another one.

    Two runs with one variant in common, begun together, would otherwise both pay for it.
    """
    cases = sha256("\n".join(work.case_ids).encode()).hexdigest()
    key = f"answers|{work.prompt_sha256}|{work.model}|{work.params_sha256}|{work.suite_sha256}|{cases}"
    async with session_lock(conn, key):
        yield


async def missing(conn: Connection, work: Work) -> list[Question]:
    """The inputs of a shard that its prompt has no answer for, each once."""
    rows = await conn.fetch(_INPUTS, work.suite_sha256, work.case_ids)
    inputs = {row["input_sha256"]: row["input"] for row in rows}
    known = await _answers(conn, work.prompt_sha256, work.model, work.params_sha256, list(inputs))
    return [Question(key, text) for key, text in inputs.items() if key not in known]


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
    # Joined here and not in SQL: fresh tables have no statistics yet, and a join planned without them took seconds.
    chosen = {row["variant"]: row for row in await conn.fetch(_CHOSEN, run.run_id)}
    cases = await conn.fetch(_CASES, run.suite_sha256, chosen["a"]["case_ids"])
    inputs = sorted({case["input_sha256"] for case in cases})
    got_a, got_b = [
        await _answers(conn, chosen[arm]["prompt_sha256"], run.model, run.params_sha256, inputs) for arm in ARMS
    ]
    paired = [
        PairedCase(case["case_id"], case["expected"], got_a[key], got_b[key], case["cluster"])
        for case in cases
        if (key := case["input_sha256"]) in got_a and key in got_b
    ]
    if len(paired) != run.cases:
        raise RuntimeError(f"run {run.run_id} has {len(paired)} of {run.cases} cases answered by both variants")
    return paired


async def _answers(
    conn: Connection, prompt_sha256: str, model: str, params_sha256: str, inputs: Sequence[str]
) -> dict[str, str | None]:
    """What is known of these inputs: hash of the input → answer."""
    rows = await conn.fetch(_ANSWERS, prompt_sha256, model, params_sha256, inputs)
    return {row["input_sha256"]: row["output"] for row in rows}
