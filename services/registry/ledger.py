"""Which version is live, and the ledger of how it came to be: every change is one transaction, one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar
from uuid import UUID, uuid4

import asyncpg

from libs.contracts.envelope import Event
from libs.contracts.events.registry import VersionActivatedV1, VersionRolledBackV1
from libs.contracts.versions import LedgerEntry
from libs.contracts.vocabulary import Adapter
from libs.service_kit import logging
from libs.service_kit.db import Database, Transaction
from libs.service_kit.errors import Refused
from libs.service_kit.requests import Once
from services.registry import metrics
from services.registry.adapters.base import Seen
from services.registry.domain import Line, Target, previous_version
from services.registry.store import entries, intents, versions
from services.registry.store.versions import Activation, Stamp, Version
from services.registry.stores import is_immediate

log = logging.get(__name__)

T = TypeVar("T")
LOCK = "ledger"
ONE_LIVE = "idx_prompt_version_registry_one_live"
Kind = Literal["registered", "activated", "rolled_back"]


@dataclass(frozen=True)
class Change:
    """One version to become live in place of another. `kind` is that of its ledger entry."""

    kind: Kind
    target: Target
    version: Version
    adapter: Adapter
    by: str
    reason: str = ""
    proposal_id: UUID | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    before: tuple[Line, ...] = ()
    intent_id: UUID | None = None


@dataclass(frozen=True)
class Switched:
    """What an activation came to: the row that is live, the one it took the place of, what the ledger says."""

    change: Change
    live: Activation
    previous: Activation | None
    entries: list[LedgerEntry]


class Ledger:
    """Activation, rollback and confirmation.

    Every change holds one session lock from before BEGIN until after COMMIT, across all processes, and runs
    SERIALIZABLE: a change sees all that its predecessor did, so nothing is ever retried for want of luck, and the
    ledger is one chain. The partial unique index on live rows stands behind that. Within a process the changes
    queue here first, so that waiting costs no connection.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._turn = asyncio.Lock()

    async def transact(
        self,
        work: Callable[[Transaction[Any]], Awaitable[T]],
        *,
        inbox: Event[Any] | Sequence[Event[Any]] = (),
        first: Callable[[], Awaitable[None]] | None = None,
        once: Once[T] | None = None,
    ) -> T:
        """Run `work`, which may call `switch`, alone among all writers of the ledger. Raises Refused with 409.

        `first` runs when its turn has come in this process, before the lock: what it refuses costs the others nothing.
        With `once`, a request that had its effect before raises Answered.
        """

        async def work_once(tx: Transaction[Any]) -> T:
            if once is None:
                return await work(tx)
            await once.begin(tx.conn)
            outcome = await work(tx)
            await once.end(tx.conn, outcome)
            return outcome

        try:
            async with self._turn:
                if first is not None:
                    await self._unless_answered(first, once)
                return await self._db.serializable(work_once, inbox=inbox, lock=LOCK)
        except asyncpg.UniqueViolationError as error:
            if error.constraint_name != ONE_LIVE:
                raise
            metrics.CONFLICTS.inc()
            raise Refused("conflict", "another version became live at the same time; read what is live") from error
        except Refused as no:
            if no.code == "conflict":
                metrics.CONFLICTS.inc()
            raise

    async def _unless_answered(self, first: Callable[[], Awaitable[None]], once: Once[Any] | None) -> None:
        """What was done under this request would be refused now: whether it was done is looked up then."""
        try:
            await first()
        except Refused:
            if once is not None:
                async with self._db.connection() as conn:
                    await once.look(conn)
            raise

    async def activate(
        self,
        target: Target,
        version_ref: str,
        *,
        expected_live: str | None,
        by: str,
        reason: str,
        once: Once[Switched] | None = None,
    ) -> Switched:
        """Make a recorded version live at once (tier 1), if `expected_live` is what is live now.

        Raises Refused: 404 for what is not there, 409 `conflict` with the state that holds now, 409 `tier_2`.
        """

        async def refuse_who_lost_already() -> None:
            async with self._db.connection() as conn:
                live = await versions.live(conn, target)
            if live is not None:
                _require_expected(target, live, expected_live)

        async def work(tx: Transaction[Any]) -> Switched:
            stamp = await require_stamp(tx, target, version_ref)
            if not is_immediate(stamp.adapter):
                raise Refused("tier_2", f"a person merges the prompt of {target}: propose a change, or a rollback")
            assert stamp.version is not None
            change = Change("activated", target, stamp.version, stamp.adapter, by, reason, stamp.version.proposal_id)
            return await switch(tx, change, expected_live=expected_live)

        return announce(await self.transact(work, first=refuse_who_lost_already, once=once))

    async def roll_back(
        self, target: Target, to_version: str | None, *, by: str, reason: str, once: Once[Switched] | None = None
    ) -> Switched:
        """Put an earlier version back at once (tier 1); without a name, the previous one.

        Raises Refused: 404 for a version that is not there, 409 where there is nothing to go back to.
        """

        async def work(tx: Transaction[Any]) -> Switched:
            live = await require_live(tx, target)
            stamp = await rollback_stamp(tx, live, to_version)
            assert stamp.version is not None
            change = Change("rolled_back", target, stamp.version, stamp.adapter, by, reason, live.proposal_id)
            return await switch(tx, change, expected_live=live.version_ref)

        return announce(await self.transact(work, once=once))

    async def confirm(self, intent_id: UUID, seen: Seen) -> Switched | None:
        """The intent's text was seen in its store: it is live. None when it was before."""

        async def work(tx: Transaction[Any]) -> Switched | None:
            intent = await intents.get(tx.conn, intent_id)
            where = f"hash {intent.content_sha256} at {seen.where}" if intent else ""
            if intent is None or not await intents.confirmed(tx.conn, intent_id, where):
                return None
            change = await _confirmed(tx, intent, seen, where)
            if intent.to_ref == intent.from_ref:
                # An edit behind the ledger's back was undone: what is live was never anything else.
                await entries.append(tx.conn, await entries.lock_head(tx.conn), *change.before)
                return None
            return await switch(tx, change, expected_live=intent.from_ref)

        switched = await self.transact(work)
        return None if switched is None else announce(switched)


async def switch(tx: Transaction[Any], change: Change, *, expected_live: str | None) -> Switched:
    """Retire the live row, insert the new one, write the ledger, say it. Only inside `Ledger.transact`.

    Raises Refused 409 `conflict` when what is live is not what was expected, 409 `already_live`.
    """
    head = await entries.lock_head(tx.conn)
    live = await versions.live_for_update(tx.conn, change.target)
    _require_expected(change.target, live, expected_live)
    _require_new(live, change.version)
    if live is not None:
        await versions.retire(tx.conn, live.id, head.now)
    rolled_back = change.kind == "rolled_back" and live is not None
    row = Activation(
        id=uuid4(),
        target=change.target,
        version_ref=change.version.version_ref,
        adapter=change.adapter,
        activated_at=head.now,
        activated_by=change.by,
        content_sha256=change.version.content_sha256,
        prompt_version_id=change.version.id,
        rolled_back_from=live.id if live is not None and rolled_back else None,
        notes=change.reason,
        proposal_id=change.version.proposal_id,
    )
    await versions.activate(tx.conn, row)
    lines = [*change.before, _line(change, row, live), *await _superseded(tx, change)]
    written = await entries.append(tx.conn, head, *lines)
    tx.emit(_fact(change, row, live, written[len(change.before)].seq))
    return Switched(change, row, live, written)


def announce(switched: Switched) -> Switched:
    """Log and count a change that is committed."""
    row, previous = switched.live, switched.previous
    metrics.ACTIVATIONS.labels(switched.change.kind).inc()
    if switched.change.kind == "rolled_back" and previous is not None:
        log.info(
            "refinement.version.rolled_back",
            touchpoint=row.target.touchpoint_id,
            from_version=previous.version_ref,
            to_version=row.version_ref,
            reason=switched.change.reason,
        )
    else:
        log.info(
            "refinement.version.activated",
            touchpoint=row.target.touchpoint_id,
            version_ref=row.version_ref,
            adapter=row.adapter,
        )
    return switched


async def require_stamp(tx: Transaction[Any], target: Target, version_ref: str) -> Stamp:
    """A version that is there. Raises Refused 404, and 422 when the workspace does not fit the scope."""
    stamp = await versions.stamp(tx.conn, target, version_ref)
    if stamp is None:
        raise Refused("unknown_touchpoint", f"there is no touchpoint {target.touchpoint_id}", status=404)
    require_scope(stamp.scope, target)
    if stamp.version is None:
        raise Refused("unknown_version", f"{target} has no version {version_ref}", status=404)
    return stamp


def require_scope(scope: str, target: Target) -> None:
    """A workspace touchpoint is asked about with a workspace, a global one without. Raises Refused 422."""
    if scope == "workspace" and target.workspace_id is None:
        raise Refused("scope", f"{target.touchpoint_id} is scoped to workspaces: give workspace_id", status=422)
    if scope == "global" and target.workspace_id is not None:
        raise Refused("scope", f"{target.touchpoint_id} is global: leave workspace_id out", status=422)


async def require_live(tx: Transaction[Any], target: Target) -> Activation:
    """The live row, locked. Raises Refused 404."""
    live = await versions.live_for_update(tx.conn, target)
    if live is None:
        raise Refused("no_live_version", f"{target} has no live version", status=404)
    return live


async def rollback_stamp(tx: Transaction[Any], live: Activation, to_version: str | None) -> Stamp:
    """The version a rollback of `live` leads to. Raises Refused: 404 unknown, 409 no previous or never live."""
    history = await versions.steps(tx.conn, live.target)
    wanted = to_version or previous_version(history)
    if wanted is None:
        raise Refused("no_previous_version", f"{live.version_ref} is the first version of {live.target}")
    stamp = await require_stamp(tx, live.target, wanted)
    if all(step.version_ref != wanted for step in history):
        raise Refused("never_live", f"{wanted} was never live for {live.target}: activate it instead")
    return stamp


def conflict(target: Target, live: Activation | None, expected: str | None) -> Refused:
    """409 with the state that holds now."""
    state = live and {
        "version_ref": live.version_ref,
        "activation_id": str(live.id),
        "content_sha256": live.content_sha256,
        "activated_at": live.activated_at.isoformat(),
        "activated_by": live.activated_by,
    }
    found = live.version_ref if live else "nothing"
    return Refused("conflict", f"{found} is live for {target}, not {expected or 'nothing'}", live=state)


def _require_expected(target: Target, live: Activation | None, expected: str | None) -> None:
    if (live.version_ref if live else None) != expected:
        raise conflict(target, live, expected)


def _require_new(live: Activation | None, version: Version) -> None:
    if live is not None and (live.version_ref, live.content_sha256) == (version.version_ref, version.content_sha256):
        raise Refused("already_live", f"{version.version_ref} is live already for {live.target}")


async def _superseded(tx: Transaction[Any], change: Change) -> list[Line]:
    """What was on its way from the version that was live has lost its ground."""
    why = f"{change.version.version_ref} became live"
    closed = await intents.close_others(tx.conn, change.target, change.intent_id, why)
    return [closing_line(intent, change.by, why) for intent in closed]


def closing_line(intent: intents.Intent, by: str, why: str) -> Line:
    """The ledger's line about an intent that will not be carried out."""
    return Line(
        "intent_closed",
        intent.target,
        by,
        why,
        version_ref=intent.to_ref,
        previous_ref=intent.from_ref,
        proposal_id=intent.proposal_id,
        detail={"intent_id": str(intent.intent_id), "content_sha256": intent.content_sha256},
    )


def _line(change: Change, row: Activation, live: Activation | None) -> Line:
    return Line(
        change.kind,
        change.target,
        change.by,
        change.reason,
        version_ref=row.version_ref,
        previous_ref=live.version_ref if live else None,
        proposal_id=change.proposal_id,
        detail={
            "activation_id": str(row.id),
            "adapter": row.adapter,
            "content_sha256": row.content_sha256,
            "text_id": str(row.prompt_version_id),
            **change.detail,
        },
    )


def _fact(
    change: Change, row: Activation, live: Activation | None, ledger_seq: int
) -> VersionActivatedV1 | VersionRolledBackV1:
    touchpoint_id, workspace_id = change.target
    if change.kind == "rolled_back" and live is not None:
        return VersionRolledBackV1(
            activation_id=row.id,
            touchpoint_id=touchpoint_id,
            workspace_id=workspace_id,
            from_version=live.version_ref,
            to_version=row.version_ref,
            adapter=row.adapter,
            content_sha256=row.content_sha256,
            proposal_id=change.proposal_id,
            reason=change.reason,
            rolled_back_by=change.by,
            rolled_back_at=row.activated_at,
            ledger_seq=ledger_seq,
        )
    return VersionActivatedV1(
        activation_id=row.id,
        touchpoint_id=touchpoint_id,
        workspace_id=workspace_id,
        version_ref=row.version_ref,
        previous_ref=live.version_ref if live else None,
        adapter=row.adapter,
        content_sha256=row.content_sha256,
        proposal_id=change.proposal_id,
        activated_by=change.by,
        activated_at=row.activated_at,
        ledger_seq=ledger_seq,
    )


async def _confirmed(tx: Transaction[Any], intent: intents.Intent, seen: Seen, where: str) -> Change:
    """The change that a merged intent is. A rollback puts its earlier reference back, whatever commit did it."""
    text = await versions.record(
        tx.conn,
        versions.Text.new(
            intent.target,
            intent.to_ref or seen.version_ref,
            intent.parts,
            origin="proposal",
            created_by=intent.created_by,
            created_at=datetime.now(UTC),
            proposal_id=intent.proposal_id,
            note=intent.message,
        ),
    )
    live = await require_live(tx, intent.target)
    stamp = await require_stamp(tx, intent.target, text.version_ref)
    commit = seen.version_ref.partition(":")[2]
    detail = {"confirmed_by": where, "intent_id": str(intent.intent_id), "commit": commit}
    line = Line(
        "confirmed",
        intent.target,
        intent.created_by,
        where,
        version_ref=text.version_ref,
        previous_ref=intent.from_ref,
        proposal_id=intent.proposal_id,
        detail={"intent_id": str(intent.intent_id), "content_sha256": intent.content_sha256, "commit": commit},
    )
    rollback = intent.kind == "rollback"
    return Change(
        "rolled_back" if rollback else "activated",
        intent.target,
        text.version,
        stamp.adapter,
        intent.created_by,
        intent.message,
        proposal_id=live.proposal_id if rollback else intent.proposal_id,
        detail=detail,
        before=(line,),
        intent_id=intent.intent_id,
    )
