"""The wiring of the A/B runner on FastStream's test broker: no bus, a real database."""

from __future__ import annotations

from pydantic import SecretStr

from libs.service_kit.testing.servers import Servers
from libs.service_kit.testing.wiring import assert_wired, wired
from services.ab_runner.app import build
from services.ab_runner.settings import Settings


async def test_every_durable_and_question_has_its_handler(servers: Servers, clone: str) -> None:
    service = build(Settings(database_url=SecretStr(servers.role_dsn("ab_runner", clone))))
    async with wired(service) as on:
        await assert_wired(on)
