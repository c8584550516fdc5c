"""Pairs are made, changed and decided on: each command is one operation, in one transaction, with one id."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

import asyncpg

from libs.contracts.library import PairDetail
from libs.contracts.queries.base import Reply
from libs.contracts.queries.qa_curation import (
    AcceptSuggestion,
    ArchivePair,
    CreatePair,
    CuratedPair,
    CuratedPairs,
    Curating,
    DeletePair,
    DismissSuggestion,
    EditPair,
    ListReviews,
    ListSuggestions,
    MergePairs,
    PairChanges,
    PairDeleted,
    PairRef,
    PromoteExtraction,
    ProposeEdit,
    PublishPair,
    RestorePair,
    ReviewPair,
    Reviews,
    SplitPair,
    SuggestionDecided,
    SuggestionReply,
    Suggestions,
    SuggestionView,
    SupersedePair,
    UndoOperation,
    VerifyPair,
)
from libs.service_kit import logging
from libs.service_kit.connection import see_only
from libs.service_kit.db import Database, Transaction
from libs.service_kit.errors import Refused
from libs.service_kit.requests import Once, repeatable
from services.qa_ingest import metrics
from services.qa_ingest.domain import curation as rules
from services.qa_ingest.domain.curation import Change, Row, Unfit
from services.qa_ingest.domain.envelope import Envelope
from services.qa_ingest.domain.pair_facts import removed
from services.qa_ingest.store import curation, extractions, operations, pairs, suggestions
from services.qa_ingest.store.operations import Operation
from services.qa_ingest.store.suggestions import Suggestion
from services.qa_ingest.telling import tell

log = logging.get(__name__)
ReplyT = TypeVar("ReplyT", bound=Reply)
OVERDUE_AT_ONCE = 200
GOVERNANCE = "governance"
"""Who says that a review is overdue."""


@dataclass(slots=True)
class Work:
    """One operation under way: its transaction, and what it did so far."""

    tx: Transaction[Any]
    query: Curating
    kind: str
    at: datetime
    id: UUID = field(default_factory=uuid4)
    workspace_id: UUID | None = None
    touched: list[UUID] = field(default_factory=list)
    detail: dict[str, Any] = field(default_factory=dict)

    async def rows(self, refs: Sequence[PairRef], also: Sequence[UUID] = ()) -> dict[UUID, dict[str, Any]]:
        """These pairs, locked, each of the version that it was read as; `also` are those that only have to be there."""
        wanted = [*(ref.id for ref in refs), *also]
        if len(set(wanted)) != len(wanted):
            raise Unfit("named_twice", "a pair is named twice", 422)
        found = await curation.locked(self.tx.conn, wanted, sensitive=self.query.sees_sensitive)
        for pair_id in wanted:
            if pair_id not in found:
                raise none("pair", pair_id)
        workspaces = {row["workspace_id"] for row in found.values()}
        if len(workspaces) != 1:
            raise Unfit("other_workspace", "all pairs must be of one workspace", 422)
        await self.enter(workspaces.pop())
        for ref in refs:
            rules.require_version(found[ref.id], ref.version)
        return found

    async def enter(self, workspace_id: UUID) -> None:
        """From here on nothing of another workspace is seen."""
        self.workspace_id = workspace_id
        await operations.enter(self.tx.conn, workspace_id)

    async def apply(self, pair_id: UUID, change: Change) -> None:
        """Change a pair; the history says who, why and by which operation."""
        await self._say(change.change_type)
        await curation.update(self.tx.conn, pair_id, change.columns)
        self.touched.append(pair_id)

    async def add(self, rows: Sequence[Mapping[str, Any]], change_type: rules.ChangeType) -> list[UUID]:
        """New pairs of these columns; their ids."""
        made = [uuid4() for _ in rows]
        own = {"workspace_id": self.workspace_id, "created_by": self.query.by}
        await self._say(change_type)
        await curation.insert(self.tx.conn, [{**row, **own, "id": one} for one, row in zip(made, rows, strict=True)])
        self.touched += made
        return made

    async def shown(self) -> tuple[PairDetail, ...]:
        """Every pair that it touched, as it is now."""
        ids = dict.fromkeys(self.touched)
        found = [await pairs.get(self.tx.conn, "curated", one, history=False, sensitive=True) for one in ids]
        return tuple(one for one in found if one is not None)

    async def finish(self) -> None:
        """Keep that it was done, and tell others."""
        assert self.workspace_id is not None
        await curation.record(
            self.tx.conn,
            self.id,
            self.workspace_id,
            self.kind,
            by=self.query.by,
            by_kind=self.query.by_kind,
            reason=self.query.reason,
            detail=self.detail,
        )
        if self.touched:
            await tell(self.tx, self.workspace_id, self._operation("edit"))

    async def _say(self, change_type: rules.ChangeType) -> None:
        await operations.say(self.tx.conn, self._operation(change_type))

    def _operation(self, change_type: rules.ChangeType) -> Operation:
        return Operation(self.query.by, change_type, self.query.reason, self.id)


async def _curated(
    db: Database, query: Curating, kind: str, do: Callable[[Work], Awaitable[ReplyT]], *, keep: bool = True
) -> ReplyT:
    """Run one command: everything that it does is there together, once, or not at all."""
    once = Once[ReplyT](query, lambda reply: reply)  # type: ignore[arg-type]  # a Curating is mixed into a query
    with _answered():
        async with db.transaction() as tx:
            await see_only(tx.conn, query.workspace_ids)
            await once.begin(tx.conn)
            work = Work(tx, query, kind, datetime.now(UTC))
            reply = await do(work)
            if keep:
                await work.finish()
            await once.end(tx.conn, reply)
    metrics.OPERATIONS.labels(kind).inc()
    log.info("qa.pairs.curated", kind=kind, operation_id=str(work.id), pairs=len(set(work.touched)))
    return reply


@contextmanager
def _answered() -> Iterator[None]:
    """What the rules and the tables do not let stand is an answer."""
    try:
        yield
    except Unfit as no:
        raise Refused(no.code, no.detail, status=no.status, **no.extra) from no
    except asyncpg.UniqueViolationError as error:
        raise Refused("id_token_taken", "id_token: another pair of the workspace has it", status=409) from error
    except asyncpg.CheckViolationError as error:
        if "circle" in str(error):
            raise Refused("circle", "the pairs would supersede each other in a circle", status=409) from error
        raise Refused("invalid", f"a value is out of its bounds ({error.constraint_name})", status=422) from error
    except asyncpg.ForeignKeyViolationError as error:
        raise Refused("gone", "something that the pair refers to is gone by now", status=409) from error
    except asyncpg.DeadlockDetectedError as error:
        raise Refused("busy", "the pairs are being changed by somebody else: try again", status=503) from error


def none(what: str, identity: UUID) -> Unfit:
    """There is no such thing, or it is not for this caller; which, is not told."""
    return Unfit("not_found", f"there is no {what} {identity} in these workspaces", 404)


async def _one(
    db: Database, query: Curating, kind: str, ref: PairRef, change: Callable[[Row, Work], Awaitable[Change]]
) -> CuratedPair:
    """A command that changes one pair."""

    async def do(work: Work) -> CuratedPair:
        row = (await work.rows([ref]))[ref.id]
        await work.apply(ref.id, await change(row, work))
        (pair,) = await work.shown()
        return CuratedPair(operation_id=work.id, pair=pair)

    return await _curated(db, query, kind, do)


# --- new pairs --------------------------------------------------------------------------------------------------


@repeatable
async def answer_create(query: CreatePair, db: Database) -> CuratedPair:
    """Make a pair. Where another asks the same, a suggestion says so."""

    async def do(work: Work) -> CuratedPair:
        if query.publication_status != "draft":
            rules.require_person(query.by_kind, "publish, nor ask for a review")
        await _enter_only(work)
        given = query.from_answer
        row = rules.new(query.pair, work.at, query.publication_status, given.text if given else None)
        (made,) = await work.add([row], "promote_from_bid" if given else "initial_ingest")
        if given is not None and given.reference:
            assert work.workspace_id is not None
            await curation.cite(work.tx.conn, work.workspace_id, made, "bid_response", given.reference, query.by)
        await _suggest_same(work, made, row["question_text"])
        (pair,) = await work.shown()
        return CuratedPair(operation_id=work.id, pair=pair)

    return await _curated(db, query, "create", do)


@repeatable
async def answer_promote(query: PromoteExtraction, db: Database) -> CuratedPair:
    """Make a pair of an extraction."""

    async def do(work: Work) -> CuratedPair:
        if query.publication_status != "draft":
            rules.require_person(query.by_kind, "publish, nor ask for a review")
        found = await curation.extraction(work.tx.conn, query.extraction_id, sensitive=query.sees_sensitive)
        if found is None:
            raise none("extraction", query.extraction_id)
        await work.enter(found["workspace_id"])
        row = rules.of_extraction(found, work.at, query.publication_status)
        (made,) = await work.add([row], "promote_from_extraction")
        await extractions.promote(work.tx.conn, {query.extraction_id: made}, query.by)
        work.detail["promoted"] = [str(query.extraction_id)]
        for cited in found["citations"]:
            await curation.cite(work.tx.conn, found["workspace_id"], made, "document", cited, query.by)
        await _suggest_same(work, made, row["question_text"])
        (pair,) = await work.shown()
        return CuratedPair(operation_id=work.id, pair=pair)

    return await _curated(db, query, "promote", do)


async def _enter_only(work: Work) -> None:
    if len(work.query.workspace_ids) != 1:
        raise Unfit("which_workspace", "workspace_id: name the one workspace that the pair is for", 422)
    (workspace_id,) = work.query.workspace_ids
    await work.enter(workspace_id)
    if not await curation.has_workspace(work.tx.conn, workspace_id):
        raise none("workspace", workspace_id)


async def _suggest_same(work: Work, pair_id: UUID, question: str) -> None:
    assert work.workspace_id is not None
    other = await curation.asking_the_same(work.tx.conn, work.workspace_id, question, pair_id)
    if other is not None:
        first, second = sorted((pair_id, other))
        key = f"{first}|{second}"
        found = Suggestion(work.workspace_id, "same_question", key, work.query.by, pair_id=other, other_pair_id=pair_id)
        await suggestions.add(work.tx.conn, [found])


# --- one pair ---------------------------------------------------------------------------------------------------


@repeatable
async def answer_edit(query: EditPair, db: Database) -> CuratedPair:
    """Change a pair."""

    async def change(row: Row, work: Work) -> Change:
        rules.require_person(query.by_kind, "change pairs")
        return rules.edited(row, query.changes, query.clear, work.at)

    return await _one(db, query, "edit", query.pair, change)


@repeatable
async def answer_propose(query: ProposeEdit, db: Database) -> SuggestionReply:
    """Keep a proposed edit that could be made now."""

    async def do(work: Work) -> SuggestionReply:
        row = (await work.rows([query.pair]))[query.pair.id]
        rules.edited(row, query.changes, query.clear, work.at)
        detail = {
            "changes": query.changes.model_dump(mode="json", exclude_none=True),
            "clear": list(query.clear),
            "version": query.pair.version,
            "reason": query.reason,
            "by_kind": query.by_kind,
        }
        key = rules.proposal_key(row, query.changes, query.clear)
        made = await curation.propose(work.tx.conn, row["workspace_id"], row["id"], key, detail, query.by)
        found = await curation.suggestion(work.tx.conn, made, sensitive=True)
        assert found is not None
        return SuggestionReply(suggestion=found)

    return await _curated(db, query, "propose_edit", do, keep=False)


@repeatable
async def answer_supersede(query: SupersedePair, db: Database) -> CuratedPair:
    """Let another pair stand in for this one."""

    async def do(work: Work) -> CuratedPair:
        rules.require_person(query.by_kind, "supersede pairs")
        if query.superseded_by == query.pair.id:
            raise Unfit("itself", "superseded_by: a pair does not supersede itself", 422)
        rows = await work.rows([query.pair], also=[query.superseded_by])
        await work.apply(query.pair.id, rules.superseded(rows[query.pair.id], rows[query.superseded_by]))
        (pair,) = await work.shown()
        return CuratedPair(operation_id=work.id, pair=pair)

    return await _curated(db, query, "supersede", do)


@repeatable
async def answer_archive(query: ArchivePair, db: Database) -> CuratedPair:
    """Put a pair away."""

    async def change(row: Row, _: Work) -> Change:
        rules.require_person(query.by_kind, "archive pairs")
        return rules.archived(row, query.reason)

    return await _one(db, query, "archive", query.pair, change)


@repeatable
async def answer_restore(query: RestorePair, db: Database) -> CuratedPair:
    """Bring back what was archived or superseded."""

    async def change(row: Row, _: Work) -> Change:
        rules.require_person(query.by_kind, "restore pairs")
        return rules.restored(row)

    return await _one(db, query, "restore", query.pair, change)


@repeatable
async def answer_verify(query: VerifyPair, db: Database) -> CuratedPair:
    """Record that a person found the answer right."""

    async def change(row: Row, work: Work) -> Change:
        rules.require_person(query.by_kind, "verify pairs")
        return rules.verified(row, query.by, work.at)

    return await _one(db, query, "verify", query.pair, change)


@repeatable
async def answer_publish(query: PublishPair, db: Database) -> CuratedPair:
    """Move a pair between draft, review and published."""

    async def change(row: Row, _: Work) -> Change:
        rules.require_person(query.by_kind, "publish pairs")
        return rules.moved(row, query.status)

    return await _one(db, query, "publish", query.pair, change)


@repeatable
async def answer_review(query: ReviewPair, db: Database) -> CuratedPair:
    """Record a governance review."""

    async def change(row: Row, work: Work) -> Change:
        rules.require_person(query.by_kind, "review pairs")
        if query.to_version is not None and query.outcome != "reverted":
            raise Unfit("not_reverted", "to_version: only `reverted` goes back to a version", 422, field="to_version")
        earlier = None
        if query.outcome == "reverted":
            versions = await curation.versions_before(work.tx.conn, row["id"], row["version"])
            earlier = rules.before_the_last_words(row, versions, query.to_version)
        return rules.reviewed(row, query.outcome, query.by, work.at.date(), earlier)

    return await _one(db, query, "review", query.pair, change)


@repeatable
async def answer_delete(query: DeletePair, db: Database) -> PairDeleted:
    """Remove a pair for good. That it was done stays written, without its words."""

    async def do(work: Work) -> PairDeleted:
        rules.require_person(query.by_kind, "delete pairs")
        row = (await work.rows([query.pair]))[query.pair.id]
        heirs = await curation.count_superseded_by(work.tx.conn, query.pair.id)
        if heirs:
            raise Unfit("stands_in", f"{heirs} pairs are superseded by it: restore or delete those first", pairs=heirs)
        await curation.delete(work.tx.conn, query.pair.id)
        work.tx.emit(*removed(row, query.by, work.at))
        work.detail["deleted"] = str(query.pair.id)
        return PairDeleted(operation_id=work.id, pair_id=query.pair.id)

    return await _curated(db, query, "delete", do)


# --- several pairs ----------------------------------------------------------------------------------------------


@repeatable
async def answer_merge(query: MergePairs, db: Database) -> CuratedPairs:
    """Let pairs be taken up by one."""

    async def do(work: Work) -> CuratedPairs:
        rules.require_person(query.by_kind, "merge pairs")
        rows = await work.rows([query.into, *query.absorbed])
        await _merge(work, rows[query.into.id], [rows[ref.id] for ref in query.absorbed])
        return CuratedPairs(operation_id=work.id, pairs=await work.shown())

    return await _curated(db, query, "merge", do)


async def _merge(work: Work, into: Row, absorbed: Sequence[Row]) -> None:
    change = rules.merged(into, absorbed)
    await work.apply(into["id"], change)
    for row in absorbed:
        await work.apply(row["id"], rules.superseded(row, into, "merge"))
    cited = await curation.copy_citations(work.tx.conn, [row["id"] for row in absorbed], [into["id"]], work.query.by)
    work.detail["cited"] = [str(one) for one in cited]


@repeatable
async def answer_split(query: SplitPair, db: Database) -> CuratedPairs:
    """Make several pairs of one."""

    async def do(work: Work) -> CuratedPairs:
        rules.require_person(query.by_kind, "split pairs")
        row = (await work.rows([query.pair]))[query.pair.id]
        parts = await work.add(rules.parts_of(row, query.parts, work.at), "split")
        await work.apply(query.pair.id, rules.archived(row, query.reason or "split", "split"))
        await curation.copy_citations(work.tx.conn, [query.pair.id], parts, query.by)
        work.detail["parts"] = [str(one) for one in parts]
        return CuratedPairs(operation_id=work.id, pairs=await work.shown())

    return await _curated(db, query, "split", do)


@repeatable
async def answer_undo(query: UndoOperation, db: Database) -> CuratedPairs:
    """Bring every pair back to where an operation found it; what it made is archived."""

    async def do(work: Work) -> CuratedPairs:
        rules.require_person(query.by_kind, "undo operations")
        done = await curation.operation(work.tx.conn, query.undone_id)
        if done is None:
            raise none("operation", query.undone_id)
        if done.kind == "undo":
            raise Unfit("not_undoable", f"operation {query.undone_id} undid another: do that one again instead")
        if done.undone_by_id is not None:
            raise Unfit("already_undone", f"operation {query.undone_id} is undone already, by {done.undone_by_id}")
        versions = await curation.versions_of(work.tx.conn, query.undone_id)
        touched = {version.pair_id for version in versions}
        found = await curation.locked(work.tx.conn, list(touched), sensitive=query.sees_sensitive)
        if found.keys() != touched:
            raise none("operation", query.undone_id)
        await work.enter(done.workspace_id)
        now = {one: row["version"] for one, row in found.items()}
        back, made = rules.undo(versions, now, await _as_left(work, now, rules.last_written(versions)))
        for pair_id in made:
            change = rules.archived(found[pair_id], f"operation {query.undone_id} is undone", "restore")
            await work.apply(pair_id, change)
        for pair_id, number in back.items():
            before = await curation.snapshot(work.tx.conn, pair_id, number)
            await work.apply(pair_id, Change(before, "restore"))
        await curation.remove_citations(work.tx.conn, done.detail.get("cited", []))
        await curation.unpromote(work.tx.conn, done.detail.get("promoted", []))
        if "suggestion" in done.detail:
            await curation.reopen(work.tx.conn, UUID(done.detail["suggestion"]))
        await curation.mark_undone(work.tx.conn, query.undone_id, work.id)
        work.detail["undone"] = str(query.undone_id)
        return CuratedPairs(operation_id=work.id, pairs=await work.shown())

    return await _curated(db, query, "undo", do)


async def _as_left(work: Work, now: Mapping[UUID, int], left: Mapping[UUID, int]) -> list[UUID]:
    """Pairs that have later versions than the operation left, and say the same again."""
    later = [one for one, number in left.items() if now[one] > number]
    conn = work.tx.conn
    return [
        one
        for one in later
        if await curation.snapshot(conn, one, now[one]) == await curation.snapshot(conn, one, left[one])
    ]


# --- what waits for people --------------------------------------------------------------------------------------


async def answer_suggestions(query: ListSuggestions, db: Database) -> Suggestions:
    """What a person should look at."""
    async with db.connection(workspaces=query.workspace_ids) as conn:
        return Suggestions(suggestions=tuple(await curation.suggestions(conn, query)))


@repeatable
async def answer_accept(query: AcceptSuggestion, db: Database) -> SuggestionDecided:
    """Do what is suggested."""

    async def do(work: Work) -> SuggestionDecided:
        rules.require_person(query.by_kind, "decide on suggestions")
        found = await _open(work, query.suggestion_id)
        resolution = rules.resolution(found, query.resolution)
        if resolution == "edit":
            await _accept_edit(work, found, query.version)
        elif resolution != "note":
            await _accept_duplicate(work, found, resolution, query.keep)
        return await _decided(work, found, "accepted")

    return await _curated(db, query, "accept", do)


@repeatable
async def answer_dismiss(query: DismissSuggestion, db: Database) -> SuggestionDecided:
    """Leave everything as it is."""

    async def do(work: Work) -> SuggestionDecided:
        rules.require_person(query.by_kind, "decide on suggestions")
        return await _decided(work, await _open(work, query.suggestion_id), "dismissed")

    return await _curated(db, query, "dismiss", do)


async def _open(work: Work, suggestion_id: UUID) -> SuggestionView:
    found = await curation.suggestion(work.tx.conn, suggestion_id, sensitive=work.query.sees_sensitive)
    if found is None:
        raise none("suggestion", suggestion_id)
    if found.state != "open":
        raise Unfit("decided", f"suggestion {suggestion_id} is {found.state} already", state=found.state)
    await work.enter(found.workspace_id)
    return found


async def _decided(work: Work, found: SuggestionView, state: str) -> SuggestionDecided:
    await curation.decide(work.tx.conn, found.suggestion_id, state, work.query.by)
    work.detail["suggestion"] = str(found.suggestion_id)
    now = await curation.suggestion(work.tx.conn, found.suggestion_id, sensitive=True)
    assert now is not None
    return SuggestionDecided(suggestion=now, operation_id=work.id, pairs=await work.shown())


async def _accept_edit(work: Work, found: SuggestionView, version: int | None) -> None:
    assert found.pair_id is not None
    rows = await curation.locked(work.tx.conn, [found.pair_id], sensitive=work.query.sees_sensitive)
    row = rows[found.pair_id]
    read_as = version or found.detail.get("version")
    if read_as is not None:
        rules.require_version(row, int(read_as))
    changes, clear = proposed(row, found.detail)
    await work.apply(found.pair_id, rules.edited(row, changes, clear, work.at))
    await _promote(work, found)


async def _promote(work: Work, found: SuggestionView) -> None:
    """An edit that a file proposed: its block is the pair's now, so that the next change of the file is compared."""
    if found.extraction_id is None or found.pair_id is None:
        return
    block = await curation.extraction(work.tx.conn, found.extraction_id, sensitive=True)
    if block is not None and block["promoted_to_pair_id"] is None and block["invalidated_at"] is None:
        await extractions.promote(work.tx.conn, {found.extraction_id: found.pair_id}, work.query.by)
        work.detail["promoted"] = [str(found.extraction_id)]


def proposed(row: Row, detail: Mapping[str, Any]) -> tuple[PairChanges, Sequence[Any]]:
    """The changes of a proposed edit: of a person or an agent, or a whole block of a file."""
    if "changes" in detail:
        return PairChanges.model_validate(detail["changes"]), detail.get("clear", [])
    block = Envelope.model_validate(detail)
    gone = ["answer_advanced"] if block.answer_advanced is None and row["answer_advanced"] is not None else []
    return rules.edit_of_block(row, block), gone


async def _accept_duplicate(work: Work, found: SuggestionView, resolution: str, keep: UUID | None) -> None:
    assert found.pair_id is not None and found.other_pair_id is not None
    both = [found.pair_id, found.other_pair_id]
    rows = await curation.locked(work.tx.conn, both, sensitive=work.query.sees_sensitive)
    stays = rules.stays(found, [rows[one] for one in both], keep)
    goes = next(rows[one] for one in both if one != stays)
    if resolution == "merge":
        await _merge(work, rows[stays], [goes])
    else:
        await work.apply(goes["id"], rules.superseded(goes, rows[stays]))


# --- governance -------------------------------------------------------------------------------------------------


async def answer_reviews(query: ListReviews, db: Database, grace_days: int) -> Reviews:
    """Which pairs wait for a review."""
    now = datetime.now(UTC)
    until, overdue_before = now + timedelta(days=query.within_days), now - timedelta(days=grace_days)
    async with db.connection(workspaces=query.workspace_ids) as conn:
        return Reviews(reviews=tuple(await curation.reviews(conn, query, until, overdue_before)))


@dataclass(frozen=True, slots=True)
class Governance:
    """Watches over reviews: one that nobody did for `grace_days` is overdue."""

    db: Database
    grace_days: int
    workspaces: Callable[[], Sequence[UUID]]

    async def mark_overdue(self) -> int:
        """Say so of every pair whose review is overdue; of how many."""
        return sum([await self._mark(workspace_id) for workspace_id in self.workspaces()])

    async def _mark(self, workspace_id: UUID) -> int:
        marked = 0
        while True:
            operation = Operation(GOVERNANCE, "governance_review_action", "its review is overdue")
            before = datetime.now(UTC) - timedelta(days=self.grace_days)
            async with self.db.transaction() as tx:
                await operations.enter(tx.conn, workspace_id)
                await operations.say(tx.conn, operation)
                found = await curation.mark_overdue(tx.conn, workspace_id, before, OVERDUE_AT_ONCE)
                if found:
                    await tell(tx, workspace_id, operation)
            marked += found
            if found < OVERDUE_AT_ONCE:
                return marked
