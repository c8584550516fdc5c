"""Every call that this client knows, each once: the asynchronous and the synchronous client send these. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from uuid import UUID, uuid4

from pydantic import TypeAdapter

from burnish_sdk.errors import ConfigurationError
from burnish_sdk.models import (
    Accepted,
    LivePrompt,
    Pair,
    PairKind,
    Provenance,
    PublicationStatus,
    SearchResults,
    Signal,
    SignalCounts,
    SignalPage,
)
from burnish_sdk.operation import Operation, document, segment

MOST_SIGNALS = 1_000
MOST_BYTES = 3 * 1024 * 1024
"""A request's body is at most 4 MiB; what stands around the signals is small."""

ACCEPTED = TypeAdapter(Accepted)
SIGNAL_PAGE = TypeAdapter(SignalPage)
SIGNAL_COUNTS = TypeAdapter(SignalCounts)
LIVE_PROMPT = TypeAdapter(LivePrompt)
SEARCH_RESULTS = TypeAdapter(SearchResults)
PAIR = TypeAdapter(Pair)

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
