"""A test's own installation: a clone of the template database and a bus with empty streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nats
from nats.aio.client import Client

from libs.contracts.topology import STREAMS
from libs.provisioning import topology
from libs.provisioning.nats_config import ADMIN_USER
from libs.service_kit.testing.servers import Servers


@dataclass(frozen=True)
class Installation:
    """Hands a service its settings, so that it runs in the test's process against real servers."""

    servers: Servers
    database: str

    def settings(self, service: str) -> dict[str, Any]:
        """Keyword arguments of the kit's settings for one service."""
        return {
            "database_url": self.servers.role_dsn(service, self.database),
            "nats_url": self.servers.nats_url,
            "nats_user": service,
            "nats_password": self.servers.nats_password(service),
            "graceful_timeout_s": 5.0,
            "pool_size": 4,
            "redelivery_delays_s": (0.05, 0.1),
        }

    @property
    def admin_dsn(self) -> str:
        """The superuser's DSN of this test's database."""
        return self.servers.admin_dsn(self.database)

    async def bus_admin(self) -> Client:
        """A connection as `bus_admin`, who alone has JetStream."""
        return await nats.connect(
            self.servers.nats_url, user=ADMIN_USER, password=self.servers.nats_password(ADMIN_USER)
        )

    async def fresh_topology(self) -> None:
        """Remove every stream with its durables and make them again."""
        client = await self.bus_admin()
        try:
            for stream in STREAMS:
                await client.request(f"$JS.API.STREAM.DELETE.{stream.name}", b"", timeout=10)
        finally:
            await client.close()
        await topology.upsert(self.servers.nats_url, self.servers.nats_password(ADMIN_USER))
