"""Plans and applies touchpoint configurations: all of them or none, and each with its first live version."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.prompts import PromptPart, content_sha256
from libs.contracts.touchpoints import Touchpoint
from libs.contracts.vocabulary import registered
from libs.service_kit.db import Connection, Database, Transaction
from libs.service_kit.errors import Refused
from libs.service_kit.requests import Once
from services.registry.adapters.base import StorageError
from services.registry.domain import (
    Action,
    FieldChange,
    Target,
    configuration_sha256,
    field_changes,
)
from services.registry.ledger import Change, Ledger, Switched, announce, switch
from services.registry.store import touchpoints, versions
from services.registry.store.touchpoints import Registered
from services.registry.stores import MergedStores, immediate, misfits, moved

MAX_CONFIGURATION_BYTES = 900_000
FIELDS = {
    "repository_missing": "storage.repository",
    "repository_not_allowed": "storage.repository",
    "not_a_repository": "storage.repository",
    "repository_damaged": "storage.repository",
    "git_timeout": "storage.repository",
    "branch_missing": "storage.branch",
    "bad_branch_name": "storage.branch",
    "bad_path": "storage.paths",
    "path_missing": "storage.paths",
    "path_outside_repository": "storage.paths",
    "symbolic_link": "storage.paths",
    "not_utf8": "storage.paths",
    "text_too_large": "storage.paths",
}


@dataclass(frozen=True)
class Found:
    """The text that a touchpoint's storage holds now; `version_ref` is None where the registry gives it one."""

    parts: tuple[PromptPart, ...]
    content_sha256: str
    version_ref: str | None


@dataclass(frozen=True)
class Planned:
    """What an `apply` does, or did, to one touchpoint. `live` is what becomes live by it, where something does."""

    touchpoint_id: str
    action: Action
    changes: list[FieldChange]
    revision: int
    live: str | None = None
    content_sha256: str | None = None


class Registration:
    """Plan and apply. Every problem of every touchpoint is told at once, by index and field."""

    def __init__(self, db: Database, ledger: Ledger, stores: MergedStores) -> None:
        self._db = db
        self._ledger = ledger
        self._stores = stores

    async def plan(self, wanted: Sequence[Touchpoint]) -> list[Planned]:
        """What `apply` would do now. Changes nothing. Raises Refused 422 with every problem."""
        found = await self._read_all(wanted)
        async with self._db.connection() as conn, conn.transaction(isolation="repeatable_read", readonly=True):
            known = await touchpoints.get_many(conn, [touchpoint.id for touchpoint in wanted])
            _require_same_scope(wanted, known)
            return [await _planned(conn, touchpoint, known, found) for touchpoint in wanted]

    async def apply(
        self, wanted: Sequence[Touchpoint], by: str, once: Once[list[Planned]] | None = None
    ) -> list[Planned]:
        """Register the touchpoints in one transaction; those that are as wanted already are left alone."""
        found = await self._read_all(wanted)
        switched: list[Switched] = []

        async def work(tx: Transaction[Any]) -> list[Planned]:
            switched.clear()
            known = await touchpoints.get_many(tx.conn, [touchpoint.id for touchpoint in wanted])
            _require_same_scope(wanted, known)
            planned = []
            for touchpoint in wanted:
                planned.append(await _planned(tx.conn, touchpoint, known, found))
                switched.extend(await _carry_out(tx, touchpoint, planned[-1], found, by))
            return planned

        planned = await self._ledger.transact(work, once=once)
        for each in switched:
            announce(each)
        return planned

    async def _read_all(self, wanted: Sequence[Touchpoint]) -> Mapping[str, Found]:
        """The text each active global touchpoint's storage holds. Raises Refused 422 naming each that has none."""
        problems = [*_repeated(wanted), *(p for i, each in enumerate(wanted) for p in _unusable(i, each))]
        if problems:
            raise _refused(problems)
        readable = [(i, each) for i, each in enumerate(wanted) if each.active and each.scope == "global"]
        outcomes = await asyncio.gather(*(self._read(each) for _, each in readable), return_exceptions=True)
        found: dict[str, Found] = {}
        for (index, touchpoint), outcome in zip(readable, outcomes, strict=True):
            if isinstance(outcome, StorageError):
                problems.append(_problem(index, FIELDS.get(outcome.code, "storage"), outcome.message, outcome.hint))
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                found[touchpoint.id] = outcome
        if problems:
            raise _refused(problems)
        return found

    async def _read(self, touchpoint: Touchpoint) -> Found:
        store = immediate(touchpoint)
        if store is not None:
            parts = store.initial()
            return Found(parts, content_sha256(parts), None)
        current = await self._stores.of(touchpoint).current()
        return Found(current.parts, current.content_sha256, current.version_ref)


async def _planned(
    conn: Connection, touchpoint: Touchpoint, known: Mapping[str, Registered], found: Mapping[str, Found]
) -> Planned:
    before = known.get(touchpoint.id)
    old = before.touchpoint if before else None
    changes = [] if old == touchpoint else field_changes(old, touchpoint)
    action: Action = "create" if before is None else "update" if changes else "unchanged"
    revision = (before.revision if before else 0) + (action != "unchanged")
    text = await _to_become_live(conn, touchpoint, old, found)
    return Planned(
        touchpoint.id,
        action,
        changes,
        revision,
        live=None if text is None else text.version_ref or "the initial text",
        content_sha256=None if text is None else text.content_sha256,
    )


async def _to_become_live(
    conn: Connection, touchpoint: Touchpoint, old: Touchpoint | None, found: Mapping[str, Found]
) -> Found | None:
    """The text found, where nothing is live yet, or where the prompt was moved and reads differently there."""
    text = found.get(touchpoint.id)
    if text is None:
        return None
    live = await versions.live(conn, Target(touchpoint.id))
    if live is None:
        return text
    elsewhere = old is not None and moved(old.storage, touchpoint.storage)
    return text if elsewhere and live.content_sha256 != text.content_sha256 else None


async def _carry_out(
    tx: Transaction[Any],
    touchpoint: Touchpoint,
    planned: Planned,
    found: Mapping[str, Found],
    by: str,
) -> list[Switched]:
    if planned.action != "unchanged":
        revision = await touchpoints.save(tx.conn, touchpoint, configuration_sha256(touchpoint), by)
        tx.emit(TouchpointRegisteredV1(touchpoint=touchpoint, revision=revision, registered_by=by))
    if planned.live is None:
        return []
    target = Target(touchpoint.id)
    live = await versions.live_for_update(tx.conn, target)
    text = await _record(tx.conn, target, touchpoint, found[touchpoint.id], by)
    change = Change(
        "activated" if live else "registered",
        target,
        text.version,
        touchpoint.storage.adapter,
        by,
        "the prompt's storage was configured anew" if live else "the text found at registration",
    )
    return [await switch(tx, change, expected_live=live.version_ref if live else None)]


async def _record(conn: Connection, target: Target, touchpoint: Touchpoint, found: Found, by: str) -> versions.Text:
    store = immediate(touchpoint)
    if store is not None:
        return await store.record(conn, target, found.parts, by=by, origin="initial")
    assert found.version_ref is not None
    now = datetime.now(UTC)
    text = versions.Text.new(target, found.version_ref, found.parts, origin="repository", created_by=by, created_at=now)
    return await versions.record(conn, text)


# --- problems ---------------------------------------------------------------------------------------------


def _repeated(wanted: Sequence[Touchpoint]) -> list[dict[str, str]]:
    first: dict[str, int] = {}
    return [
        _problem(index, "id", f"{each.id} is at touchpoints[{first[each.id]}] already.", "Give each id once.")
        for index, each in enumerate(wanted)
        if first.setdefault(each.id, index) != index
    ]


def _unusable(index: int, touchpoint: Touchpoint) -> list[dict[str, str]]:
    problems = [_problem(index, misfit.field, misfit.message, misfit.hint) for misfit in misfits(touchpoint)]
    for field, name, known_names in _names(touchpoint):
        if name not in known_names:
            problems.append(_problem(index, field, "There is nothing of this name.", f"Use {_either(known_names)}."))
    if len(touchpoint.model_dump_json()) > MAX_CONFIGURATION_BYTES:
        limit = f"more than {MAX_CONFIGURATION_BYTES:,} bytes, which no event can carry."
        problems.append(_problem(index, "storage.initial_text", f"The configuration is {limit}", "Shorten the text."))
    return problems


def _names(touchpoint: Touchpoint) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Each name that must be one of a few: its field, the name, the few."""
    for index, source in enumerate(touchpoint.signals):
        yield f"signals[{index}].scanner", source.scanner, registered("scanners")
    yield "model.provider", touchpoint.model.provider, registered("model_providers")
    if suite := touchpoint.suite:
        yield "suite.task", suite.task, registered("tasks")
        yield "suite.primary_metric", suite.primary_metric, registered("metrics")
        for index, metric in enumerate(suite.metrics):
            yield f"suite.metrics[{index}]", metric, registered("metrics")


def _either(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


def _require_same_scope(wanted: Sequence[Touchpoint], known: Mapping[str, Registered]) -> None:
    problems = [
        _problem(index, "scope", f"{each.id} is registered as {known[each.id].touchpoint.scope}.", "Use a new id.")
        for index, each in enumerate(wanted)
        if each.id in known and known[each.id].touchpoint.scope != each.scope
    ]
    if problems:
        raise _refused(problems)


def _problem(index: int, field: str, message: str, hint: str) -> dict[str, str]:
    return {"loc": f"touchpoints[{index}].{field}", "message": message, "hint": hint}


def _refused(problems: list[dict[str, str]]) -> Refused:
    told = "; ".join(f"{p['loc']}: {p['message']} {p['hint']}".strip() for p in problems[:5])
    return Refused("invalid_touchpoints", f"nothing was changed. {told}", status=422, errors=problems)
