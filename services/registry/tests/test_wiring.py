"""The wiring of the registry on FastStream's test broker: no bus, a real database."""

from __future__ import annotations

from pydantic import SecretStr

from libs.service_kit.testing.servers import Servers
from libs.service_kit.testing.wiring import assert_wired, wired
from services.registry.app import build
from services.registry.settings import Settings


async def test_every_durable_and_question_has_its_handler(servers: Servers, clone: str) -> None:
    service = build(
        Settings(
            database_url=SecretStr(servers.role_dsn("registry", clone)),
            jwt_jwks="unused",
            jwt_issuer="i",
            jwt_audience="a",
        )
    )
    async with wired(service) as on:
        await assert_wired(on)
