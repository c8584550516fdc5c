"""Fixtures of the API's tests: the gateway with the registry behind it, both real, and tokens of every kind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

import services.gateway.app
import services.registry.app
from libs.auth.signing import SigningKey, jwks, new_signing_key
from libs.auth.statements import StatementKey
from libs.auth.tokens import mint
from libs.service_kit.service import Service
from libs.service_kit.testing import Installation
from services.gateway.settings import Settings as GatewaySettings
from services.registry.settings import Settings as RegistrySettings
from services.registry.tests.conftest import in_git as in_git
from services.registry.tests.conftest import repository as repository


@pytest.fixture(scope="session")
def key() -> SigningKey:
    """The issuer's key."""
    return new_signing_key()


class Api:
    """The running services and clients for the gateway with tokens of every kind."""

    def __init__(self, service: Service, registry: Service, key: SigningKey, stack: AsyncExitStack) -> None:
        self.service = service
        self.registry = registry
        self.key = key
        self._stack = stack

    async def client(self, **claims: Any) -> httpx.AsyncClient:
        """A client whose token says this."""
        token = mint(self.key, claims.pop("subject", "ada"), **claims)
        return await self.bare({"Authorization": f"Bearer {token}"})

    async def admin(self, **claims: Any) -> httpx.AsyncClient:
        """A client of an admin with every workspace."""
        return await self.client(**{"roles": ["admin"], "workspaces": "*", **claims})

    async def bare(self, headers: dict[str, str] | None = None) -> httpx.AsyncClient:
        """A client with just these headers."""
        base = f"http://127.0.0.1:{self.service.http_port}"
        client = httpx.AsyncClient(base_url=base, headers=headers, timeout=15, trust_env=False)
        return await self._stack.enter_async_context(client)


def registry_settings(installation: Installation, roots: Path, **more: Any) -> RegistrySettings:
    """The registry's, for this test."""
    settings = {"repository_roots": (roots,), "intents_every_s": 0.2, **more}
    return RegistrySettings(**installation.settings("registry"), **settings)


def gateway_settings(installation: Installation, keys: Path, **more: Any) -> GatewaySettings:
    """The gateway's, for this test."""
    return GatewaySettings(**installation.settings("gateway"), **{"jwt_jwks": str(keys), **more})


@pytest.fixture
def ledger_key(tmp_path: Path) -> StatementKey:
    """The key that signs the ledger's head, in a file."""
    made = StatementKey.new()
    made.save(tmp_path / "ledger_key.pem")
    return made


def cut(service: Service) -> None:
    """The service's connection to the bus breaks."""
    transport = service.bus.client._transport
    assert transport is not None
    transport.close()  # type: ignore[no-untyped-call]


@pytest.fixture
def keys(key: SigningKey, tmp_path: Path) -> Path:
    """The issuer's public keys, in a file."""
    path = tmp_path / "jwks.json"
    path.write_text(jwks(key))
    return path


@pytest_asyncio.fixture
async def api(
    installation: Installation, key: SigningKey, keys: Path, ledger_key: StatementKey, tmp_path: Path
) -> AsyncIterator[Api]:
    """Gateway and registry, running for real in this process."""
    settings = registry_settings(installation, tmp_path / "repos", ledger_key=tmp_path / "ledger_key.pem")
    registry = services.registry.app.build(settings)
    gateway = services.gateway.app.build(gateway_settings(installation, keys))
    await registry.start()
    await gateway.start()
    async with AsyncExitStack() as stack:
        yield Api(gateway, registry, key, stack)
    await gateway.close()
    await registry.close()
