"""What came through the API: a bucket of each workspace, in the service's own database. No binding names it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

from libs.service_kit.db import Database
from services.qa_ingest.buckets.base import Listed, Unreadable
from services.qa_ingest.store import operations, uploads

NAME = "uploads"


class UploadsBucket:
    """See `Bucket`. Objects are put with the extractor that reads them, by `uploads.put`."""

    name = NAME

    def __init__(self, db: Database, workspace_id: UUID) -> None:
        self._db = db
        self._workspace_id = workspace_id

    async def list(self) -> AsyncIterator[Listed]:
        """See `Bucket`."""
        async with self._db.connection(workspaces=[self._workspace_id]) as conn:
            found = await uploads.listed(conn, self._workspace_id)
        for each in found:
            yield Listed(each.key, each.version, each.size)

    async def read(self, key: str) -> bytes | None:
        async with self._db.connection(workspaces=[self._workspace_id]) as conn:
            return await uploads.get(conn, self._workspace_id, key)

    async def write(self, key: str, content: bytes) -> None:
        raise Unreadable("not_here", "a file is uploaded with the extractor that reads it")

    async def delete(self, key: str) -> None:
        async with self._db.transaction() as tx:
            await operations.enter(tx.conn, self._workspace_id)
            await uploads.delete(tx.conn, self._workspace_id, key)

    def changes(self) -> None:
        """Whoever puts a file follows it."""

    def meant(self, store: str, key: str) -> bool:
        """No store says events about it."""
        return False

    async def close(self) -> None:
        """Nothing is open."""
