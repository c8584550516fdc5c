"""Question tables out of a Word document against mammoth alone, which only turns the same file into HTML.

`python -m bench.docx --json` prints one JSON object. The document is made here: question tables with lists, merged
cells and tracked changes; where the public files are, the redline document is measured too.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import click
import mammoth

from bench import machine
from services.qa_ingest.extractors import run
from services.qa_ingest.extractors.base import File
from services.qa_ingest.tests.office import cell, deleted, heading, inserted, item, par, row, table, word
from services.qa_ingest.tests.office import run as text

TABLES, ROWS, ROUNDS, GOAL = 10, 100, 3, 3.0
REDLINE = (
    Path(os.environ.get("BURNISH_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
    / "faq/03-asvs-redline/redline.docx"
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object, as every benchmark prints.")
def main(as_json: bool) -> None:
    """The median of rounds that take turns."""
    files = {"questions": questions(TABLES, ROWS)}
    if REDLINE.is_file():
        files["redline"] = REDLINE.read_bytes()
    figures = {name: measure(content) for name, content in files.items()}
    ratios = {name: each["ratio"] for name, each in figures.items()}
    met = all(ratio <= GOAL for ratio in ratios.values())
    goal = f"extraction with its ledger <= {GOAL:g} times mammoth alone"
    print(json.dumps(machine.report("docx", goal, met, {"ratios": ratios, "files": figures})))


def measure(content: bytes) -> dict[str, Any]:
    """Milliseconds of both sides over one file, and what ours found."""
    ours, theirs = [], []
    for _ in range(ROUNDS):
        theirs.append(seconds(lambda: mammoth.convert_to_html(io.BytesIO(content))))
        ours.append(seconds(lambda: run("docx_pattern_a", File("a.docx", content))))
    found = run("docx_pattern_a", File("a.docx", content))
    return {
        "ratio": round(median(ours) / median(theirs), 2),
        "extract_ms": round(median(ours) * 1000, 1),
        "mammoth_ms": round(median(theirs) * 1000, 1),
        "bytes": len(content),
        "pairs": len(found.pairs),
        "rejects": len(found.rejects),
        "characters": found.losses.total,
    }


def questions(tables: int, rows: int) -> bytes:
    """A document with so many question tables of so many rows."""
    body = []
    for number in range(tables):
        cells = [["Section", "Question", "Answer", "Source"]]
        lines = [_row(number, each) for each in range(rows)]
        body += [heading(1, f"Part {number}"), table(*cells, *lines)]
    return word(*body)


def _row(number: int, each: int) -> str:
    section = cell("Access" if each % 5 == 0 else "", merge="restart" if each % 5 == 0 else "continue")
    changed = par(text("It is kept for "), deleted("30"), inserted(text("90")), text(f" days, as part {number} says."))
    answer = (
        cell(changed, item("for accounts"), item("for logs")) if each % 3 == 0 else cell(f"As said in {each}. " * 6)
    )
    return row(section, f"What holds for number {each} of part {number}?", answer, "Handbook")


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
