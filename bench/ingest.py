"""Ingest: bundles from a folder to pairs that are found, against parsing the same bundles alone.

`python -m bench.ingest --json`. Both sides have the same files, of ten pairs each, in turns. `parsing` is the extractor
alone; `ingest` lists and reads the folder, writes documents, extractions and pairs with their history, and gives every
question its vector with the static embedder. Ratios are the median of the rounds.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import click

from bench import machine
from libs.embeddings import Embedder, embedder_from
from libs.service_kit.db import Database
from libs.service_kit.testing import Installation
from services.qa_ingest.buckets.folder import FolderBucket
from services.qa_ingest.domain.bindings import Binding
from services.qa_ingest.embedding import Embedding
from services.qa_ingest.extractors import named
from services.qa_ingest.extractors.base import File
from services.qa_ingest.ingest import Bound, Ingest

GOAL, ROUNDS, OF_A_FILE = 2.0, 3, 10
ANSWER = "The answer stands here, in a few plain sentences. It says what to do, and where to look when that fails. " * 3


@click.command()
@click.option("--pairs", default=10_000, show_default=True, help="How many, in files of ten.")
@click.option("--quick", is_flag=True, help="A tenth of the pairs.")
@click.option("--json", "as_json", is_flag=True, help="The default; for symmetry with the other benchmarks.")
def main(pairs: int, quick: bool, as_json: bool) -> None:
    """Measure and print one JSON object."""
    del as_json
    count = pairs // 10 if quick else pairs
    machine.run(lambda installation: measure(installation, count))


async def measure(installation: Installation, pairs: int) -> dict[str, Any]:
    """Both sides in turns; seconds, and the ratio."""
    embedder = embedder_from("static")
    await embedder.embed(["warm"])
    parsing, ingest, embedding = [], [], []
    with tempfile.TemporaryDirectory() as name:
        for turn in range(ROUNDS):
            folder = Path(name) / str(turn)
            _fill(folder, pairs, turn)
            parsing.append(_parse(folder))
            took = await _ingest(installation, embedder, folder, pairs, turn)
            ingest.append(took[0] + took[1])
            embedding.append(took[1])
    ratio = median(whole / alone for whole, alone in zip(ingest, parsing, strict=True))
    figures = {
        "ratio": round(ratio, 2),
        "pairs": pairs,
        "parsing_s": round(median(parsing), 3),
        "ingest_s": round(median(ingest), 3),
        "of_which_embedding_s": round(median(embedding), 3),
        "pairs_per_s": round(pairs / median(ingest)),
    }
    return machine.report("ingest", f"ratio <= {GOAL:g}", ratio <= GOAL, figures)


def _fill(folder: Path, pairs: int, turn: int) -> None:
    folder.mkdir()
    for n in range(pairs // OF_A_FILE):
        blocks = (
            f"---\nid: {turn}-{n}-{m}\nquestion: What is to be done in case {m} of chapter {n}, turn {turn}?\n"
            f"alternate_phrasings:\n  - What about case {m} of {n} ({turn})?\nscope_tags: [desk, chapter-{n % 20}]\n"
            f"primary_domain: support\n---\n{ANSWER}\n"
            for m in range(OF_A_FILE)
        )
        path = folder / f"{n}.md"
        path.write_text("\n".join(blocks))
        os.utime(path, (1_700_000_000, 1_700_000_000))


def _parse(folder: Path) -> float:
    extractor, began = named("yaml_frontmatter_v1"), perf_counter()
    for path in sorted(folder.iterdir()):
        extractor.extract(File(path.name, path.read_bytes()))
    return perf_counter() - began


async def _ingest(
    installation: Installation, embedder: Embedder, folder: Path, pairs: int, turn: int
) -> tuple[float, float]:
    """Seconds until every pair is there, and then until each has its vectors."""
    db = Database("qa_ingest", installation.servers.role_dsn("qa_ingest", installation.database))
    await db.open()
    try:
        binding = Binding(bucket=f"turn-{turn}", workspace=f"turn {turn}", curate_as_pair=True)
        bound = Bound(FolderBucket(binding.bucket, folder), binding)
        ingest = Ingest(db, [bound])
        await ingest.prepare()
        began = perf_counter()
        assert await ingest.look() == pairs // OF_A_FILE
        there = perf_counter()
        embedded = await Embedding(db, embedder, lambda: [bound.workspace_id]).embed_missing()
        done = perf_counter()
        assert embedded >= pairs
        return there - began, done - there
    finally:
        await db.close()


if __name__ == "__main__":
    main()
