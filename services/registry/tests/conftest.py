"""Fixtures of the registry: its database, a git repository, and the running service with tokens for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from libs.auth.signing import SigningKey, jwks, new_signing_key
from libs.auth.tokens import mint
from libs.contracts.touchpoints import Touchpoint
from libs.service_kit.db import Database
from libs.service_kit.service import Service
from libs.service_kit.testing import Installation
from services.registry.app import build
from services.registry.ledger import Ledger
from services.registry.pending_merges import PendingMerges
from services.registry.registration import Registration
from services.registry.settings import Settings
from services.registry.storage import Repositories
from services.registry.tests.support import FIRST, SKILL, Parts, Repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A repository with the first prompt committed."""
    made = Repository(tmp_path / "repos" / "desk")
    made.commit(SKILL, FIRST, "First prompt")
    return made


@pytest_asyncio.fixture
async def parts(database: Callable[[str], Awaitable[Database]], tmp_path: Path) -> Parts:
    """The registry's parts on this test's database, without a bus."""
    db = await database("registry")
    ledger = Ledger(db)
    repositories = Repositories([tmp_path / "repos"])
    return Parts(
        db, ledger, repositories, PendingMerges(db, ledger, repositories), Registration(db, ledger, repositories)
    )


@pytest.fixture(scope="session")
def key() -> SigningKey:
    """The issuer's key."""
    return new_signing_key()


class Api:
    """The running service and clients for it with tokens of every kind."""

    def __init__(self, service: Service, key: SigningKey, stack: AsyncExitStack) -> None:
        self.service = service
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


@pytest_asyncio.fixture
async def api(installation: Installation, key: SigningKey, tmp_path: Path) -> AsyncIterator[Api]:
    """The registry, running for real in this process."""
    keys = tmp_path / "jwks.json"
    keys.write_text(jwks(key))
    service = build(
        Settings(
            **installation.settings("registry"),
            repository_roots=(tmp_path / "repos",),
            jwt_jwks=str(keys),
            intents_every_s=0.2,
        )
    )
    await service.start()
    async with AsyncExitStack() as stack:
        yield Api(service, key, stack)
    await service.close()


@pytest.fixture
def in_git(repository: Repository) -> Touchpoint:
    """A global touchpoint whose prompt is a file of the repository."""
    return Touchpoint.model_validate(
        {
            "id": "support.intent",
            "scope": "global",
            "storage": {"adapter": "skill_file", "repository": str(repository.root), "paths": [SKILL]},
            "signals": [{"scanner": "si_flag"}],
        }
    )
