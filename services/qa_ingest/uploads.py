"""Files that a person or an application brings: into a bucket, or among the uploads of a workspace."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from libs.contracts.queries.qa_ingest import (
    MAX_PART_BYTES,
    BucketObject,
    BucketObjects,
    Followed,
    FollowedReply,
    FollowObject,
    ListObjects,
    UploadDocument,
)
from libs.contracts.vocabulary import registered
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from services.qa_ingest.buckets.base import MAX_OBJECT_BYTES, Away, Unreadable, is_source, too_large
from services.qa_ingest.buckets.uploads import NAME, UploadsBucket
from services.qa_ingest.domain.bindings import DEFAULT_WORKSPACE, Binding, workspace_id_of
from services.qa_ingest.ingest import Bound, Ingest
from services.qa_ingest.store import documents, operations, uploads

CURATED = "yaml_frontmatter_v1"
"""Bundles make pairs, as in the folder of `burnish up`; what migration helpers find waits for a person."""
PATIENCE_S = 45.0
"""An asker waits so long for the outcome; the reading goes on without it."""


class Uploads:
    """Takes files, and follows objects that somebody names."""

    def __init__(self, db: Database, ingest: Ingest) -> None:
        self._db = db
        self._ingest = ingest
        self._reading: set[asyncio.Task[Followed]] = set()

    async def take(self, query: UploadDocument) -> FollowedReply:
        """Keep a piece; with the last one the file is read. Raises `Refused`."""
        bound = self._into(query)
        content = await self._whole(query)
        if content is None:
            return FollowedReply()
        if bound is None:
            await self._put(query, content)
            bound = self._uploads_of(query.workspace_id, query.extractor or CURATED)
        else:
            try:
                await bound.bucket.write(query.object_key, content)
            except Away as error:
                raise _away(bound) from error
            except Unreadable as error:
                raise Refused(error.code, f"object_key: {error.message}", status=422) from error
        return FollowedReply(followed=await self._followed(bound, query.object_key))

    async def follow(self, query: FollowObject) -> FollowedReply:
        """Look at an object now. Raises `Refused`."""
        bound = self._named(query.bucket, query.workspace_ids)
        return FollowedReply(followed=await self._followed(bound, query.object_key))

    async def objects(self, query: ListObjects) -> BucketObjects:
        """What is in buckets now. Raises `Refused`."""
        keys: list[BucketObject] = []
        for bound in self._meant(query):
            try:
                async for listed in bound.bucket.list():
                    if listed.key.startswith(query.prefix):
                        told = BucketObject(
                            workspace_id=bound.workspace_id, bucket=bound.bucket.name, object_key=listed.key
                        )
                        keys.append(told)
            except Away as error:
                raise _away(bound) from error
        keys.sort(key=lambda each: (each.object_key, each.bucket))
        return BucketObjects(objects=tuple(keys[: query.limit]), more=len(keys) > query.limit)

    async def follow_waiting(self) -> None:
        """Follow what was put and never read, since whoever took it has died; forget pieces of files never whole."""
        for workspace_id in self.workspaces():
            async with self._db.transaction() as tx:
                await operations.enter(tx.conn, workspace_id)
                await uploads.forget_parts(tx.conn)
                waiting = await uploads.waiting(tx.conn)
            for each in waiting:
                await self._follow(self._uploads_of(workspace_id, each.extractor), each.object_key)

    def workspaces(self) -> list[UUID]:
        """Those that files come into: of every bucket, and the default one."""
        return sorted({workspace_id_of(DEFAULT_WORKSPACE), *(each.workspace_id for each in self._ingest.bound)})

    async def stop(self) -> None:
        """End what is still read; what was put is followed at the next start."""
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)

    # --- where to ---------------------------------------------------------------------------------------------

    def _into(self, query: UploadDocument) -> Bound | None:
        """The bucket that is named; None for the uploads. What cannot become anything is refused before it is kept."""
        if not is_source(query.object_key):
            raise Refused("bad_key", "object_key: a printable name is expected, and not that of a report", status=422)
        if query.extractor is not None and query.extractor not in registered("extractors"):
            names = ", ".join(registered("extractors"))
            raise Refused("unknown_extractor", f"extractor: there are {names}", status=422)
        if query.bucket in (None, NAME):
            return None
        bound = self._named(query.bucket, (query.workspace_id,))
        if query.extractor not in (None, bound.binding.extractor):
            detail = (
                f"extractor: files of this bucket are read by {bound.binding.extractor}; leave it out, or the bucket"
            )
            raise Refused("other_extractor", detail, status=409)
        return bound

    def _named(self, name: str | None, workspace_ids: Sequence[UUID] | None) -> Bound:
        here = self._of(workspace_ids)
        for bound in here:
            if bound.bucket.name == name:
                return bound
        told = ", ".join(bound.bucket.name for bound in here) or "none"
        raise Refused("not_found", f"there is no bucket {name!r} in these workspaces; there are: {told}", status=404)

    def _meant(self, query: ListObjects) -> list[Bound]:
        if query.s3_bucket is None:
            return [self._named(query.bucket, query.workspace_ids)]
        here = self._of(query.workspace_ids)
        found = [each for each in here if each.binding.options.get("s3_bucket") == query.s3_bucket]
        if not found:
            detail = f"no bucket is bound to s3://{query.s3_bucket}: bind it in BURNISH_QA_BUCKETS first"
            raise Refused("not_found", detail, status=404)
        return found

    def _of(self, workspace_ids: Sequence[UUID] | None) -> list[Bound]:
        return [each for each in self._ingest.bound if workspace_ids is None or each.workspace_id in workspace_ids]

    def _uploads_of(self, workspace_id: UUID, extractor: str) -> Bound:
        binding = Binding(
            bucket=NAME,
            kind="uploads",
            workspace="uploads",
            workspace_id=workspace_id,
            extractor=extractor,
            curate_as_pair=extractor == CURATED,
        )
        return Bound(UploadsBucket(self._db, workspace_id), binding)

    # --- keeping and reading ----------------------------------------------------------------------------------

    async def _whole(self, query: UploadDocument) -> bytes | None:
        if query.part >= query.parts:
            raise Refused("bad_part", f"part: there are {query.parts} parts, the first being 0", status=422)
        if len(query.content) > MAX_PART_BYTES:
            raise Refused("too_large", f"content: a piece has at most {MAX_PART_BYTES:,} bytes", status=413)
        if query.parts == 1:
            await self._require_workspace(query.workspace_id)
            return query.content
        await self._require_workspace(query.workspace_id)
        async with self._db.transaction() as tx:
            await operations.enter(tx.conn, query.workspace_id)
            await uploads.keep_part(tx.conn, query.workspace_id, query.upload_id, query.part, query.content)
            there = await uploads.held(tx.conn, query.workspace_id, query.upload_id, query.parts)
            if there.bytes > MAX_OBJECT_BYTES:
                raise Refused("too_large", f"content: {too_large(there.bytes).message}", status=413)
            if there.parts < query.parts:
                return None
            return await uploads.take_whole(tx.conn, query.workspace_id, query.upload_id)

    async def _require_workspace(self, workspace_id: UUID) -> None:
        async with self._db.transaction() as tx:
            await operations.enter(tx.conn, workspace_id)
            if await uploads.workspace_exists(tx.conn, workspace_id):
                return
            if workspace_id != workspace_id_of(DEFAULT_WORKSPACE):
                raise Refused("not_found", "there is no such workspace: bind a bucket to it first", status=404)
            await documents.ensure_workspace(tx.conn, workspace_id, DEFAULT_WORKSPACE, None)

    async def _put(self, query: UploadDocument, content: bytes) -> None:
        async with self._db.transaction() as tx:
            await operations.enter(tx.conn, query.workspace_id)
            extractor = query.extractor or CURATED
            await uploads.put(tx.conn, query.workspace_id, query.object_key, extractor, content)

    async def _followed(self, bound: Bound, key: str) -> Followed:
        task = asyncio.create_task(self._follow(bound, key))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)
        try:
            return await asyncio.wait_for(asyncio.shield(task), PATIENCE_S)
        except TimeoutError:
            return Followed(
                workspace_id=bound.workspace_id, bucket=bound.bucket.name, object_key=key, outcome="waiting"
            )
        except Away as error:
            raise _away(bound) from error

    async def _follow(self, bound: Bound, key: str) -> Followed:
        outcome = await self._ingest.follow(bound, key)
        workspace_id, bucket = bound.workspace_id, bound.bucket.name
        async with self._db.transaction() as tx:
            await operations.enter(tx.conn, workspace_id)
            if bucket == NAME:
                await uploads.followed(tx.conn, workspace_id, key)
            known = await documents.newest_of(tx.conn, workspace_id, bucket, key)
        return Followed.model_validate(
            {
                "workspace_id": workspace_id,
                "bucket": bucket,
                "object_key": key,
                "outcome": outcome,
                "document_id": known.id if known else None,
            }
        )


def _away(bound: Bound) -> Refused:
    return Refused("bucket_away", f"the bucket {bound.bucket.name} does not answer now; ask again later", status=503)
