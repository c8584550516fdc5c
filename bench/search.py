"""Search in a library of 50,000 pairs, at filters that a thousandth, a hundredth, a tenth and all of them pass.

`python -m bench.search --json` prints one JSON object; `--pairs` sets another size. Measured on the same rows and
queries: the lane of vectors and the whole search, against comparing every vector that passes the filters; and the
index without its iterative scan, which is what the lane would be worth without it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from random import Random
from typing import Any
from uuid import UUID

import click
import numpy as np
from pgvector import Vector

from bench import machine
from libs.embeddings import StaticEmbedder
from libs.embeddings.base import pad
from libs.service_kit.connection import Connection
from libs.service_kit.db import Database
from libs.service_kit.testing import Installation
from services.qa_ingest import searching
from services.qa_ingest.store import operations, search
from services.qa_ingest.store.search import Filters, Source

GOAL = "recall@10 ≥ 0.99, ten rows whenever ten exist, p50 of the whole search ≤ 0.2 × an exact scan of all vectors"
WORKSPACE = UUID(int=77)
SELECTIVITIES = {"0.1 %": 1_000, "1 %": 100, "6 %": 17, "10 %": 10, "100 %": 1}
"""Every how many-th pair has the tag."""
QUERIES = 40
NOUNS = (
    "card",
    "account",
    "parcel",
    "invoice",
    "backup",
    "password",
    "contract",
    "refund",
    "server",
    "licence",
    "report",
)
VERBS = ("close", "track", "pay", "restore", "reset", "sign", "claim", "take", "restart", "renew", "read", "cancel")
PLACES = [f"{region} {number}" for region in ("north", "south", "east", "west", "central") for number in range(200)]
_PAIRS = """
INSERT INTO q_a_pairs (workspace_id, question_text, answer_standard, origin_kind, created_by, updated_by,
                       publication_status, scope_tag)
SELECT $1, question, 'The desk answers this.', 'curated_explicit', 'bench', 'bench', 'published',
       string_to_array(tags, ',')
FROM unnest($2::text[], $3::text[]) AS new (question, tags)
"""
_VECTORS = """
UPDATE question_variants SET embedding = new.embedding, embedding_model = $1
FROM unnest($2::uuid[], $3::vector[]) AS new (id, embedding) WHERE pair_id = new.id
"""
_INDEX = """
CREATE INDEX question_variants_near ON question_variants USING hnsw (embedding vector_cosine_ops)
    WITH (m = 16, ef_construction = 64)
"""


def questions(count: int, seed: int) -> list[str]:
    """Questions of our own, which differ in what, where and when."""
    random = Random(seed)
    return [
        f"{random.choice(('How do I', 'Where can I', 'Who may', 'When should we', 'Why can nobody'))}"
        f" {random.choice(VERBS)} the {random.choice(NOUNS)} and the {random.choice(NOUNS)}"
        f" of {random.choice(PLACES)} before {random.choice(('Monday', 'noon', 'spring', 'the audit', 'payday'))}?"
        for _ in range(count)
    ]


async def fill(installation: Installation, db: Database, count: int) -> None:
    """The library. Its vectors are written without the index, which is made at the end as a migration would."""
    asked = questions(count, 1)
    tags = [",".join(name for name, every in SELECTIVITIES.items() if n % every == 0) for n in range(count)]
    admin = Database("qa_ingest", installation.admin_dsn, pool_size=1)
    await admin.open()
    async with db.transaction() as tx:
        await operations.enter(tx.conn, WORKSPACE)
        await tx.conn.execute("INSERT INTO workspaces (id, name) VALUES ($1, 'bench')", WORKSPACE)
        await tx.conn.execute(_PAIRS, WORKSPACE, asked, tags, timeout=600)
    await admin.pool.execute("DROP INDEX qa_ingest.question_variants_near")
    embedder = StaticEmbedder()
    async with db.connection(workspaces=[WORKSPACE]) as conn:
        rows = await conn.fetch("SELECT pair_id, question FROM question_variants")
    vectors = pad(embedder.embed_now([row["question"] for row in rows]))
    for at in range(0, count, 5_000):
        async with db.transaction() as tx:
            await operations.enter(tx.conn, WORKSPACE)
            part = [row["pair_id"] for row in rows[at : at + 5_000]]
            made = [Vector(row) for row in vectors[at : at + 5_000]]
            await tx.conn.execute(_VECTORS, embedder.model, part, made, timeout=600)
    async with admin.connection() as conn, conn.transaction():
        await conn.execute("SET LOCAL search_path = qa_ingest, extensions; SET LOCAL maintenance_work_mem = '1GB'")
        await conn.execute(_INDEX, timeout=1_800)
    await admin.pool.execute("VACUUM ANALYZE", timeout=600)
    await admin.close()


async def exact_scan(conn: Connection, vector: Vector, model: str, tag: str) -> list[UUID]:
    """The ten nearest of those that pass, by comparing every vector; all rows are read, as without any index."""
    await conn.execute("SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = off")
    rows = await conn.fetch(
        "SELECT near.pair_id FROM question_variants AS near JOIN q_a_pairs AS pair ON pair.id = near.pair_id"
        " WHERE near.embedding_model = $2 AND pair.scope_tag && ARRAY[$3]"
        " ORDER BY (near.embedding <=> $1) + 0, near.pair_id LIMIT 10",
        vector,
        model,
        tag,
    )
    await conn.execute("SET LOCAL enable_indexscan = on; SET LOCAL enable_bitmapscan = on")
    return [row["pair_id"] for row in rows]


async def without_iteration(conn: Connection, vector: Vector, model: str, tag: str) -> int:
    """How many of ten rows the index gives where its scan does not go on."""
    await conn.execute(
        "SET LOCAL hnsw.iterative_scan = off; SET LOCAL enable_sort = off; SET LOCAL enable_seqscan = off"
    )
    rows = await conn.fetch(
        "SELECT near.pair_id FROM question_variants AS near WHERE near.embedding_model = $2"
        " AND EXISTS (SELECT FROM q_a_pairs WHERE id = near.pair_id AND scope_tag && ARRAY[$3] OFFSET 0)"
        " ORDER BY near.embedding <=> $1 LIMIT 10",
        vector,
        model,
        tag,
    )
    return len(rows)


async def at_selectivity(db: Database, tag: str, asked: Sequence[str]) -> dict[str, Any]:
    """The figures at one selectivity."""
    embedder = StaticEmbedder()
    filters = Filters((WORKSPACE,), include=(tag,), publication_status=("published",))
    times: dict[str, list[float]] = {"exact": [], "lane": [], "whole": []}
    recalls, counts, exist, plain = [], [], [], []
    for text in asked:
        query = await searching.understood(text, embedder)
        assert query.vector is not None
        async with db.connection(workspaces=[WORKSPACE]) as conn:
            started = time.perf_counter()
            truth = await exact_scan(conn, query.vector, query.model, tag)
            times["exact"].append(time.perf_counter() - started)
        async with db.connection(workspaces=[WORKSPACE]) as conn:
            started = time.perf_counter()
            source = await search.narrowed(conn, Source("curated", True, filters))
            found = await search.vector(conn, source, query.vector, query.model)
            times["lane"].append(time.perf_counter() - started)
        async with db.connection(workspaces=[WORKSPACE]) as conn:
            started = time.perf_counter()
            await searching.look(conn, query, filters)
            times["whole"].append(time.perf_counter() - started)
        async with db.connection(workspaces=[WORKSPACE]) as conn:
            plain.append(await without_iteration(conn, query.vector, query.model, tag))
        nearest = [candidate.id for candidate in found[:10]]
        counts.append(len(nearest))
        exist.append(len(truth))
        recalls.append(len(set(nearest) & set(truth)) / len(truth))
    p50 = {name: statistics.median(each) for name, each in times.items()}
    return {
        "recall@10": round(float(np.mean(recalls)), 4),
        "rows": min(counts),
        "rows_that_exist": min(exist),
        "rows_without_iterative_scan": round(float(np.mean(plain)), 2),
        **{f"{name}_p50_ms": round(value * 1000, 2) for name, value in p50.items()},
        "whole_p95_ms": round(float(np.quantile(times["whole"], 0.95)) * 1000, 2),
        "lane_ratio": round(p50["lane"] / p50["exact"], 4),
        "whole_ratio": round(p50["whole"] / p50["exact"], 4),
    }


async def measure(installation: Installation, count: int) -> dict[str, Any]:
    """Fill, then every selectivity; ratios are against a scan of all vectors, as without an index."""
    db = Database("qa_ingest", installation.servers.role_dsn("qa_ingest", installation.database), pool_size=2)
    await db.open()
    try:
        started = time.perf_counter()
        await fill(installation, db, count)
        filled = time.perf_counter() - started
        asked = questions(QUERIES, 2)
        found = {tag: await at_selectivity(db, tag, asked) for tag in SELECTIVITIES}
    finally:
        await db.close()
    scan = found["100 %"]["exact_p50_ms"]
    for each in found.values():
        each["whole_against_whole_scan"] = round(each["whole_p50_ms"] / scan, 4)
    met = all(
        each["recall@10"] >= 0.99
        and each["rows"] == each["rows_that_exist"]
        and each["whole_against_whole_scan"] <= 0.2
        for each in found.values()
    )
    figures = {
        "ratios": {tag: each["whole_against_whole_scan"] for tag, each in found.items()},
        "pairs": count,
        "queries": QUERIES,
        "fill_s": round(filled, 1),
        "selectivities": found,
    }
    return machine.report("search", GOAL, met, figures)


@click.command()
@click.option("--pairs", default=50_000, show_default=True, help="How many the library has.")
@click.option("--json", "as_json", is_flag=True, help="The default; for symmetry with the other benchmarks.")
def main(pairs: int, as_json: bool) -> None:
    """Measure and print one JSON object."""
    del as_json
    machine.run(lambda installation: measure(installation, pairs))


if __name__ == "__main__":
    main()
