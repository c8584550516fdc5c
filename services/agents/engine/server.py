"""The small engine as an HTTP server: for tests, the demo and preview; the service serves it where no other is set.

It keeps agents and vector stores as files of one folder, and a log with a line for each request that changes something;
holding a conversation writes nothing.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Annotated, Any
from uuid import NAMESPACE_URL, uuid5

from fastapi import FastAPI, HTTPException
from fastapi import Path as InPath
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from services.agents.domain.packs import Json, MalformedPack
from services.agents.domain.skill_packs import check_skill_pack
from services.agents.engine.conversation import MAX_MESSAGES, ToolResult, replay

Identity = Annotated[str, InPath(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")]
Said = Annotated[str, StringConstraints(min_length=1, max_length=4_000)]


class PushBody(BaseModel):
    """A pack to execute from now on. `external_id` is the caller's own name of the agent."""

    model_config = ConfigDict(extra="forbid")

    external_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")]
    version: int = Field(ge=1)
    skill_pack: dict[str, Any]


class StoreBody(BaseModel):
    """Knowledge to index."""

    model_config = ConfigDict(extra="forbid")

    kb_ids: list[str] = Field(max_length=1_000)


class ResultBody(BaseModel):
    """What a tool answers in a conversation."""

    model_config = ConfigDict(extra="forbid")

    ok: bool = True
    body: str = Field(default="done", max_length=4_000)


class ConversationBody(BaseModel):
    """Messages to a pack that is given, or to an agent that is kept."""

    model_config = ConfigDict(extra="forbid")

    ai_agent_id: str | None = None
    skill_pack: dict[str, Any] | None = None
    messages: list[Said] = Field(min_length=1, max_length=MAX_MESSAGES)
    tool_results: dict[str, ResultBody] = Field(default_factory=dict)


class Folder:
    """What the engine keeps. One process a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        for name in ("agents", "stores"):
            (root / name).mkdir(parents=True, exist_ok=True)

    def put(self, kind: str, name: str, value: Json) -> None:
        """Keep a value; whoever reads meanwhile sees the one before or this one."""
        path = self._path(kind, name)
        half = path.with_suffix(".half")
        half.write_text(json.dumps(value, ensure_ascii=False))
        half.replace(path)
        self._log("PUT", kind, name)

    def get(self, kind: str, name: str) -> Json | None:
        """What is kept under a name."""
        try:
            found: Json = json.loads(self._path(kind, name).read_text())
        except FileNotFoundError:
            return None
        return found

    def remove(self, kind: str, name: str) -> None:
        """Keep it no longer; that it was never there is no mistake."""
        self._path(kind, name).unlink(missing_ok=True)
        self._log("DELETE", kind, name)

    def names(self, kind: str) -> list[str]:
        """What is kept, sorted."""
        return sorted(path.stem for path in (self._root / kind).glob("*.json"))

    def _path(self, kind: str, name: str) -> Path:
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", name)
        return self._root / kind / f"{name}.json"

    def _log(self, method: str, kind: str, name: str) -> None:
        with (self._root / "requests.log").open("a") as log:
            log.write(f"{method} {kind} {name}\n")


def build(root: Path) -> FastAPI:
    """The engine on a folder."""
    app = FastAPI(title="Burnish's small agent engine", docs_url=None, redoc_url=None)
    folder, one_at_a_time = Folder(root), asyncio.Lock()

    @app.post("/ai_agents", status_code=201)
    async def create(body: PushBody) -> Json:
        vendor_id = f"va-{uuid5(NAMESPACE_URL, body.external_id)}"
        return await push(vendor_id, body)

    @app.put("/ai_agents/{vendor_id}")
    async def push(vendor_id: Identity, body: PushBody) -> Json:
        _require_skill_pack(body.skill_pack)
        async with one_at_a_time:
            kept = {"id": vendor_id, **body.model_dump(mode="json")}
            folder.put("agents", vendor_id, kept)
        return {"id": vendor_id, "version": body.version}

    @app.get("/ai_agents/{vendor_id}")
    async def show(vendor_id: Identity) -> Json:
        return _found(folder.get("agents", vendor_id), "agent")

    @app.delete("/ai_agents/by_external_id/{external_id}", status_code=204)
    async def forget(external_id: Identity) -> None:
        async with one_at_a_time:
            folder.remove("agents", f"va-{uuid5(NAMESPACE_URL, external_id)}")

    @app.put("/vector_stores/{store_id}")
    async def index(store_id: Identity, body: StoreBody) -> Json:
        async with one_at_a_time:
            folder.put("stores", store_id, {"id": store_id, "kb_ids": body.kb_ids})
        return {"id": store_id}

    @app.get("/vector_stores")
    async def stores() -> Json:
        return {"vector_stores": folder.names("stores")}

    @app.delete("/vector_stores/{store_id}", status_code=204)
    async def purge(store_id: Identity) -> None:
        async with one_at_a_time:
            folder.remove("stores", store_id)

    @app.post("/conversations")
    async def converse(body: ConversationBody) -> Json:
        pack = body.skill_pack
        if pack is None:
            pack = _found(folder.get("agents", body.ai_agent_id or "none"), "agent")["skill_pack"]
        _require_skill_pack(pack)
        results = {name: ToolResult(each.ok, each.body) for name, each in body.tool_results.items()}
        turns = await asyncio.to_thread(replay, pack, body.messages, results)
        return {"turns": [turn.told() for turn in turns]}

    return app


def _require_skill_pack(pack: Json) -> None:
    try:
        check_skill_pack(pack)
    except MalformedPack as error:
        raise HTTPException(422, f"skill_pack: {error}") from error
    if not pack["skills"]:
        raise HTTPException(422, "skill_pack: skills is empty")


def _found(value: Json | None, what: str) -> Json:
    if value is None:
        raise HTTPException(404, f"there is no such {what}")
    return value
