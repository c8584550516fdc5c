"""Live prompts over HTTP: served from the gateway's memory, against asking the registry for each.

`python -m bench.live --json`. Gateway and registry are processes of their own; the callers are keep-alive connections
that send bare bytes, so that the client costs little. Both sides in turns, on the same prompt of 4 KB. `not_modified`
is the same with the ETag, which most callers send.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import click
import httpx

from bench import machine
from libs.auth.signing import SigningKey, jwks, new_signing_key
from libs.auth.tokens import mint
from libs.embedded.ports import free_port
from libs.service_kit.testing import Installation

GOAL = 1.5
ROUNDS = 5
CONNECTIONS = 16
TEXT = "- intent: when somebody asks about it\n" * 110
PATH = "/api/refinement/touchpoints/bench.live/live"


@dataclass
class Load:
    """What came back of one round: how many answers, of which status, and how long each took in seconds."""

    seconds: float = 0.0
    statuses: dict[int, int] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.waits) / self.seconds

    def p99_ms(self) -> float:
        """The wait that one in a hundred exceeds."""
        return round(sorted(self.waits)[int(len(self.waits) * 0.99)] * 1e3, 2)


@click.command()
@click.option("--quick", is_flag=True, help="A quarter of the time.")
@click.option("--json", "as_json", is_flag=True, help="The default; for symmetry with the other benchmarks.")
def main(quick: bool, as_json: bool) -> None:
    """Measure and print one JSON object."""
    del as_json
    seconds = 1.0 if quick else 4.0

    async def measure(installation: Installation) -> dict[str, Any]:
        await installation.fresh_topology()
        key = new_signing_key()
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="burnish-bench-live-")))
            (folder / "jwks.json").write_text(jwks(key))
            await stack.enter_async_context(service(installation, "registry", folder))
            sides = {
                "memory": await stack.enter_async_context(service(installation, "gateway", folder, "3600")),
                "asking": await stack.enter_async_context(service(installation, "gateway", folder, "0")),
            }
            etag = await prepared(sides["memory"], key)
            found = {name: [await load(port, key, seconds / 4)] for name, port in sides.items()}  # warm
            for name in found:
                found[name].clear()
            unchanged = []
            for _ in range(ROUNDS):
                for name, port in sides.items():
                    found[name].append(await load(port, key, seconds))
                unchanged.append(await load(sides["memory"], key, seconds / 2, etag))
        ratios = [a.rate / b.rate for a, b in zip(found["memory"], found["asking"], strict=True)]
        ratio = round(median(ratios), 2)
        figures = {
            "ratio": ratio,
            "per_second": {name: round(median(one.rate for one in loads)) for name, loads in found.items()},
            "p99_ms": {name: median(one.p99_ms() for one in loads) for name, loads in found.items()},
            "not_modified_per_second": round(median(one.rate for one in unchanged)),
            "statuses": sorted(
                {status for loads in (*found.values(), unchanged) for one in loads for status in one.statuses}
            ),
        }
        return machine.report("live", f">= {GOAL}", ratio >= GOAL, figures)

    machine.run(measure)


@asynccontextmanager
async def service(installation: Installation, name: str, folder: Path, fresh_s: str = "") -> AsyncIterator[int]:
    """The service as a process, ready; its port."""
    settings, port = installation.settings(name), free_port()
    environment = {
        "PATH": os.environ["PATH"],
        **{f"BURNISH_{one.upper()}": str(settings[one]) for one in ("database_url", "nats_url", "nats_user")},
        "BURNISH_NATS_PASSWORD": settings["nats_password"],
        "BURNISH_HTTP_PORT": str(port),
        "BURNISH_JWT_JWKS": str(folder / "jwks.json"),
        "BURNISH_LOG_LEVEL": "ERROR",
        **({"BURNISH_LIVE_FRESH_S": fresh_s} if fresh_s else {}),
    }
    child = await asyncio.to_thread(
        subprocess.Popen[bytes], [sys.executable, "-m", f"services.{name}"], env=environment
    )
    try:
        async with httpx.AsyncClient(trust_env=False) as client, asyncio.timeout(60):
            while True:
                try:
                    if (await client.get(f"http://127.0.0.1:{port}/health/ready")).status_code == 200:
                        break
                except httpx.HTTPError:
                    pass
                await asyncio.sleep(0.05)
        yield port
    finally:
        child.terminate()
        await asyncio.to_thread(child.wait)


async def prepared(port: int, key: SigningKey) -> str:
    """The touchpoint is registered; its ETag."""
    storage = {"adapter": "feed_prompts", "initial_text": TEXT}
    body = {"touchpoints": [{"id": "bench.live", "scope": "global", "storage": storage}]}
    token = mint(key, "bench", roles=["admin"], workspaces="*")
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=30
    ) as client:
        (await client.put("/api/refinement/touchpoints", json=body)).raise_for_status()
        return (await client.get(PATH)).raise_for_status().headers["etag"]


async def load(port: int, key: SigningKey, seconds: float, etag: str = "") -> Load:
    """Ask on every connection, one question after the other, for so long."""
    token = mint(key, "bench", scopes=["prompts:read"])
    condition = f"If-None-Match: {etag}\r\n" if etag else ""
    request = f"GET {PATH} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\n{condition}\r\n".encode()
    result = Load()
    started = time.perf_counter()
    await asyncio.gather(*(_ask(port, request, started + seconds, result) for _ in range(CONNECTIONS)))
    result.seconds = time.perf_counter() - started
    return result


async def _ask(port: int, request: bytes, until: float, result: Load) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while (asked := time.perf_counter()) < until:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), 0
            )
            await reader.readexactly(length)
            result.waits.append(time.perf_counter() - asked)
            status = int(head[9:12])
            result.statuses[status] = result.statuses.get(status, 0) + 1
    finally:
        writer.close()


if __name__ == "__main__":
    main()
