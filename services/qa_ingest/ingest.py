"""From an object in a bucket to what the library serves of it: all of a version becomes visible together, or nothing.

Events and listings are only hints. Whoever follows one reads the object as it is now, under a lock of that object, so
hints that are late, doubled or out of order end in the same rows.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Protocol
from uuid import UUID, uuid4

from libs.contracts.events.qa_ingest import QaDocumentDeletedV1, QaDocumentIngestedV1, QaDocumentRejectedV1
from libs.service_kit import faults, logging
from libs.service_kit.connection import session_lock
from libs.service_kit.db import Database, Transaction
from services.qa_ingest import drafts, metrics, sandbox
from services.qa_ingest.buckets.base import Away, Bucket, Listed, Unreadable, is_source
from services.qa_ingest.domain import changes, extraction_facts, pair_facts
from services.qa_ingest.domain.bindings import ON_REQUEST, Binding
from services.qa_ingest.domain.blocks import Problem
from services.qa_ingest.domain.chunks import Chunk, is_text, split
from services.qa_ingest.domain.classifier import Domain, classified, domains_of
from services.qa_ingest.domain.envelope import Envelope, Extracted
from services.qa_ingest.extractors import named, run
from services.qa_ingest.extractors.base import File, FileRejected
from services.qa_ingest.extractors.text import decode
from services.qa_ingest.store import chunks, documents, extractions, history, operations, pairs, suggestions
from services.qa_ingest.store.documents import Known, Received, Run
from services.qa_ingest.store.operations import Operation
from services.qa_ingest.store.suggestions import Suggestion
from services.qa_ingest.telling import tell

log = logging.get(__name__)
IN_PROCESS = frozenset({"yaml_frontmatter_v1"})
"""Extractors of our own plain text format; all others read in a child process."""
BY = "ingest"
AT_ONCE = 2
"""Objects that are followed at once: each holds two connections of the pool, and more would wait for each other."""
UNREAD_IN_A_ROW = 3
"""So many objects of a bucket that cannot be read, one after the other, are taken for a bucket that is away."""


class Reader(Protocol):
    """What reads files of a bucket instead of its extractor alone, such as a model. `version` names all of it."""

    version: str

    async def extract(self, file: File) -> Extracted:
        """Everything in the file. Raises `FileRejected`."""
        ...


@dataclass(frozen=True, slots=True)
class Bound:
    """A bucket and what it is bound to."""

    bucket: Bucket
    binding: Binding
    reader: Reader | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock, compare=False)
    """Held while an object of it is followed: a bucket that hangs takes one of the places, not all of them."""

    @property
    def workspace_id(self) -> UUID:
        """Whose documents these are."""
        return self.binding.workspace_key


class Ingest:
    """Brings buckets into the library."""

    def __init__(self, db: Database, bound: Sequence[Bound], *, locks: bool = True) -> None:
        self._db = db
        self._locks = locks
        self.bound = bound
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._unnamed: set[UUID] = set()

    async def prepare(self) -> None:
        """Make the workspaces that buckets are bound to."""
        for each in self.bound:
            await self._prepare(each)

    async def _prepare(self, bound: Bound) -> None:
        """Make the workspace, and let it name its touchpoint as soon as that is registered.

        Pairs that were published before are then told of once more: now they are cases of somebody's.
        """
        binding, workspace_id = bound.binding, bound.workspace_id
        async with self._db.transaction() as tx:
            await operations.enter(tx.conn, workspace_id)
            before = await history.home(tx.conn, workspace_id)
            await documents.ensure_workspace(tx.conn, workspace_id, binding.workspace, binding.touchpoint_id)
            home = await history.home(tx.conn, workspace_id)
            if home != before:
                served, at = await pairs.served(tx.conn, workspace_id), datetime.now(UTC)
                tx.emit(*(pair_facts.published(row, workspace_id, row["version"], at, home) for row in served))
        waits = binding.touchpoint_id is not None and home.touchpoint_id != binding.touchpoint_id
        (self._unnamed.add if waits else self._unnamed.discard)(workspace_id)

    async def look(self) -> int:
        """Compare every bucket's listing with what is known, and follow each difference; how many there were."""
        return sum([await self.look_at(each) for each in self.bound])

    async def look_at(self, bound: Bound) -> int:
        """The same for one bucket. One that is away is told of, and changes nothing."""
        if bound.workspace_id in self._unnamed:
            await self._prepare(bound)
        up = metrics.BUCKET_UP.labels(bound.bucket.name)
        try:
            followed = await self._look(bound)
        except Away as error:
            # A listing that broke off says nothing about what is gone.
            log.warning("qa.bucket.away", bucket=bound.bucket.name, error=str(error))
            up.set(0)
            return 0
        up.set(1)
        return followed

    async def _look(self, bound: Bound) -> int:
        async with self._db.connection(workspaces=[bound.workspace_id]) as conn:
            known = await documents.newest(conn, bound.workspace_id, bound.bucket.name)
        there: set[str] = set()
        reading = _Reading(self, bound)
        async for listed in bound.bucket.list():
            there.add(listed.key)
            if listed.settled and _is_new(known.get(listed.key), listed, bound.binding.extractor):
                await reading.follow(listed.key, listed.version)
        for key in sorted(key for key, one in known.items() if one.state != "deleted" and key not in there):
            await reading.follow(key)
        metrics.BUCKET_OBJECTS.labels(bound.bucket.name).set(len(there))
        metrics.BUCKET_LISTED.labels(bound.bucket.name).set_to_current_time()
        return reading.followed

    async def follow(self, bound: Bound, key: str, listed_version: str | None = None) -> str:
        """Bring one object to where it is now in its bucket; what came of it. Raises `Away`.

        Nobody else follows the same object meanwhile, so that an older reading never comes last.
        """
        if not is_source(key):
            return "passed_by"
        started = datetime.now(UTC)
        lock = f"qa.{bound.workspace_id}.{bound.bucket.name}.{key}"
        async with bound.turn, self._slots, self._locked(lock):
            faults.point("lock_read")
            content = await _read(bound, key)
            faults.point("read_write")
            if content is None:
                outcome = await self._delete(bound, key)
            else:
                received = _received(bound, key, content, listed_version)
                outcome = await self._take(bound, received, content, started)
            faults.point("commit_unlock")
        metrics.DOCUMENTS.labels(outcome).inc()
        log.info("qa.document.followed", bucket=bound.bucket.name, outcome=outcome)
        return outcome

    @asynccontextmanager
    async def _locked(self, key: str) -> AsyncIterator[None]:
        async with self._db.connection() as conn, session_lock(conn, key) if self._locks else nullcontext():
            yield

    async def is_served(self, bound: Bound, key: str, content: bytes) -> bool:
        """Whether what an object holds is served already, as this very reader reads it."""
        received = _received(bound, key, content, None)
        async with self._transaction(bound) as tx:
            before = await documents.served(tx.conn, bound.workspace_id, received.bucket, key)
        return before is not None and before.state == "live" and _same(before, received)

    # --- a version of an object -------------------------------------------------------------------------------

    async def _take(self, bound: Bound, received: Received, content: bytes | FileRejected, started: datetime) -> str:
        async with self._transaction(bound) as tx:
            before = await documents.served(tx.conn, bound.workspace_id, received.bucket, received.object_key)
            newest = await documents.newest_of(tx.conn, bound.workspace_id, received.bucket, received.object_key)
            # Live, or refused before for the same content: there is nothing to say that was not said. A model that was
            # away, or cost too much, may read it now.
            refused = newest is not None and newest.state == "rejected" and bound.reader is None
            known = newest if refused else before
            if known and known.state in ("live", "rejected") and _same(known, received):
                if received.listed_version is not None:  # a hint knows no version
                    await documents.listed_as(tx.conn, known.id, received.listed_version)
                return "unchanged"
        found = await _extracted(bound, received.object_key, content)
        passages = _passages(received.object_key, content)
        async with self._transaction(bound) as tx:
            if isinstance(found, FileRejected):
                await self._refuse(tx, received, before, found, started)
                return "rejected"
            await drafts.begin(tx.conn, bound.workspace_id, received.object_key)
            document_id = await self._serve(tx, bound.binding, received, before, found, started)
            sensitive = any(pair.sensitive for pair in found.pairs)
            await chunks.add(tx.conn, received.workspace_id, document_id, passages, sensitive=sensitive)
            return "ingested"

    @asynccontextmanager
    async def _transaction(self, bound: Bound) -> AsyncIterator[Transaction[Any]]:
        async with self._db.transaction() as tx:
            await operations.enter(tx.conn, bound.workspace_id)
            yield tx
            faults.point("write_commit")

    async def _refuse(
        self, tx: Transaction[Any], received: Received, before: Known | None, refused: FileRejected, started: datetime
    ) -> None:
        if before is not None:
            await documents.mark_stale(tx.conn, before.id)
        document_id = await documents.insert(tx.conn, received, "rejected", refused.code)
        problems = [{"line": problem.line, "message": problem.message} for problem in refused.problems[:100]]
        run = Run("rejected", started, code=refused.code, problems=problems)
        await documents.add_run(tx.conn, received.workspace_id, document_id, received, run)
        tx.emit(
            QaDocumentRejectedV1(
                document_id=document_id,
                workspace_id=received.workspace_id,
                bucket=received.bucket,
                object_key=received.object_key,
                content_sha256=received.content_sha256,
                code=refused.code,
                rejected_at=datetime.now(UTC),
            )
        )

    async def _serve(
        self,
        tx: Transaction[Any],
        binding: Binding,
        received: Received,
        before: Known | None,
        found: Extracted,
        started: datetime,
    ) -> UUID:
        now = [(pair, changes.content_sha256(pair)) for pair in found.pairs]
        old = await extractions.live(tx.conn, before.id) if before else []
        comparison = changes.compare(old, now)
        gone: list[UUID] = []
        if before is not None:
            gone = await extractions.invalidate(tx.conn, before.id, "source_changed")
            tx.emit(*extraction_facts.invalidated(before.id, received.workspace_id, "source_changed", gone, started))
            await documents.end(tx.conn, before.id, "replaced")
            await suggestions.outdate(tx.conn, gone)
        document_id = await documents.insert(tx.conn, received, "live")
        run = Run(
            "ingested",
            started,
            pairs=len(found.pairs),
            losses=found.losses.model_dump(mode="json"),
            notices=found.notices,
            rejects=found.rejects,
        )
        run_id = await documents.add_run(tx.conn, received.workspace_id, document_id, received, run)
        at = datetime.now(UTC)
        ids = await extractions.add(tx.conn, received, document_id, run_id, now, comparison.carried, at.isoformat())
        made = [ids[ordinal] for ordinal in sorted(ids)]
        tx.emit(*extraction_facts.came(document_id, received.workspace_id, received.extractor, made, at))
        await self._flag(tx, received, comparison.changed, ids, "its source says something else now")
        if binding.curate_as_pair:
            sure = [
                pair for pair in found.pairs if binding.extractor not in ON_REQUEST or pair.provenance != "AMBIGUOUS"
            ]
            await _Curation(tx, binding, received, document_id, at).curate(sure, ids, comparison.carried)
        await drafts.settle(tx.conn, received.workspace_id, received.object_key, document_id)
        tx.emit(
            QaDocumentIngestedV1(
                document_id=document_id,
                workspace_id=received.workspace_id,
                bucket=received.bucket,
                object_key=received.object_key,
                content_sha256=received.content_sha256,
                extractor=received.extractor,
                pairs=len(found.pairs),
                rejects=len(found.rejects),
                ingested_at=at,
            )
        )
        return document_id

    async def _flag(
        self,
        tx: Transaction[Any],
        received: Received,
        changed: Sequence[changes.Changed],
        ids: Mapping[int, UUID],
        reason: str,
    ) -> None:
        if not changed:
            return
        operation = Operation(BY, "source_changed", f"{received.object_key}: {reason}")
        await operations.say(tx.conn, operation)
        await pairs.flag(tx.conn, [each.pair_id for each in changed])
        await tell(tx, received.workspace_id, operation)
        await suggestions.add(
            tx.conn,
            [
                Suggestion(
                    received.workspace_id,
                    "source_changed",
                    f"{each.pair_id}|{received.content_sha256}",
                    pair_id=each.pair_id,
                    extraction_id=ids.get(each.by) if each.by is not None else None,
                )
                for each in changed
            ],
        )

    # --- an object that is gone -------------------------------------------------------------------------------

    async def _delete(self, bound: Bound, key: str) -> str:
        async with self._transaction(bound) as tx:
            known = await documents.newest_of(tx.conn, bound.workspace_id, bound.bucket.name, key)
            before = await documents.served(tx.conn, bound.workspace_id, bound.bucket.name, key)
            if known is None or (before is None and known.state == "deleted"):
                return "unchanged"
            if known.state == "rejected":
                await documents.end(tx.conn, known.id, "deleted")
            if before is None:
                return "deleted"
            await drafts.begin(tx.conn, bound.workspace_id, key)
            promoted = [live for live in await extractions.live(tx.conn, before.id) if live.pair_id is not None]
            gone = await extractions.invalidate(tx.conn, before.id, "source_deleted")
            at = datetime.now(UTC)
            tx.emit(*extraction_facts.invalidated(before.id, bound.workspace_id, "source_deleted", gone, at))
            await suggestions.outdate(tx.conn, gone)
            await documents.end(tx.conn, before.id, "deleted")
            lost = [changes.Changed(live.pair_id, live.extraction_id, None) for live in promoted if live.pair_id]
            await self._flag(tx, _received(bound, key, b"", None), lost, {}, "it is gone from its bucket")
            await drafts.settle(tx.conn, bound.workspace_id, key, None)
            tx.emit(
                QaDocumentDeletedV1(
                    document_id=before.id,
                    workspace_id=bound.workspace_id,
                    bucket=bound.bucket.name,
                    object_key=key,
                    deleted_at=datetime.now(UTC),
                )
            )
        return "deleted"


class _Reading:
    """Follows one object of a bucket after the other; a few that cannot be read do not keep the others waiting."""

    def __init__(self, ingest: Ingest, bound: Bound) -> None:
        self._ingest = ingest
        self._bound = bound
        self._unread = 0
        self.followed = 0

    async def follow(self, key: str, version: str | None = None) -> None:
        """Raises `Away` when it is not the object but the bucket."""
        try:
            await self._ingest.follow(self._bound, key, version)
        except Away as error:
            self._unread += 1
            if self._unread >= UNREAD_IN_A_ROW:
                raise
            log.warning("qa.object.unread", bucket=self._bound.bucket.name, error=str(error))
            return
        self._unread = 0
        self.followed += 1


class _Curation:
    """Bundles whose blocks are pairs: new ones are made, changed ones become proposed edits, never a second pair."""

    def __init__(
        self, tx: Transaction[Any], binding: Binding, received: Received, document_id: UUID, at: datetime
    ) -> None:
        self._tx = tx
        self._binding = binding
        self._received = received
        self._document_id = document_id
        self._at = at

    async def curate(self, found: Sequence[Envelope], ids: Mapping[int, UUID], carried: Mapping[int, UUID]) -> None:
        """Make pairs of what is new, and propose edits of what is known and differs."""
        workspace_id = self._received.workspace_id
        known = await pairs.by_token(self._tx.conn, workspace_id, [each.id_token for each in found if each.id_token])
        unnamed = [each.question for each in found if each.id_token is None]
        asked = await pairs.by_question(self._tx.conn, workspace_id, unnamed)
        asking: dict[str, list[Any]] = {}
        for row in asked:
            asking.setdefault(_folded(row["question_text"]), []).append(row)
        new: list[Envelope] = []
        edits: list[Suggestion] = []
        promoted: dict[UUID, UUID] = {}
        for envelope in found:
            same = asking.get(_folded(envelope.question), [])
            pair = known.get(envelope.id_token) if envelope.id_token else _of_the_same(same, envelope)
            if pair is None and envelope.ordinal not in carried:
                new.append(envelope)
            elif pair is not None and _differs(pair, envelope):
                edits.append(self._edit(envelope, pair["id"], ids.get(envelope.ordinal)))
            elif pair is not None and envelope.ordinal in ids and envelope.ordinal not in carried:
                promoted[ids[envelope.ordinal]] = pair["id"]
        operation = Operation(BY, "initial_ingest", self._received.object_key)
        await operations.say(self._tx.conn, operation)
        rows = [self._row(envelope, ids.get(envelope.ordinal)) for envelope in new]
        await pairs.add(self._tx.conn, rows)
        await self._tell_new(rows, operation)
        promoted |= {ids[each.ordinal]: row["id"] for each, row in zip(new, rows, strict=True) if each.ordinal in ids}
        await extractions.promote(self._tx.conn, promoted, BY)
        await suggestions.add(self._tx.conn, edits)

    async def _tell_new(self, rows: Sequence[dict[str, Any]], operation: Operation) -> None:
        """New pairs are known without reading their history: there may be very many."""
        of = self._received.workspace_id
        self._tx.emit(*(pair_facts.created(row, of, operation.operation_id, BY, self._at) for row in rows))
        served = [row for row in rows if pair_facts.is_served({**row, "superseded_by": None})]
        if served:
            home = await history.home(self._tx.conn, self._received.workspace_id)
            workspace_id, at = self._received.workspace_id, self._at
            self._tx.emit(*(pair_facts.published(row, workspace_id, 1, at, home) for row in served))

    def _row(self, envelope: Envelope, extraction_id: UUID | None) -> dict[str, Any]:
        return pairs.row_of(
            uuid4(),
            self._received.workspace_id,
            envelope,
            at=self._at.isoformat(),
            by=BY,
            document_id=self._document_id,
            extraction_id=extraction_id,
            trusted=self._binding.trusted,
        )

    def _edit(self, envelope: Envelope, pair_id: UUID, extraction_id: UUID | None) -> Suggestion:
        return Suggestion(
            self._received.workspace_id,
            "proposed_edit",
            f"{pair_id}|{changes.content_sha256(envelope)}",
            pair_id=pair_id,
            extraction_id=extraction_id,
            detail=envelope.model_dump(mode="json", exclude_defaults=True),
        )


@cache
def _domains() -> tuple[Domain, ...]:
    return domains_of((files("services.qa_ingest") / "domains.toml").read_text("utf-8"))


def file_of(bound: Bound, key: str, content: bytes) -> File:
    """An object as extractors take it."""
    return File(key.rsplit("/", 1)[-1], content, bound.workspace_id)


async def _extracted(bound: Bound, key: str, content: bytes | FileRejected) -> Extracted | FileRejected:
    if isinstance(content, FileRejected):
        return content
    binding, file = bound.binding, file_of(bound, key, content)
    try:
        if bound.reader is not None:
            found = await bound.reader.extract(file)
        elif binding.extractor in IN_PROCESS:
            found = run(binding.extractor, file)
        else:
            found = await sandbox.extract(binding.extractor, file)
        return found.model_copy(update={"pairs": tuple(classified(pair, _domains()) for pair in found.pairs)})
    except FileRejected as refused:
        return refused


def _passages(key: str, content: bytes | FileRejected) -> list[Chunk]:
    """What is searched of a file beside its pairs: the text of files that are text."""
    if isinstance(content, FileRejected) or not is_text(key):
        return []
    try:
        return split(decode(content))
    except FileRejected:
        return []


async def _read(bound: Bound, key: str) -> bytes | FileRejected | None:
    try:
        return await bound.bucket.read(key)
    except Unreadable as error:
        return FileRejected(error.code, [Problem(1, error.message)])


def _received(bound: Bound, key: str, content: bytes | FileRejected, listed_version: str | None) -> Received:
    raw = b"" if isinstance(content, FileRejected) else content
    # What could not be read is no empty file.
    sha = hashlib.sha256(content.code.encode() if isinstance(content, FileRejected) else raw).hexdigest()
    extractor = named(bound.binding.extractor)
    version = bound.reader.version if bound.reader is not None else extractor.version
    return Received(
        workspace_id=bound.workspace_id,
        bucket=bound.bucket.name,
        object_key=key,
        # The content names the version: what a listing says may be older than what was read.
        object_version=f"{sha[:16]}.{extractor.kind}.{version}",
        content_sha256=sha,
        bytes=len(raw),
        extractor=extractor.kind,
        extractor_version=version,
        listed_version=listed_version,
    )


def _same(before: Known, received: Received) -> bool:
    return (before.content_sha256, before.extractor, before.extractor_version) == (
        received.content_sha256,
        received.extractor,
        received.extractor_version,
    )


def _is_new(known: Known | None, listed: Listed, extractor: str) -> bool:
    if known is None or known.state == "deleted" or known.listed_version != listed.version:
        return True
    return (known.extractor, known.extractor_version) != (extractor, named(extractor).version)


def _differs(pair: Any, envelope: Envelope) -> bool:
    """Does a block say something else than its pair? Only what people read counts."""
    return (pair["question_text"], pair["answer_standard"], pair["answer_advanced"]) != (
        envelope.question,
        envelope.answer_standard,
        envelope.answer_advanced,
    )


def _folded(question: str) -> str:
    return " ".join(question.casefold().split())


def _of_the_same(pairs_that_ask_it: Sequence[Any], envelope: Envelope) -> Any | None:
    """The pair that says the same, whatever became of it, else the oldest one in use."""
    equal = (row for row in pairs_that_ask_it if not _differs(row, envelope))
    in_use = (row for row in pairs_that_ask_it if row["in_use"])
    return next(equal, None) or next(in_use, None)
