"""A question goes through the lanes, and comes back as one list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pgvector import Vector

from libs.embeddings import Embedder
from libs.service_kit.connection import Connection
from services.qa_ingest.domain import asking, ranking
from services.qa_ingest.domain.asking import Asked
from services.qa_ingest.domain.ranking import Candidate, Closeness, Key, Lane, Ranked
from services.qa_ingest.domain.tuning import Tuning
from services.qa_ingest.embedding import written
from services.qa_ingest.store import search
from services.qa_ingest.store.search import Filters, Source

EMBEDDED_AT_ONCE = 256


@dataclass(slots=True)
class Found:
    """What the lanes found, and how close each row is."""

    lanes: dict[Lane, list[Candidate]] = field(default_factory=dict)
    closeness: dict[Key, Closeness] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)

    def add(self, lane: Lane, candidates: Sequence[Candidate]) -> None:
        """Rows of a lane; the best of all sources are kept."""
        every = [*self.lanes.get(lane, []), *candidates]
        self.lanes[lane] = sorted(every, key=lambda each: -each.score)[: search.LANE_ROWS]

    def fused(self, tuning: Tuning) -> list[Ranked]:
        """Everything, best first."""
        return ranking.fuse(self.lanes, self.closeness, tuning)


@dataclass(frozen=True, slots=True)
class Query:
    """A query as it was typed, taken apart, and its vector, where it has one."""

    typed: str
    asked: Asked
    vector: Vector | None
    model: str


async def understood(typed: str, embedder: Embedder) -> Query:
    """Take a query apart and embed it. What says nothing by itself gets no vector: it is near to anything."""
    (query,) = await understood_all([typed], embedder)
    return query


async def understood_all(typed: Sequence[str], embedder: Embedder) -> list[Query]:
    """The same for many, embedded together."""
    asked = [asking.read(one) for one in typed]
    saying = [one.text for one in asked if one.says_something]
    vectors: list[Vector | None] = []
    for start in range(0, len(saying), EMBEDDED_AT_ONCE):
        vectors += written(await embedder.embed(saying[start : start + EMBEDDED_AT_ONCE]))
    left = iter(vectors)
    return [
        Query(text.strip(), one, next(left) if one.says_something else None, embedder.model)
        for text, one in zip(typed, asked, strict=True)
    ]


async def look(conn: Connection, query: Query, filters: Filters, *, pairs: bool = True, chunks: bool = False) -> Found:
    """Everything that any lane finds, with the filters inside of each."""
    filters = replace(filters, phrases=query.asked.phrases, banned=query.asked.banned)
    found = Found()
    for source in [*(search.sources(filters) if pairs else []), *([search.chunk_source(filters)] if chunks else [])]:
        narrowed = await search.narrowed(conn, source)
        if narrowed.ids == []:
            continue
        found.sources.append(narrowed)
        await _lanes(conn, query, narrowed, found)
    return found


async def _lanes(conn: Connection, query: Query, source: Source, found: Found) -> None:
    candidates: dict[Lane, list[Candidate]] = {}
    if source.kind != "chunk":  # a passage has neither an id of its own nor a question
        candidates["exact"] = await search.exact(conn, source, query.typed)
    if query.asked.says_something:
        candidates["fulltext"] = await search.fulltext(conn, source, query.asked.words)
        if source.kind != "chunk" and (query.asked.is_short or not candidates["fulltext"]):
            candidates["trigram"] = await search.trigram(conn, source, query.asked.text)
    if query.vector is not None:
        candidates["vector"] = await search.vector(conn, source, query.vector, query.model)
        every = [each for lane in candidates.values() for each in lane]
        found.closeness |= await search.closeness(conn, source, every, query.vector, query.model)
    for lane, rows in candidates.items():
        found.add(lane, rows)


async def shown(conn: Connection, found: Found, page: Sequence[Ranked]) -> Mapping[Key, Any]:
    """What is told of these rows."""
    rows: dict[Key, Any] = {}
    for source in found.sources:
        ids = [row.key[1] for row in page if row.key[0] == source.kind]
        told = await search.shown(conn, source, ids) if ids else {}
        rows |= {(source.kind, identity): row for identity, row in told.items()}
    return rows
