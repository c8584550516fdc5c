"""Saving an agent: row, version, fact and push together, or none of them.

The push happens inside the transaction, before its commit: what the engine refuses is not saved. A process that dies
between the two leaves a row in `agent_pushes`, and the sweep gives the engine what is committed.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4, uuid5

from libs.contracts.agents import BLOCKS, AgentView, RefineMark, SaveAction, workspace_of
from libs.contracts.envelope import EVENT_NAMESPACE
from libs.contracts.events.agents import AgentSavedV1
from libs.contracts.queries.agents import AgentReply, CreateAgent, RevertAgent, UpdateAgent
from libs.service_kit import faults, logging
from libs.service_kit.connection import Connection
from libs.service_kit.db import Database, Transaction
from libs.service_kit.errors import Refused
from libs.service_kit.requests import Once
from services.agents import metrics, store
from services.agents.domain import references
from services.agents.domain.mapping import SkillPackBuilder
from services.agents.domain.packs import Json, MalformedPack, canonical, check_pack, copy_of, same
from services.agents.push import Engine, EngineError
from services.agents.store import NewAgent, Push, Saved

log = logging.get(__name__)
SYNC_FAILED = "Failed to sync AI Agent to AI Service"
PUSH_LIMIT_S = 25.0
"""For the stores and the pack together."""
IN_DOUBT_S = 2.0
"""A save takes hold of its push at once; one of this age that nobody holds has lost its process."""


@dataclass(slots=True)
class Stores:
    """The vector stores of a pack: which capability has which, and which of them must be made first."""

    by_capability: list[Any] = field(default_factory=list)
    made: dict[str, list[str]] = field(default_factory=dict)


def planned_stores(agent_id: UUID, pack: Json) -> Stores:
    """Reuse the store that holds the same knowledge, else plan one of an id that its content gives."""
    stores = Stores()
    for capability in pack.get("capabilities") or []:
        kb_ids = list(dict.fromkeys(source["kb_id"] for source in capability.get("sources") or []))
        kept = capability.get("vector_store")
        if not kb_ids:
            stores.by_capability.append(None)
        elif kept and kept.get("kb_ids") == kb_ids and str(kept.get("id", "")).startswith(_prefix(agent_id)):
            stores.by_capability.append(kept)
        else:
            store_id = f"{_prefix(agent_id)}{uuid5(EVENT_NAMESPACE, '|'.join(kb_ids)).hex[:12]}"
            stores.by_capability.append({"id": store_id, "kb_ids": kb_ids})
            stores.made[store_id] = kb_ids
    return stores


def _prefix(agent_id: UUID) -> str:
    return f"vs-{agent_id}-"


def with_stores(pack: Json, stores: Stores) -> Json:
    """The pack with the stores that the engine has for it. Nothing else of it changes."""
    capabilities = pack.get("capabilities")
    if not capabilities:
        return pack
    kept = []
    for capability, vector_store in zip(capabilities, stores.by_capability, strict=True):
        if vector_store is None and capability.get("vector_store") is None:
            kept.append(capability)
        else:
            kept.append({**capability, "vector_store": vector_store})
    return {**pack, "capabilities": kept}


def store_ids(pack: Json | None) -> set[str]:
    """The stores that a pack refers to."""
    found = [(each.get("vector_store") or {}).get("id") for each in (pack or {}).get("capabilities") or []]
    return {str(store_id) for store_id in found if store_id}


def pack_of(parameters: Mapping[str, Any]) -> Json:
    """The pack in an agent's parameters: its blocks."""
    return {block: parameters[block] for block in BLOCKS if block in parameters}


def pack_sha256(parameters: Mapping[str, Any]) -> str:
    """What a pack is known by: the hash of its JSON, keys in their order."""
    return hashlib.sha256(canonical(pack_of(parameters))).hexdigest()


class Saving:
    """Creates, updates and reverts agents."""

    def __init__(self, db: Database, engine: Engine) -> None:
        self._db = db
        self._engine = engine

    async def create(self, query: CreateAgent) -> AgentView:
        """A new agent as version 1."""
        parameters = {"engine_version": query.engine_version, **_blocks(query.blocks)}
        # The same request again must not make a second agent at the engine.
        agent_id = uuid5(EVENT_NAMESPACE, f"agent|{query.request_id}") if query.request_id else uuid4()
        workspace_id = workspace_of(query.organization_id)
        await self._look(query, AgentReply)
        async with self._db.connection(workspaces=[workspace_id]) as conn:
            await self._require_references(conn, workspace_id, query.company_id, parameters)
        stores, push = self._planned(agent_id, workspace_id, parameters)
        async with self._pushing(push), self._transaction(query, push) as (tx, once):
            parameters = with_stores(parameters, stores)
            vendor_id = await self._push(agent_id, None, 1, parameters, stores)
            new = NewAgent(agent_id, workspace_id, query.organization_id, query.company_id, parameters, vendor_id)
            await store.insert(tx.conn, new)
            agent = _found(await store.get(tx.conn, workspace_id, agent_id))
            await self._record(tx, agent, workspace_id, _Change("create", query.actor, None))
            await once.end(tx.conn, agent)
        return agent

    async def update(self, query: UpdateAgent) -> AgentView:
        """The next version, with each given block in place of the stored one."""
        return await self._save(query, "update", lambda agent, _: {**agent.parameters, **_blocks(query.blocks)})

    async def revert(self, query: RevertAgent) -> AgentView:
        """An earlier version's pack as the next version."""

        def earlier(agent: AgentView, then: Json | None) -> Json:
            if then is None:
                raise Refused("unknown_version", f"the agent has no version {query.to_version}", status=404)
            kept = {key: value for key, value in agent.parameters.items() if key not in BLOCKS}
            return {**kept, **pack_of(then)}

        return await self._save(query, "revert", earlier)

    async def sweep(self, age_s: float = IN_DOUBT_S) -> int:
        """Give the engine what is committed, for every push whose end nobody saw; how many there were."""
        swept = 0
        while await self._sweep_one(age_s):
            swept += 1
        return swept

    # --- one save ---------------------------------------------------------------------------------------------

    async def _save(self, query: UpdateAgent | RevertAgent, action: SaveAction, change: Any) -> AgentView:
        workspace_id = workspace_of(query.organization_id)
        await self._look(query, AgentReply)
        async with self._db.connection(workspaces=[workspace_id]) as conn:
            seen = _found(await store.get(conn, workspace_id, query.agent_id))
            _require_version(seen, query.lock_version, await self._since(conn, seen, query.lock_version))
            parameters = _checked(change(seen, await self._version(conn, query)))
            await self._require_references(conn, workspace_id, seen.company_id, parameters)
        stores, push = self._planned(seen.id, workspace_id, parameters)
        async with self._pushing(push), self._transaction(query, push) as (tx, once):
            agent = _found(await store.get(tx.conn, workspace_id, query.agent_id, lock=True))
            _require_version(agent, query.lock_version, await self._since(tx.conn, agent, query.lock_version))
            before, parameters = agent.parameters, with_stores(parameters, stores)
            vendor_id = await self._push(agent.id, agent.vendor_ai_agent_id, agent.lock_version + 1, parameters, stores)
            await store.update(tx.conn, workspace_id, agent.id, parameters, vendor_id)
            saved = _found(await store.get(tx.conn, workspace_id, agent.id))
            mark = query.refine if isinstance(query, UpdateAgent) else None
            await self._record(tx, saved, workspace_id, _Change(action, query.actor, before, mark))
            await once.end(tx.conn, saved)
        await self._purge(store_ids(before) - store_ids(parameters))
        return saved

    async def _version(self, conn: Connection, query: UpdateAgent | RevertAgent) -> Json | None:
        if not isinstance(query, RevertAgent):
            return None
        found = await store.version(conn, query.agent_id, query.to_version)
        return None if found is None else found.after

    async def _since(self, conn: Connection, agent: AgentView, lock_version: int) -> list[dict[str, Any]]:
        """What changed after the version that somebody saw: for the 409."""
        if agent.lock_version == lock_version:
            return []
        since = [each for each in await store.versions(conn, agent.id, 20) if each.version > lock_version]
        seen = await store.version(conn, agent.id, lock_version)
        changed = [] if seen is None else changed_fields(seen.after, agent.parameters)
        told = [{"version": each.version, "action": each.action, "actor": each.actor} for each in since]
        return [*told, {"changed": changed}]

    def _planned(self, agent_id: UUID, workspace_id: UUID, parameters: Json) -> tuple[Stores, Push]:
        stores = planned_stores(agent_id, parameters)
        return stores, Push(uuid4(), agent_id, workspace_id, sorted(stores.made))

    async def _look(self, query: CreateAgent | UpdateAgent | RevertAgent, reply: type[AgentReply]) -> None:
        async with self._db.connection() as conn:
            await Once[AgentView](query, lambda agent: reply(agent=agent)).look(conn)

    @asynccontextmanager
    async def _transaction(
        self, query: CreateAgent | UpdateAgent | RevertAgent, push: Push
    ) -> AsyncIterator[tuple[Transaction[Any], Once[AgentView]]]:
        """The transaction of a save. It holds its push until it ends, so that a sweep knows that it is alive."""
        once = Once[AgentView](query, lambda agent: AgentReply(agent=agent))
        async with self._db.transaction() as tx:
            if not await store.hold_push(tx.conn, push.id):
                raise Refused("sync_failed", SYNC_FAILED, status=422)
            await once.begin(tx.conn)
            yield tx, once
            await store.end_push(tx.conn, push.id)

    @asynccontextmanager
    async def _pushing(self, push: Push) -> AsyncIterator[None]:
        """Around a save: a failure of it is put right at the engine at once, a death by the sweep."""
        async with self._db.transaction() as tx:
            await store.begin_push(tx.conn, push)
        try:
            yield
        except BaseException:
            await self._sweep_one(0.0, push.id)
            raise

    async def _push(self, agent_id: UUID, vendor_id: str | None, version: int, parameters: Json, stores: Stores) -> str:
        skill_pack = SkillPackBuilder().build(pack_of(parameters))
        try:
            async with asyncio.timeout(PUSH_LIMIT_S):
                for store_id, kb_ids in stores.made.items():
                    await self._engine.make_store(store_id, kb_ids)
                with metrics.PUSH_SECONDS.time():
                    vendor_id = await self._engine.push(agent_id, vendor_id, version, skill_pack)
        except (EngineError, TimeoutError) as error:
            metrics.PUSHES.labels("failed").inc()
            log.warning("agents.push.failed", agent_id=str(agent_id), error=str(error))
            raise Refused("sync_failed", SYNC_FAILED, status=422) from error
        faults.point("push_commit")
        return vendor_id

    async def _record(self, tx: Transaction[Any], agent: AgentView, workspace_id: UUID, change: _Change) -> None:
        sha256, at = pack_sha256(agent.parameters), datetime.now(UTC)
        saved = Saved(change.action, change.actor, change.before, agent.parameters, sha256, change.refine, at)
        await store.add_version(tx.conn, agent, workspace_id, saved)
        tx.emit(
            AgentSavedV1(
                agent_id=agent.id,
                organization_id=agent.organization_id,
                workspace_id=workspace_id,
                version=agent.lock_version,
                action=change.action,
                pack_sha256=sha256,
                saved_by=change.actor,
                saved_at=at,
            )
        )
        metrics.PUSHES.labels("saved").inc()

    async def _require_references(
        self, conn: Connection, workspace_id: UUID, company_id: str, parameters: Json
    ) -> None:
        tools = await store.tools(conn, workspace_id, company_id)
        knowledge = await store.knowledge(conn, workspace_id, company_id)
        known_tools = {tool.tool_id for tool in tools if tool.tool_id}
        absent = references.missing(pack_of(parameters), known_tools, {each.kb_id for each in knowledge})
        if absent:
            raise Refused("unknown_references", "; ".join(absent[:20])[:2_000], status=400, messages=absent[:20])

    # --- putting the engine right -----------------------------------------------------------------------------

    async def _sweep_one(self, age_s: float, push_id: UUID | None = None) -> bool:
        """Repair one push that nobody holds. False where there is none, or the engine does not answer."""
        try:
            async with self._db.transaction() as tx:
                push = await store.left_over(tx.conn, age_s, push_id)
                if push is None:
                    return False
                await self._repair(tx.conn, push)
                await store.end_push(tx.conn, push.id)
        except (EngineError, OSError) as error:
            # It stays in its table: the next sweep tries again.
            log.warning("agents.sweep.waiting", error=logging.describe(error))
            return False
        metrics.PUSHES.labels("repaired").inc()
        return True

    async def _repair(self, conn: Connection, push: Push) -> None:
        """Under the lock of the agent, so that no save's push is overtaken."""
        agent = await store.get(conn, push.workspace_id, push.agent_id, lock=True)
        if agent is None:
            await self._engine.forget(push.agent_id)
        else:
            pack = SkillPackBuilder().build(pack_of(agent.parameters))
            await self._engine.push(agent.id, agent.vendor_ai_agent_id, agent.lock_version, pack)
        await self._engine.purge_stores(sorted(set(push.stores) - store_ids(agent.parameters if agent else None)))

    async def _purge(self, unused: set[str]) -> None:
        try:
            await self._engine.purge_stores(sorted(unused))
        except EngineError as error:
            # An index too many harms nobody; the save is done.
            log.warning("agents.purge.failed", count=len(unused), error=str(error))


@dataclass(frozen=True, slots=True)
class _Change:
    action: SaveAction
    actor: str
    before: Json | None
    refine: RefineMark | None = None


def changed_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The places of a pack where two versions differ: profile fields, capabilities and routes by id."""
    changed: list[str] = []
    for block in BLOCKS:
        old, new = before.get(block), after.get(block)
        if same(old, new):
            continue
        if isinstance(old, list | None) and isinstance(new, list | None):
            one, other = _by_id(old), _by_id(new)
            names = [name for name in {**one, **other} if not same(one.get(name), other.get(name))]
            changed += [f"{block}[{name}]" for name in names] or [f"{block} (order)"]
        else:
            one, other = dict(old or {}), dict(new or {})
            changed += [f"{block}.{key}" for key in {**one, **other} if not same(one.get(key), other.get(key))]
    return changed[:50]


def _by_id(elements: Sequence[Json] | None) -> dict[str, Json]:
    return {str(each.get("id")): each for each in elements or []}


def _blocks(given: Mapping[str, Any]) -> Json:
    unknown = sorted(set(given) - set(BLOCKS))
    if unknown:
        raise Refused("unknown_block", f"{unknown[0]}: a pack's blocks are {', '.join(BLOCKS)}", status=400)
    return _checked(copy_of(dict(given)))


def _checked(parameters: Json) -> Json:
    try:
        return check_pack(parameters)
    except MalformedPack as error:
        raise Refused("malformed_pack", str(error), status=400) from error


def _found(agent: AgentView | None) -> AgentView:
    if agent is None:
        raise Refused("not_found", "AI Agent not found", status=404)
    return agent


def _require_version(agent: AgentView, lock_version: int, since: Sequence[Mapping[str, Any]]) -> None:
    if agent.lock_version != lock_version:
        detail = f"the agent is at version {agent.lock_version}, not {lock_version}"
        raise Refused("stale", detail, status=409, lock_version=agent.lock_version, since=list(since))
