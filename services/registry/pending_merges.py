"""Changes that a person merges (tier 2): recorded as intents, made ready on a branch, confirmed by their hash."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from libs.contracts.envelope import Event
from libs.contracts.events.proposal import ProposalApprovedV1
from libs.contracts.events.registry import RollbackProposedV1
from libs.contracts.touchpoints import Touchpoint
from libs.service_kit import logging
from libs.service_kit.db import Database, Transaction
from libs.service_kit.errors import Refused
from libs.service_kit.requests import Once
from services.registry import metrics
from services.registry.adapters.base import RollbackProposal, StorageError, StorageErrorCode
from services.registry.domain import Line, Target, branch_name, canonical_sha256, instant, previous_version
from services.registry.ledger import Ledger, closing_line, conflict, require_stamp
from services.registry.looks import Looks
from services.registry.store import entries, intents, touchpoints, versions
from services.registry.store.intents import Intent
from services.registry.stores import MergedStores

log = logging.get(__name__)

PASSING: tuple[StorageErrorCode, ...] = ("git_timeout",)
"""Trouble that says nothing about the change: the next turn tries again."""


@dataclass(frozen=True)
class ProposedRollback:
    """A rollback that waits for a person, and the intent whose confirmation will end it."""

    intent_id: UUID
    target: Target
    from_version: str
    proposal: RollbackProposal


class PendingMerges:
    """Everything between an approval and a merged text. The ledger moves only when the hash is seen."""

    def __init__(self, db: Database, ledger: Ledger, stores: MergedStores) -> None:
        self._db = db
        self._ledger = ledger
        self._stores = stores
        self._looks = Looks()

    # --- an approved proposal -----------------------------------------------------------------------------

    async def take_up(self, event: Event[ProposalApprovedV1]) -> None:
        """Record the intent, then make it ready. Told again after a crash in between, it goes on where it was."""
        intent_id = event.data.proposal_id

        async def work(tx: Transaction[Any]) -> None:
            if tx.fresh:
                await _record(tx, event.data)

        await self._ledger.transact(work, inbox=event)
        async with self._db.connection() as conn:
            intent = await intents.get(conn, intent_id)
        if intent is not None and intent.state == "recorded":
            await self.make_ready(intent)

    async def make_ready(self, intent: Intent) -> None:
        """Commit the change on its branch. What stands in the way is kept with the intent, state `failed`."""
        try:
            store = self._stores.of(await self._touchpoint(intent.target.touchpoint_id))
            change = await store.propose(
                intent.parts,
                message=_commit_message(intent),
                name=branch_name(intent.intent_id),
                expected_sha256=intent.from_sha256,
            )
        except StorageError as error:
            await self._not_ready(intent, error)
            return
        async with self._db.transaction() as tx:
            await intents.opened(tx.conn, intent.intent_id, change.branch, change.commit, change.diff)

    async def _not_ready(self, intent: Intent, error: StorageError) -> None:
        if error.code in PASSING:
            await self._trouble(intent, error)
            return
        async with self._db.transaction() as tx:
            if error.code == "nothing_to_change":
                # The tracked branch holds the text already: there is nothing to merge, only to confirm.
                await intents.opened(tx.conn, intent.intent_id, None, None, "")
            else:
                await intents.failed(tx.conn, intent.intent_id, error.code, str(error))
        log.warning("intent.not_ready", touchpoint=intent.target.touchpoint_id, code=error.code)

    # --- confirmation -------------------------------------------------------------------------------------

    async def check(self, touchpoint_id: str | None = None, *, again: bool = False) -> list[Intent]:
        """Look at the tracked branches; confirm what is merged. With `again`, failed ones are made ready anew.

        Returns what is still at work. Trouble with one touchpoint's repository does not stop the others.
        """
        async with self._db.connection() as conn:
            working = await intents.at_work(conn, touchpoint_id)
        await self._looks.over(
            working,
            lambda intent: intent.target.touchpoint_id,
            lambda intent: self._check_one(intent, again),
            self._trouble,
            at_once=touchpoint_id is not None,
        )
        async with self._db.connection() as conn:
            left = await intents.at_work(conn, touchpoint_id)
            if touchpoint_id is None:
                for state in intents.AT_WORK:
                    metrics.INTENTS.labels(state).set(sum(intent.state == state for intent in left))
        return left

    async def _check_one(self, intent: Intent, again: bool) -> None:
        if intent.state == "recorded" or (again and intent.state == "failed"):
            await self.make_ready(intent)
        store = self._stores.of(await self._touchpoint(intent.target.touchpoint_id))
        seen = await store.merged(intent.content_sha256)
        if seen is not None:
            await self._ledger.confirm(intent.intent_id, seen)
        elif intent.error_code is not None:
            async with self._db.connection() as conn:
                await intents.troubled(conn, intent.intent_id, None, None)

    async def _trouble(self, intent: Intent, error: Exception) -> None:
        """Told once, with the intent and in the log, not again at every turn; a word and a place, never a text."""
        code = _code(error)
        async with self._db.connection() as conn:
            news = await intents.troubled(conn, intent.intent_id, code, _told(error))
        if news:
            log.warning("intent.check_failed", touchpoint=intent.target.touchpoint_id, code=code)

    # --- rollback -----------------------------------------------------------------------------------------

    async def propose_rollback(
        self,
        target: Target,
        to_version: str | None,
        *,
        by: str,
        reason: str,
        once: Once[ProposedRollback] | None = None,
    ) -> ProposedRollback:
        """How a person gets the earlier version back; nothing changes in the repository.

        Asked again for the same rollback, the open intent is kept and the diff made anew. Raises Refused.
        """
        live, text = await self._rollback_of(target, to_version)
        store = self._stores.of(await self._touchpoint(target.touchpoint_id))
        proposal = await store.way_back(text.parts, to_ref=text.version_ref, activated_sha256=live.content_sha256)
        wanted = Intent(
            intent_id=uuid4(),
            kind="rollback",
            state="open",
            target=target,
            from_ref=live.version_ref,
            from_sha256=live.content_sha256,
            to_ref=text.version_ref,
            parts=text.parts,
            content_sha256=text.content_sha256,
            message=reason,
            diff=proposal.diff,
            created_by=by,
        )

        async def work(tx: Transaction[Any]) -> ProposedRollback:
            intent = await _open_rollback(tx, wanted, proposal)
            return ProposedRollback(intent.intent_id, target, live.version_ref, proposal)

        proposed = await self._ledger.transact(work, once=once)
        metrics.ROLLBACKS_PROPOSED.inc()
        return proposed

    async def _rollback_of(self, target: Target, to_version: str | None) -> tuple[versions.Activation, versions.Text]:
        async with self._db.transaction() as tx:
            live = await versions.live(tx.conn, target)
            if live is None:
                raise Refused("no_live_version", f"{target} has no live version", status=404)
            history = await versions.steps(tx.conn, target)
            wanted = to_version or previous_version(history)
            if wanted is None:
                raise Refused("no_previous_version", f"{live.version_ref} is the first version of {target}")
            await require_stamp(tx, target, wanted)
            if all(step.version_ref != wanted for step in history):
                raise Refused("never_live", f"{wanted} was never live for {target}")
            text = await versions.by_ref(tx.conn, target, wanted)
            assert text is not None
            return live, text

    async def _touchpoint(self, touchpoint_id: str) -> Touchpoint:
        async with self._db.connection() as conn:
            registered = await touchpoints.get(conn, touchpoint_id)
        if registered is None:
            raise Refused("unknown_touchpoint", f"there is no touchpoint {touchpoint_id}", status=404)
        return registered.touchpoint


async def _record(tx: Transaction[Any], approved: ProposalApprovedV1) -> None:
    """The intent and its ledger line; or, when another version is live by now, only the line that closes it."""
    target = Target(approved.touchpoint_id, approved.workspace_id)
    live = await versions.live_for_update(tx.conn, target)
    if live is None or not fits(approved, live):
        await close_stale(tx, approved, live)
        return
    head = await entries.lock_head(tx.conn)
    intent = Intent(
        intent_id=approved.proposal_id,
        kind="activate",
        state="recorded",
        target=target,
        from_ref=live.version_ref,
        from_sha256=live.content_sha256,
        parts=approved.parts,
        content_sha256=approved.content_sha256,
        message=approved.title or f"Proposal {approved.proposal_id}",
        created_by=approver(approved),
        proposal_id=approved.proposal_id,
        created_at=head.now,
    )
    await intents.insert(tx.conn, intent)
    await entries.append(tx.conn, head, *_lines_of_intent(intent, approved.waiver, head.now))


async def close_stale(tx: Transaction[Any], approved: ProposalApprovedV1, live: versions.Activation | None) -> None:
    """The proposal was made for a version that is not live: it is not activated, and the ledger says so."""
    found = live.version_ref if live else "nothing"
    line = Line(
        "intent_closed",
        Target(approved.touchpoint_id, approved.workspace_id),
        approver(approved),
        f"stale: made for {approved.base_version_ref or approved.base_sha256}, but {found} is live",
        previous_ref=live.version_ref if live else None,
        proposal_id=approved.proposal_id,
        detail={"content_sha256": approved.content_sha256},
    )
    await entries.append(tx.conn, await entries.lock_head(tx.conn), line)
    log.warning("proposal.stale", touchpoint=approved.touchpoint_id, proposal_id=str(approved.proposal_id))


def fits(approved: ProposalApprovedV1, live: versions.Activation) -> bool:
    """Whether the proposal was made for the version that is live."""
    same_ref = approved.base_version_ref in (None, live.version_ref)
    return same_ref and approved.base_sha256 == live.content_sha256


def approver(approved: ProposalApprovedV1) -> str:
    """Who approved, for the ledger: every name, cut to what a name may be."""
    return ", ".join(approved.approved_by)[:200]


async def _open_rollback(tx: Transaction[Any], wanted: Intent, proposal: RollbackProposal) -> Intent:
    live = await versions.live_for_update(tx.conn, wanted.target)
    if live is None or live.version_ref != wanted.from_ref:
        raise conflict(wanted.target, live, wanted.from_ref)
    for other in await intents.at_work(tx.conn, wanted.target.touchpoint_id):
        if other.kind == "rollback" and other.target == wanted.target and other.to_ref == wanted.to_ref:
            return other
    why = f"a rollback to {wanted.to_ref} was asked for"
    closed = await intents.close_others(tx.conn, wanted.target, None, why, kind="rollback")
    head = await entries.lock_head(tx.conn)
    await intents.insert(tx.conn, replace(wanted, created_at=head.now))
    closing = [closing_line(intent, wanted.created_by, why) for intent in closed]
    await entries.append(tx.conn, head, *closing, *_lines_of_intent(wanted, None, head.now))
    tx.emit(
        RollbackProposedV1(
            rollback_id=wanted.intent_id,
            touchpoint_id=wanted.target.touchpoint_id,
            workspace_id=wanted.target.workspace_id,
            from_version=wanted.from_ref,
            to_version=wanted.to_ref or "",
            reason=wanted.message,
            drifted=proposal.drift.drifted,
            proposed_by=wanted.created_by,
        )
    )
    return wanted


def _commit_message(intent: Intent) -> str:
    approved_by = " ".join(intent.created_by.split())
    return f"{intent.message}\n\nBurnish-Proposal: {intent.proposal_id}\nApproved-by: {approved_by}"


def _lines_of_intent(intent: Intent, waiver: str | None, at: datetime) -> list[Line]:
    detail = {
        "intent_id": str(intent.intent_id),
        "kind": intent.kind,
        "content_sha256": intent.content_sha256,
        "parts_sha256": canonical_sha256([part.model_dump() for part in intent.parts]),
        "created_at": instant(at),
    }
    if intent.diff is not None:
        detail["diff_sha256"] = hashlib.sha256(intent.diff.encode()).hexdigest()
    line = Line(
        "intent",
        intent.target,
        intent.created_by,
        intent.message[:2_000],
        version_ref=intent.to_ref,
        previous_ref=intent.from_ref,
        proposal_id=intent.proposal_id,
        detail=detail,
    )
    return [line, *waiver_lines(intent.target, intent.created_by, intent.proposal_id, waiver)]


def waiver_lines(target: Target, by: str, proposal_id: UUID | None, waiver: str | None) -> list[Line]:
    """The ledger's line about a gate that was waived."""
    return [Line("waiver", target, by, waiver, proposal_id=proposal_id)] if waiver else []


def _code(error: Exception) -> str:
    return str(getattr(error, "code", type(error).__name__))[:100]


def _told(error: Exception) -> str:
    """Only what is ours to say: the text of any other error may hold what stands in a file."""
    return str(error) if isinstance(error, StorageError | Refused) else "it could not be looked at"
