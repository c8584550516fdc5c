"""Tables `drift_findings` and `judgements`: what was noticed about a live version."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from libs.contracts.events.pattern_detector import ActivationJudgedV1
from libs.service_kit.db import Connection

_DRIFT = """
INSERT INTO drift_findings (activation_id, found_sha256, found_at) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING RETURNING true
"""
_JUDGED = """
INSERT INTO judgements (activation_id, pattern_id, look, touchpoint_id, verdict, rate_ratio, low, high)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING
"""


async def drifted(conn: Connection, activation_id: UUID, found_sha256: str | None, at: datetime) -> bool:
    """Remember what stands in place of the live text; True when that is news."""
    return bool(await conn.fetchval(_DRIFT, activation_id, found_sha256, at))


async def judged(conn: Connection, judgement: ActivationJudgedV1) -> None:
    """Keep the detector's verdict on an activation."""
    await conn.execute(
        _JUDGED,
        judgement.activation_id,
        judgement.pattern_id,
        judgement.look,
        judgement.touchpoint_id,
        judgement.verdict,
        judgement.rate_ratio,
        *judgement.interval,
    )
