"""One installation: its servers, its database and bus brought up to date, and the environment of each service."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from uuid import UUID

from burnish.child import APPS
from burnish.data_folder import MCP_PORT, PLATFORM_READER, DataFolder, Platform, Secrets
from burnish.errors import InstallationError
from libs.contracts.topology import SERVICES
from libs.embedded import EmbeddedError, EmbeddedNats, EmbeddedPostgres, PortTaken, ports
from libs.provisioning.nats_config import ADMIN_USER, password_variable, server_config

if TYPE_CHECKING:
    from burnish.room import Room
    from libs.provisioning.keeper import Keeper
    from libs.provisioning.migrations import Applied, Phase

ROOT = Path(__file__).resolve().parents[1]
MIGRATIONS = ROOT / "db" / "migrations"
HOST = "127.0.0.1"
PORT_ATTEMPTS = 5
GATEWAY = "gateway"
MCP = "mcp"
DEFAULT_PORT = 8320
DATABASE = "burnish"
ORGANIZATION = "local"
TOKEN_LIFETIME_S = 86_400.0
SERVICE_NAMES = tuple(entry.name for entry in SERVICES)
OWN_VARIABLES = (
    "BURNISH_ADMIN_DSN",
    "BURNISH_DATABASE_URL",
    "BURNISH_DATA",
    "BURNISH_HTTP_PORT",
    "BURNISH_NATS_PASSWORD",
    "BURNISH_NATS_USER",
    "BURNISH_ROLE_PASSWORD",
    "BURNISH_TOKEN",
    "BURNISH_URL",
)
ASK_MODELS = ("proposal", "ab_runner", "agents", "qa_ingest")
MODEL_KEYS = ("BURNISH_ANTHROPIC_API_KEY", "BURNISH_OPENAI_API_KEY")
Progress = Callable[[str], None]
ServerT = TypeVar("ServerT", EmbeddedPostgres, EmbeddedNats)


@dataclass(frozen=True)
class External:
    """Servers that somebody else runs: embedded ones are started only for what is None here."""

    admin_dsn: str | None = None
    nats_url: str | None = None

    @classmethod
    def from_environment(cls) -> External:
        """`BURNISH_ADMIN_DSN` (a superuser's, naming the database) and `BURNISH_NATS_URL`."""
        return cls(os.environ.get("BURNISH_ADMIN_DSN") or None, os.environ.get("BURNISH_NATS_URL") or None)


class Installation:
    """Servers and services in one data folder.

    `port` is the gateway's: None takes 8320, or a free one when that is taken. `platform_dsn` is where scanners read
    the application's tables; None gives them a database `platform` on the embedded server, and read rights in it.
    `repositories` are folders whose git repositories may be registered; the current folder when none is given.
    """

    def __init__(
        self,
        data: Path,
        *,
        port: int | None = None,
        platform_dsn: str | None = None,
        repositories: Sequence[Path] = (),
        external: External | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = DataFolder(data)
        self._asked_port = port
        self._platform_dsn = platform_dsn or os.environ.get("BURNISH_PLATFORM_DSN") or None
        self._repositories = [path.expanduser().resolve() for path in repositories or [Path.cwd()]]
        self._external = external or External.from_environment()
        self._extra = dict(settings or {})
        self._secrets: Secrets | None = None
        self._ports: dict[str, int] = {}
        self.announced = False  # whether somebody may know the gateway's URL by now
        self.postgres: EmbeddedPostgres | None = None
        self.nats: EmbeddedNats | None = None

    # --- the folder ---------------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the data folder, read or make its secrets, and choose a port for each service.

        Raises `FolderInUse` when another process has the folder, `PortTaken` for an asked port that is taken.
        """
        if self._asked_port is not None:
            ports.require_free(self._asked_port)
        self.folder.open()
        try:
            self._secrets = self.folder.secrets()
            self.folder.signing_key()
            self._choose_ports()
        except BaseException:
            self.folder.close()
            raise

    def close(self) -> None:
        """Let others have the folder."""
        self.folder.close()

    @property
    def secrets(self) -> Secrets:
        """The passwords in the data folder; made when there are none yet."""
        if self._secrets is None:
            self._secrets = self.folder.secrets()
        return self._secrets

    def port_of(self, service: str) -> int:
        """The HTTP port of a service."""
        return self._ports[service]

    @property
    def url(self) -> str:
        """The gateway's base URL."""
        return f"http://{HOST}:{self._ports[GATEWAY]}"

    @property
    def mcp_url(self) -> str:
        """Where agents find the library."""
        return f"http://{HOST}:{self._ports[MCP]}/mcp"

    def health_url(self, service: str) -> str:
        """Base URL of a service's `/health/live`, `/health/ready` and `/metrics`."""
        return f"http://{HOST}:{self._ports[service]}"

    def token(
        self,
        role: str = "admin",
        subject: str = "admin",
        *,
        workspaces: Iterable[UUID] | Literal["*"] = "*",
        scopes: Iterable[str] = (),
        lifetime_s: float = TOKEN_LIFETIME_S,
    ) -> str:
        """A token for the gateway, signed with the installation's own key; for all workspaces unless told."""
        from libs.auth.tokens import mint

        return mint(
            self.folder.signing_key(),
            subject,
            organization=ORGANIZATION,
            roles=[role] if role else [],
            workspaces=workspaces,
            scopes=scopes,
            lifetime_s=lifetime_s,
        )

    # --- servers ------------------------------------------------------------------------------------------

    async def start_servers(self) -> None:
        """Start the embedded servers that are not external, both at once; on an error neither is left running."""
        starts = []
        if self._external.admin_dsn is None:
            starts.append(self.start_postgres())
        if self._external.nats_url is None:
            starts.append(self.start_nats())
        outcomes = await asyncio.gather(*starts, return_exceptions=True)
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if failed:
            await self.stop_servers()
            raise failed[0]
        self.folder.remember_ports(self._ports)

    async def start_postgres(self) -> None:
        """Start the embedded Postgres, on the port it had before."""
        self.postgres = await self._start(
            "postgres", lambda port: EmbeddedPostgres(self.folder.path / "postgres", port)
        )

    async def start_nats(self) -> None:
        """Start the embedded NATS with the accounts of the topology, on the port it had before."""
        environment = {password_variable(user): password for user, password in self.secrets.nats.items()}
        self.nats = await self._start(
            "nats",
            lambda port: EmbeddedNats(self.folder.path / "nats", server_config(), port, environment),
        )

    async def stop_servers(self) -> None:
        """Stop NATS, then Postgres. Harmless when they do not run."""
        if self.nats is not None:
            await self.nats.stop()
        if self.postgres is not None:
            await self.postgres.stop()
        self.nats = self.postgres = None

    @property
    def admin_dsn(self) -> str:
        """The superuser's DSN of Burnish's database."""
        if self._external.admin_dsn is not None:
            return self._external.admin_dsn
        if self.postgres is None:
            raise InstallationError("Postgres has not been started", "await start_servers() first")
        return self.postgres.admin_dsn(DATABASE)

    @property
    def nats_url(self) -> str:
        """Where the bus is."""
        if self._external.nats_url is not None:
            return self._external.nats_url
        if self.nats is None:
            raise InstallationError("NATS has not been started", "await start_servers() first")
        return self.nats.url

    # --- preparing ----------------------------------------------------------------------------------------

    async def migrate(self, phase: Phase = "all", on_progress: Progress | None = None) -> list[Applied]:
        """Bring roles and schemas up to date; what was applied now. Raises `MigrationError`."""
        from libs.provisioning.migrations import migrate

        roles = {name: self.role_password(name) for name in SERVICE_NAMES}
        return await migrate(self.admin_dsn, MIGRATIONS, roles, phase, on_progress)

    async def apply_topology(self, on_progress: Progress = lambda _: None) -> None:
        """Bring streams and durables to the state of the table."""
        from libs.provisioning import topology

        await topology.upsert(self.nats_url, self.nats_password(ADMIN_USER), on_progress=on_progress)

    def room(self) -> Room:
        """The room on the disk of the data folder."""
        from burnish.room import room
        from libs.provisioning.settings import BusSettings

        embedded = {"postgres": self._external.admin_dsn is None, "nats": self._external.nats_url is None}
        return room(self.folder.path, BusSettings.from_environment(), **embedded)

    def keeper(self, on_progress: Progress = lambda _: None) -> Keeper:
        """What looks after the bus while it runs, as `bus_admin`."""
        from libs.provisioning.keeper import Keeper

        return Keeper(self.nats_url, self.nats_password(ADMIN_USER), on_progress=on_progress)

    async def prepare_platform(self) -> None:
        """Make the database `platform` and its reader on the embedded server, unless scanners read elsewhere."""
        if self._platform_dsn is None and self.postgres is not None:
            await _make_platform(self.postgres.admin_dsn(), self.secrets.platform_reader)

    @property
    def platform_admin_dsn(self) -> str | None:
        """Where the demo and a trial put platform tables; None when the platform is somebody else's."""
        if self._platform_dsn is not None or self.postgres is None:
            return None
        return self.postgres.admin_dsn("platform")

    @property
    def platform_dsn(self) -> str | None:
        """Where scanners read the application's tables, as a role that may only read."""
        if self._platform_dsn is not None or self.postgres is None:
            return self._platform_dsn
        return self.postgres.dsn("platform", PLATFORM_READER, self.secrets.platform_reader)

    @property
    def platform(self) -> Platform | None:
        """Both, for whoever puts tables there; None when the platform is somebody else's."""
        if self.platform_admin_dsn is None or self.platform_dsn is None:
            return None
        return Platform(self.platform_admin_dsn, self.platform_dsn, PLATFORM_READER)

    # --- services -----------------------------------------------------------------------------------------

    def environment_of(self, name: str) -> dict[str, str]:
        """The environment variables of the process of a service, or of an application: that has no rights at all."""
        if name not in APPS:
            return self.service_environment(name)
        own = {"BURNISH_URL": self.url, "BURNISH_HTTP_HOST": HOST, "BURNISH_HTTP_PORT": str(self._ports[name])}
        return {**inherited_environment(), **own}

    def service_environment(self, name: str) -> dict[str, str]:
        """The environment variables of one service's process: ours, less what only the owner may know."""
        own = {
            "BURNISH_DATABASE_URL": self.role_dsn(name),
            "BURNISH_NATS_URL": self.nats_url,
            "BURNISH_NATS_USER": name,
            "BURNISH_NATS_PASSWORD": self.nats_password(name),
            "BURNISH_HTTP_HOST": HOST,
            "BURNISH_HTTP_PORT": str(self._ports[name]),
        }
        inherited = inherited_environment()
        if name not in ASK_MODELS:
            inherited = {key: value for key, value in inherited.items() if not key.startswith(MODEL_KEYS)}
        return {**inherited, **own, **self._special(name), **self._extra}

    def role_dsn(self, service: str) -> str:
        """The DSN of a service's own role."""
        from libs.provisioning.migrations import role_of

        parts = urlsplit(self.admin_dsn)
        user = f"{role_of(service)}:{quote(self.role_password(service), safe='')}"
        place = f"{user}@{parts.netloc.rpartition('@')[2]}"
        return urlunsplit(parts._replace(netloc=place, path=f"/{unquote(parts.path.lstrip('/')) or DATABASE}"))

    def role_password(self, service: str) -> str:
        """`BURNISH_ROLE_PASSWORD_<SERVICE>`, or the one in the data folder."""
        return os.environ.get(f"BURNISH_ROLE_PASSWORD_{service.upper()}") or self.secrets.roles[service]

    def nats_password(self, user: str) -> str:
        """`BURNISH_NATS_PASSWORD_<USER>`, or the one in the data folder."""
        if self._external.nats_url is None:
            return self.secrets.nats[user]
        return os.environ.get(password_variable(user)) or self.secrets.nats[user]

    def _special(self, name: str) -> dict[str, str]:
        if name == GATEWAY:
            return {"BURNISH_JWT_JWKS": str(self.folder.public_keys)}
        if name == "registry":
            return {
                "BURNISH_REPOSITORY_ROOTS": os.pathsep.join(str(path) for path in self._repositories),
                "BURNISH_LEDGER_KEY": os.environ.get("BURNISH_LEDGER_KEY") or str(self.folder.ledger_key()),
            }
        if name == "qa_ingest":
            return {
                "BURNISH_QA_FOLDER": str(self.folder.library),
                "BURNISH_QA_NATS_PASSWORD": self.nats_password("qa_buckets"),
            }
        if name == "agents":
            return {"BURNISH_AGENTS_ENGINE_FOLDER": str(self.folder.path / "engine")}
        if name == "scanner" and self.platform_dsn is not None:
            return {"BURNISH_PLATFORM_DSN": self.platform_dsn}
        return {}

    # --- ports --------------------------------------------------------------------------------------------

    def _choose_ports(self) -> None:
        """The ports of last time where they are still free, so that bookmarks and scrapers stay right."""
        known = self.folder.ports()
        if known and GATEWAY not in known:  # the API was the registry's once; its address stays
            known[GATEWAY] = known.pop("registry", DEFAULT_PORT)
        known.setdefault(GATEWAY, DEFAULT_PORT)
        known.setdefault(MCP, MCP_PORT)
        for name in (*SERVICE_NAMES, *APPS, "postgres", "nats"):
            port = known.get(name)
            self._ports[name] = port if port and self._usable(port) else self._another_port()
        if self._asked_port is not None:
            self._ports[GATEWAY] = self._asked_port

    def _usable(self, port: int) -> bool:
        return port not in self._ports.values() and port != self._asked_port and ports.is_free(port)

    def _another_port(self) -> int:
        while True:
            port = ports.free_port()
            if port not in self._ports.values() and port != self._asked_port:
                return port

    def renew_port(self, name: str) -> None:
        """Choose another port for a service whose port somebody took. The gateway keeps an asked or announced one."""
        kept = name == GATEWAY and (self._asked_port is not None or self.announced)
        if not kept and not ports.is_free(self._ports[name]):
            self._ports[name] = self._another_port()
            self.folder.remember_ports(self._ports)

    async def _start(self, name: str, make: Callable[[int], ServerT]) -> ServerT:
        started_before = getattr(self, name) is not None
        for _ in range(PORT_ATTEMPTS):
            server = make(self._ports[name])
            try:
                await server.start()
            except PortTaken:  # between our look and its start
                if started_before:  # services look for it where it was
                    raise
                self._ports[name] = self._another_port()
            else:
                return server
        raise EmbeddedError(f"no port could be found for {name}", "try again")


def inherited_environment() -> dict[str, str]:
    """Our own environment variables, less what only the owner of the installation may know."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PG", *OWN_VARIABLES))}


@asynccontextmanager
async def reached(data: Path, *, postgres: bool = True, nats: bool = True) -> AsyncIterator[Installation]:
    """The installation with the servers asked for: those that run already, or its own, started for this while."""
    external = External.from_environment()
    note = DataFolder(data).running()
    if note is not None:
        external = External(external.admin_dsn or note.admin_dsn, external.nats_url or note.nats_url)
    installation = Installation(data, external=external)
    own_postgres = postgres and external.admin_dsn is None
    own_nats = nats and external.nats_url is None
    if not own_postgres and not own_nats:
        yield installation
        return
    installation.open()
    try:
        if own_postgres:
            await installation.start_postgres()
        if own_nats:
            await installation.start_nats()
        yield installation
    finally:
        await installation.stop_servers()
        installation.close()


async def _make_platform(dsn: str, reader_password: str) -> None:
    """Idempotent. The reader sees what the admin puts in the schema `platform`, and nothing of Burnish's own."""
    import asyncpg

    conn = await asyncpg.connect(dsn)
    try:
        if not await conn.fetchval("SELECT true FROM pg_roles WHERE rolname = $1", PLATFORM_READER):
            await conn.execute(f"CREATE ROLE {PLATFORM_READER} LOGIN")
        quoted = await conn.fetchval("SELECT quote_literal($1)", reader_password)
        await conn.execute(f"ALTER ROLE {PLATFORM_READER} PASSWORD {quoted}")
        if not await conn.fetchval("SELECT true FROM pg_database WHERE datname = 'platform'"):
            await conn.execute("CREATE DATABASE platform")
    finally:
        await conn.close()
    conn = await asyncpg.connect(dsn, database="platform")
    try:
        await conn.execute(
            f"""
            SET client_min_messages = warning;
            CREATE SCHEMA IF NOT EXISTS platform;
            GRANT USAGE ON SCHEMA platform TO {PLATFORM_READER};
            GRANT SELECT ON ALL TABLES IN SCHEMA platform TO {PLATFORM_READER};
            ALTER DEFAULT PRIVILEGES IN SCHEMA platform GRANT SELECT ON TABLES TO {PLATFORM_READER};
            """
        )
    finally:
        await conn.close()
