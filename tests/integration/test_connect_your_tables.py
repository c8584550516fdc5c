"""The guide `docs/guides/connect-your-tables.md`, done as it is written, on tables of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import asyncpg
import pytest

from tests.integration.guides import Desk, Guide, running

GUIDE = Guide("connect-your-tables.md")
pytestmark = pytest.mark.timeout(300)


async def test_the_guide_can_be_followed(tmp_path: Path) -> None:
    up, dsn, tables, views, plan, apply, scan, signals, patterns, _elsewhere = GUIDE.commands()
    tables_sql, views_sql, other_postgres = GUIDE.blocks("sql")
    reader = Desk(tmp_path)
    reader.sh(GUIDE.blocks("sh")[0].strip())
    reader.folder = tmp_path / "shop"
    files = {
        "prompt.md": GUIDE.blocks("markdown")[0],
        "touchpoints.yaml": GUIDE.blocks("yaml")[0],
        "tables.sql": tables_sql,
        "views.sql": views_sql,
    }
    for name, text in files.items():
        (reader.folder / name).write_text(text)
    with running(reader, up):
        owner = reader.sh(dsn).strip()
        for command in (tables, views, plan, apply, scan):
            reader.sh(command)
        reader.until(signals, "anna")
        found = json.loads(reader.sh(f"{signals} --json"))["signals"]
        assert sorted((one["signal_type"], one["actor_id"]) for one in found) == [
            ("flag", "anna"),
            ("flag", "ben"),
            ("flag", "carla"),
            ("low_confidence", "scanner:low_confidence"),
        ]
        assert {one["payload"]["expected"] for one in found if one["signal_type"] == "flag"} == {"refund_status"}
        reader.until(patterns, "refund_status answered as charge_dispute")
        a_mistake_in_sql_is_told_with_its_line(reader)
        await only_reads(reader.sh(f"{dsn} --reader").strip())
        await settled_is_found_no_more(owner, reader, scan)
        await other_postgres_has_its_reader(owner, other_postgres)


def a_mistake_in_sql_is_told_with_its_line(reader: Desk) -> None:
    """And nothing of the file has happened."""
    (reader.folder / "bad.sql").write_text("CREATE TABLE platform.half (a int);\n\nCREATE TABEL x;\n")
    (reader.folder / "half.sql").write_text("SELECT 1;\nSELECT * FROM platform.half;\n")
    with pytest.raises(AssertionError, match=r"bad.sql, line 3: syntax error"):
        reader.sh("burnish platform --sql bad.sql")
    with pytest.raises(AssertionError, match=r'relation "platform.half" does not exist'):
        reader.sh("burnish platform --sql half.sql")


async def only_reads(dsn: str) -> None:
    """What the guide says of the reader: it sees the views, and neither your tables nor a way to write."""
    conn = await asyncpg.connect(dsn)
    try:
        assert await conn.fetchval("SELECT count(*) FROM platform.feed_flags") == 3
        for refused in (
            "SELECT * FROM shop.messages",
            "CREATE TABLE platform.x (a int)",
            "DELETE FROM platform.feed_flags",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await conn.execute(refused)
    finally:
        await conn.close()


async def settled_is_found_no_more(owner: str, reader: Desk, scan: str) -> None:
    """A correction that is dealt with is not found; one that is new is."""
    conn = await asyncpg.connect(owner)
    try:
        await conn.execute("UPDATE shop.corrections SET settled = true, changed_at = now() WHERE agent = 'ben'")
        await conn.execute("INSERT INTO shop.corrections (message_id, agent) VALUES (4, 'dora')")
    finally:
        await conn.close()
    runs = {run["scanner"]: run for run in json.loads(reader.sh(f"{scan} --json"))["runs"]}
    assert runs["si_flag"]["signals_emitted"] == 1


async def other_postgres_has_its_reader(owner: str, statements: str) -> None:
    """The grants for a Postgres of one's own do what they are for."""
    conn = await asyncpg.connect(owner)
    try:
        await conn.execute(statements)
        await conn.execute("SET ROLE burnish_reader")
        assert await conn.fetchval("SELECT count(*) FROM platform.content_items") == 4
    finally:
        await conn.close()


def test_the_guide_names_every_column_that_a_scanner_reads() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / GUIDE.name).read_text()
    from services.scanner.scanners import low_confidence, si_flag

    sections = {part.split("`")[1]: part for part in page.split("\n### ")[1:] if part.startswith("`")}
    for table, query, alias in (
        ("feed_flags", si_flag._SCAN, "f."),
        ("feed_articles", si_flag._SCAN, "a."),
        ("content_items", low_confidence._SCAN, ""),
    ):
        selected = query.split("FROM")[0].replace("SELECT", "").replace("\n", " ").split(",")
        columns = {one.strip().removeprefix(alias) for one in selected if one.strip().startswith(alias)}
        assert [column for column in columns if f"`{column}`" not in sections[table]] == []
