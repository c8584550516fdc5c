"""The clients: `AsyncClient` for an event loop, `Client` for threads. The second only runs the first."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

from pydantic import TypeAdapter

from burnish_sdk import address, operations
from burnish_sdk.errors import UnexpectedAnswer
from burnish_sdk.models import (
    Accepted,
    CuratedPair,
    LivePrompt,
    NewPair,
    Pair,
    PairChanges,
    PairKind,
    Provenance,
    PublicationStatus,
    SearchResults,
    Signal,
    SignalCounts,
    SignalPage,
    StoredSignal,
    Suggestion,
)
from burnish_sdk.operation import Operation, document
from burnish_sdk.prompts import Key, Known, Prompt, PromptCache, Refreshing
from burnish_sdk.transport import Options, Token, Transport

T = TypeVar("T")


# --- for an event loop ------------------------------------------------------------------------------------


class AsyncSignals:
    """Quality evidence: pushed, and read."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def push(self, *signals: Signal, idempotency_key: str | None = None) -> Accepted:
        """Store signals durably, however many. The same key with the same signals is the same push.

        Without a key one is made, so that it may be tried again. Raises Invalid, which names the fields.
        """
        return await self.push_all(signals, idempotency_key=idempotency_key)

    async def push_all(self, signals: Iterable[Signal], *, idempotency_key: str | None = None) -> Accepted:
        """`push` of an iterable. When it fails, earlier batches of a thousand were taken: push it again."""
        taken: list[UUID] = []
        for operation in operations.push_signals(signals, idempotency_key):
            taken += (await self._transport.call(operation)).signal_ids
        return Accepted(accepted=len(taken), signal_ids=taken)

    async def pages(
        self,
        *,
        touchpoint_id: str | None = None,
        rejected: bool | None = None,
        unprocessed: bool | None = None,
        page_size: int = 100,
    ) -> AsyncIterator[SignalPage]:
        """Pages of stored signals, newest first."""
        cursor: str | None = None
        while True:
            page = await self._transport.call(
                operations.list_signals(
                    cursor,
                    touchpoint_id=touchpoint_id,
                    rejected=rejected,
                    unprocessed=unprocessed,
                    limit=page_size,
                )
            )
            yield page
            if page.next is None:
                return
            if page.next == cursor:
                raise UnexpectedAnswer("a page leads to itself", status=200)
            cursor = page.next

    async def list(
        self, *, touchpoint_id: str | None = None, rejected: bool | None = None, unprocessed: bool | None = None
    ) -> AsyncIterator[StoredSignal]:
        """Every stored signal, newest first, a page at a time."""
        async for page in self.pages(touchpoint_id=touchpoint_id, rejected=rejected, unprocessed=unprocessed):
            for signal in page.signals:
                yield signal

    async def counts(self, touchpoint_id: str | None = None) -> SignalCounts:
        """How many signals there are by touchpoint and state."""
        return await self._transport.call(operations.count_signals(touchpoint_id))


class AsyncPrompts:
    """Live prompts."""

    def __init__(self, transport: Transport, cache: PromptCache) -> None:
        self._transport = transport
        self._cache = cache

    async def get(self, touchpoint_id: str, workspace_id: UUID | None = None) -> Prompt:
        """The live prompt, from memory where it is there; checked twice a second in the background.

        While the gateway is away the last known one is served, and `stale` says so. Raises as `live` does when none
        is known yet.
        """
        return await self._cache.get(touchpoint_id, workspace_id)

    async def live(
        self, touchpoint_id: str, workspace_id: UUID | None = None, *, at: datetime | None = None
    ) -> LivePrompt:
        """What the gateway says now, past the cache; or what was live at an instant."""
        return await self._transport.call(operations.live_prompt(touchpoint_id, workspace_id, at=at))


class AsyncLibrary:
    """The Q&A library."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def search(
        self,
        query: str,
        *,
        workspace_id: UUID | None = None,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        expression: str | None = None,
        primary_domain: str | None = None,
        primary_subtopic: str | None = None,
        provenance: Sequence[Provenance] = (),
        status: Sequence[PublicationStatus] = (),
        include_extractions: bool = False,
        as_of: datetime | None = None,
        limit: int = 10,
        offset: int = 0,
    ) -> SearchResults:
        """The pairs that answer a question, best first; published ones unless `status` says which. May be empty."""
        operation = operations.search_pairs(
            query,
            workspace_id=workspace_id,
            include=include,
            exclude=exclude,
            expression=expression,
            primary_domain=primary_domain,
            primary_subtopic=primary_subtopic,
            provenance=provenance,
            status=status,
            include_extractions=include_extractions,
            as_of=as_of,
            limit=limit,
            offset=offset,
        )
        return await self._transport.call(operation)

    async def get(
        self,
        pair_id: UUID,
        *,
        kind: PairKind = "curated",
        workspace_id: UUID | None = None,
        citations: bool = False,
        history: bool = False,
    ) -> Pair:
        """One pair, or with `kind="extracted"` one extraction, verbatim. Raises NotFound."""
        operation = operations.get_pair(
            pair_id, kind=kind, workspace_id=workspace_id, citations=citations, history=history
        )
        return await self._transport.call(operation)

    async def create(
        self, pair: NewPair, *, workspace_id: UUID | None = None, reason: str = "", idempotency_key: str | None = None
    ) -> CuratedPair:
        """Make a draft. A token for several workspaces names one."""
        return await self._transport.call(
            operations.create_pair(pair, workspace_id=workspace_id, reason=reason, idempotency_key=idempotency_key)
        )

    async def promote(
        self, extraction_id: UUID, *, reason: str = "", idempotency_key: str | None = None
    ) -> CuratedPair:
        """Make a draft of what was found in a document. Raises Conflict when it is a pair already."""
        return await self._transport.call(
            operations.promote_extraction(extraction_id, reason=reason, idempotency_key=idempotency_key)
        )

    async def propose_edit(
        self,
        pair_id: UUID,
        version: int,
        changes: PairChanges,
        *,
        reason: str = "",
        idempotency_key: str | None = None,
    ) -> Suggestion:
        """Propose a change of a pair as it was read, for a person to decide on. Raises Conflict for an old version."""
        operation = operations.propose_edit(pair_id, version, changes, reason=reason, idempotency_key=idempotency_key)
        return (await self._transport.call(operation)).suggestion


class AsyncClient:
    """A gateway, asked from one event loop.

    `token` is a JWT, or a function that gives the one that holds now. Use it with `async with`, or close it.
    """

    def __init__(
        self, url: str, token: Token, options: Options = Options(), refreshing: Refreshing = Refreshing()
    ) -> None:
        """Raises ConfigurationError for a URL or a token that cannot be used."""
        self._transport = Transport(url, token, options)
        self._cache = PromptCache(self._transport, refreshing)
        self.url = self._transport.url
        self.signals = AsyncSignals(self._transport)
        self.prompts = AsyncPrompts(self._transport, self._cache)
        self.library = AsyncLibrary(self._transport)

    def __repr__(self) -> str:
        return f"<burnish_sdk.{type(self).__name__} of {self.url}>"

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        reply: type[T] | Any = None,
    ) -> T | Any:
        """Any call below `/api/refinement`, with the same care: `reply` is a type to read the answer as, or None."""
        sent = None if body is None else document(body)
        adapter = None if reply is None else TypeAdapter(reply)
        operation: Operation[Any] = Operation(method, path, adapter, params or {}, sent, headers or {})
        return await self._transport.call(operation)

    async def send(
        self, path: str, content: bytes, content_type: str, *, params: Mapping[str, Any] | None = None
    ) -> Any:
        """POST a file; the answer is any JSON."""
        operation: Operation[Any] = Operation("POST", path, None, params or {}, content, content_type=content_type)
        return await self._transport.call(operation)

    async def fetch(self, path: str, *, params: Mapping[str, Any] | None = None) -> bytes:
        """GET a file."""
        operation: Operation[Any] = Operation("GET", path, None, params or {}, gives_bytes=True)
        return (await self._transport.answer(operation)).body

    async def close(self) -> None:
        """Stop the background work and close every connection."""
        await self._cache.close()
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


# --- for threads ------------------------------------------------------------------------------------------


class Signals:
    """Quality evidence: pushed, and read. See `AsyncSignals`."""

    def __init__(self, running: _Running) -> None:
        self._running = running

    def push(self, *signals: Signal, idempotency_key: str | None = None) -> Accepted:
        """Store signals durably, however many. The same key with the same signals is the same push.

        Without a key one is made, so that it may be tried again. Raises Invalid, which names the fields.
        """
        return self._running.do(lambda client: client.signals.push(*signals, idempotency_key=idempotency_key))

    def push_all(self, signals: Iterable[Signal], *, idempotency_key: str | None = None) -> Accepted:
        """`push` of an iterable. When it fails, earlier batches of a thousand were taken: push it again."""
        return self._running.do(lambda client: client.signals.push_all(signals, idempotency_key=idempotency_key))

    def pages(
        self,
        *,
        touchpoint_id: str | None = None,
        rejected: bool | None = None,
        unprocessed: bool | None = None,
        page_size: int = 100,
    ) -> Iterator[SignalPage]:
        """Pages of stored signals, newest first."""
        return self._running.each(
            lambda client: client.signals.pages(
                touchpoint_id=touchpoint_id, rejected=rejected, unprocessed=unprocessed, page_size=page_size
            )
        )

    def list(
        self, *, touchpoint_id: str | None = None, rejected: bool | None = None, unprocessed: bool | None = None
    ) -> Iterator[StoredSignal]:
        """Every stored signal, newest first, a page at a time."""
        for page in self.pages(touchpoint_id=touchpoint_id, rejected=rejected, unprocessed=unprocessed):
            yield from page.signals

    def counts(self, touchpoint_id: str | None = None) -> SignalCounts:
        """How many signals there are by touchpoint and state."""
        return self._running.do(lambda client: client.signals.counts(touchpoint_id))


class Prompts:
    """Live prompts. See `AsyncPrompts`."""

    def __init__(self, running: _Running) -> None:
        self._running = running

    def get(self, touchpoint_id: str, workspace_id: UUID | None = None) -> Prompt:
        """The live prompt, from memory where it is there; checked twice a second in the background.

        While the gateway is away the last known one is served, and `stale` says so. Raises as `live` does when none
        is known yet.
        """
        known = self._running.known.get((touchpoint_id, workspace_id))
        if known is not None:
            known.used = True
            return known.prompt
        return self._running.do(lambda client: client.prompts.get(touchpoint_id, workspace_id))

    def live(self, touchpoint_id: str, workspace_id: UUID | None = None, *, at: datetime | None = None) -> LivePrompt:
        """What the gateway says now, past the cache; or what was live at an instant."""
        return self._running.do(lambda client: client.prompts.live(touchpoint_id, workspace_id, at=at))


class Library:
    """The Q&A library. See `AsyncLibrary`."""

    def __init__(self, running: _Running) -> None:
        self._running = running

    def search(
        self,
        query: str,
        *,
        workspace_id: UUID | None = None,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        expression: str | None = None,
        primary_domain: str | None = None,
        primary_subtopic: str | None = None,
        provenance: Sequence[Provenance] = (),
        status: Sequence[PublicationStatus] = (),
        include_extractions: bool = False,
        as_of: datetime | None = None,
        limit: int = 10,
        offset: int = 0,
    ) -> SearchResults:
        """The pairs that answer a question, best first; published ones unless `status` says which. May be empty."""
        return self._running.do(
            lambda client: client.library.search(
                query,
                workspace_id=workspace_id,
                include=include,
                exclude=exclude,
                expression=expression,
                primary_domain=primary_domain,
                primary_subtopic=primary_subtopic,
                provenance=provenance,
                status=status,
                include_extractions=include_extractions,
                as_of=as_of,
                limit=limit,
                offset=offset,
            )
        )

    def get(
        self,
        pair_id: UUID,
        *,
        kind: PairKind = "curated",
        workspace_id: UUID | None = None,
        citations: bool = False,
        history: bool = False,
    ) -> Pair:
        """One pair, or with `kind="extracted"` one extraction, verbatim. Raises NotFound."""
        return self._running.do(
            lambda client: client.library.get(
                pair_id, kind=kind, workspace_id=workspace_id, citations=citations, history=history
            )
        )

    def create(
        self, pair: NewPair, *, workspace_id: UUID | None = None, reason: str = "", idempotency_key: str | None = None
    ) -> CuratedPair:
        """Make a draft. A token for several workspaces names one."""
        return self._running.do(
            lambda client: client.library.create(
                pair, workspace_id=workspace_id, reason=reason, idempotency_key=idempotency_key
            )
        )

    def promote(self, extraction_id: UUID, *, reason: str = "", idempotency_key: str | None = None) -> CuratedPair:
        """Make a draft of what was found in a document. Raises Conflict when it is a pair already."""
        return self._running.do(
            lambda client: client.library.promote(extraction_id, reason=reason, idempotency_key=idempotency_key)
        )

    def propose_edit(
        self,
        pair_id: UUID,
        version: int,
        changes: PairChanges,
        *,
        reason: str = "",
        idempotency_key: str | None = None,
    ) -> Suggestion:
        """Propose a change of a pair as it was read, for a person to decide on. Raises Conflict for an old version."""
        return self._running.do(
            lambda client: client.library.propose_edit(
                pair_id, version, changes, reason=reason, idempotency_key=idempotency_key
            )
        )


class Client:
    """A gateway, asked from any thread. One event loop of its own, in a thread of its own, begins at first use.

    `token` is a JWT, or a function that gives the one that holds now. Use it with `with`, or close it.
    """

    def __init__(
        self, url: str, token: Token, options: Options = Options(), refreshing: Refreshing = Refreshing()
    ) -> None:
        """Raises ConfigurationError for a URL or a token that cannot be used."""
        self.url = address.base_url(url)
        if not callable(token):
            address.token(token)
        self._running = _Running(lambda: AsyncClient(url, token, options, refreshing))
        self.signals = Signals(self._running)
        self.prompts = Prompts(self._running)
        self.library = Library(self._running)

    def __repr__(self) -> str:
        return f"<burnish_sdk.{type(self).__name__} of {self.url}>"

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        reply: type[T] | Any = None,
    ) -> T | Any:
        """Any call below `/api/refinement`, with the same care: `reply` is a type to read the answer as, or None."""
        return self._running.do(
            lambda client: client.request(method, path, params=params, body=body, headers=headers, reply=reply)
        )

    def send(self, path: str, content: bytes, content_type: str, *, params: Mapping[str, Any] | None = None) -> Any:
        """POST a file; the answer is any JSON."""
        return self._running.do(lambda client: client.send(path, content, content_type, params=params))

    def fetch(self, path: str, *, params: Mapping[str, Any] | None = None) -> bytes:
        """GET a file."""
        return self._running.do(lambda client: client.fetch(path, params=params))

    def close(self) -> None:
        """Stop the background work and close every connection."""
        self._running.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Running:
    """An asynchronous client in a loop and a thread of its own; made anew in a forked process, where neither is."""

    def __init__(self, make: Callable[[], AsyncClient]) -> None:
        self._make = make
        self.forget()
        _RUNNING.add(self)

    def forget(self) -> None:
        """Begin anew at the next use. A lock that another thread held at the fork is never released here."""
        self._lock = threading.Lock()
        self._client: AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.known: dict[Key, Known] = {}

    def do(self, work: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> T:
        """What the work gives. A wait that is interrupted cancels it."""
        client, loop = self._begun()
        future = asyncio.run_coroutine_threadsafe(work(client), loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def each(self, pages: Callable[[AsyncClient], AsyncIterator[T]]) -> Iterator[T]:
        """Each of what comes."""
        found = pages(self._begun()[0])
        while True:
            one = self.do(lambda _: _next(found))
            if one is None:
                return
            yield one[0]

    def close(self) -> None:
        with self._lock:
            client, loop, thread = self._client, self._loop, self._thread
            self._client = self._loop = self._thread = None
            self.known = {}
        if client is None or loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(client.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _begun(self) -> tuple[AsyncClient, asyncio.AbstractEventLoop]:
        with self._lock:
            if self._client is None or self._loop is None:
                self._client = self._make()  # first: where it raises there is no loop to close
                self._loop = asyncio.new_event_loop()
                self.known = self._client._cache.known
                self._thread = threading.Thread(target=self._loop.run_forever, name="burnish-sdk", daemon=True)
                self._thread.start()
            return self._client, self._loop


async def _next(found: AsyncIterator[T]) -> tuple[T] | None:
    try:
        return (await anext(found),)
    except StopAsyncIteration:
        return None


_RUNNING: weakref.WeakSet[_Running] = weakref.WeakSet()


def _after_fork() -> None:
    for running in list(_RUNNING):
        running.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
