"""The one data folder of an installation: its secrets, its ports, its logs, and the note of what runs in it."""

from __future__ import annotations

import contextlib
import json
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from pydantic import TypeAdapter, ValidationError

from burnish.errors import InstallationError
from burnish.json_text import NotJson, is_text, parsed
from libs.contracts.topology import SERVICES, bus_users
from libs.embedded.folder import ServerFolder
from libs.files import UnreadableFile, read_text
from libs.provisioning.nats_config import ADMIN_USER

if TYPE_CHECKING:
    from libs.auth.signing import SigningKey

NEEDS_BYTES = 300_000_000
NEEDS_AGAIN_BYTES = 100_000_000
MAX_BYTES = 1_000_000
MCP_PORT = 8321
OURS = frozenset({"secrets.json", "signing_key.json", "installation.json", "lock"})
OF_NOBODY = frozenset({"lost+found", ".gitignore", ".gitkeep", "engine", "library", "nats", "postgres"})
PLATFORM_READER = "platform_reader"


def has_data(folder: Path) -> bool:
    """Whether an installation was started there before."""
    return (folder / "ports.json").exists()


def new_password() -> str:
    """`p-` and hex: digits, `true` and spaces break NATS's parsing of environment variables."""
    return f"p-{secrets.token_hex(24)}"


@dataclass(frozen=True)
class Secrets:
    """Every password of an installation. Kept in `secrets.json`, mode 0600."""

    roles: dict[str, str]
    nats: dict[str, str]
    platform_reader: str

    @classmethod
    def new(cls) -> Secrets:
        """Fresh ones, from the operating system's randomness."""
        names = [entry.name for entry in SERVICES]
        return cls(
            roles={name: new_password() for name in names},
            nats={name: new_password() for name in [ADMIN_USER, *bus_users()]},
            platform_reader=new_password(),
        )


@dataclass(frozen=True)
class Platform:
    """Where the application's tables may be, on the embedded Postgres: as their owner, and as scanners read them."""

    owner_dsn: str
    reader_dsn: str
    reader_role: str


@dataclass(frozen=True)
class RunningNote:
    """What `burnish up` writes down so that other commands find it: `installation.json`, mode 0600."""

    pid: int
    created: float
    url: str
    token: str
    nats_url: str
    admin_dsn: str
    services: dict[str, str] = field(default_factory=dict)  # name -> base URL of its health endpoints
    platform: Platform | None = None  # None where scanners read elsewhere

    def is_alive(self) -> bool:
        """Whether the process that wrote it still runs, and not another that got its pid."""
        try:
            return psutil.Process(self.pid).create_time() == self.created
        except (psutil.Error, ValueError, OverflowError):
            return False


_SECRETS = TypeAdapter(Secrets)
_NOTE = TypeAdapter(RunningNote)


class DataFolder:
    """Reads and writes what an installation keeps between starts. `open()` makes it ours alone."""

    def __init__(self, path: Path) -> None:
        self._folder = ServerFolder(path)

    @property
    def path(self) -> Path:
        """The folder, absolute."""
        return self._folder.path

    @property
    def logs(self) -> Path:
        """Where each service's log is."""
        return self.path / "logs"

    @property
    def library(self) -> Path:
        """The folder that feeds the Q&A library: what is dropped there is read."""
        return self.path / "library"

    def open(self) -> None:
        """Make the folder and lock it. Raises `FolderInUse`, or `EmbeddedError` for a disk full or not writable."""
        self._require_ours()
        self._folder.open(NEEDS_AGAIN_BYTES if has_data(self.path) else NEEDS_BYTES)
        with self._folder.explained(NEEDS_BYTES):
            self.logs.mkdir(mode=0o700, exist_ok=True)
            self.library.mkdir(mode=0o700, exist_ok=True)
        if not (self.path / ".gitignore").exists():
            self._write(".gitignore", "*\n")

    def close(self) -> None:
        """Forget what ran here and let others have the folder."""
        self.forget_running()
        self._folder.close()

    def secrets(self) -> Secrets:
        """The installation's secrets, made at the first call. Raises when the file cannot be read."""
        found = self._read("secrets.json")
        if found is None:
            made = Secrets.new()
            self._write("secrets.json", json.dumps(asdict(made), indent=1))
            return made
        try:
            kept = _SECRETS.validate_python(found)
        except ValidationError as error:
            missing = ", ".join(".".join(map(str, one["loc"])) for one in error.errors(include_input=False))
            raise self._unreadable("secrets.json", f"it has no usable {missing}") from error
        return self._completed(kept)

    def signing_key(self) -> SigningKey:
        """The key that signs tokens of our own, made at the first call; its public half goes to `jwks.json`."""
        from libs.auth.signing import SigningKey, jwks, new_signing_key

        path = self.path / "signing_key.json"
        if not path.exists():
            key = new_signing_key()
            self._write(path.name, json.dumps(key.jwk))
        try:
            key = SigningKey.load(path)
        except (OSError, ValueError) as error:
            raise self._unreadable(path.name, type(error).__name__) from error
        if not self.public_keys.exists():
            self._write(self.public_keys.name, jwks(key))
        return key

    @property
    def public_keys(self) -> Path:
        """The JWKS with which the gateway verifies our tokens."""
        return self.path / "jwks.json"

    def ledger_key(self) -> Path:
        """The key that signs the ledger's head, made at the first call; its public half goes to `ledger_key.pub`."""
        from libs.auth.statements import StatementKey

        path = self.path / "ledger_key.pem"
        if not path.exists():
            StatementKey.new().save(path)
        try:
            key = StatementKey.load(path)
        except (OSError, ValueError) as error:
            raise self._unreadable(path.name, type(error).__name__) from error
        if not self.public_ledger_key.exists():
            self._write(self.public_ledger_key.name, f"{key.public}\n")
        return path

    @property
    def public_ledger_key(self) -> Path:
        """The public half of the key that signs the ledger's head."""
        return self.path / "ledger_key.pub"

    def ports(self) -> dict[str, int]:
        """The ports of last time, by name; empty at first."""
        found = self._read("ports.json") or {}
        return {name: port for name, port in found.items() if type(port) is int and 0 < port < 65_536}

    def remember_ports(self, ports: dict[str, int]) -> None:
        """Write them down for the next start."""
        self._write("ports.json", json.dumps(ports))

    def remember_running(self, note: RunningNote) -> None:
        """Let other commands find what runs here."""
        self._write("installation.json", json.dumps(asdict(note), indent=1))

    def forget_running(self) -> None:
        """Nothing runs here any more."""
        with contextlib.suppress(OSError):
            (self.path / "installation.json").unlink(missing_ok=True)

    def running(self) -> RunningNote | None:
        """What runs here now; None when nothing does, or its process was killed."""
        found = self._read("installation.json")
        if found is None:
            return None
        try:
            note = _NOTE.validate_python(found)
        except ValidationError:
            return None  # written by another version; whoever runs it is not ours to talk to
        return note if note.is_alive() else None

    def _completed(self, kept: Secrets) -> Secrets:
        """A service that is new in this version gets its passwords now."""
        names = [entry.name for entry in SERVICES]
        missing_roles = [name for name in names if name not in kept.roles]
        missing_nats = [name for name in [ADMIN_USER, *bus_users()] if name not in kept.nats]
        if not missing_roles and not missing_nats:
            return kept
        whole = Secrets(
            roles={**kept.roles, **{name: new_password() for name in missing_roles}},
            nats={**kept.nats, **{name: new_password() for name in missing_nats}},
            platform_reader=kept.platform_reader,
        )
        self._write("secrets.json", json.dumps(asdict(whole), indent=1))
        return whole

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            found = parsed(read_text(self.path / name, MAX_BYTES))
        except UnreadableFile as error:
            if error.absent:
                return None
            if isinstance(error.__cause__, PermissionError):
                raise InstallationError(str(error), "run as the user who started the installation") from error
            raise self._unreadable(name, error.reason) from error
        except NotJson as error:
            raise self._unreadable(name, str(error)) from error
        if not isinstance(found, dict):
            raise self._unreadable(name, "it is not a JSON object")
        return found

    def _require_ours(self) -> None:
        """A new folder, an empty one, or one that was made here. In any other we would change modes and files."""
        if not is_text(str(self.path)):
            raise InstallationError("the name of the data folder is not UTF-8", "name another with --data")
        with self._folder.explained(NEEDS_BYTES):
            names = {entry.name for entry in self.path.iterdir()} if self.path.is_dir() else set()
        if names - OF_NOBODY and not names & OURS:
            raise InstallationError(
                f"{self.path} is no data folder: it has other things in it",
                "name a new or empty folder with --data, or one that Burnish made",
            )

    def _write(self, name: str, text: str) -> None:
        if not self.path.exists() or name in ("secrets.json", "signing_key.json"):
            self._require_ours()
        with self._folder.explained(NEEDS_BYTES):
            self.path.mkdir(parents=True, exist_ok=True)
            self._folder.write(name, text)

    def _unreadable(self, name: str, why: str) -> InstallationError:
        return InstallationError(
            f"{self.path / name} is damaged: {why}",
            "restore it from a backup, or choose another data folder with --data",
        )
