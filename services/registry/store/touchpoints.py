"""Table `touchpoints`: the configuration in force."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from libs.contracts.touchpoints import Touchpoint
from libs.service_kit.db import Connection

_COLUMNS = "touchpoint_id, config, revision, registered_by, registered_at, updated_at"
_GET = f"SELECT {_COLUMNS} FROM touchpoints WHERE touchpoint_id = ANY($1::text[]) ORDER BY touchpoint_id"  # noqa: S608
_ALL = f"SELECT {_COLUMNS} FROM touchpoints ORDER BY touchpoint_id"  # noqa: S608
_SAVE = """
INSERT INTO touchpoints (touchpoint_id, scope, config, config_sha256, revision, registered_by)
VALUES ($1, $2, $3, $4, 1, $5)
ON CONFLICT (touchpoint_id) DO UPDATE
SET scope = EXCLUDED.scope, config = EXCLUDED.config, config_sha256 = EXCLUDED.config_sha256,
    revision = touchpoints.revision + 1, registered_by = EXCLUDED.registered_by, updated_at = now()
RETURNING revision
"""


class Registered(NamedTuple):
    """A touchpoint as it is registered; `revision` counts its configurations from 1."""

    touchpoint: Touchpoint
    revision: int
    registered_by: str
    registered_at: datetime
    updated_at: datetime


async def get(conn: Connection, touchpoint_id: str) -> Registered | None:
    """One touchpoint."""
    return (await get_many(conn, [touchpoint_id])).get(touchpoint_id)


async def get_many(conn: Connection, touchpoint_ids: list[str]) -> dict[str, Registered]:
    """Those of the given touchpoints that are registered, by id."""
    return {row["touchpoint_id"]: _registered(row) for row in await conn.fetch(_GET, touchpoint_ids)}


async def all_of_them(conn: Connection) -> list[Registered]:
    """Every touchpoint, by id."""
    return [_registered(row) for row in await conn.fetch(_ALL)]


async def save(conn: Connection, touchpoint: Touchpoint, config_sha256: str, by: str) -> int:
    """Create or replace the configuration; the revision it has now."""
    config: dict[str, Any] = touchpoint.model_dump(mode="json")
    revision = await conn.fetchval(_SAVE, touchpoint.id, touchpoint.scope, config, config_sha256, by)
    return int(revision)


def _registered(row: Any) -> Registered:
    return Registered(
        Touchpoint.model_validate(row["config"]),
        row["revision"],
        row["registered_by"],
        row["registered_at"],
        row["updated_at"],
    )
