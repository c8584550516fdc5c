"""The agent engine, over HTTP: what executes packs. It is told of every save before the save is committed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx
from fastapi import FastAPI

from services.agents.domain.packs import Json

TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 4 * 1024 * 1024


class EngineError(Exception):
    """The engine did not take what it was given, or is not there. The text quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine. Every call raises `EngineError`."""

    client: httpx.AsyncClient

    @classmethod
    def at(cls, url: str, token: str = "") -> Engine:
        """The engine at a base URL."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return cls(httpx.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT_S, trust_env=False))

    @classmethod
    def within(cls, app: FastAPI) -> Engine:
        """An engine in this very process, spoken to in the same way."""
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        return cls(httpx.AsyncClient(transport=transport, base_url="http://engine", timeout=TIMEOUT_S))

    async def close(self) -> None:
        """Close its connections."""
        await self.client.aclose()

    async def push(self, agent_id: UUID, vendor_id: str | None, version: int, skill_pack: Json) -> str:
        """Let the engine execute a pack from now on; the engine's own id of the agent."""
        body = {"external_id": str(agent_id), "version": version, "skill_pack": skill_pack}
        if vendor_id is None:
            return str((await self._call("POST", "/ai_agents", body))["id"])
        await self._call("PUT", f"/ai_agents/{vendor_id}", body)
        return vendor_id

    async def forget(self, agent_id: UUID) -> None:
        """An agent that was never committed is not executed."""
        await self._call("DELETE", f"/ai_agents/by_external_id/{agent_id}")

    async def make_store(self, store_id: str, kb_ids: Sequence[str]) -> None:
        """Index knowledge under an id of ours; again is no mistake."""
        await self._call("PUT", f"/vector_stores/{store_id}", {"kb_ids": list(kb_ids)})

    async def purge_stores(self, store_ids: Iterable[str]) -> None:
        """Drop indexes that no pack refers to."""
        for store_id in store_ids:
            await self._call("DELETE", f"/vector_stores/{store_id}")

    async def converse(self, skill_pack: Json, messages: Sequence[str], tool_results: Json) -> list[Json]:
        """A conversation with a pack that the engine does not keep; its turns."""
        body = {"skill_pack": skill_pack, "messages": list(messages), "tool_results": tool_results}
        turns: list[Json] = (await self._call("POST", "/conversations", body))["turns"]
        return turns

    async def _call(self, method: str, path: str, body: Json | None = None) -> Json:
        try:
            async with self.client.stream(method, path, json=body) as response:
                if response.status_code >= 300:
                    raise EngineError(f"the engine answered {response.status_code}")
                raw = bytearray()
                async for piece in response.aiter_bytes():
                    raw += piece
                    if len(raw) > MAX_ANSWER_BYTES:
                        raise EngineError("the engine's answer is too large")
            return _object(bytes(raw))
        except httpx.HTTPError as error:
            raise EngineError(f"the engine does not answer ({type(error).__name__})") from error


def _object(raw: bytes) -> Json:
    if not raw:
        return {}
    try:
        value: Any = httpx.Response(200, content=raw).json()
    except ValueError as error:
        raise EngineError("the engine's answer is not JSON") from error
    if not isinstance(value, dict):
        raise EngineError("the engine's answer is no object")
    return value
