"""Records: rows by name, whatever their order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

from libs.service_kit.db import Database
from libs.service_kit.records import Columns

OpenDatabase = Callable[[str], Awaitable[Database]]

DESCRIBED = """
    id uuid, at timestamptz, words text, number numeric, share float8, flag boolean, ids uuid[], anything jsonb,
    missing text
"""


async def test_records_go_in_by_name_and_come_out_as_they_were(database: OpenDatabase) -> None:
    columns = Columns(DESCRIBED)
    record: dict[str, Any] = {
        "anything": {"deep": [1, None, "x"]},
        "ids": [uuid4(), uuid4()],
        "flag": False,
        "share": 0.1,
        "number": Decimal("0.10"),
        "words": "caf\u00e9 \\u0000 'quoted' \"twice\"\n",
        "at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        "id": uuid4(),
        "no_column": "is left out",
    }
    db = await database("scanner")
    async with db.connection() as conn, conn.transaction():
        await conn.execute(f"CREATE TEMPORARY TABLE things ({DESCRIBED}, seen int) ON COMMIT DROP")
        await conn.execute(columns.insert_into("things", seen="$2"), [record, {"id": uuid4()}], 7)
        await conn.execute(columns.insert_into("things", seen="$2"), [], 7)
        first, second = await conn.fetch("SELECT * FROM things ORDER BY words NULLS LAST")
    del record["no_column"]
    assert dict(first) == {**record, "missing": None, "seen": 7}
    assert {name for name, value in second.items() if value is not None} == {"id", "seen"}


def test_a_description_gives_names_and_types() -> None:
    columns = Columns("a uuid,\n    b double precision", "$3")
    assert columns.names == "a, b"
    assert columns.records == "jsonb_to_recordset($3) AS new (a uuid, b double precision)"
