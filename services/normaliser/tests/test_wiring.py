"""The wiring of the normaliser on FastStream's test broker: no bus, a real database."""

from __future__ import annotations

from pydantic import SecretStr

from libs.contracts.events.normaliser import SignalCreatedV1
from libs.contracts.queries.normaliser import CountSignals
from libs.service_kit.testing import outbox_events
from libs.service_kit.testing.servers import Servers
from libs.service_kit.testing.wiring import assert_wired, wired
from services.normaliser.app import build
from services.normaliser.settings import Settings
from services.normaliser.tests.support import observed, registered


async def test_every_durable_and_question_has_its_handler(servers: Servers, clone: str) -> None:
    service = build(Settings(database_url=SecretStr(servers.role_dsn("normaliser", clone))))
    async with wired(service) as on:
        await assert_wired(on)


async def test_what_is_heard_is_emitted_and_counted(servers: Servers, clone: str) -> None:
    service = build(Settings(database_url=SecretStr(servers.role_dsn("normaliser", clone))))
    async with wired(service) as on:
        await on.hear(registered())
        await on.hear(observed("a:1"))
        assert [each.data.source_key for each in await outbox_events(service.db, SignalCreatedV1)] == ["a:1"]
        assert b'"stored":1' in await on.ask(CountSignals.subject, CountSignals().model_dump_json().encode())
