"""Fixtures of the registry: its database, a git repository, and the running service with tokens for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from libs.contracts.touchpoints import Touchpoint
from libs.service_kit.db import Database
from services.registry.ledger import Ledger
from services.registry.pending_merges import PendingMerges
from services.registry.registration import Registration
from services.registry.stores import MergedStores
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
    stores = MergedStores([tmp_path / "repos"])
    return Parts(db, ledger, stores, PendingMerges(db, ledger, stores), Registration(db, ledger, stores))


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
