"""One Postgres and one NATS for a test session: embedded, or in containers where `BURNISH_TEST_BACKEND=containers`."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg

from libs.contracts.topology import SERVICES, bus_users
from libs.embedded.nats import EmbeddedNats
from libs.embedded.postgres import EmbeddedPostgres
from libs.provisioning import nats_config
from libs.provisioning.migrations import migrate, role_of

TEMPLATE = "burnish_template"
ROOT = Path(__file__).resolve().parents[3]
MIGRATIONS = ROOT / "db" / "migrations"


def new_password() -> str:
    """`p-` and hex: digits, `true` and spaces break the server's parsing of environment variables."""
    return f"p-{secrets.token_hex(16)}"


@dataclass
class Servers:
    """Where the session's servers are, and every password."""

    postgres_url: str
    nats_url: str
    role_passwords: Mapping[str, str]
    nats_environment: Mapping[str, str]
    _clones: int = field(default=0)

    def admin_dsn(self, database: str) -> str:
        """The superuser's DSN."""
        parts = urlsplit(self.postgres_url)
        return urlunsplit(parts._replace(path=f"/{database}"))

    def role_dsn(self, service: str, database: str) -> str:
        """The DSN of one service's role."""
        parts = urlsplit(self.postgres_url)
        user = f"{role_of(service)}:{quote(self.role_passwords[service], safe='')}"
        return urlunsplit(parts._replace(netloc=f"{user}@{parts.hostname}:{parts.port}", path=f"/{database}"))

    def nats_password(self, user: str) -> str:
        """The password of one NATS user."""
        return self.nats_environment[nats_config.password_variable(user)]

    async def clone(self) -> str:
        """A new database, an exact copy of the migrated template; its name."""
        self._clones += 1
        name = f"test_{os.getpid()}_{self._clones}"
        await self._admin(f'CREATE DATABASE "{name}" TEMPLATE "{TEMPLATE}" STRATEGY file_copy')
        return name

    async def drop(self, name: str) -> None:
        """Remove a clone with whatever is still connected to it."""
        await self._admin(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    async def _admin(self, statement: str) -> None:
        conn = await asyncpg.connect(self.admin_dsn("postgres"))
        try:
            await conn.execute(statement)
        finally:
            await conn.close()


@contextmanager
def running(folder: Path, *, durable: bool = False) -> Iterator[Servers]:
    """Start both servers, migrate the template database, and stop everything at the end.

    `durable` leaves the embedded Postgres as it ships, for a benchmark. Tests go without fsync: it is not under
    test there, and ending a server with dozens of fresh databases would take half a minute.
    """
    roles = {entry.name: new_password() for entry in SERVICES}
    users = [nats_config.ADMIN_USER, *bus_users()]
    environment = {nats_config.password_variable(user): new_password() for user in users}
    backend = _containers if os.environ.get("BURNISH_TEST_BACKEND") == "containers" else _embedded
    with backend(folder, environment, durable) as (postgres_url, nats_url):
        servers = Servers(postgres_url, nats_url, roles, environment)
        asyncio.run(_make_template(servers))
        yield servers


async def _make_template(servers: Servers) -> None:
    await migrate(servers.admin_dsn(TEMPLATE), MIGRATIONS, servers.role_passwords)


@contextmanager
def _embedded(folder: Path, environment: Mapping[str, str], durable: bool) -> Iterator[tuple[str, str]]:
    postgres = EmbeddedPostgres(folder / "postgres", settings={"fsync": "on" if durable else "off"})
    bus = EmbeddedNats(folder / "nats", nats_config.server_config(), environment=environment)
    try:
        asyncio.run(postgres.start())
        asyncio.run(bus.start())
        yield postgres.admin_dsn("postgres"), bus.url
    finally:
        asyncio.run(bus.stop())
        asyncio.run(postgres.stop())


@contextmanager
def _containers(folder: Path, environment: Mapping[str, str], durable: bool) -> Iterator[tuple[str, str]]:
    """The same two servers from images, on a machine with Docker; always as they ship."""
    del durable
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.waiting_utils import wait_for_logs
    from testcontainers.postgres import PostgresContainer

    config = folder / "nats-server.conf"
    config.write_text(f'{nats_config.server_config()}\nlisten: "0.0.0.0:4222"\n{JETSTREAM}')
    bus = DockerContainer("nats:2.15.1").with_exposed_ports(4222).with_volume_mapping(str(config), "/nats.conf")
    bus = bus.with_command("-c /nats.conf")
    for name, value in environment.items():
        bus = bus.with_env(name, value)
    with PostgresContainer("pgvector/pgvector:pg18", driver=None) as postgres, bus:
        wait_for_logs(bus, "Server is ready", timeout=30)
        address = f"{bus.get_container_host_ip()}:{bus.get_exposed_port(4222)}"
        yield postgres.get_connection_url(), f"nats://{address}"


JETSTREAM = 'jetstream { store_dir: "/data", sync_interval: always }\n'
