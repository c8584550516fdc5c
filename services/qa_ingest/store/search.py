# ruff: noqa: S608  # statements are put together of constants; everything else is a parameter
"""The lanes of a search. Every filter holds inside every lane; a row without a vector is found by the other lanes.

Under row-level security only operators that cannot leak may use an index in a condition, so words are found in
`postings` by equality, and nearness (of vectors, of letters) by the order of an index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from pgvector import Vector

from libs.service_kit.connection import Connection
from services.qa_ingest.domain import scope
from services.qa_ingest.domain.ranking import Candidate, Closeness, Key, Kind, pooled

LANE_ROWS = 50
NEAR_ROWS = 150
"""Vectors that the index is asked for: several may be of one row."""
SMALL = 4_000
"""Rows that pass the filters up to which every one is compared: faster than the index, and exact."""
COMMON = 10_000
"""Rows that have a word from which on it tells nothing: what bounds the lexical lane in a large library."""
SEARCH_DEPTH = 200
"""`hnsw.ef_search`: how many nearest rows the index keeps in view."""
MAX_SCANNED = 200_000
_SETTINGS = (
    f"SET LOCAL hnsw.iterative_scan = relaxed_order; SET LOCAL hnsw.max_scan_tuples = {MAX_SCANNED};"
    " SET LOCAL enable_sort = off; SET LOCAL enable_seqscan = off"
)

_PAIRS = """
SELECT id, workspace_id, 'curated' AS kind, question_text, alternate_question_phrasings AS phrasings, answer_standard,
       concat_ws(E'\\n', answer_standard, answer_advanced) AS answers, scope_tag, anti_scope_tag, primary_domain,
       primary_subtopic, provenance, confidence, valid_from, valid_to, publication_status, governance_review_status,
       source_document_id, sensitive, superseded_by, words, normalised, source_id_token
FROM q_a_pairs
"""
# Pairs that were changed since, with the text of the newest version up to then, else of the first.
_PAIRS_THEN = """
SELECT pair.id, pair.workspace_id, 'curated' AS kind, old.question_text, old.alternate_question_phrasings AS phrasings,
       old.answer_standard, concat_ws(E'\\n', old.answer_standard, old.answer_advanced) AS answers, old.scope_tag,
       old.anti_scope_tag, old.primary_domain, old.primary_subtopic, old.provenance, old.confidence, old.valid_from,
       old.valid_to, old.publication_status, old.governance_review_status, old.source_document_id, old.sensitive,
       old.superseded_by,
       library_words(old.question_text, old.alternate_question_phrasings,
                     ARRAY[old.answer_standard, coalesce(old.answer_advanced, '')]) AS words,
       normalised_question(old.question_text) AS normalised, old.source_id_token
FROM q_a_pairs AS pair
CROSS JOIN LATERAL (
    SELECT snapshot FROM q_a_pair_history AS version WHERE version.pair_id = pair.id
    ORDER BY (version.changed_at <= {at}) DESC,
             CASE WHEN version.changed_at <= {at} THEN -version.version_number ELSE version.version_number END
    LIMIT 1
) AS chosen
CROSS JOIN LATERAL jsonb_populate_record(NULL::q_a_pairs, chosen.snapshot) AS old
WHERE pair.version > 1 AND pair.updated_at > {at}
"""
_EXTRACTIONS = """
SELECT id, workspace_id, 'extracted' AS kind, question_text, '{}'::text[] AS phrasings, answer_text AS answer_standard,
       answer_text AS answers, scope_tag, anti_scope_tag, primary_domain, primary_subtopic, provenance, confidence,
       coalesce(valid_from, created_at) AS valid_from, valid_to, publication_status,
       NULL::text AS governance_review_status, document_id AS source_document_id, sensitive,
       NULL::uuid AS superseded_by, words, normalised, source_id_token
FROM q_a_extractions
"""
_CHUNKS = """
SELECT chunk.id, chunk.workspace_id, 'chunk' AS kind, chunk.content, chunk.section_path, chunk.document_id,
       document.object_key, document.bucket, chunk.sensitive, chunk.words
FROM chunks AS chunk JOIN documents AS document ON document.id = chunk.document_id
WHERE chunk.invalidated_at IS NULL
"""
_TABLES: Mapping[Kind, str] = {"curated": "q_a_pairs", "extracted": "q_a_extractions", "chunk": "chunks"}
# Where the vectors of a kind are: the table, whose they are, and which of them the index holds.
_VECTORS: Mapping[Kind, tuple[str, str, str]] = {
    "curated": ("question_variants", "pair_id", "true"),
    "extracted": ("q_a_extractions", "id", "near.invalidated_at IS NULL"),
    "chunk": ("chunks", "id", "near.invalidated_at IS NULL"),
}


@dataclass(frozen=True, slots=True)
class Filters:
    """What a row must be to be found at all."""

    workspace_ids: Sequence[UUID]
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    expression: scope.Expression | None = None
    primary_domain: str | None = None
    primary_subtopic: str | None = None
    provenance: Sequence[str] = ()
    publication_status: Sequence[str] = ()
    include_extractions: bool = False
    include_sensitive: bool = False
    as_of: datetime | None = None
    bucket: str | None = None
    phrases: Sequence[str] = ()
    banned: Sequence[str] = ()


@dataclass(slots=True)
class Query:
    """SQL that is put together out of constants, with everything else as a parameter."""

    values: list[Any] = field(default_factory=list)

    def of(self, value: Any) -> str:
        """The place of a value."""
        self.values.append(value)
        return f"${len(self.values)}"


@dataclass(frozen=True, slots=True)
class Source:
    """Rows of one kind. `kept`: their words and vectors are in the tables, which hold those of now."""

    kind: Kind
    kept: bool
    filters: Filters
    ids: Sequence[UUID] | None = None
    """Where they are few: all that pass the filters."""

    def rows(self, query: Query) -> str:
        """`(SELECT …) AS hit` of what passes the filters."""
        at = f"{query.of(self.filters.as_of)}::timestamptz" if self._needs_time else ""
        if self.ids is not None:
            test = f"id = ANY({query.of(list(self.ids))}::uuid[])"
        else:
            test = _conditions(query, self, at or "now()")
        return f"(SELECT * FROM ({self._every(at)}) AS every WHERE {test}) AS hit"

    def _every(self, at: str) -> str:
        if self.kind == "chunk":
            return _CHUNKS
        if self.kind == "extracted":
            lived = f"created_at <= {at} AND (invalidated_at IS NULL OR invalidated_at > {at})"
            lived = lived if at else "true" if self.ids is not None else "invalidated_at IS NULL"
            return f"{_EXTRACTIONS} WHERE promoted_to_pair_id IS NULL AND {lived}"
        if not self.kept:
            return _PAIRS_THEN.format(at=at)
        return f"{_PAIRS} WHERE version = 1 OR updated_at <= {at}" if at else _PAIRS

    @property
    def _needs_time(self) -> bool:
        """Is there a place for it in the rows? A parameter without one is an error."""
        return self.filters.as_of is not None and (self.ids is None or (self.kind == "curated" and not self.kept))


def sources(filters: Filters) -> list[Source]:
    """Pairs, and where they are asked for what was only extracted."""
    then = filters.as_of is not None
    found = [Source("curated", True, filters)]
    if then:
        found.append(Source("curated", False, filters))
    if filters.include_extractions:
        found.append(Source("extracted", not then, filters))
    return found


def chunk_source(filters: Filters) -> Source:
    """Passages of the documents that are served now."""
    return Source("chunk", True, filters)


async def narrowed(conn: Connection, source: Source) -> Source:
    """The same source with the ids of what passes its filters, where those are few."""
    query = Query()
    limit = f" LIMIT {SMALL + 1}" if source.kept else ""
    statement = f"SELECT array_agg(id) FROM (SELECT id FROM {source.rows(query)}{limit}) AS passing"
    ids = await conn.fetchval(statement, *query.values) or []
    few = len(ids) <= SMALL or not source.kept
    return Source(source.kind, source.kept, source.filters, ids if few else None)


def _conditions(query: Query, source: Source, at: str) -> str:
    return " AND ".join(f"({test})" for test in [*_common(query, source), *_of_pairs(query, source, at)])


def _common(query: Query, source: Source) -> list[str]:
    filters = source.filters
    tests = [f"workspace_id = ANY({query.of(list(filters.workspace_ids))}::uuid[])"]
    if not filters.include_sensitive:
        tests.append("NOT sensitive")
    if source.kind == "chunk" and filters.bucket is not None:
        tests.append(f"bucket = {query.of(filters.bucket)}")
    tests += [f"words @@ {_phrase(query, phrase)}" for phrase in filters.phrases]
    tests += [f"NOT words @@ {_phrase(query, phrase)}" for phrase in filters.banned]
    return tests


def _of_pairs(query: Query, source: Source, at: str) -> list[str]:
    if source.kind == "chunk":
        return []
    filters = source.filters
    asked = set(filters.include) | (scope.positive(filters.expression) if filters.expression else frozenset())
    tests = [f"valid_from <= {at} AND (valid_to IS NULL OR valid_to > {at})"]
    if source.kind == "curated":
        tests.append("superseded_by IS NULL")
        tests.append(f"publication_status = ANY({query.of(list(filters.publication_status))}::text[])")
    if filters.provenance:
        tests.append(f"provenance = ANY({query.of(list(filters.provenance))}::text[])")
    for column in ("primary_domain", "primary_subtopic"):
        value = getattr(filters, column)
        if value is not None:
            tests.append(f"{column} = {query.of(value)}")
    if filters.include:
        tests.append(f"scope_tag && {query.of(list(filters.include))}::text[]")
    if filters.expression is not None:
        tests.append(_expression(query, filters.expression))
    if filters.exclude:
        tests.append(f"NOT scope_tag && {query.of(list(filters.exclude))}::text[]")
    out = sorted({*filters.exclude, *asked})
    if out:
        tests.append(f"NOT anti_scope_tag && {query.of(out)}::text[]")
    return tests


def _phrase(query: Query, phrase: str) -> str:
    place = query.of(phrase)
    return f"(phraseto_tsquery('english', {place}) || phraseto_tsquery('simple', {place}))"


def _expression(query: Query, expression: scope.Expression) -> str:
    if isinstance(expression, scope.Tag):
        return f"scope_tag @> ARRAY[{query.of(expression.name)}]::text[]"
    if isinstance(expression, scope.Not):
        return f"NOT ({_expression(query, expression.of)})"
    word = " AND " if isinstance(expression, scope.Every) else " OR "
    return "(" + word.join(_expression(query, each) for each in expression.of) + ")"


# --- the lanes --------------------------------------------------------------------------------------------------


async def exact(conn: Connection, source: Source, text: str) -> list[Candidate]:
    """Rows that have this id, or ask just this, in the question or another phrasing."""
    query = Query()
    rows, said = source.rows(query), query.of(text)
    named = f"source_id_token IN (btrim({said}), upper(btrim({said})), lower(btrim({said})))"
    asks = f"normalised = normalised_question({said}) AND normalised <> ''"
    matches = f"({named} OR {asks})"
    if source.kept:
        of = f"workspace_id = ANY({query.of(list(source.filters.workspace_ids))}::uuid[])"
        table = _TABLES[source.kind]
        places = [f"SELECT id FROM {table} WHERE {of} AND {named}", f"SELECT id FROM {table} WHERE {of} AND {asks}"]
        if source.kind == "curated":
            places.append(f"SELECT pair_id FROM question_variants WHERE {of} AND {asks}")
        matches = f"id IN ({' UNION ALL '.join(places)})"
    statement = f"SELECT id FROM {rows} WHERE {matches} ORDER BY confidence DESC, id LIMIT {LANE_ROWS}"
    return [Candidate(source.kind, row["id"]) for row in await conn.fetch(statement, *query.values)]


async def fulltext(conn: Connection, source: Source, words: Sequence[str]) -> list[Candidate]:
    """Rows that have at least one of the words, by BM25: a rare word says more than a common one."""
    query = Query()
    rows, terms = source.rows(query), query.of(" ".join(words))
    said, posted, every = _words_of(query, source, rows)
    few = f" AND id = ANY({query.of(list(source.ids))}::uuid[])" if source.ids is not None else ""
    statement = f"""
        WITH {said} asked AS MATERIALIZED (
            SELECT term COLLATE "C" AS term,
                   (SELECT count(*) FROM (SELECT FROM {posted} AND term = each.term COLLATE "C" LIMIT {COMMON}) AS head)
                       AS rows
            FROM unnest(tsvector_to_array(to_tsvector('library', {terms}))) AS each (term)
        ),
        size AS MATERIALIZED (
            SELECT greatest(count(*), (SELECT max(rows) FROM asked)) AS rows
            FROM (SELECT FROM {every} LIMIT {COMMON}) AS head
        ),
        told AS MATERIALIZED (
            SELECT term, ln(1 + (size.rows - asked.rows + 0.5::float8) / (asked.rows + 0.5::float8)) AS worth,
                   asked.rows BETWEEN 1 AND {COMMON - 1} AS tells
            FROM asked, size
        ),
        scored AS (
            SELECT id, sum(weight * worth) AS score, sum(worth) / (SELECT sum(worth) FROM told) AS share
            FROM told CROSS JOIN LATERAL (SELECT id, weight FROM {posted} AND term = told.term{few}) AS found
            WHERE told.tells GROUP BY id ORDER BY score DESC, id
        )
        SELECT scored.id, scored.score, scored.share FROM scored
        CROSS JOIN LATERAL (SELECT FROM {rows} WHERE hit.id = scored.id OFFSET 0) AS passing LIMIT {LANE_ROWS}
    """
    found = await conn.fetch(statement, *query.values)
    return [Candidate(source.kind, row["id"], row["score"], row["share"]) for row in found]


def _words_of(query: Query, source: Source, rows: str) -> tuple[str, str, str]:
    """Where a source's words are, as a common table, a relation with a first condition, and all rows with words."""
    if source.kept:
        of = f"workspace_id = ANY({query.of(list(source.filters.workspace_ids))}::uuid[])"
        table = _TABLES[source.kind]
        return "", f"postings WHERE {of} AND kind = {query.of(source.kind)}", f"{table} WHERE {of}"
    weighed = "word_weights(array_to_string(ARRAY[hit.question_text] || hit.phrasings, E'\\n'), hit.answers)"
    said = f"said AS MATERIALIZED (SELECT hit.id, w.term, w.weight FROM {rows}, LATERAL {weighed} AS w),"
    return said, "said WHERE true", rows


async def trigram(conn: Connection, source: Source, text: str) -> list[Candidate]:
    """Rows whose question, in any phrasing, has the letters of a short query, also where some are wrong."""
    query = Query()
    said = query.of(text)
    if source.kind == "curated" and source.kept:
        if source.ids is not None:
            passes = f"pair_id = ANY({query.of(list(source.ids))}::uuid[])"
        else:
            passes = f"EXISTS (SELECT FROM {source.rows(query)} WHERE hit.id = variant.pair_id OFFSET 0)"
        every = f"SELECT pair_id AS id, question FROM question_variants AS variant WHERE {passes}"
    else:
        every = f"SELECT hit.id, hit.question_text AS question FROM {source.rows(query)}"
    statement = f"""
        SELECT id, max(word_similarity({said}, question)) AS score
        FROM (SELECT * FROM ({every}) AS every ORDER BY {said} <<-> question LIMIT {LANE_ROWS}) AS near
        WHERE word_similarity({said}, question) >= 0.4 GROUP BY id ORDER BY score DESC, id
    """
    return [Candidate(source.kind, row["id"], row["score"]) for row in await conn.fetch(statement, *query.values)]


async def vector(conn: Connection, source: Source, embedding: Vector, model: str) -> list[Candidate]:
    """The nearest questions by cosine, each phrasing by itself; only vectors of this model are compared."""
    if source.ids is not None:
        near = await _distances(conn, source, source.ids, embedding, model)
        best = sorted((min(distances), identity) for identity, distances in near.items())
        return [Candidate(source.kind, identity, 1 - distance) for distance, identity in best[:LANE_ROWS]]
    query = Query()
    rows, at, of_model = source.rows(query), query.of(embedding), query.of(model)
    of = query.of(list(source.filters.workspace_ids))
    table, identity, live = _VECTORS[source.kind]
    statement = f"""
        SELECT near.{identity} AS id, near.embedding <=> {at} AS distance FROM {table} AS near
        WHERE near.embedding_model = {of_model} AND near.workspace_id = ANY({of}::uuid[]) AND {live}
          AND EXISTS (SELECT FROM {rows} WHERE hit.id = near.{identity} OFFSET 0)
        ORDER BY near.embedding <=> {at} LIMIT {NEAR_ROWS}
    """
    found = await by_index(conn, statement, query.values)
    nearest: dict[UUID, float] = {}
    for row in sorted(found, key=lambda row: row["distance"]):  # the index gives them nearly in order
        nearest.setdefault(row["id"], row["distance"])
    return [Candidate(source.kind, row, 1 - distance) for row, distance in list(nearest.items())[:LANE_ROWS]]


async def by_index(conn: Connection, statement: str, values: Sequence[Any]) -> list[Any]:
    """Run a statement that orders by distance on the index, and let it go on until enough rows pass the filters."""
    await conn.execute(_SETTINGS + f"; SET LOCAL hnsw.ef_search = {SEARCH_DEPTH}")
    found = await conn.fetch(statement, *values)
    # After the statement, for before it the extension may not be loaded, and then takes any value and drops it later.
    if await conn.fetchval("SHOW hnsw.iterative_scan") != "relaxed_order":
        raise RuntimeError("hnsw.iterative_scan is not relaxed_order: filters would hide rows that exist")
    await conn.execute("SET LOCAL enable_sort = on; SET LOCAL enable_seqscan = on")
    return list(found)


async def closeness(
    conn: Connection, source: Source, candidates: Sequence[Candidate], embedding: Vector, model: str
) -> dict[Key, Closeness]:
    """How close each of these rows is, whichever lane found it; a row without a vector is left out."""
    ids = list({candidate.id for candidate in candidates})
    found = {
        (source.kind, identity): pooled(1 - distance for distance in distances)
        for identity, distances in (await _distances(conn, source, ids, embedding, model)).items()
    }
    return {key: near for key, near in found.items() if near is not None}


async def _distances(
    conn: Connection, source: Source, ids: Sequence[UUID], embedding: Vector, model: str
) -> dict[UUID, list[float]]:
    """The cosine distances of every phrasing of these rows, by row."""
    if not ids:
        return {}
    query = Query()
    at, of_model = query.of(embedding), query.of(model)
    some = f"ANY({query.of(list(ids))}::uuid[])"
    if not source.kept:
        # Vectors of then: the cache has them by their texts.
        every = f"""
            SELECT hit.id, cache.embedding FROM {source.rows(query)}
            CROSS JOIN LATERAL unnest(ARRAY[hit.question_text] || hit.phrasings) AS said (question)
            JOIN embedding_cache AS cache ON cache.workspace_id = hit.workspace_id AND cache.model = {of_model}
             AND cache.text_sha256 = encode(sha256(convert_to(said.question, 'UTF8')), 'hex')
            WHERE hit.id = {some}
        """
    else:
        table, identity, _ = _VECTORS[source.kind]
        every = f"""
            SELECT {identity} AS id, embedding FROM {table}
            WHERE {identity} = {some} AND embedding_model = {of_model}
        """
    statement = f"SELECT id, array_agg(embedding <=> {at}) AS distances FROM ({every}) AS every GROUP BY id"
    return {row["id"]: row["distances"] for row in await conn.fetch(statement, *query.values)}


async def shown(conn: Connection, source: Source, ids: Sequence[UUID]) -> dict[UUID, Any]:
    """These rows, by id, as far as they are of this source."""
    query = Query()
    statement = f"SELECT * FROM {source.rows(query)} WHERE id = ANY({query.of(list(ids))}::uuid[])"
    return {row["id"]: row for row in await conn.fetch(statement, *query.values)}
