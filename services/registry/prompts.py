"""Reads prompts: what is live now, what was live at a time, what a version reference names."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from libs.contracts.prompts import PromptPart
from libs.contracts.touchpoints import Touchpoint
from libs.contracts.versions import LivePrompt
from libs.service_kit.db import Connection, Database, Transaction
from libs.service_kit.errors import Refused
from services.registry.domain import Target
from services.registry.ledger import Change, Ledger, announce, require_scope, switch
from services.registry.store import touchpoints, versions
from services.registry.stores import immediate

FIRST_USE = "first use in this workspace"


async def live_prompt(db: Database, ledger: Ledger, target: Target) -> LivePrompt:
    """What is live. A workspace that is new to a touchpoint gets the initial text as its first version.

    Raises Refused: 404 without a touchpoint or a live version, 422 when the workspace does not fit the scope.
    """
    async with db.connection() as conn:
        touchpoint = await _touchpoint(conn, target)
        live = await versions.live(conn, target)
        if live is not None:
            return _prompt(live, await versions.parts_of(conn, live.prompt_version_id))
    if target.workspace_id is None or touchpoint.storage.initial_text is None or not touchpoint.active:
        raise Refused("no_live_version", f"{target} has no live version", status=404)
    await _first_use(ledger, target)
    async with db.connection() as conn:
        found = await versions.live(conn, target)
        assert found is not None
        return _prompt(found, await versions.parts_of(conn, found.prompt_version_id))


async def prompt_at(db: Database, target: Target, at: datetime) -> LivePrompt:
    """What was live at a time. Raises Refused 404 when nothing was."""
    async with db.connection() as conn:
        await _touchpoint(conn, target)
        live = await versions.live_at(conn, target, at)
        if live is None:
            raise Refused("no_live_version", f"nothing was live for {target} at {at.isoformat()}", status=404)
        return _prompt(live, await versions.parts_of(conn, live.prompt_version_id))


async def prompt_of(db: Database, target: Target, version_ref: str) -> LivePrompt:
    """The text of a version, with its newest activation.

    A version that was never live has its own id and the time it was recorded in their place. Raises Refused 404.
    """
    async with db.connection() as conn:
        touchpoint = await _touchpoint(conn, target)
        text = await versions.by_ref(conn, target, version_ref)
        if text is None:
            raise Refused("unknown_version", f"{target} has no version {version_ref}", status=404)
        newest = await versions.newest_activation(conn, target, version_ref)
    if newest is not None:
        return _prompt(newest, text.parts)
    return LivePrompt(
        touchpoint_id=target.touchpoint_id,
        workspace_id=target.workspace_id,
        activation_id=text.id,
        version_ref=version_ref,
        adapter=touchpoint.storage.adapter,
        content_sha256=text.content_sha256,
        parts=text.parts,
        activated_at=text.created_at,
    )


async def _touchpoint(conn: Connection, target: Target) -> Touchpoint:
    registered = await touchpoints.get(conn, target.touchpoint_id)
    if registered is None:
        raise Refused("unknown_touchpoint", f"there is no touchpoint {target.touchpoint_id}", status=404)
    require_scope(registered.touchpoint.scope, target)
    return registered.touchpoint


async def _first_use(ledger: Ledger, target: Target) -> None:
    async def work(tx: Transaction[Any]) -> Any:
        if await versions.live_for_update(tx.conn, target) is not None:
            return None
        registered = await touchpoints.get(tx.conn, target.touchpoint_id)
        assert registered is not None
        store = immediate(registered.touchpoint)
        assert store is not None, "registration refuses workspaces for stores that a person merges into"
        by = registered.registered_by
        text = await store.record(tx.conn, target, store.initial(), by=by, origin="initial", note=FIRST_USE)
        change = Change("registered", target, text.version, registered.touchpoint.storage.adapter, by, FIRST_USE)
        return await switch(tx, change, expected_live=None)

    switched = await ledger.transact(work)
    if switched is not None:
        announce(switched)


def _prompt(live: versions.Activation, parts: tuple[PromptPart, ...]) -> LivePrompt:
    return LivePrompt(
        touchpoint_id=live.target.touchpoint_id,
        workspace_id=live.target.workspace_id,
        activation_id=live.id,
        version_ref=live.version_ref,
        adapter=live.adapter,
        content_sha256=live.content_sha256,
        parts=parts,
        activated_at=live.activated_at,
    )
