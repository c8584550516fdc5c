"""The wiring of the gateway on FastStream's test broker: no bus, a real database."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from pydantic import SecretStr

from libs.contracts.events.registry import VersionActivatedV1
from libs.service_kit.testing import event_of
from libs.service_kit.testing.servers import Servers
from libs.service_kit.testing.wiring import assert_wired, wired
from services.gateway.app import build
from services.gateway.domain import LivePrompts, Target
from services.gateway.settings import Settings

ACTIVATED = VersionActivatedV1(
    activation_id=uuid4(),
    touchpoint_id="support.intent",
    version_ref="v:1",
    adapter="feed_prompts",
    content_sha256="0" * 64,
    activated_by="somebody",
    activated_at=datetime(2026, 1, 1, tzinfo=UTC),
)


async def test_what_is_overheard_reaches_its_handler(
    servers: Servers, clone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed: list[Target] = []
    monkeypatch.setattr(LivePrompts, "changed", lambda self, target, seq: changed.append(target))
    database_url = SecretStr(servers.role_dsn("gateway", clone))
    service = build(Settings(database_url=database_url, jwt_jwks="unused", jwt_issuer="i", jwt_audience="a"))
    async with wired(service) as on:
        await assert_wired(on)
        await on.overhear(event_of(ACTIVATED))
    assert changed == [Target("support.intent", None)]
