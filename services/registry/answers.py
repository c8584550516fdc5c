"""What the registry answers: who asks decides nothing, and what changes a version is decided here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from libs.auth.statements import StatementKey
from libs.contracts.printable import one_line
from libs.contracts.queries.base import Reply
from libs.contracts.queries.registry import (
    ActivateVersion,
    ActivationReply,
    ApplyTouchpoints,
    Confirmed,
    ConfirmIntents,
    GetLedgerHead,
    GetPrompt,
    GetStanding,
    GetTouchpoint,
    IntentPage,
    LedgerHeadReply,
    LedgerPage,
    ListIntents,
    ListLedger,
    ListTouchpoints,
    ListVersions,
    Plan,
    PlanTouchpoints,
    PromptReply,
    RecordVersion,
    RollBack,
    RollbackView,
    Standing,
    TouchpointPage,
    TouchpointView,
    VerificationView,
    VerifyLedger,
    VersionList,
    VersionReply,
)
from libs.service_kit.db import Connection, Database
from libs.service_kit.errors import Refused
from libs.service_kit.requests import Once, repeatable
from services.registry import prompts, views
from services.registry.adapters.base import StorageError
from services.registry.domain import Target
from services.registry.ledger import Ledger, Switched, require_scope
from services.registry.pending_merges import PendingMerges, ProposedRollback
from services.registry.registration import Planned, Registration
from services.registry.store import entries, intents, touchpoints, versions
from services.registry.store.touchpoints import Registered
from services.registry.store.versions import Text
from services.registry.stores import immediate, is_immediate
from services.registry.verification import Kept, signed_head, verify_ledger

VERIFY_FOR_S = 5.0
"""How long one answer looks at the ledger: well below what an asker waits."""
PAGE_BYTES = 2 * 1024 * 1024
"""Where a page ends that holds texts; each of its items is smaller than what an answer may have beyond it."""

P = ParamSpec("P")
R = TypeVar("R", bound=Reply)


def answers(answer: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """What every answer has: a store's refusal is the asker's, and a request that had its effect is not done again."""

    @wraps(answer)
    async def answered(*args: P.args, **dependencies: P.kwargs) -> R:
        try:
            return await answer(*args, **dependencies)
        except StorageError as error:
            raise Refused(error.code, str(error)) from error

    return repeatable(answered)


# --- prompts ----------------------------------------------------------------------------------------------


@answers
async def answer_prompt(query: GetPrompt, db: Database, ledger: Ledger) -> PromptReply:
    """The live prompt, that of a time, or that of a version. Raises Refused."""
    target = _target(query)
    if query.version_ref is not None:
        return PromptReply(prompt=await prompts.prompt_of(db, target, query.version_ref))
    if query.at is not None:
        return PromptReply(prompt=await prompts.prompt_at(db, target, query.at))
    async with db.connection() as conn:
        # Before the text, so that the text is at least as new as the number says.
        ledger_seq, _ = await entries.end(conn)
    return PromptReply(prompt=await prompts.live_prompt(db, ledger, target), ledger_seq=ledger_seq)


# --- touchpoints ------------------------------------------------------------------------------------------


@answers
async def answer_touchpoint(query: GetTouchpoint, db: Database) -> TouchpointView:
    """One touchpoint."""
    async with db.connection() as conn:
        return views.touchpoint(await _registered(conn, query.touchpoint_id))


@answers
async def answer_touchpoints(query: ListTouchpoints, db: Database) -> TouchpointPage:
    """Every touchpoint after an id, as many as fit."""
    async with db.connection() as conn:
        registered = await touchpoints.all_of_them(conn)
    rest = [views.touchpoint(each) for each in registered if query.after is None or each.touchpoint.id > query.after]
    page = fitting(rest)
    return TouchpointPage(touchpoints=page, next=page[-1].touchpoint.id if len(page) < len(rest) else None)


@answers
async def answer_plan(query: PlanTouchpoints, registration: Registration) -> Plan:
    """What `apply` would do."""
    return views.plan(await registration.plan(query.touchpoints))


@answers
async def answer_apply(query: ApplyTouchpoints, db: Database, registration: Registration) -> Plan:
    """Register all of them or none."""
    once = Once[list[Planned]](query, views.plan)
    async with db.connection() as conn:
        await once.look(conn)
    return views.plan(await registration.apply(query.touchpoints, query.by, once))


@answers
async def answer_standing(query: GetStanding, db: Database) -> Standing:
    """Revision and live version; without a workspace nothing of a workspace touchpoint is told."""
    target = _target(query)
    async with db.connection() as conn:
        registered = await _registered(conn, query.touchpoint_id)
        if query.workspace_id is not None:
            require_scope(registered.touchpoint.scope, target)
        live = await versions.live(conn, target)
    return Standing(revision=registered.revision, live=None if live is None else views.activation(live))


# --- versions ---------------------------------------------------------------------------------------------


@answers
async def answer_versions(query: ListVersions, db: Database) -> VersionList:
    """What was live when, and every text that was recorded."""
    target = _target(query)
    async with db.connection(workspaces=_named(target)) as conn:
        await _in_scope(conn, target)
        history = await versions.history(conn, target, query.limit)
        texts = await versions.recorded(conn, target, query.limit)
    return VersionList(
        history=tuple(views.activation(row) for row in history), versions=tuple(views.version(text) for text in texts)
    )


@answers
async def answer_record(query: RecordVersion, db: Database) -> VersionReply:
    """Record a text as a version that can be activated, where a change takes effect at once."""
    target = _target(query)
    async with db.connection() as conn:
        registered = await _in_scope(conn, target)
    store = immediate(registered.touchpoint)
    if store is None:
        raise Refused("tier_2", f"a person merges the prompt of {query.touchpoint_id}: change it where it lives")
    if len({part.path for part in query.parts}) < len(query.parts):
        raise Refused("invalid", "parts: each path once", status=422)
    once = Once[Text](query, _recorded)
    async with db.transaction() as tx:
        await once.begin(tx.conn)
        text = await store.record(tx.conn, target, query.parts, by=query.by, origin="manual", note=query.note)
        await once.end(tx.conn, text)
    return _recorded(text)


@answers
async def answer_activate(query: ActivateVersion, ledger: Ledger) -> ActivationReply:
    """Make a recorded version live at once."""
    switched = await ledger.activate(
        _target(query),
        query.version_ref,
        expected_live=query.expected_live,
        by=query.by,
        reason=query.reason,
        once=Once[Switched](query, _activated),
    )
    return _activated(switched)


@answers
async def answer_roll_back(
    query: RollBack, db: Database, ledger: Ledger, pending_merges: PendingMerges
) -> RollbackView:
    """At once, or by a proposal that a person carries out."""
    target = _target(query)
    async with db.connection() as conn:
        registered = await _in_scope(conn, target)
        await Once[Switched](query, _rolled_back).look(conn)
    if is_immediate(registered.touchpoint.storage.adapter):
        switched = await ledger.roll_back(
            target, query.to_version, by=query.by, reason=query.reason, once=Once[Switched](query, _rolled_back)
        )
        return _rolled_back(switched)
    proposed = await pending_merges.propose_rollback(
        target, query.to_version, by=query.by, reason=query.reason, once=Once[ProposedRollback](query, _proposed)
    )
    return _proposed(proposed)


# --- intents ----------------------------------------------------------------------------------------------


@answers
async def answer_intents(query: ListIntents, db: Database) -> IntentPage:
    """Changes and rollbacks that a person merges, newest first."""
    target = _target(query)
    async with db.connection(workspaces=_named(target)) as conn:
        await _in_scope(conn, target)
        found = (await intents.listed(conn, target, query.limit))[query.skip :]
    page = fitting([views.intent(intent) for intent in found])
    return IntentPage(intents=page, left=len(found) - len(page))


@answers
async def answer_confirm(query: ConfirmIntents, db: Database, pending_merges: PendingMerges) -> Confirmed:
    """Look at the repository now."""
    async with db.connection() as conn:
        await _in_scope(conn, _target(query))
    return Confirmed(at_work=len(await pending_merges.check(query.touchpoint_id, again=True)))


# --- the ledger -------------------------------------------------------------------------------------------


@answers
async def answer_ledger(query: ListLedger, db: Database) -> LedgerPage:
    """What happened, by whom and why."""
    async with db.connection(workspaces=query.workspace_ids) as conn:
        found = await entries.listed(conn, touchpoint_id=query.touchpoint_id, before=query.before, limit=query.limit)
    page = fitting(found)
    more = len(page) < len(found) or len(found) == query.limit
    return LedgerPage(entries=page, next=page[-1].seq if more and page else None)


@answers
async def answer_verify(query: VerifyLedger, db: Database) -> VerificationView:
    """Look at the ledger for a few seconds, and say where to go on. Raises Refused 422 for a cursor that is none."""
    kept = Kept(query.kept.seq, query.kept.entry_sha256) if query.kept else None
    outcome = await verify_ledger(db, cursor=query.cursor, kept=kept, budget_s=VERIFY_FOR_S)
    return VerificationView(
        intact=outcome.intact,
        entries=outcome.entries,
        head_sha256=outcome.head_sha256,
        broken_at=outcome.broken_at,
        problem=one_line(outcome.problem)[:2_000],
        table=outcome.table,
        row=one_line(outcome.row)[:200],
        columns=outcome.columns,
        next=outcome.next,
    )


@answers
async def answer_head(query: GetLedgerHead, db: Database, key: StatementKey | None) -> LedgerHeadReply:
    """The end of the ledger, signed. Raises Refused 409."""
    return LedgerHeadReply(head=await signed_head(db, key, datetime.now(UTC)))


# --- small things -----------------------------------------------------------------------------------------


def fitting(items: Sequence[Any], most: int = PAGE_BYTES) -> tuple[Any, ...]:
    """As many of the items as have at most so many bytes together as JSON; at least one."""
    size = 0
    page: list[Any] = []
    for item in items:
        size += len(item.model_dump_json().encode())
        if page and size > most:
            break
        page.append(item)
    return tuple(page)


def _named(target: Target) -> tuple[UUID, ...]:
    """The workspaces whose rows are asked for: the target's, or none."""
    return () if target.workspace_id is None else (target.workspace_id,)


def _target(query: Any) -> Target:
    workspace_id: UUID | None = query.workspace_id
    return Target(query.touchpoint_id, workspace_id)


async def _registered(conn: Connection, touchpoint_id: str) -> Registered:
    registered = await touchpoints.get(conn, touchpoint_id)
    if registered is None:
        raise Refused("unknown_touchpoint", f"there is no touchpoint {touchpoint_id}", status=404)
    return registered


async def _in_scope(conn: Connection, target: Target) -> Registered:
    registered = await _registered(conn, target.touchpoint_id)
    require_scope(registered.touchpoint.scope, target)
    return registered


def _recorded(text: Text) -> VersionReply:
    return VersionReply(version=views.version(text))


def _activated(switched: Switched) -> ActivationReply:
    return ActivationReply(activation=views.activation(switched.live))


def _rolled_back(switched: Switched) -> RollbackView:
    return RollbackView(tier=1, activation=views.activation(switched.live))


def _proposed(proposed: ProposedRollback) -> RollbackView:
    return RollbackView(tier=2, proposal=views.rollback(proposed))
