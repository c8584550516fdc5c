"""A real gateway in this process, with a token of an admin: for tests and the benchmark of the SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from libs.auth.signing import jwks, new_signing_key
from libs.auth.tokens import mint
from libs.service_kit.testing import Installation
from services.gateway.app import build as build_gateway
from services.gateway.settings import Settings as GatewaySettings
from services.normaliser.app import build as build_normaliser
from services.normaliser.settings import Settings as NormaliserSettings
from services.registry.app import build as build_registry
from services.registry.settings import Settings as RegistrySettings

TOUCHPOINT = {
    "id": "sdk.greeting",
    "scope": "global",
    "storage": {"adapter": "feed_prompts", "initial_text": "Be kind."},
}


@dataclass(frozen=True)
class Real:
    """Where it is, and a token for everything."""

    url: str
    token: str


@asynccontextmanager
async def real_gateway(installation: Installation, folder: Path) -> AsyncIterator[Real]:
    """The gateway, the registry and the normaliser, running."""
    key = new_signing_key()
    keys = folder / "jwks.json"
    keys.write_text(jwks(key), encoding="utf-8")
    gateway = build_gateway(GatewaySettings(**installation.settings("gateway"), jwt_jwks=str(keys)))
    registry = build_registry(RegistrySettings(**installation.settings("registry")))
    signals = build_normaliser(NormaliserSettings(**installation.settings("normaliser")))
    async with AsyncExitStack() as stack:
        for service in (registry, signals, gateway):
            await service.start()
            stack.push_async_callback(service.close)
        yield Real(f"http://127.0.0.1:{gateway.http_port}", mint(key, "sdk", roles=["admin"], workspaces="*"))
