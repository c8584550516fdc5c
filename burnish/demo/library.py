"""The library once through: files are dropped, questions asked over MCP, an answer changes, and its history tells."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
from burnish_sdk import AsyncClient, Unreachable

from burnish.demo.loop import DemoError, Json, Progress

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "help_library"
FOLDERS = {"bundles": None, "faq": "markdown_heading_v1", "word": "docx_pattern_b", "sheets": "xlsx_table_v1"}
"""The example's folders, each with what reads it; None are bundles."""
FAULTY = "payments.md"
ASKED = "my parcel never came"
UNKNOWN = "which planets have rings?"
EDITED = ("bundles/orders.md", "after three working days", "after two working days")
PATIENCE_S = 60.0
POLL_S = 0.1


def buckets(folder: Path) -> str:
    """The bindings of the example's folders, below where they were copied to, as JSON, which is YAML, too."""
    bound = [
        {
            "bucket": name,
            "folder": str(folder / name),
            "workspace": "default",
            "look_every_s": 0.5,
            **({"extractor": extractor} if extractor else {"curate_as_pair": True, "trusted": True}),
        }
        for name, extractor in FOLDERS.items()
    ]
    return json.dumps({"buckets": bound}, indent=2)


@dataclass(frozen=True)
class LibraryDemo:
    """The parts of one demonstration. `folder` has the buckets' folders; they are empty at first."""

    gateway: AsyncClient
    mcp_url: str
    token: str
    folder: Path
    progress: Progress

    async def run(self) -> Json:
        """Everything, in order. Raises DemoError with the step that did not come through."""
        started = monotonic()
        documents = await self.drop()
        refused = await self.drop_a_faulty_one()
        await self.embedded()
        asked = await self.ask()
        edited = await self.edit(asked["pair"]["id"])
        return {
            "documents": documents,
            "refused": refused,
            "asked": asked,
            "edited": edited,
            "elapsed_s": round(monotonic() - started, 2),
        }

    # --- the steps, in order ----------------------------------------------------------------------------------

    async def drop(self) -> list[Json]:
        """Put the example's files into their folders, and wait until each is read."""
        files = [path for name in FOLDERS for path in sorted((EXAMPLE / name).iterdir())]
        self.progress.step("Dropping files into four folders", len(files))
        for path in files:
            _drop(path, self.folder / path.parent.name / path.name)

        async def all_read() -> list[Json] | None:
            found = await self._documents()
            self.progress.at(len(found))
            return found if len(found) == len(files) else None

        found = await self._until(f"{len(files)} files are read", all_read)
        return [await self._with_report(document) for document in sorted(found, key=lambda each: each["bucket"])]

    async def drop_a_faulty_one(self) -> Json:
        """Put a bundle with mistakes beside the others, and wait for its report."""
        self.progress.step("Dropping a file with mistakes in it")
        _drop(EXAMPLE / "faults" / FAULTY, self.folder / "bundles" / FAULTY)

        async def told() -> Json | None:
            return next((each for each in await self._documents() if each["object_key"] == FAULTY), None)

        return await self._with_report(await self._until("the file is refused", told))

    async def embedded(self) -> None:
        """Wait until questions are found by their meaning."""
        self.progress.step("Waiting until every question has its vector")

        async def all_have_one() -> bool | None:
            found = await self._get("/api/qa/search", query="order", include_extractions=True, limit=50)
            return (found["results"] != [] and all(hit["similarity"] is not None for hit in found["results"])) or None

        await self._until("every question has its vector", all_have_one)

    async def ask(self) -> Json:
        """Ask as an agent does: a question in other words, its answer verbatim, and one that nothing answers."""
        self.progress.step("Asking as an agent, over MCP")
        await self._until("the MCP server is there", self._mcp_is_there)
        async with self._agent() as call:
            found = (await call("q_a_search", query=ASKED))["results"]
            pair = await call("q_a_get", q_a_pair_id=found[0]["q_a_pair_id"]) if found else None
            unknown = await call("q_a_search", query=UNKNOWN)
        if pair is None:
            raise DemoError(f"nothing was found for {ASKED!r}")
        return {"query": ASKED, "results": found, "pair": pair, "unknown": unknown}

    async def edit(self, pair_id: str) -> Json:
        """Change a sentence in the file: the pair stays as it is, and a person is asked to look at it."""
        self.progress.step("Changing a sentence in its file")
        key, before, after = EDITED
        path = self.folder / key
        text = path.read_text(encoding="utf-8")
        if before not in text:
            raise DemoError(f"{path} does not have the sentence that the demo changes")
        path.write_text(text.replace(before, after), encoding="utf-8")

        async def flagged() -> Json | None:
            pair: Json = await self._get(f"/api/qa/pairs/{pair_id}", include_history=True)
            return pair if pair["review_status"] == "pending" else None

        await self._until("the pair waits for a review", flagged)
        self.progress.step("Reading its history, over MCP")
        async with self._agent() as call:
            pair = await call("q_a_get", q_a_pair_id=pair_id, include_history=True)
        return {"file": key, "before": before, "after": after, "pair": pair}

    async def _mcp_is_there(self) -> bool | None:
        """It starts last, and nobody waits for it."""
        async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
            try:
                answer = await client.get(self.mcp_url.removesuffix("/mcp") + "/health/ready")
            except httpx.HTTPError:
                return None
        return answer.status_code == 200 or None

    # --- reading ----------------------------------------------------------------------------------------------

    async def _documents(self) -> list[Json]:
        found: list[Json] = (await self._get("/api/qa/documents"))["documents"]
        return found

    async def _with_report(self, document: Json) -> Json:
        report = await self._get(f"/api/qa/documents/{document['document_id']}/report")
        return {**document, **{key: report[key] for key in ("problems", "notices", "rejects", "losses")}}

    async def _get(self, path: str, **params: Any) -> Any:
        return await self.gateway.request("GET", path, params=params)

    @asynccontextmanager
    async def _agent(self) -> AsyncIterator[Callable[..., Awaitable[Json]]]:
        """A real client of the protocol, over HTTP with the agent's token."""
        import httpx2
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client

        headers = {"Authorization": f"Bearer {self.token}"}
        try:
            async with (
                httpx2.AsyncClient(headers=headers, trust_env=False, timeout=PATIENCE_S) as http,
                Client(streamable_http_client(self.mcp_url, http_client=http)) as client,
            ):

                async def call(tool: str, **arguments: Any) -> Json:
                    result = await client.call_tool(tool, arguments)
                    if result.is_error or result.structured_content is None:
                        raise DemoError(f"{tool} came to nothing: {result.content}")
                    return dict(result.structured_content)

                yield call
        except ExceptionGroup as group:  # the client's tasks wrap whatever ends them
            raise DemoError(f"the MCP server: {_first(group)}") from group

    async def _until(self, what: str, look: Callable[[], Awaitable[Any]]) -> Any:
        """What `look` gives once it gives something."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while (found := await _unless_away(look)) is None:  # noqa: ASYNC110  # it is behind HTTP
                    await asyncio.sleep(POLL_S)
        except TimeoutError as error:
            raise DemoError(f"waited {PATIENCE_S:g} s until {what}, in vain; see the services' logs") from error
        return found


async def _unless_away(look: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await look()
    except Unreachable:
        return None


def _first(group: BaseException) -> BaseException:
    return _first(group.exceptions[0]) if isinstance(group, BaseExceptionGroup) else group


def _drop(path: Path, place: Path) -> None:
    """A file comes into a folder whole."""
    half = place.with_name(f".{place.name}")
    shutil.copyfile(path, half)
    half.replace(place)
