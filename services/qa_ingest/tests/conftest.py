"""What tests of buckets share: an S3 server for the test process, and an empty store of each kind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from libs.service_kit.testing.servers import Servers
from services.qa_ingest.tests import s3_server
from services.qa_ingest.tests.s3_server import S3Server
from services.qa_ingest.tests.stores import KINDS, Store, store_of


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], S3Server]]:
    """The server, started at the first call."""
    with ExitStack() as stack:
        yield cache(lambda: stack.enter_context(s3_server.running(tmp_path_factory.mktemp("s3"))))


@pytest.fixture(params=KINDS)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, servers: Servers, s3: Callable[[], S3Server]
) -> AsyncIterator[Store]:
    """An empty store: the same test runs on every kind."""
    async with store_of(request.param, tmp_path, servers, s3) as made:
        yield made
