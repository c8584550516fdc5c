"""The lanes of a search. Every filter holds inside every lane; a row without a vector is found by the other lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from libs.service_kit.connection import Connection
from services.qa_ingest.domain import scope
from services.qa_ingest.domain.ranking import Candidate, Words

LANE_ROWS = 50
SMALL = 5_000
"""Vectors of a workspace up to which every one is compared: faster than the index, and exact."""

# The rows as they are now, and as they were: with the text of the newest version up to then, else of the first.
_NOW = """
SELECT id, 'curated' AS kind, question_text, answer_standard, scope_tag, anti_scope_tag, primary_domain,
       primary_subtopic, provenance, confidence, valid_from, valid_to, publication_status, governance_review_status,
       source_document_id, sensitive, superseded_by, words, normalised, source_id_token
FROM q_a_pairs
"""
_THEN = """
SELECT pair.id, 'curated' AS kind, old.question_text, old.answer_standard, old.scope_tag, old.anti_scope_tag,
       old.primary_domain, old.primary_subtopic, old.provenance, old.confidence, old.valid_from, old.valid_to,
       old.publication_status, old.governance_review_status, old.source_document_id, old.sensitive, old.superseded_by,
       library_words(old.question_text, old.alternate_question_phrasings,
                     ARRAY[old.answer_standard, coalesce(old.answer_advanced, '')]) AS words,
       normalised_question(old.question_text) AS normalised, old.source_id_token
FROM q_a_pairs AS pair
CROSS JOIN LATERAL (
    SELECT snapshot FROM q_a_pair_history AS version WHERE version.pair_id = pair.id
    ORDER BY (version.changed_at <= {as_of}) DESC,
             CASE WHEN version.changed_at <= {as_of} THEN -version.version_number ELSE version.version_number END
    LIMIT 1
) AS chosen
CROSS JOIN LATERAL jsonb_populate_record(NULL::q_a_pairs, chosen.snapshot) AS old
"""
_EXTRACTED = """
SELECT id, 'extracted' AS kind, question_text, answer_text AS answer_standard, scope_tag, anti_scope_tag,
       primary_domain, primary_subtopic, provenance, confidence, coalesce(valid_from, created_at) AS valid_from,
       valid_to, publication_status, NULL::text AS governance_review_status, document_id AS source_document_id,
       sensitive, NULL::uuid AS superseded_by, words, normalised, source_id_token
FROM q_a_extractions
"""


@dataclass(frozen=True, slots=True)
class Filters:
    """What a row must be to be found at all."""

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


@dataclass(slots=True)
class _Query:
    """SQL that is put together out of constants, with everything else as a parameter."""

    values: list[Any] = field(default_factory=list)

    def of(self, value: Any) -> str:
        """The place of a value."""
        self.values.append(value)
        return f"${len(self.values)}"


def _rows(query: _Query, filters: Filters) -> str:
    at = query.of(filters.as_of) if filters.as_of is not None else ""
    pairs = _THEN.format(as_of=f"{at}::timestamptz") if at else _NOW
    where = _conditions(query, filters, at or "now()")
    both = f"SELECT * FROM ({pairs}) AS pairs WHERE superseded_by IS NULL AND {where}"  # noqa: S608
    if not filters.include_extractions:
        return both
    lived = (
        f"created_at <= {at} AND (invalidated_at IS NULL OR invalidated_at > {at})" if at else "invalidated_at IS NULL"
    )
    extracted = f"{_EXTRACTED} WHERE {lived} AND promoted_to_pair_id IS NULL"
    any_status = _conditions(query, filters, at or "now()", status=False)
    return f"{both} UNION ALL SELECT * FROM ({extracted}) AS extractions WHERE {any_status}"  # noqa: S608


def _conditions(query: _Query, filters: Filters, at: str, *, status: bool = True) -> str:
    asked = set(filters.include) | (scope.positive(filters.expression) if filters.expression else frozenset())
    tests = [f"valid_from <= {at} AND (valid_to IS NULL OR valid_to > {at})"]
    if not filters.include_sensitive:
        tests.append("NOT sensitive")
    if status:
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
    return " AND ".join(f"({test})" for test in tests)


def _expression(query: _Query, expression: scope.Expression) -> str:
    if isinstance(expression, scope.Tag):
        return f"scope_tag @> ARRAY[{query.of(expression.name)}]::text[]"
    if isinstance(expression, scope.Not):
        return f"NOT ({_expression(query, expression.of)})"
    word = " AND " if isinstance(expression, scope.Every) else " OR "
    return "(" + word.join(_expression(query, each) for each in expression.of) + ")"


# --- the lanes --------------------------------------------------------------------------------------------------


async def exact(conn: Connection, text: str, filters: Filters) -> list[Candidate]:
    """Rows that have this id, or ask just this, in the question or another phrasing."""
    query = _Query()
    rows = _rows(query, filters)
    said = query.of(text)
    statement = f"""
        SELECT kind, id FROM ({rows}) AS found
        WHERE source_id_token = btrim({said}) OR normalised = normalised_question({said})
           OR (kind = 'curated' AND id IN (SELECT pair_id FROM question_variants
                                           WHERE normalised = normalised_question({said})))
        ORDER BY kind, confidence DESC, id LIMIT {LANE_ROWS}
    """  # noqa: S608
    return [Candidate(row["kind"], row["id"]) for row in await conn.fetch(statement, *query.values)]


async def fulltext(conn: Connection, words: Words, filters: Filters) -> list[Candidate]:
    """Rows that have at least one of the words, every phrase, and none of what is excluded."""
    query = _Query()
    rows = _rows(query, filters)
    any_of = " || ".join(f"{_lexemes(query, word)}" for word in words.any_of) or None
    parts = [f"({any_of})"] if any_of else []
    parts += [
        f"(phraseto_tsquery('english', {query.of(phrase)}) || phraseto_tsquery('simple', {query.of(phrase)}))"
        for phrase in words.phrases
    ]
    if not parts:
        return []
    asked = " && ".join(parts)
    banned = "".join(f" AND NOT words @@ phraseto_tsquery('simple', {query.of(word)})" for word in words.none_of)
    statement = f"""
        SELECT kind, id FROM ({rows}) AS found, LATERAL (SELECT {asked} AS asked) AS q
        WHERE words @@ q.asked{banned}
        ORDER BY ts_rank_cd('{{0.05, 0.2, 0.4, 1.0}}', words, q.asked, 1) DESC, id LIMIT {LANE_ROWS}
    """  # noqa: S608
    return [Candidate(row["kind"], row["id"]) for row in await conn.fetch(statement, *query.values)]


def _lexemes(query: _Query, word: str) -> str:
    place = query.of(word)
    return f"plainto_tsquery('english', {place}) || plainto_tsquery('simple', {place})"


async def trigram(conn: Connection, text: str, filters: Filters) -> list[Candidate]:
    """Rows whose question has the letters of a short query, also where some are wrong."""
    query = _Query()
    rows = _rows(query, filters)
    said = query.of(text)
    statement = f"""
        SELECT kind, id FROM ({rows}) AS found WHERE word_similarity({said}, question_text) >= 0.4
        ORDER BY word_similarity({said}, question_text) DESC, id LIMIT {LANE_ROWS}
    """  # noqa: S608
    return [Candidate(row["kind"], row["id"]) for row in await conn.fetch(statement, *query.values)]


async def vector(conn: Connection, embedding: str, model: str, filters: Filters) -> list[Candidate]:
    """The nearest questions by cosine; only vectors of this model are compared."""
    await conn.execute("SET LOCAL hnsw.iterative_scan = relaxed_order")
    if await conn.fetchval("SHOW hnsw.iterative_scan") != "relaxed_order":
        raise RuntimeError("hnsw.iterative_scan is not relaxed_order: filters would hide rows that exist")
    await conn.execute("SET LOCAL hnsw.max_scan_tuples = 200000")
    few = await conn.fetchval(f"SELECT count(*) FROM (SELECT FROM question_variants LIMIT {SMALL + 1}) AS head")  # noqa: S608
    query = _Query()
    rows = _rows(query, filters)
    near, of_model = query.of(embedding), query.of(model)
    # Adding nothing keeps the index out of it: every vector is compared.
    distance = f"(embedding <=> {near}::text::vector)"
    order = f"{distance} + 0" if few <= SMALL else distance
    statement = f"""
        WITH found AS MATERIALIZED ({rows}),
        nearest AS (
            SELECT * FROM (
                SELECT 'curated' AS kind, pair_id AS id, embedding <=> {near}::text::vector AS distance
                FROM question_variants WHERE embedding_model = {of_model}
                  AND pair_id IN (SELECT id FROM found WHERE kind = 'curated')
                ORDER BY {order} LIMIT {LANE_ROWS * 4}
            ) AS curated
            UNION ALL
            SELECT * FROM (
                SELECT 'extracted', id, embedding <=> {near}::text::vector
                FROM q_a_extractions WHERE embedding_model = {of_model} AND invalidated_at IS NULL
                  AND id IN (SELECT id FROM found WHERE kind = 'extracted')
                ORDER BY {order} LIMIT {LANE_ROWS}
            ) AS extracted
        )
        SELECT kind, id, 1 - min(distance) AS similarity FROM nearest GROUP BY kind, id
        ORDER BY min(distance), id LIMIT {LANE_ROWS}
    """  # noqa: S608
    found = await conn.fetch(statement, *query.values)
    return [Candidate(row["kind"], row["id"], float(row["similarity"])) for row in found]


async def shown(conn: Connection, candidates: Sequence[Candidate], filters: Filters) -> dict[UUID, Any]:
    """The rows of these candidates, by id."""
    query = _Query()
    rows = _rows(query, filters)
    ids = query.of([candidate.id for candidate in candidates])
    statement = f"SELECT * FROM ({rows}) AS found WHERE id = ANY({ids}::uuid[])"  # noqa: S608
    return {row["id"]: row for row in await conn.fetch(statement, *query.values)}
