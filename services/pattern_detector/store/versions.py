"""Tables `activations` and `exposures`: what was live when, and how often it was served."""

from __future__ import annotations

from collections.abc import Iterable

from libs.contracts.events.gateway import ExposureRecordedV1
from libs.contracts.events.registry import VersionActivatedV1, VersionRolledBackV1
from libs.service_kit.db import Connection
from libs.service_kit.records import Columns

_ACTIVATION = Columns(
    """
    activation_id uuid, touchpoint_id text, workspace_id uuid, kind text, version_ref text, previous_ref text,
    proposal_id uuid, at timestamptz
    """
)
_ADD_ACTIVATIONS = f"""
{_ACTIVATION.insert_into("activations")}
ON CONFLICT DO NOTHING
"""
_EXPOSURE = Columns(
    """
    exposure_id uuid, touchpoint_id text, workspace_id uuid, version_ref text, count bigint,
    window_start timestamptz, window_end timestamptz
    """
)
_ADD_EXPOSURES = f"""
{_EXPOSURE.insert_into("exposures")}
ON CONFLICT DO NOTHING
"""


async def add_activations(conn: Connection, activated: Iterable[VersionActivatedV1]) -> None:
    """Remember what became live."""
    rows = [{**one.model_dump(), "kind": "activated", "at": one.activated_at} for one in activated]
    await conn.execute(_ADD_ACTIVATIONS, rows)


async def add_rollbacks(conn: Connection, rolled_back: Iterable[VersionRolledBackV1]) -> None:
    """Remember what was put back."""
    rows = [
        {
            **one.model_dump(),
            "kind": "rolled_back",
            "version_ref": one.to_version,
            "previous_ref": one.from_version,
            "at": one.rolled_back_at,
        }
        for one in rolled_back
    ]
    await conn.execute(_ADD_ACTIVATIONS, rows)


async def add_exposures(conn: Connection, exposed: Iterable[ExposureRecordedV1]) -> None:
    """Remember how often a version was served."""
    await conn.execute(_ADD_EXPOSURES, [one.model_dump() for one in exposed])
