"""Every call that this client knows, each once: the asynchronous and the synchronous client send these. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID, uuid4

from pydantic import TypeAdapter

from burnish_sdk.errors import ConfigurationError
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
    SuggestionReply,
)
from burnish_sdk.operation import Operation, document, segment

_T = TypeVar("_T")
MOST_SIGNALS = 1_000
MOST_BYTES = 3 * 1024 * 1024
"""A request's body is at most 4 MiB; what stands around the signals is small."""

ACCEPTED = TypeAdapter(Accepted)
SIGNAL_PAGE = TypeAdapter(SignalPage)
SIGNAL_COUNTS = TypeAdapter(SignalCounts)
LIVE_PROMPT = TypeAdapter(LivePrompt)
SEARCH_RESULTS = TypeAdapter(SearchResults)
PAIR = TypeAdapter(Pair)
CURATED_PAIR = TypeAdapter(CuratedPair)
SUGGESTION = TypeAdapter(SuggestionReply)

LIBRARY = "/api/qa"


def push_signals(signals: Iterable[Signal], idempotency_key: str | None) -> Iterator[Operation[Accepted]]:
    """As few pushes as the gateway's limits allow. Sent again, each is taken once: they have keys of their own."""
    key = _key(idempotency_key)
    for number, batch in enumerate(_batches(signals)):
        body = b'{"signals":[' + b",".join(batch) + b"]}"
        one = key if number == 0 else f"{key}:{number}"
        yield Operation("POST", "/signals", ACCEPTED, body=body, headers={"Idempotency-Key": one})


def list_signals(
    cursor: str | None = None,
    *,
    touchpoint_id: str | None = None,
    rejected: bool | None = None,
    unprocessed: bool | None = None,
    limit: int = 100,
) -> Operation[SignalPage]:
    """One page of stored signals, newest first."""
    params = {
        "touchpoint_id": touchpoint_id,
        "rejected": rejected,
        "unprocessed": unprocessed,
        "limit": limit,
        "cursor": cursor,
    }
    return Operation("GET", "/signals", SIGNAL_PAGE, params)


def count_signals(touchpoint_id: str | None = None) -> Operation[SignalCounts]:
    """How many signals there are."""
    return Operation("GET", "/signals/counts", SIGNAL_COUNTS, {"touchpoint_id": touchpoint_id})


def live_prompt(
    touchpoint_id: str, workspace_id: UUID | None = None, *, at: datetime | None = None, etag: str | None = None
) -> Operation[LivePrompt]:
    """What is live, or was at an instant; with an ETag, whether that still holds."""
    params = {"workspace_id": workspace_id, "at": at}
    headers = {"If-None-Match": etag} if etag else {}
    return Operation("GET", f"/touchpoints/{segment(touchpoint_id)}/live", LIVE_PROMPT, params, headers=headers)


def search_pairs(
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
) -> Operation[SearchResults]:
    """The pairs that answer a question, best first."""
    params = {
        "query": query,
        "workspace_id": workspace_id,
        "include": list(include) or None,
        "exclude": list(exclude) or None,
        "expression": expression,
        "primary_domain": primary_domain,
        "primary_subtopic": primary_subtopic,
        "provenance": list(provenance) or None,
        "status": list(status) or None,
        "include_extractions": include_extractions or None,
        "as_of": as_of,
        "limit": limit,
        "offset": offset,
    }
    return Operation("GET", f"{LIBRARY}/search", SEARCH_RESULTS, params)


def get_pair(
    pair_id: UUID,
    *,
    kind: PairKind = "curated",
    workspace_id: UUID | None = None,
    citations: bool = False,
    history: bool = False,
) -> Operation[Pair]:
    """One pair, or with `kind="extracted"` one extraction, verbatim."""
    params = {
        "kind": kind,
        "workspace_id": workspace_id,
        "include_citations": citations,
        "include_history": history,
    }
    return Operation("GET", f"{LIBRARY}/pairs/{pair_id}", PAIR, params)


def create_pair(
    pair: NewPair, *, workspace_id: UUID | None = None, reason: str = "", idempotency_key: str | None = None
) -> Operation[CuratedPair]:
    """Make a draft."""
    body = {**pair.model_dump(mode="json", exclude_none=True), "publication_status": "draft", "reason": reason}
    if workspace_id is not None:
        body["workspace_id"] = str(workspace_id)
    return _change(f"{LIBRARY}/pairs", CURATED_PAIR, body, idempotency_key)


def promote_extraction(
    extraction_id: UUID, *, reason: str = "", idempotency_key: str | None = None
) -> Operation[CuratedPair]:
    """Make a draft of what was found in a document, with everything that was found of it."""
    body = {"publication_status": "draft", "reason": reason}
    return _change(f"{LIBRARY}/extractions/{extraction_id}/promote", CURATED_PAIR, body, idempotency_key)


def propose_edit(
    pair_id: UUID, version: int, changes: PairChanges, *, reason: str = "", idempotency_key: str | None = None
) -> Operation[SuggestionReply]:
    """Propose a change of a pair as it was read at a version."""
    body = {**changes.model_dump(mode="json", exclude_unset=True), "version": version, "reason": reason}
    return _change(f"{LIBRARY}/pairs/{pair_id}/edits", SUGGESTION, body, idempotency_key)


def _change(path: str, reply: TypeAdapter[_T], body: Mapping[str, Any], key: str | None) -> Operation[_T]:
    return Operation("POST", path, reply, body=document(body), headers={"Idempotency-Key": _key(key)})


def _key(given: str | None) -> str:
    if given is None:
        return uuid4().hex
    if not 1 <= len(given) <= 180 or not given.isascii() or not given.isprintable():
        raise ConfigurationError("an idempotency key is 1 to 180 printable ASCII characters")
    return given


def _batches(signals: Iterable[Signal]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for signal in signals:
        one = document(signal.model_dump(mode="json", exclude_none=True))
        if batch and (len(batch) >= MOST_SIGNALS or size + len(one) > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += len(one) + 1
    if batch:
        yield batch
