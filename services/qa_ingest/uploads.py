"""Files that a person or an application brings: into a bucket, or among the uploads of a workspace."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from uuid import UUID, uuid4

from libs.contracts.queries.qa_ingest import (
    MAX_PART_BYTES,
    BucketObject,
    BucketObjects,
    EstimateExtraction,
    ExtractionEstimate,
    Followed,
    FollowedReply,
    FollowObject,
    ListObjects,
    UploadDocument,
)
from libs.contracts.vocabulary import registered
from libs.llm import ModelError, ModelPool, UnknownPrice
from libs.service_kit import logging
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from services.qa_ingest.buckets.base import MAX_OBJECT_BYTES, Away, Unreadable, is_source, too_large
from services.qa_ingest.buckets.uploads import NAME, UploadsBucket
from services.qa_ingest.domain.bindings import DEFAULT_WORKSPACE, ON_REQUEST, Binding, workspace_id_of
from services.qa_ingest.extractors.base import File, FileRejected
from services.qa_ingest.ingest import Bound, Ingest, file_of
from services.qa_ingest.prose import Prose, Reading
from services.qa_ingest.store import documents, operations, uploads
from services.qa_ingest.store.uploads import Waiting

log = logging.get(__name__)

CURATED = "yaml_frontmatter_v1"
"""Bundles make pairs, as in the folder of `burnish up`; what migration helpers find waits for a person."""
PATIENCE_S = 45.0
"""An asker waits so long for the outcome; the reading goes on without it."""


class Uploads:
    """Takes files, and follows objects that somebody names."""

    def __init__(self, db: Database, ingest: Ingest, prose: Prose | None = None) -> None:
        """Without `prose` only free models read it."""
        self._db = db
        self._ingest = ingest
        self._prose = prose or Prose(db, ModelPool())
        self._asking: set[tuple[UUID, str]] = set()
        """Files about which a model is being asked."""
        self._reading: set[asyncio.Task[Followed]] = set()

    async def take(self, query: UploadDocument) -> FollowedReply:
        """Keep a piece; with the last one the file is read. Raises `Refused`."""
        bound = self._into(query)
        content = await self._whole(query)
        if content is None:
            return FollowedReply()
        if bound is None:
            bound = await self._put(query, content)
        else:
            try:
                await bound.bucket.write(query.object_key, content)
            except Away as error:
                raise _away(bound) from error
            except Unreadable as error:
                raise Refused(error.code, f"object_key: {error.message}", status=422) from error
        return FollowedReply(followed=await self._followed(bound, query.object_key))

    async def estimate(self, query: EstimateExtraction) -> ExtractionEstimate:
        """What `llm_extraction` would cost on a file. Raises `Refused`."""
        if len(query.content) > MAX_PART_BYTES:
            raise Refused("too_large", f"content: at most {MAX_PART_BYTES:,} bytes", status=413)
        return await self._estimate(query.workspace_id, query.object_key, query.content)

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
                if (workspace_id, each.object_key) not in self._asking:
                    await self._follow_again(workspace_id, each)

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
        if query.max_usd is not None and query.extractor not in ON_REQUEST:
            told = f"max_usd: only {', '.join(sorted(ON_REQUEST))} costs something; leave it out"
            raise Refused("no_cost", told, status=422)
        if query.bucket in (None, NAME):
            return None
        bound = self._named(query.bucket, (query.workspace_id,))
        if query.extractor not in (None, bound.binding.extractor):
            detail = (
                f"extractor: files of this bucket are read by {bound.binding.extractor}; leave it out, or the bucket"
            )
            raise Refused("other_extractor", detail, status=409)
        return bound

    async def _follow_again(self, workspace_id: UUID, waiting: Waiting) -> None:
        try:
            bound = self._uploads_of(workspace_id, waiting)
        except ModelError as error:
            log.warning("qa.prose.no_model", error=error.reason)
            return
        await self._follow(bound, waiting.object_key)

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

    def _uploads_of(self, workspace_id: UUID, put: Waiting) -> Bound:
        """The uploads of a workspace, as this one is read. Raises `ModelError` where no model can read it."""
        extractor, reading = put.extractor, None
        if extractor in ON_REQUEST:
            reading = self._prose.reading(workspace_id, put.run_id or uuid4(), put.max_usd or Decimal())
        binding = Binding(
            bucket=NAME,
            kind="uploads",
            workspace="uploads",
            workspace_id=workspace_id,
            extractor=extractor,
            curate_as_pair=extractor == CURATED,
        )
        return Bound(UploadsBucket(self._db, workspace_id), binding, reading)

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

    async def _put(self, query: UploadDocument, content: bytes) -> Bound:
        """Keep a file among the uploads, which are then read as it says. Raises `Refused`, and then keeps nothing."""
        put = Waiting(query.object_key, query.extractor or CURATED, query.max_usd, uuid4())
        if put.extractor in ON_REQUEST:
            await self._require_cap(query, content)
        try:
            bound = self._uploads_of(query.workspace_id, put)
        except ModelError as error:
            raise _no_model(error) from error
        async with self._db.transaction() as tx:
            await operations.enter(tx.conn, query.workspace_id)
            await uploads.put(tx.conn, query.workspace_id, put, content)
        return bound

    async def _require_cap(self, query: UploadDocument, content: bytes) -> None:
        if query.max_usd is None:
            told = "max_usd: say what asking a model may cost at most; an estimate tells how much that can be"
            raise Refused("no_cap", told, status=422)
        estimate = await self._estimate(query.workspace_id, query.object_key, content)
        if estimate.most_usd > query.max_usd:
            told = (
                f"max_usd: asking {estimate.model} about it can cost {estimate.most_usd} USD, more than "
                f"{query.max_usd}; nothing was asked. Allow as much, or bring less text"
            )
            raise Refused("over_cap", told, status=409)

    async def _estimate(self, workspace_id: UUID, key: str, content: bytes) -> ExtractionEstimate:
        try:
            return await self._prose.estimate(workspace_id, File(key.rsplit("/", 1)[-1], content))
        except FileRejected as refused:
            raise Refused(refused.code, f"content: {refused.problems[0].message}", status=422) from refused
        except ModelError as error:
            raise _no_model(error) from error

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

    async def _ask(self, bound: Bound, reading: Reading, key: str) -> None:
        """Let a model read what is not served yet as it reads it."""
        content = await bound.bucket.read(key)
        if content is None or await self._ingest.is_served(bound, key, content):
            return
        here = bound.workspace_id, key
        self._asking.add(here)
        try:
            await reading.ask(file_of(bound, key, content))
        finally:
            self._asking.discard(here)

    async def _follow(self, bound: Bound, key: str) -> Followed:
        if isinstance(bound.reader, Reading):
            await self._ask(bound, bound.reader, key)
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


def _no_model(error: ModelError) -> Refused:
    code = "unknown_price" if isinstance(error, UnknownPrice) else "no_model"
    return Refused(code, f"no model can read it: {error.reason}", status=409)


def _away(bound: Bound) -> Refused:
    return Refused("bucket_away", f"the bucket {bound.bucket.name} does not answer now; ask again later", status=503)
