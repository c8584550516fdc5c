from __future__ import annotations

import pkgutil
from typing import Any

import pytest

from libs.contracts import vocabulary
from services.scanner import scanners
from services.scanner.domain import Finding, Watermark
from services.scanner.platform import Platform, PlatformError
from services.scanner.scanners import HEARD, SCANNERS, BadOptions, scanner_for
from services.scanner.scanners.eval_regression import EvalRegression
from services.scanner.tests.support import WORKSPACE, PlatformTables, at

START = Watermark()


async def scan(platform: Platform, name: str, scope: Any = "global", **options: Any) -> list[Finding]:
    async with platform.connection("BURNISH_PLATFORM_DSN") as conn:
        return await scanner_for(name, options).scan(conn, scope, START, 500)


def test_a_touchpoint_may_name_each_scanner_that_there_is() -> None:
    there = {module.name for module in pkgutil.iter_modules(scanners.__path__)} - {"base"}
    assert there == {registered.__module__.rpartition(".")[2] for registered in (EvalRegression, *SCANNERS.values())}
    assert set(vocabulary.registered("scanners")) == SCANNERS.keys() | HEARD
    assert {scanner.name for scanner in SCANNERS.values()} == SCANNERS.keys()


async def test_a_flag_with_what_the_feature_saw_and_answered(platform: Platform, tables: PlatformTables) -> None:
    flag = await tables.flag()
    [found] = await scan(platform, "si_flag")
    assert (found.source_key, found.changed_at, found.severity) == (f"feed_flags:{flag}", at(0), "high")
    assert (found.actor_id, found.actor_kind, found.version_ref) == ("user-1", "human", "git:abc")
    assert found.payload == {
        "text": "where is my refund",
        "reason": "this is about a refund",
        "category": "wrong_label",
        "expected": "refund_status",
        "got": "card_charge",
        "confidence": 0.41,
    }


async def test_resolved_flags_are_no_finds(platform: Platform, tables: PlatformTables) -> None:
    await tables.flag()
    await tables.conn.execute("UPDATE platform.feed_flags SET resolved_at = now()")
    assert await scan(platform, "si_flag") == []


async def test_each_scope_finds_its_own_rows(platform: Platform, tables: PlatformTables) -> None:
    await tables.flag(0)
    await tables.flag(1, workspace_id=WORKSPACE)
    assert [one.workspace_id for one in await scan(platform, "si_flag")] == [None]
    assert [one.workspace_id for one in await scan(platform, "si_flag", "workspace")] == [WORKSPACE]
    assert [one.workspace_id for one in await scan(platform, "si_flag", ignore_workspace=True)] == [None, None]


async def test_low_confidence_is_below_the_threshold(platform: Platform, tables: PlatformTables) -> None:
    ids = await tables.items(0.1, 0.3, 0.49, 0.5, 0.9, None)
    found = await scan(platform, "low_confidence")
    assert [(one.row_id, one.severity) for one in found] == [
        (str(ids[0]), "high"),
        (str(ids[1]), "medium"),
        (str(ids[2]), "low"),
    ]
    assert found[0].payload == {"text": "hm", "got": "other", "confidence": 0.1, "content_type": "ticket"}
    assert (found[0].actor_id, found[0].actor_kind) == ("scanner:low_confidence", "machine")
    assert len(await scan(platform, "low_confidence", threshold=0.6)) == 4


async def test_low_confidence_of_some_content_types(platform: Platform, tables: PlatformTables) -> None:
    await tables.items(0.1)
    await tables.items(0.1, content_type="article")
    found = await scan(platform, "low_confidence", content_types=["article"])
    assert [one.payload["content_type"] for one in found] == ["article"]


async def test_pages_go_on_where_the_last_ended_also_within_one_instant(
    platform: Platform, tables: PlatformTables
) -> None:
    await tables.many_flags(7, at(0))
    await tables.flag(1)
    scanner, since, seen = scanner_for("si_flag", {}), START, list[str]()
    async with platform.connection("BURNISH_PLATFORM_DSN") as conn:
        while page := await scanner.scan(conn, "global", since, 3):
            seen += [one.row_id for one in page]
            since = page[-1].place
    assert len(seen) == len(set(seen)) == 8


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("low_confidence", {"treshold": 0.4}, "treshold: is not an option; its options are content_types, dsn_env"),
        ("low_confidence", {"threshold": 1.5}, "threshold: Input should be less than or equal to 1"),
        ("si_flag", {"threshold": 0.5}, "options of si_flag: threshold: is not an option"),
        ("si_flag", {"schema": 'x"; DROP TABLE y; --'}, "schema: String should match pattern"),
        ("si_flag", {"dsn_env": "HOME"}, "dsn_env: String should match pattern '^BURNISH_PLATFORM_"),
        ("si_flag", {"dsn_env": "BURNISH_DATABASE_URL"}, "dsn_env: String should match pattern"),
        ("nonesuch", {}, f"there is no scanner 'nonesuch' here; there are {', '.join(sorted(SCANNERS))}"),
    ],
)
def test_bad_options_say_what_would_be_right(name: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(BadOptions) as refused:
        scanner_for(name, options)
    assert told in str(refused.value)
    assert "DROP" not in str(refused.value)


async def test_another_schema(platform: Platform, tables: PlatformTables) -> None:
    await tables.flag()
    await tables.conn.execute('ALTER SCHEMA platform RENAME TO "Weird_Name"')
    assert len(await scan(platform, "si_flag", schema="Weird_Name")) == 1
    with pytest.raises(PlatformError, match=r'relation "platform\.feed_flags" does not exist'):
        await scan(platform, "si_flag")


@pytest.mark.parametrize("name", sorted(SCANNERS))
async def test_every_scanner_finds_nothing_in_an_empty_platform(
    name: str, platform: Platform, tables: PlatformTables
) -> None:
    assert await scan(platform, name) == []
    async with platform.connection("BURNISH_PLATFORM_DSN") as conn:
        assert await scanner_for(name, {}).existing(conn, [WORKSPACE]) == set()


# --- the connection ---------------------------------------------------------------------------------------


async def test_the_platform_cannot_be_written(platform: Platform, tables: PlatformTables) -> None:
    with pytest.raises(PlatformError, match="ReadOnlySQLTransactionError"):
        async with platform.connection("BURNISH_PLATFORM_DSN") as conn:
            await conn.execute("DELETE FROM platform.feed_flags")


async def test_a_slow_statement_is_ended(servers: Any, clone: str) -> None:
    hasty = Platform(lambda _: servers.admin_dsn(clone), pool_size=1, statement_timeout_s=0.05)
    with pytest.raises(PlatformError, match="QueryCanceledError"):
        async with hasty.connection("BURNISH_PLATFORM_DSN") as conn:
            await conn.execute("SELECT pg_sleep(30)")
    await hasty.close()


@pytest.mark.parametrize(
    ("dsn", "told"),
    [
        (None, "BURNISH_PLATFORM_X is not set"),
        ("", "BURNISH_PLATFORM_X is not set"),
        ("mysql://secret@h/d", "BURNISH_PLATFORM_X is not a DSN of Postgres"),
        ("postgresql://u:secret@127.0.0.1:9/x", "cannot be reached"),
    ],
)
async def test_a_bad_dsn_is_told_by_its_variable_only(dsn: str | None, told: str) -> None:
    platform = Platform(lambda _: dsn, pool_size=1, statement_timeout_s=1)
    with pytest.raises(PlatformError, match=told) as refused:
        async with platform.connection("BURNISH_PLATFORM_X"):
            pass
    assert "secret" not in str(refused.value)
    await platform.close()
