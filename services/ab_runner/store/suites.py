"""Tables `suites` and `cases`: gold standards by the hash of their content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from libs.contracts.evaluations import Case, SuiteSummary
from libs.contracts.vocabulary import Split
from libs.service_kit.db import Connection
from libs.service_kit.records import Columns
from services.ab_runner.domain import input_sha256

_SUMMARY = "touchpoint_id, suite_sha256, cases, dev_cases, test_cases, labels, imported_at"

_RETIRE = "UPDATE suites SET is_current = false WHERE touchpoint_id = $1 AND is_current AND suite_sha256 <> $2"
_ADD_SUITE = f"""
INSERT INTO suites (touchpoint_id, suite_sha256, is_current, cases, dev_cases, test_cases, labels, imported_by)
VALUES ($1, $2, true, $3, $4, $5, $6, $7)
ON CONFLICT (touchpoint_id, suite_sha256) DO UPDATE SET is_current = true
RETURNING {_SUMMARY}
"""  # noqa: S608
_CASE = Columns("case_id text, split text, input text, input_sha256 text, expected text, cluster text", "$2")
_ADD_CASES = f"{_CASE.insert_into('cases', suite_sha256='$1')} ON CONFLICT DO NOTHING"
_LIST = f"""
SELECT {_SUMMARY}, t.config->'suite' AS settings, d.discordance
FROM suites s LEFT JOIN known_touchpoints t USING (touchpoint_id)
LEFT JOIN LATERAL (
    SELECT ((outcome->>'gained')::int + (outcome->>'lost')::int) / nullif((outcome->>'n')::float8, 0) AS discordance
    FROM runs r
    WHERE r.touchpoint_id = s.touchpoint_id AND r.suite_sha256 = s.suite_sha256 AND r.status = 'completed'
    ORDER BY finished_at DESC LIMIT 1
) AS d ON true
WHERE is_current AND ($1::text IS NULL OR touchpoint_id = $1) ORDER BY touchpoint_id
"""  # noqa: S608
_CURRENT = f"SELECT {_SUMMARY} FROM suites WHERE touchpoint_id = $1 AND is_current"  # noqa: S608
_DEALT = "SELECT case_id FROM cases WHERE suite_sha256 = $1 AND split = $2 ORDER BY input_sha256, case_id"
_DEV_CASES = """
SELECT case_id, input, expected, split, cluster FROM cases
WHERE suite_sha256 = $1 AND split = 'dev' ORDER BY input_sha256, case_id LIMIT $2
"""
_TEST_INPUTS = """
SELECT c.input FROM suites s JOIN cases c USING (suite_sha256)
WHERE s.touchpoint_id = $1 AND s.is_current AND c.split = 'test'
"""


class Listed(NamedTuple):
    """A current suite with what its power depends on: the touchpoint's suite settings and the newest run."""

    summary: SuiteSummary
    settings: dict[str, object] | None
    discordance: float | None


async def save(conn: Connection, touchpoint_id: str, suite_sha256: str, cases: Sequence[Case], by: str) -> SuiteSummary:
    """Make these cases the current suite. What is stored under the hash already is left as it is."""
    dev = sum(case.split == "dev" for case in cases)
    labels = len({case.expected for case in cases})
    await conn.execute(_RETIRE, touchpoint_id, suite_sha256)
    row = await conn.fetchrow(_ADD_SUITE, touchpoint_id, suite_sha256, len(cases), dev, len(cases) - dev, labels, by)
    records = [{**case.model_dump(), "input_sha256": input_sha256(case.input)} for case in cases]
    await conn.execute(_ADD_CASES, suite_sha256, records)
    return _summary(row)


async def current(conn: Connection, touchpoint_id: str) -> SuiteSummary | None:
    """The touchpoint's suite, or None."""
    row = await conn.fetchrow(_CURRENT, touchpoint_id)
    return None if row is None else _summary(row)


async def listed(conn: Connection, touchpoint_id: str | None) -> list[Listed]:
    """The current suites, by touchpoint."""
    rows = await conn.fetch(_LIST, touchpoint_id)
    return [Listed(_summary(row), row["settings"], row["discordance"]) for row in rows]


async def dealt(conn: Connection, suite_sha256: str, split: Split) -> list[str]:
    """The case ids of a split in the order in which they are dealt into shards."""
    return [row["case_id"] for row in await conn.fetch(_DEALT, suite_sha256, split)]


async def dev_cases(conn: Connection, suite_sha256: str, limit: int) -> list[Case]:
    """Cases of the dev split; when the limit cuts, what is left is as good as a random sample."""
    return [Case.model_validate(dict(row)) for row in await conn.fetch(_DEV_CASES, suite_sha256, limit)]


async def test_inputs(conn: Connection, touchpoint_id: str) -> list[str]:
    """The inputs of the current suite's test split. They never leave this service."""
    return [row["input"] for row in await conn.fetch(_TEST_INPUTS, touchpoint_id)]


def _summary(row: asyncpg.Record | None) -> SuiteSummary:
    assert row is not None
    return SuiteSummary.model_validate(dict(row))
